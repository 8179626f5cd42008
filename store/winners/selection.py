"""Finds the winners of a lake: the fastest kernel of each task, workload and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.bounds import QueryLimits
from store.errors import name_condition
from store.hub import licenses
from store.lake.reader import Lake
from store.lake.result import Result
from store.lake.sql_files import read_sql


@dataclass(frozen=True, kw_only=True)
class TaskWinners:
    """The winners of one task, and all that a package or a card says about them."""

    task_id: str
    task: str
    code: str
    license: str | None
    rows: list[dict[str, Any]]
    """A winner for each workload and device (sql/candidates.sql)."""
    kernels: dict[str, dict[str, Any]]
    """Kernel id to its code, path and entry point."""
    models: Mapping[str, list[str]]
    """Device to the models that have its name."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The winners of a lake at its snapshot."""

    tasks: list[TaskWinners]
    without: list[dict[str, Any]]
    """Tasks and devices that have measured kernels and no winner: the kernel that comes nearest,
    and why it stays (sql/without_winner.sql)."""


def read_winners(
    lake: Lake,
    *,
    licensed: bool,
    task: str | None = None,
    where: str | None = None,
    kernels: Sequence[str] = (),
    own: bool = False,
) -> Selection:
    """Return the winners of a lake.

    Args:
        lake: Where they are.
        licensed: Leave out texts without a license that permits redistribution.
        task: Id of the only task; None means all.
        where: SQL condition over the columns of sql/candidates.sql.
        kernels: Ids of the only kernels.
        own: Only kernels with verdicts of this lake's own, beside those. Without both, all kernels.
    """
    query, parameters = read_sql(__file__, "candidates"), {"task": task}
    if where is None:
        lake.keep("_candidates", query, parameters)
    else:  # what the user writes goes through the guard, together with our own text around it
        guarded = f"WITH candidates AS ({query}) FROM candidates WHERE ({where}\n)"
        with name_condition(where):
            chosen = lake.sql(guarded, parameters, QueryLimits(max_rows=0)).arrow()
        lake.register("_chosen", chosen)
        lake.keep("_candidates", "FROM _chosen")
    if licensed:
        licenses.survey(lake, None)
        lake.keep("_permitted", read_sql(__file__, "licensed"))
    else:
        lake.keep("_permitted", "FROM _candidates")
    lake.keep("_winners", read_sql(__file__, "winners"), {"kernels": list(kernels), "own": own})
    winners = _group(lake.run("SELECT * FROM _winners"))
    texts = {row["id"]: row for row in lake.run(read_sql(__file__, "texts")).rows()}
    models = {row["device"]: row["models"] for row in lake.run(read_sql(__file__, "models")).rows()}
    # The fastest kernel of each task and device without a winner says why it stays.
    others = lake.run(read_sql(__file__, "without_winner")).rows()
    return Selection(
        tasks=[
            TaskWinners(
                task_id=task_id,
                task=str(rows[0]["task"]),
                code=str(texts[task_id]["code"]),
                license=rows[0]["task_license"],
                rows=rows,
                kernels={row["kernel_id"]: texts[row["kernel_id"]] for row in rows},
                models=models,
            )
            for task_id, rows in winners.items()
        ],
        without=others,
    )


def read_details(lake: Lake, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return rows about the winners that `read_winners` has found last, by the id of their task.

    name: speedups, other_shapes or parents, which are files of sql/.
    """
    return _group(lake.run(read_sql(__file__, name)))


def _group(rows: Result) -> dict[str, list[dict[str, Any]]]:
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows.rows():
        by_task.setdefault(str(row["task_id"]), []).append(row)
    return by_task
