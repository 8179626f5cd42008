"""Fetches the texts of the selected rows, each once per slab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipelines.contract import Kernel, Row, Task
from pipelines.selection.queries import query, sql

if TYPE_CHECKING:
    import pyarrow as pa

    import store

SLAB_ROWS = 20_000
"""Rows whose texts are in memory at a time: one scan of the kernels' ids each."""


def fetch_texts(
    lake: store.Lake, rows: pa.Table, batch_rows: int
) -> Iterator[tuple[pa.Table, list[Row]]]:
    """Yield rows in batches, together with the rows for the renderer."""
    for start in range(0, rows.num_rows, SLAB_ROWS):
        slab = rows.slice(start, SLAB_ROWS)
        ids = slab.select(["task_id", "kernel_ids"])
        tasks, kernels = _fetch_tasks(lake, ids), _fetch_kernels(lake, ids)
        for inner in range(0, slab.num_rows, batch_rows):
            batch = slab.slice(inner, batch_rows)
            yield (
                batch,
                [
                    Row(
                        task=tasks[columns["task_id"]],
                        kernels=tuple(kernels[kernel_id] for kernel_id in columns["kernel_ids"]),
                        columns=columns,
                    )
                    for columns in batch.to_pylist()
                ],
            )


def _fetch_tasks(lake: store.Lake, ids: pa.Table) -> dict[str, Task]:
    return {
        row["task_id"]: Task(
            task_id=row["task_id"],
            name=row["name"],
            title=row["title"],
            code=row["code"],
            license=row["license"],
        )
        for row in query(lake, sql("shared", "task_texts"), slab=ids).to_pylist()
    }


def _fetch_kernels(lake: store.Lake, ids: pa.Table) -> dict[str, Kernel]:
    return {
        row["kernel_id"]: Kernel(
            kernel_id=row["kernel_id"],
            code=row["code"],
            path=row["path"],
            other_files=tuple((part["path"], part["code"]) for part in row["other_files"] or ()),
            license=row["license"],
        )
        for row in query(lake, sql("shared", "kernel_texts"), slab=ids).to_pylist()
    }
