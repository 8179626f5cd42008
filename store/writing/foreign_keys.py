"""References of rows that are loaded: values that must be keys of another table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from store.errors import RowsRejected
from store.schema import row_checks
from store.schema.row_checks import describe_rows
from store.schema.sql_text import quote_names, quote_values
from store.schema.tables import Column, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_SAMPLE = 1_000
FEW_KEYS = 20_000
"""Keys of a table that a load keeps in memory to look references up, before it asks the lake."""


@dataclass(frozen=True)
class LoadedKeys:
    """The first keys of each table that a load has inserted; most references are to these."""

    keys: dict[str, list[pa.Array]] = field(default_factory=dict[str, "list[pa.Array]"])

    def note(self, table: Table, rows: pa.Table) -> None:
        """Note the keys of rows, up to a limit. References are to keys of one column."""
        noted = self.keys.setdefault(table.name, [])
        if len(table.key) == 1 and sum(map(len, noted)) < FEW_KEYS:
            noted.extend(copy_values(rows.column(table.key[0])[:FEW_KEYS]).chunks)

    def leave_out(self, table: Table, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return values without the keys of a table that are noted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        noted = pa.chunked_array(self.keys.get(table.name, []), pa.string())
        return values.filter(pc.invert(pc.is_in(values, noted))) if len(noted) else values


@dataclass(frozen=True)
class ForeignKeyValues:
    """The values of one column that must be keys of another table."""

    table: Table
    column: Column
    target: Table
    values: list[pa.Array] = field(default_factory=list["pa.Array"])
    missing: list[pa.Array] = field(default_factory=list["pa.Array"])
    """Values that were no key yet when their chunk was inserted."""

    def add(self, rows: pa.Table) -> None:
        """Add the values of rows; another thread may call this."""
        self.values.extend(_list_values(rows.column(self.column.name)).chunks)

    def keep_missing(self, connection: duckdb.DuckDBPyConnection, loaded: LoadedKeys) -> None:
        """Look the values up, and keep those that are no key."""
        found = self.find_missing(connection, _take_all(self.values), loaded)
        self.missing.extend(found.chunks)

    def find_missing(
        self, connection: duckdb.DuckDBPyConnection, values: list[pa.Array], loaded: LoadedKeys
    ) -> pa.ChunkedArray:
        """Return the distinct values that are no key, in order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        # DuckDB finds this variable by its name. A table that is registered would stay in memory
        # until the transaction ends.
        unknown = loaded.leave_out(self.target, pa.chunked_array(values, pa.string()))
        candidates = pa.table([unknown], names=["v"])
        if not candidates.num_rows:
            return candidates.column("v")
        # The range lets DuckLake skip files by their statistics.
        lowest, highest = (one.as_py() for one in pc.min_max(candidates.column("v")).values())
        key = f'"{self.target.key[0]}"'
        answer = connection.execute(
            f"SELECT DISTINCT v FROM candidates ANTI JOIN (SELECT {key} AS v "
            f"FROM lake.{self.target.name} WHERE {key} BETWEEN {quote_values((lowest,))} "
            f"AND {quote_values((highest,))}) USING (v) ORDER BY v"
        )
        return answer.to_arrow_table().column("v")


def check_references(
    connection: duckdb.DuckDBPyConnection,
    foreign_keys: list[ForeignKeyValues],
    loaded: LoadedKeys,
) -> None:
    """Raise RowsRejected for the first column with a value that is no key of its target."""
    for foreign_key in foreign_keys:
        missing = foreign_key.find_missing(connection, foreign_key.missing, loaded).to_pylist()
        if missing:
            raise _find_dangling(connection, foreign_key, [str(value) for value in missing])


def _find_dangling(
    connection: duckdb.DuckDBPyConnection, foreign_key: ForeignKeyValues, missing: list[str]
) -> RowsRejected:
    """Find the rows with missing references: they have just been inserted."""
    table, column = foreign_key.table, foreign_key.column
    value = f'"{column.name}"'
    listed = f"unnest({value})" if column.type.endswith("[]") else value
    key = quote_names(table.key)
    rows = connection.execute(
        f"SELECT {key}, any_value(v) FROM (SELECT {key}, {listed} AS v "
        f"FROM lake.{table.name}) WHERE v IN (SELECT unnest(?)) GROUP BY {key} ORDER BY ALL",
        [missing],
    ).fetchall()
    examples = describe_rows((*table.key, column.name), rows[: row_checks.EXAMPLES])
    rule = row_checks.describe_reference(column, foreign_key.target)
    return RowsRejected(table.name, rule, len(rows), examples)


def copy_values(values: Any) -> Any:
    """Copy a table or column, which may share the memory of its whole batch."""
    import numpy as np

    return values.take(np.arange(len(values)))


def _list_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column, or the elements of its lists; once each where many repeat."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flat: Any = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    some = flat.slice(0, _SAMPLE)
    if 2 * pc.count_distinct(some).as_py() > len(some):
        return copy_values(flat.drop_null())
    return pa.chunked_array([pc.unique(flat).drop_null()])


def _take_all(items: list[pa.Array]) -> list[pa.Array]:
    """Empty a list that another thread may append to, and return what it had."""
    taken = items[:]
    del items[: len(taken)]
    return taken
