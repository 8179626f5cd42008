"""List the tables and views, or the columns of one."""

from __future__ import annotations

from typing import Any

from store.errors import UnknownName
from store.lake.sql_files import describe_column, list_views, read_description, read_view
from store.mcp.lake_tools import LakeTools, Reply
from store.schema import catalog

READS_ONLY = True


async def run(lake_tools: LakeTools, name: str | None = None) -> Reply:
    """List the tables and views of the lake, or the columns of one of them.

    Args:
        name: Name of a table or view (default: list all).
    """
    snapshot = await lake_tools.resolve(None)
    tables, views = catalog.load().tables, list_views()
    data: dict[str, Any]
    if name is None:
        data = {
            "tables": [{"name": table.name, "about": table.about} for table in tables.values()],
            "views": [{"name": view, "about": read_description(read_view(view))} for view in views],
        }
    elif name in tables:
        facts = ("name", "type", "unit", "references", "about")
        listed = [
            {fact: getattr(column, fact) for fact in facts}
            for column in tables[name].columns.values()
        ]
        data = {"table": name, "about": tables[name].about, "columns": listed}
    elif name in views:
        answer = await lake_tools.query(snapshot, f"DESCRIBE {name}")
        columns = answer.rows.select([0, 1]).rename_columns(["name", "type"]).to_pylist()
        described = [row | {"about": describe_column(name, row["name"])} for row in columns]
        data = {"view": name, "columns": described, "sql": read_view(name)}
    else:
        raise UnknownName.among("table or view", name, [*tables, *views])
    return Reply(snapshot=snapshot, data=data, whole=("sql",))
