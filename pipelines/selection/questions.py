"""One question per task, with nothing shown but the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.contract.rows import Request, Selection
from pipelines.selection.rules import asked_tasks, sql
from pipelines.selection.scores import best_known_device, device_kind

if TYPE_CHECKING:
    import store


def questions(lake: store.Lake, request: Request, kind: str | None) -> Selection:
    """Return one row per task of the purpose; `kind` is cpu, cuda, or None for the lake's own.

    Raises:
        EmptyDataset: no such task.
    """
    import pyarrow as pa

    dropped = asked_tasks(lake, request)
    rows = lake.run(sql("shared", "questions"), {"seed": request.seed}).arrow()
    asked = kind or device_kind(lake, best_known_device(lake, "measured", "eager"))
    column = pa.repeat(asked, rows.num_rows)
    return Selection(
        rows=rows.append_column("device_kind", column).append_column("_device_kind", column),
        dropped=dropped,
        notes={"device kind": asked},
    )
