"""List the best kernels of a task with their differences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from store.dossier.pages import find_task
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.mcp.lake_tools import CODE_CHARS, LakeTools, Reply

READS_ONLY = True
_MOST = 10


async def run(
    lake_tools: LakeTools,
    task: str,
    device: str | None = None,
    baseline: str = "eager",
    limit: int = 3,
    at: str | None = None,
) -> Reply:
    """List the best kernels of a task: by the lower bound of the speedup, with a diff of each.

    The diff starts from the kernel's parent if it has one, and else from the task's reference.

    Args:
        task: Name such as level1/9, L1-9 or kernelbench/level1/9, or the start of the task's id.
        device: Only speedups on this device (default: every device, each with its own ranking).
        baseline: Baseline of the speedups, such as eager or compile.
        limit: At most this many kernels for each device, up to 10.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
    """
    snapshot = await lake_tools.resolve(at)

    def read(lake: Lake) -> tuple[str, list[dict[str, Any]]]:
        task_id = find_task(lake, task)["task_id"]
        parameters = {
            "task_id": task_id, "device": device, "baseline": baseline, "limit": max(limit, 0)
        }  # fmt: skip
        return task_id, lake.run(read_sql(__file__, "best_kernels"), parameters).rows()

    task_id, rows = await lake_tools.read(snapshot, read)
    notes: list[str] = []
    room = CODE_CHARS
    for row in rows:
        code, before = row.pop("code"), row.pop("before")
        lines: Iterable[str] = difflib.unified_diff(
            before.splitlines(keepends=True), code.splitlines(keepends=True), "before", "after"
        )
        diff = "".join(lines)
        row["diff"] = diff[:room]
        if len(diff) > room:
            notes.append(f"diff of {row['kernel_id'][:12]}: {room} of {len(diff)} characters")
        room = max(room - len(diff), 0)
    data = {"task_id": task_id, "kernels": rows}
    return Reply(snapshot=snapshot, data=data, truncated=notes, whole=("kernels",))
