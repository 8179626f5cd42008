"""Copies DuckLake's own tables from one catalog database to another, and compares two lakes.

SQLite and PostgreSQL hold the same tables with other types. Rows of small commits are in tables of
their own there ("inlined"); SQLite keeps their texts as text, and PostgreSQL as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.lake.attachment import attach, connect, list_filled_tables
from store.lake.location import FolderLocation, Location
from store.lake.sql_files import read_sql
from store.schema.sql_text import quote_names

_INLINED = "ducklake_inlined_data_"
_INTEGERS = ("int8", "int16", "int32", "int64")
_IN_SQLITE: dict[str, str] = dict.fromkeys((*_INTEGERS, "boolean"), "BIGINT")
_IN_POSTGRES: dict[str, str] = {
    **dict.fromkeys(("varchar", "json", "blob"), "BLOB"),
    "boolean": "BOOLEAN",
    **dict(zip(_INTEGERS, ("SMALLINT", "SMALLINT", "INTEGER", "BIGINT"), strict=True)),
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
"""DuckLake's name of a type to that of the column that holds inlined values; others: VARCHAR."""


class Catalog:
    """DuckLake's own tables of one lake, opened as plain tables. Use it as a context manager."""

    def __init__(self, location: Location, *, writable: bool) -> None:
        self._types = _IN_SQLITE if isinstance(location, FolderLocation) else _IN_POSTGRES
        self._schema = location.metadata_schema or "main"
        self.connection = connect(to=location)
        place, _ = location.build_attachment(writable=writable)
        options = "" if writable else " (READ_ONLY)"
        escaped = place.replace("'", "''")
        self.connection.execute(f"ATTACH '{escaped}' AS catalog{options}")

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def locate(self, table: str) -> str:
        """Return how SQL names a table."""
        return f"catalog.{quote_names((self._schema,))}.{quote_names((table,))}"

    def list_columns(self) -> dict[str, dict[str, str]]:
        """Return DuckLake's tables, each with its columns and their types."""
        rows = self.connection.execute(
            read_sql(__file__, "catalog_columns"), {"schema": self._schema}
        ).fetchall()
        tables: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            tables.setdefault(table, {})[column] = kind
        return tables

    def read_inlined_types(self) -> dict[str, dict[str, str]]:
        """Return the tables of inlined rows, each with the types that DuckLake knows of columns."""
        tables: dict[str, dict[str, str]] = {}
        text = read_sql(__file__, "inlined_columns")
        for part in ("ducklake_inlined_data_tables", "ducklake_column"):
            text = text.replace(f"catalog.{part}", self.locate(part))
        for table, column, kind in self.connection.execute(text).fetchall():
            tables.setdefault(table, {})[column] = kind
        return tables

    def create_inlined(self, table: str, columns: dict[str, str], types: dict[str, str]) -> None:
        """Create a table of inlined rows as DuckLake does in this kind of database."""
        named = ", ".join(
            f"{quote_names((name,))} {self._choose_type(types.get(name))}" for name in columns
        )
        self.connection.execute(f"CREATE TABLE {self.locate(table)} ({named})")

    def _choose_type(self, kind: str | None) -> str:
        # The columns that DuckLake adds are numbers of rows and snapshots.
        return "BIGINT" if kind is None else self._types.get(kind, "VARCHAR")


def copy_catalog(source: Catalog, target: Catalog, data_path: str) -> None:
    """Replace the tables of a new lake with those of another lake, in one transaction.

    Args:
        source: The lake to copy.
        target: A lake that DuckLake has just created, or one that an earlier call filled.
        data_path: Where the target has its data files.
    """
    ours, theirs = source.list_columns(), target.list_columns()
    types = source.read_inlined_types()
    target.connection.execute("BEGIN")
    for table in theirs:
        if table.startswith(_INLINED) and table not in (f"{_INLINED}tables",):
            target.connection.execute(f"DROP TABLE {target.locate(table)}")
        else:
            target.connection.execute(f"DELETE FROM {target.locate(table)}")
    for table, columns in ours.items():
        if table in types:
            target.create_inlined(table, columns, types[table])
    made = target.list_columns()
    for table, columns in ours.items():
        rows = source.connection.execute(f"FROM {source.locate(table)}").to_arrow_reader()
        target.connection.register("_rows", rows)
        values = ", ".join(_convert(name, columns[name], made[table][name]) for name in columns)
        target.connection.execute(
            f"INSERT INTO {target.locate(table)} ({quote_names(tuple(columns))}) "
            f"SELECT {values} FROM _rows"
        )
        target.connection.unregister("_rows")
    # Files that no snapshot reads are not copied, so that none has to be deleted.
    target.connection.execute(
        f"DELETE FROM {target.locate('ducklake_files_scheduled_for_deletion')}"
    )
    target.connection.execute(
        f"UPDATE {target.locate('ducklake_metadata')} SET value = ? "
        "WHERE key = 'data_path' AND scope IS NULL",
        [f"{data_path}/"],
    )
    target.connection.execute("COMMIT")


def _convert(column: str, source: str, target: str) -> str:
    """Return the SQL that converts a column from its type in one database to that in another."""
    name = quote_names((column,))
    if (source, target) == ("BLOB", "VARCHAR"):
        return f"decode({name})"
    if (source, target) == ("VARCHAR", "BLOB"):
        return f"encode({name})"
    return f"{name}::{target}"


def digest_lake(location: Location) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Yield what two equal lakes have in common, with a name for each part.

    The first part is the list of snapshots. Each other part is a table: for every snapshot that
    added rows, their number and a sum over the hashes of the rows and their ids. Rows are only ever
    added, so equal sums of all snapshots up to n are equal tables at snapshot n.
    """
    connection = connect(to=location)
    try:
        attach(connection, location)
        yield (
            "snapshots",
            connection.execute("FROM ducklake_snapshots('lake') ORDER BY ALL").fetchall(),
        )
        for table in sorted(list_filled_tables(connection, location)):
            name = quote_names((table,))
            yield (
                table,
                connection.execute(
                    "SELECT snapshot_id, count(*), sum(hash(rowid, r)) "
                    f"FROM lake.{name} AS r GROUP BY ALL ORDER BY ALL"
                ).fetchall(),
            )
    finally:
        connection.close()
