"""Report what was tried for a task."""

from __future__ import annotations

from typing import Any

from store.dossier.pages import find_task
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.mcp.lake_tools import LakeTools, Reply

READS_ONLY = True


async def run(
    lake_tools: LakeTools,
    task: str,
    session: str | None = None,
    limit: int = 50,
    at: str | None = None,
) -> Reply:
    """Report what was tried for a task, newest first: attempts with verdict, speedup and parent.

    Each attempt names its author, session, kernel and parent kernel, the status and reason of the
    verdict, the speedup over eager with its interval where one was measured without noise, the
    classes of findings that stand, and the author's note.

    Args:
        task: Name such as level1/9, L1-9 or kernelbench/level1/9, or the start of the task's id.
        session: Only the attempts of this session.
        limit: At most this many attempts.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
    """
    snapshot = await lake_tools.resolve(at)

    def read(lake: Lake) -> tuple[str, list[dict[str, Any]]]:
        task_id = find_task(lake, task)["task_id"]
        most = min(max(limit, 0), 2**31)
        parameters = {"task_id": task_id, "session": session, "limit": most}
        return task_id, lake.run(read_sql(__file__, "attempts"), parameters).rows()

    task_id, rows = await lake_tools.read(snapshot, read)
    attempts = [{k: v for k, v in row.items() if v not in (None, [])} for row in rows]
    return Reply(snapshot=snapshot, data={"task_id": task_id, "attempts": attempts})
