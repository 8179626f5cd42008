"""Verdicts that a fault of their host decided, and rows that withdraw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import store
from store import read_sql
from store.ids import uuid7

if TYPE_CHECKING:
    import pyarrow as pa

_SAME = (
    *("kernel_id", "task_id", "workload_id", "device_id", "evaluator", "evaluator_version"),
    *("precision", "protocol"),
)
SHOWN = ("kernel_id", "status", "reason", "fault", "quote", "device", "created_at")
"""Columns to show to a person."""


def find_host_faults(lake: store.Lake) -> pa.Table:
    """Return the verdicts that a fault of their host decided, and that no row withdraws yet."""
    return lake.run(read_sql(__file__, "host_faults")).arrow()


def withdraw(lake_url: str | None, faults: pa.Table) -> int:
    """Append rows that withdraw these verdicts, so that the kernels are pending; return a snapshot.

    faults: Rows of `find_host_faults`.
    """
    rows: list[dict[str, Any]] = [
        {name: row[name] for name in _SAME}
        | {
            "evaluation_id": uuid7(),
            "status": "evaluator_error",
            "reason": "host_unfit",
            "message": f"withdraws a verdict that a fault of the host decided: {row['quote']}",
            "withdraws": row["evaluation_id"],
        }
        for row in faults.to_pylist()
    ]
    with store.writer(lake_url, author="evaluators withdraw") as writer:
        return writer.append({"evaluations": rows}, f"withdrew {len(rows)} verdicts")
