"""Correct kernels as answers to one-shot questions, for the pipelines that teach by example."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pipelines.contract.rows import Message, Request, Row, Selection
from pipelines.rendering.templates import render, task_block
from pipelines.selection.rules import asked_tasks, no_rows, sql
from pipelines.selection.scores import Evidence
from store.errors import DatasetError

if TYPE_CHECKING:
    import store

TEMPLATE = "one_shot.j2"


def answers(
    lake: store.Lake,
    request: Request,
    *,
    evidence: Evidence,
    per_policy: int,
    policy: str | None = None,
    round: int | None = None,
    said: bool = False,
) -> Selection:
    """Return one row per kept kernel: task_id, kernel_ids, kernel_id, policy_id.

    Args:
        lake: The pinned lake.
        request: Purpose, seed and number of rows.
        evidence: Whether our verdicts or published speedups say that a kernel is correct.
        per_policy: Most kernels of one task and policy.
        policy: Id or name of the one policy whose kernels are wanted.
        round: Round of the policies whose kernels are wanted.
        said: Whether only kernels count whose author left an analysis and a design; the rows carry
            them as `_words`.

    Raises:
        EmptyDataset: no correct kernel is left.
        DatasetError: `per_policy` is below 1.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if per_policy < 1:
        raise DatasetError(f"--per-policy {per_policy} is too few", "Give 1 or more.")
    dropped = asked_tasks(lake, request)
    found = lake.run(sql("shared", f"successes_{evidence}")).arrow()
    for reason, count in sorted(Counter(found["dropped"].drop_null().to_pylist()).items()):
        dropped[f"kernel: {reason}"] = count
    kept = found.filter(pc.is_null(found["dropped"]))
    lake.register("successes", kept.select(["task_id", "kernel_id", "device_kind"]))
    rows = lake.run(
        sql("shared", "answers"),
        {
            "seed": request.seed,
            "per_policy": per_policy,
            "policy": policy,
            "round": round,
            "said": said,
        },
    ).arrow()
    for reason, count in sorted(Counter(rows["_dropped"].drop_null().to_pylist()).items()):
        dropped[f"kernel: {reason}"] = count
    rows = rows.filter(pc.is_null(rows["_dropped"])).drop_columns("_dropped")
    if rows.num_rows == 0:
        of = f" of policy {policy}" if policy else ""
        of += f" of round {round}" if round is not None else ""
        of += " with an analysis and a design" if said else ""
        hint = "Judge kernels first: `evaluators run`."
        if (
            evidence == "measured"
            and lake.run(
                "SELECT 1 FROM claims WHERE metric = 'speedup' AND kernel_id IS NOT NULL LIMIT 1"
            ).one()
        ):
            hint = (
                "Published kernels are there: --evidence claimed takes them as correct and marks "
                "every row. " + hint
            )
        raise no_rows(f"no correct kernel{of} at snapshot {lake.snapshot}", hint)
    rows = rows.append_column("evidence", pa.repeat(evidence, rows.num_rows))
    return Selection(rows=rows, dropped=dropped, notes={"evidence": evidence})


def question(row: Row) -> list[Message]:
    """Return the one-shot prompt of a row."""
    text = render(
        TEMPLATE, task_block=task_block(row.task), device_kind=row.columns["_device_kind"]
    )
    return [{"role": "user", "content": text}]


def answer(row: Row, place: int = 0) -> list[Message]:
    """Return a kernel of a row as the assistant's turn, with its author's words if it has some."""
    text = render("answer.j2", kernel=row.kernels[place], said=row.columns.get("_words"))
    return [{"role": "assistant", "content": text}]
