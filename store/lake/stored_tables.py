"""How the tables of a lake are stored at a snapshot: columns, rows, and files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.lake.location import METADATA, FolderLocation, Location
from store.lake.sql_files import read_sql
from store.schema.sql_text import quote_values
from store.schema.tables import Table

if TYPE_CHECKING:
    import duckdb

SMALL_ROWS = 20_000
SMALL_BYTES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """How a table with rows is stored at a snapshot."""

    columns: frozenset[str]
    files: list[str] | None
    """Its Parquet files, below the data folder, if the table is stored in these only."""
    inlined: str | None
    """SQLite's table of its rows, if the table has had no file; None on a server."""
    rows: int
    """Rows of the newest snapshot; an older one has no more."""
    bytes: int
    """Size of its Parquet files."""

    @property
    def is_small(self) -> bool:
        """Whether a copy of its rows fits into memory easily."""
        return self.rows <= SMALL_ROWS and self.bytes <= SMALL_BYTES


def read_tables(
    connection: duckdb.DuckDBPyConnection, location: Location, snapshot: int
) -> dict[str, StoredTable]:
    """Return the tables of the attached lake that have rows at a snapshot, by name."""
    # A literal, because DuckDB would import pandas for a parameter, which takes half a second.
    query = read_sql(__file__, "stored").replace("$snapshot", str(snapshot))
    rows = connection.execute(location.qualify(query)).fetchall()
    return {
        table: StoredTable(
            columns=frozenset(columns),
            files=files,
            inlined=inlined if isinstance(location, FolderLocation) else None,
            rows=count,
            bytes=size,
        )
        for table, columns, files, inlined, count, size in rows
    }


def list_columns(table: Table, stored: StoredTable | None) -> str:
    """Return a table's columns as SQL, with typed NULLs for columns that the snapshot lacks."""
    there = frozenset[str]() if stored is None else stored.columns
    return ", ".join(
        f'"{c.name}"' if c.name in there else f'NULL::{c.type} AS "{c.name}"'
        for c in table.columns.values()
    )


def build_table(table: Table, stored: StoredTable | None, location: Location) -> tuple[str, str]:
    """Return whether to create a table of a snapshot as a VIEW or a TABLE, and SQL for it.

    What the snapshot is too old to have reads as typed NULLs. Small tables are copied, which
    takes one scan instead of one per mention in a view. A table that is stored in Parquet files
    only is read from these, because a scan by DuckLake queries its catalog several times.
    """
    listed = list_columns(table, stored)
    if stored is None:
        return "VIEW", f"SELECT {listed} WHERE false"
    rows = f"lake.main.{table.name}"
    if stored.files is not None:
        paths = quote_values(tuple(map(location.files.locate, stored.files)))
        rows = f"read_parquet([{paths}])"
    return "TABLE" if stored.is_small else "VIEW", f"SELECT {listed} FROM {rows}"


def copy_inlined(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    stored: StoredTable | None,
    snapshot: int,
) -> bool:
    """Copy a small table from SQLite's table of its inlined rows; return whether that has all rows.

    A scan by DuckLake reads the whole catalog first and then asks it about files, which takes ten
    times as long. Values are texts where SQLite lacks the type, and are cast as DuckLake does.
    Compaction may have moved rows into a file meanwhile: all are there if they are as many as the
    newest snapshot has, or if the table still has no file.
    """
    import duckdb

    if stored is None or stored.inlined is None or not stored.is_small:
        return False
    listed = ", ".join(
        f'CAST("{c.name}" AS {c.type}) AS "{c.name}"'
        if c.name in stored.columns
        else f'NULL::{c.type} AS "{c.name}"'
        for c in table.columns.values()
    )
    copied = None
    with suppress(duckdb.CatalogException):  # compaction has dropped the table
        copied = connection.execute(
            f"CREATE TEMP TABLE {table.name} AS SELECT {listed} FROM {METADATA}.{stored.inlined} "
            f"WHERE begin_snapshot <= {snapshot} AND coalesce(end_snapshot > {snapshot}, true)"
        ).fetchone()
    if copied is None:
        return False
    if copied[0] != stored.rows and _has_file(connection, table):
        connection.execute(f"DROP TABLE temp.{table.name}")
        return False
    return True


def _has_file(connection: duckdb.DuckDBPyConnection, table: Table) -> bool:
    row = connection.execute(
        f"SELECT count(*) FROM {METADATA}.ducklake_data_file "
        f"JOIN {METADATA}.ducklake_table USING (table_id) WHERE table_name = '{table.name}'"
    ).fetchone()
    return row is None or row[0] > 0
