"""The command that computes the rewards of a run again, from stored rows only."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from store.commandline import echo
from store.commandline.members import Common, Format
from store.dossier.pages import MOST_IDS, choose_id
from store.errors import FlywheelError

_DEFAULT = Common()


def rescore(
    run: str,
    /,
    *,
    rule: str = "cuda-l1",
    option: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    name: str | None = None,
    at: str | None = None,
    verify: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Compute the rewards of a run's attempts under a rule, from stored verdicts and timings.

    This runs no kernels and needs no GPU. It appends rows under the rule's name and keeps the rows
    that the run was trained with. The view run_curves shows both.

    Examples:
      trainers rescore 0199c2 --rule milestone
      trainers rescore 0199c2 --rule cuda-l1 --option clip=3 --name cuda-l1-clip-3
      trainers rescore 0199c2 --rule cuda-l1 --verify

    Parameters
    ----------
    run
        Id of the run, or a prefix of it.
    rule
        Name of a rule: a file of trainers/rewards or ./flywheel/rewards.
    option
        Option of the rule, as NAME=VALUE. Repeat it for more options.
    name
        Store the rewards under this name (default: the rule's name).
    at
        Use verdicts and timings as of this tag, snapshot number or ISO time (default: newest).
    verify
        Recompute each stored reward at its own snapshot and list those that differ; store nothing.
    dry_run
        Print what would be stored; store nothing.
    format
        Format of the rewards per step, or of those that differ.
    """
    import pyarrow as pa

    import store
    from store.commandline import display
    from trainers.rewarding import rules, scoring
    from trainers.runs import job

    with store.open(common.lake, at) as lake:
        matches = lake.run(
            "SELECT DISTINCT run_id FROM generations WHERE starts_with(run_id, $1) "
            f"ORDER BY run_id LIMIT {MOST_IDS}",
            [run],
        )
        run_id = choose_id(
            "run with attempts",
            run,
            [str(row["run_id"]) for row in matches.rows()],
            'store query "SELECT run_id, count(*) FROM generations GROUP BY run_id" lists them.',
        )
        if verify:
            compared = scoring.verify_rewards(lake, run_id, rule, name=name)
            if compared.different:
                display.write_rows(pa.Table.from_pylist(compared.different), format)
                raise FlywheelError(
                    f"{len(compared.different)} of {compared.rewards} rewards of {rule} differ",
                    "Stored rows do not change, so the rule has changed: increase its VERSION.",
                )
            same = compared.rewards - compared.other_lakes
            echo.print_result(f"{same} of {compared.rewards} rewards of {rule} are unchanged")
            if compared.other_lakes:
                echo.print_note(f"{compared.other_lakes} were computed at another lake's snapshot")
            return
        known = rules.load_rule(rule)
        terms = rules.configure_rule(known, job.parse_values("option", option))
        stored_as = name or known.name
        query = (
            "SELECT count(*) AS n FROM rewards "
            "WHERE run_id = $1 AND rule = $2 AND rule_version = $3"
        )
        [row] = lake.run(query, [run_id, stored_as, known.version]).rows()
        if row["n"]:
            raise FlywheelError(
                f"run {run_id} has {row['n']} rewards under {stored_as} {known.version}",
                "--verify recomputes them; --name stores others under a different name.",
            )
        scored = scoring.rescore_run(lake, run_id, rule, terms, name=stored_as)
    names = ("step", "raw", "smoothed")
    by_step = (
        pa.table({name: [row[name] for row in scored.rows] for name in names})
        .group_by("step")
        .aggregate([("raw", "count"), ("raw", "mean"), ("smoothed", "mean")])
        .rename_columns(["step", "rewards", "raw", "smoothed"])
        .sort_by("step")
    )
    display.write_rows(by_step, format)
    echo.print_note(", ".join(f"{key} {count}" for key, count in scored.counts.items()))
    if dry_run:
        echo.print_note("nothing stored (--dry-run)")
        return
    with store.writer(common.lake, author="trainers rescore") as writer:
        snapshot = writer.append(
            {"rewards": scored.rows}, f"rewards of run {run_id} under {stored_as} {known.version}"
        )
    echo.print_note(f"rewards +{len(scored.rows)} → snapshot {snapshot}")
