"""What user SQL may be: one SELECT over the tables and views of the lake, and nothing that reaches out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from store.errors import UnsafeSQL

if TYPE_CHECKING:
    import duckdb

# Table functions that compute from their arguments alone. Everything else may read a file, the
# lake's catalog or the network, so the list says what is allowed rather than what is not.
TABLE_FUNCTIONS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
_SCHEMAS = frozenset({"", "information_schema"})
_HINT = "Write one SELECT (or FROM, WITH, VALUES, DESCRIBE, SUMMARIZE) over tables and views."


def check(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise UnsafeSQL unless the text is one SELECT-like statement over plain names.

    The statement's parsed form decides: its type, then every table and table function in it.
    Settings of the connection (no external access, locked) are a second line behind this one.
    """
    import duckdb

    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise UnsafeSQL(f"{len(statements)} statements, where one may stand", _HINT)
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        raise UnsafeSQL(f"a {kind} statement cannot be run here", _HINT)
    for node in _nodes(_parsed(connection, query)):
        if node["type"] == "TABLE_FUNCTION":
            function = node["function"]
            name = str(function["function_name"]).lower()
            if name not in TABLE_FUNCTIONS or function.get("schema") or function.get("catalog"):
                raise UnsafeSQL(
                    f"{name}() reads from outside the lake's tables",
                    f"Table functions that may stand: {', '.join(sorted(TABLE_FUNCTIONS))}.",
                )
        elif node.get("catalog_name") or str(node["schema_name"]).lower() not in _SCHEMAS:
            name = ".".join(
                str(node[part]) for part in ("catalog_name", "schema_name", "table_name")
            ).strip(".")
            raise UnsafeSQL(f"{name} is not a table or view of the lake", _HINT)


def names(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Return every table or view name that a query mentions; `*` when it may see all of them."""
    found: set[str] = set()
    for node in _nodes(_parsed(connection, query)):
        if node["type"] == "SHOW_REF" or node.get("schema_name"):
            found.add("*")
        if node["type"] == "BASE_TABLE":
            found.add(str(node["table_name"]).lower())
    return found


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    assert row is not None
    parsed = cast("dict[str, Any]", json.loads(row[0]))
    if parsed["error"]:
        raise UnsafeSQL(str(parsed["error_message"]), _HINT)
    return parsed


def _nodes(value: object) -> Iterator[dict[str, Any]]:
    """Yield every table reference in a parsed statement, however deep."""
    if isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        if node.get("type") in ("TABLE_FUNCTION", "BASE_TABLE", "SHOW_REF"):
            yield node
        for part in node.values():
            yield from _nodes(part)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            yield from _nodes(part)
