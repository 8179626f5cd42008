"""One question per task, with nothing shown but the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.contract.request import Request
from pipelines.contract.rows import Selection
from pipelines.selection.relations import query
from pipelines.selection.scores import find_device_kind, rank_devices
from pipelines.selection.sql_files import sql
from pipelines.selection.tasks import select_tasks

if TYPE_CHECKING:
    import store


def select_questions(lake: store.Lake, request: Request, kind: str | None) -> Selection:
    """Return one row per task of the purpose.

    Args:
        lake: The pinned lake.
        request: Purpose, seed and number of rows.
        kind: Hardware to ask for, cpu or cuda; None takes that of the lake's default device.

    Raises:
        EmptyDataset: no such task.
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
