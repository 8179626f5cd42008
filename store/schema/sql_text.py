"""Values and names as SQL text, and answers of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def quote_values(values: tuple[str, ...]) -> str:
    """Return values as a list of SQL literals."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def quote_names(names: tuple[str, ...]) -> str:
    """Return column names as SQL."""
    return ", ".join(f'"{name}"' for name in names)


def fetch_row(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: object = None
) -> tuple[Any, ...]:
    """Return the row of a query that has one, such as an aggregate over all rows."""
    row = connection.execute(query, parameters).fetchone()
    assert row is not None, query
    return row
