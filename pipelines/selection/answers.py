"""Correct kernels as answers to one-shot questions, for the pipelines that teach by example."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pipelines.contract import Evidence, Request, Selection
from pipelines.selection.queries import query, sql
from pipelines.selection.rules import find_exclusions
from pipelines.selection.tasks import select_tasks
from store.errors import DatasetError, EmptyDataset

if TYPE_CHECKING:
    import pyarrow as pa

    import store


def select_answers(
    lake: store.Lake,
    request: Request,
    *,
    evidence: Evidence,
    per_policy: int,
    policy: str | None = None,
    round: int | None = None,
    with_words: bool = False,
) -> Selection:
    """Return one row per kernel to learn from: task_id, kernel_ids, kernel_id, policy_id.

    Args:
        lake: The pinned lake.
        request: Purpose, seed and number of rows.
        evidence: Whether our verdicts or published speedups say that a kernel is correct.
        per_policy: Most kernels of one task and policy.
        policy: Id or name of the one policy whose kernels are wanted.
        round: Round of the policies whose kernels are wanted.
        with_words: Take only kernels whose author left an analysis and a design; the rows carry
            these as `_words`.

    Raises:
        EmptyDataset: no correct kernel is left.
        DatasetError: `per_policy` is below 1.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if per_policy < 1:
        raise DatasetError(f"--per-policy {per_policy} is too few", "Give 1 or more.")
    tasks = select_tasks(lake, request)
    exclusions = find_exclusions(lake, request)
    successes = query(
        lake,
        sql("shared", f"successes_{evidence}"),
        asked=tasks.rows,
        unfit=exclusions.unfit,
        excluded=exclusions.excluded if evidence == "measured" else exclusions.excluded_claims,
    )
    dropped = tasks.dropped | _count_reasons(successes["dropped"])
    rows = query(
        lake,
        sql("shared", "answers"),
        {
            "seed": request.seed,
            "per_policy": per_policy,
            "policy": policy,
            "round": round,
            "said": with_words,
        },
        successes=successes.filter(pc.is_null(successes["dropped"])).select(
            ["task_id", "kernel_id", "device_kind"]
        ),
    )
    dropped |= _count_reasons(rows["_dropped"])
    rows = rows.filter(pc.is_null(rows["_dropped"])).drop_columns("_dropped")
    if rows.num_rows == 0:
        of = f" of author {policy}" if policy else ""
        of += f" of round {round}" if round is not None else ""
        of += " with an analysis and a design" if with_words else ""
        hint = "Judge kernels first: `evaluators run`."
        claims = "SELECT 1 FROM claims WHERE metric = 'speedup' AND kernel_id IS NOT NULL LIMIT 1"
        if evidence == "claimed":
            hint = "Import published kernels first: `store import --help`."
        elif lake.run(claims).one():
            hint = (
                "The lake holds published kernels: --evidence claimed takes them as correct and "
                f"marks every row. {hint}"
            )
        raise EmptyDataset(
            f"no row is left: no correct kernel{of} at snapshot {lake.snapshot}", hint
        )
    rows = rows.append_column("evidence", pa.repeat(evidence, rows.num_rows))
    return Selection(rows=rows, dropped=dropped, notes={"evidence": evidence})


def _count_reasons(reasons: pa.ChunkedArray) -> dict[str, int]:
    counts = Counter(reasons.drop_null().to_pylist())
    return {f"kernel: {reason}": count for reason, count in sorted(counts.items())}
