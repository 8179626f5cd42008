"""The command that computes the rewards of a run again, from stored rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from store.commandline import echo
from store.commandline.members import Common, Format
from store.dossier.names import MOST_IDS, choose_id
from store.errors import FlywheelError

if TYPE_CHECKING:
    import store

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
    import store
    from store.commandline import display
    from trainers.rewarding import rules, scoring
    from trainers.runs import key_values

    with store.open(common.lake, at) as lake:
        run_id = _find_run(lake, run)
        if verify:
            _verify(lake, run_id, rule, name, format)
            return
        known = rules.load_rule(rule)
        terms = rules.configure_rule(known, key_values.parse_values("option", option))
        stored_as = name or known.name
        _refuse_stored(lake, run_id, stored_as, known.version)
        scored = scoring.rescore_run(lake, run_id, rule, terms, name=stored_as)
    display.write_rows(_group_by_step(scored.rows), format)
    echo.print_note(", ".join(f"{key} {count}" for key, count in scored.counts.items()))
    if dry_run:
        echo.print_note("nothing stored (--dry-run)")
        return
    with store.writer(common.lake, author="trainers rescore") as writer:
        snapshot = writer.append(
            {"rewards": scored.rows}, f"rewards of run {run_id} under {stored_as} {known.version}"
        )
    echo.print_note(f"rewards +{len(scored.rows)} → snapshot {snapshot}")


def _verify(lake: store.Lake, run_id: str, rule: str, name: str | None, format: Format) -> None:
    """Recompute stored rewards and print those that differ; raises FlywheelError if any do."""
    import pyarrow as pa

    from store.commandline import display
    from trainers.rewarding import scoring

    found = scoring.verify_rewards(lake, run_id, rule, name=name)
    if found.different:
        display.write_rows(pa.Table.from_pylist(found.different), format)
        raise FlywheelError(
            f"{len(found.different)} of {found.rewards} rewards of {rule} differ",
            "Stored rows do not change, so the rule has changed: increase its VERSION.",
        )
    same = found.rewards - found.other_lakes
    echo.print_result(f"{same} of {found.rewards} rewards of {rule} are unchanged")
    if found.other_lakes:
        echo.print_note(f"{found.other_lakes} were computed at another lake's snapshot")


def _find_run(lake: store.Lake, prefix: str) -> str:
    """Return the id of the run with this prefix. Raises UnknownName if none or several match."""
    query = (
        "SELECT DISTINCT run_id FROM generations WHERE starts_with(run_id, $1) "
        f"ORDER BY run_id LIMIT {MOST_IDS}"
    )
    return choose_id(
        "run with attempts",
        prefix,
        [str(row["run_id"]) for row in lake.run(query, [prefix]).rows()],
        'store query "SELECT run_id, count(*) FROM generations GROUP BY run_id" lists them.',
    )


def _refuse_stored(lake: store.Lake, run_id: str, rule: str, version: int) -> None:
    query = (
        "SELECT count(*) AS n FROM rewards WHERE run_id = $1 AND rule = $2 AND rule_version = $3"
    )
    row = lake.run(query, [run_id, rule, version]).one()
    if row is not None and row["n"]:
        raise FlywheelError(
            f"run {run_id} has {row['n']} rewards under {rule} {version}",
            "--verify recomputes them; --name stores others under a different name.",
        )


def _group_by_step(rows: list[dict[str, Any]]) -> Any:
    """Return number and means of rewards by step."""
    import pyarrow as pa

    names = ("step", "raw", "smoothed")
    table = pa.table({name: [row[name] for row in rows] for name in names})
    return (
        table.group_by("step")
        .aggregate([("raw", "count"), ("raw", "mean"), ("smoothed", "mean")])
        .rename_columns(["step", "rewards", "raw", "smoothed"])
        .sort_by("step")
    )
