"""The tasks of a purpose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import store
from pipelines.contract import Request, Selection
from pipelines.selection.queries import query, sql
from pipelines.selection.rules import find_exclusions
from pipelines.selection.scores import find_device_kind, rank_devices
from store.errors import EmptyDataset

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The tasks that a dataset may ask for."""

    rows: pa.Table
    """One row per task: task_id."""
    dropped: dict[str, int]
    """Number of tasks left out, by reason."""


def select_tasks(lake: store.Lake, request: Request) -> Tasks:
    """Return the tasks of the request's purpose; of those that it names, if it names any.

    Raises EmptyDataset: the lake holds no such task.
    """
    import pyarrow.compute as pc

    tasks = query(
        lake,
        sql("shared", "tasks"),
        {
            "purpose": request.purpose,
            "include_trivial": request.include_trivial,
            "tasks": None if request.tasks is None else list(request.tasks),
        },
        held_out=find_exclusions(lake, request).held_out,
    )
    dropped = Counter(reason for reason in tasks["dropped"].to_pylist() if reason is not None)
    if tasks.num_rows == sum(dropped.values()):
        if request.tasks is not None:
            why = ", ".join(f"{reason}: {dropped[reason]}" for reason in sorted(dropped))
            raise EmptyDataset(
                f"none of the wanted tasks is for purpose {request.purpose}"
                + (f" ({why})" if why else ""),
                "--purpose chooses the split; `store show TASK` names the split of a task.",
            )
        side = "test" if request.purpose == "eval" else "train"
        raise EmptyDataset(
            f"no task of the {side} split among the {tasks.num_rows} tasks of snapshot "
            f"{lake.snapshot}",
            "`store import starter` brings tasks of both splits.",
        )
    return Tasks(
        rows=tasks.filter(pc.is_null(tasks["dropped"])).select(["task_id"]),
        dropped={f"task: {reason}": dropped[reason] for reason in sorted(dropped)},
    )


def select_questions(lake: store.Lake, request: Request, kind: str | None) -> Selection:
    """Return one row per task of the purpose.

    kind: Hardware to ask for, cpu or cuda; None takes that of the lake's default device.

    Raises EmptyDataset: no such task.
    """
    import pyarrow as pa

    tasks = select_tasks(lake, request)
    rows = query(lake, sql("shared", "questions"), {"seed": request.seed}, asked=tasks.rows)
    if kind is None:
        kind = find_device_kind(lake, next(iter(rank_devices(lake, "measured", "eager")), None))
    column = pa.repeat(kind, rows.num_rows)
    return Selection(
        rows=rows.append_column("device_kind", column).append_column("_device_kind", column),
        dropped=tasks.dropped,
        notes={"device kind": kind},
    )
