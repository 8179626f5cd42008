"""Run one SELECT over the history of kernels."""

from __future__ import annotations

from store.commandline.display import list_rows
from store.errors import FlywheelError
from store.mcp.lake_tools import LakeTools, Reply

READS_ONLY = True
_LONGEST_SQL = 200_000


async def run(lake_tools: LakeTools, sql: str, at: str | None = None) -> Reply:
    """Run one SELECT statement over the tables and views of the lake (DuckDB's SQL).

    It cannot change the lake or read anything else. `describe` lists the tables and views. If the
    answer is too long, its first rows come back and `truncated` says so.

    Args:
        sql: One SELECT, FROM, WITH, VALUES, DESCRIBE or SUMMARIZE.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
    """
    if len(sql) > _LONGEST_SQL:
        raise FlywheelError(
            f"the statement has {len(sql)} characters, and may have {_LONGEST_SQL}",
            "Filter by a join or a condition instead of a long list.",
        )
    snapshot = await lake_tools.resolve(at)
    answer = await lake_tools.query(snapshot, sql)
    rows = list_rows(answer.rows)
    notes = [f"rows: only the first {len(rows)}; add a filter, or aggregate"] if answer.cut else []
    return Reply(
        snapshot=snapshot,
        data={"rows": rows, "left_out": answer.left_out},
        truncated=notes,
        whole=("rows",),
    )
