"""Show one task: its reference code, workloads and results."""

from __future__ import annotations

from typing import Any

from store.dossier.pages import read_task_page
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.mcp.lake_tools import LakeTools, Reply, show_code

READS_ONLY = True


async def run(lake_tools: LakeTools, task: str, at: str | None = None, offset: int = 0) -> Reply:
    """Show a task: its reference code, its workloads, and what was judged and measured for it.

    A kernel for the task is a Python file that defines ModelNew with the interface of the
    reference's Model.

    Args:
        task: Name such as level1/9, L1-9 or kernelbench/level1/9, or the start of the task's id.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
        offset: Character of the code to start at, if the code is long.
    """
    snapshot = await lake_tools.resolve(at)

    def read(lake: Lake) -> dict[str, Any]:
        page = read_task_page(lake, task)
        parameters = {"task_id": page.row["task_id"]}
        workloads = lake.run(read_sql(__file__, "workloads"), parameters).rows()
        return page.row | {"workloads": workloads} | page.list_sections()

    return show_code(snapshot, await lake_tools.read(snapshot, read), offset)
