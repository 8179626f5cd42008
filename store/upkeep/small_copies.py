"""Copies of the small tables of an attached lake, for a check that scans them many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.lake.location import METADATA, Location
from store.schema.tables import Table

if TYPE_CHECKING:
    import duckdb


class SmallCopies:
    """Makes and finds copies of small tables, in the transaction of a check.

    DuckLake queries its catalog several times for every scan, and each rule of a table and each
    reference to it is a scan.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, location: Location, most_rows: int
    ) -> None:
        """Find the tables of at most `most_rows` rows."""
        self._connection = connection
        rows = connection.execute(
            location.qualify(
                f"SELECT table_name FROM {METADATA}.ducklake_table "
                f"JOIN {METADATA}.ducklake_table_stats USING (table_id) "
                f"WHERE record_count <= {most_rows}"
            )
        ).fetchall()
        self._small = {str(row[0]) for row in rows}
        self._copied: set[str] = set()

    def add(self, table: Table) -> None:
        """Copy a table if it is small."""
        if table.name in self._small:
            self._connection.execute(
                f"CREATE TEMP TABLE checked_{table.name} AS FROM lake.{table.name}"
            )
            self._copied.add(table.name)

    def find(self, table: Table) -> str:
        """Return SQL, as a relation, for the rows of a table: its copy, or the table itself.

        A table without a copy is read from the lake in part. A copy reads all of it, and damage of
        columns that the caller does not ask for would end the check of another table.
        """
        copied = table.name in self._copied
        return f"temp.checked_{table.name}" if copied else f"lake.{table.name}"

    def forget(self) -> None:
        """Forget the copies, whose transaction has ended."""
        self._copied.clear()
