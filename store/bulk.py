"""Loads in bulk: streams of rows go straight into the lake, chunk by chunk, in one transaction.

Every function here runs inside the caller's transaction and under the lake's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from store import bundle as bundles
from store import validate
from store.bundle import Rows
from store.catalog import Catalog, Column, Table, quoted
from store.commit import insert
from store.errors import RowsRejected
from store.validate import columns, describe

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STREAM_ROWS = 250_000
STREAM_BYTES = 512 << 20
_T = TypeVar("_T")


def stream(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    tables: Mapping[str, Rows | pa.RecordBatchReader],
) -> dict[str, int]:
    """Insert tables chunk by chunk, checking each; references stand at the end.

    Returns rows inserted per table. Memory is bounded by two chunks and the narrow columns that
    point at other rows.
    """
    # Files are sorted as the catalog says; keeping the order of arrival would cost the second core.
    connection.execute("SET preserve_insertion_order = false")
    counts: dict[str, int] = {}
    pointers: list[_Pointers] = []
    for name, rows in tables.items():
        table = catalog.table(name)
        of_table = [_Pointers(table, *reference) for reference in catalog.references(table)]
        counts[name] = 0
        for chunk in _ahead(_checked(connection, catalog, table, of_table, rows)):
            counts[name] += _insert_chunk(connection, table, chunk)
        pointers += of_table
    _check_references(connection, pointers)
    return counts


@dataclass(frozen=True)
class _Pointers:
    """The values of one column that must be keys of another table."""

    table: Table
    column: Column
    target: Table
    values: list[pa.Array] = field(default_factory=list["pa.Array"])
    """Those of each chunk, without repeats."""


def _checked(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    table: Table,
    pointers: list[_Pointers],
    rows: Rows | pa.RecordBatchReader,
) -> Iterator[pa.Table]:
    """Yield chunks of rows that keep the rules and hold each key once."""
    # Of its own, for it runs beside the inserts.
    with connection.cursor() as cursor:
        for given in _chunks(rows):
            chunk = bundles.conform(table, given)
            validate.check_rows(cursor, catalog, table, chunk)
            if _repeats(cursor, table, chunk):
                validate.check_repeats(table, chunk)
                chunk = _first_of_each_key(table, chunk)
            for pointer in pointers:
                pointer.values.append(_distinct(chunk.column(pointer.column.name)))
            yield chunk


def _repeats(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table) -> bool:
    """Whether a key stands twice among the rows, or its hash."""
    if validate.ascends(table, rows):
        return False
    row = connection.execute(
        f"SELECT count(*) > count(DISTINCT hash({columns(table.key)})) FROM rows"
    ).fetchone()
    return row is None or bool(row[0])


def _first_of_each_key(table: Table, rows: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    numbers = pa.array(np.arange(rows.num_rows))
    keys = rows.select(list(table.key)).append_column("_row", numbers)
    first = keys.group_by(list(table.key)).aggregate([("_row", "min")]).column("_row_min")
    kept = np.zeros(rows.num_rows, dtype=bool)
    kept[first.to_numpy()] = True
    return rows.filter(pa.array(kept))


def _insert_chunk(connection: duckdb.DuckDBPyConnection, table: Table, chunk: pa.Table) -> int:
    """Insert the rows of a chunk; those that the lake holds already are left out, or refused."""
    key = columns(table.key)
    connection.register("_chunk", chunk)
    try:
        stored = f"FROM lake.{table.name} SEMI JOIN _chunk USING ({key})"
        row = connection.execute(f"SELECT count(*) {stored}").fetchone()
        assert row is not None
        if not row[0]:
            return insert(connection, table, "FROM _chunk")
        if table.duplicates == "skip":
            return insert(
                connection, table, f"FROM _chunk ANTI JOIN (FROM lake.{table.name}) USING ({key})"
            )
        examples = connection.execute(
            f"SELECT {key} {stored} ORDER BY ALL LIMIT {validate.EXAMPLES}"
        ).fetchall()
        raise RowsRejected(
            table.name, validate.unique_rule(table), int(row[0]), describe(table.key, examples)
        )
    finally:
        connection.unregister("_chunk")


def _check_references(connection: duckdb.DuckDBPyConnection, pointers: list[_Pointers]) -> None:
    """Raise RowsRejected for the first column with a value that is no key of its target."""
    import pyarrow as pa
    import pyarrow.compute as pc

    asked: list[str] = []
    with ExitStack() as registered:
        for number, pointer in enumerate(pointers):
            values = _distinct(pa.chunked_array(pointer.values, pa.string()))
            if not len(values):
                continue
            connection.register(f"_values{number}", pa.table({"v": values}))
            registered.callback(connection.unregister, f"_values{number}")
            # The range lets DuckLake skip files by their statistics.
            lowest, highest = (extreme.as_py() for extreme in pc.min_max(values).values())
            key = f'"{pointer.target.key[0]}"'
            asked.append(
                f"SELECT {number}, v FROM _values{number} ANTI JOIN (SELECT {key} AS v "
                f"FROM lake.{pointer.target.name} WHERE {key} BETWEEN {quoted((lowest,))} "
                f"AND {quoted((highest,))}) USING (v)"
            )
        missing = connection.execute(" UNION ALL ".join(asked)).fetchall() if asked else []
    if missing:
        first = min(number for number, _ in missing)
        dangling = [str(value) for number, value in missing if number == first]
        raise _dangling(connection, pointers[first], dangling)


def _dangling(
    connection: duckdb.DuckDBPyConnection, pointer: _Pointers, missing: list[str]
) -> RowsRejected:
    """Find the rows with missing references: they have just been inserted."""
    table, column = pointer.table, pointer.column
    value = f'"{column.name}"'
    pointed = f"unnest({value})" if column.type.endswith("[]") else value
    key = columns(table.key)
    rows = connection.execute(
        f"SELECT {key}, any_value(v) FROM (SELECT {key}, {pointed} AS v "
        f"FROM lake.{table.name}) WHERE v IN (SELECT unnest(?)) GROUP BY {key} ORDER BY ALL",
        [missing],
    ).fetchall()
    examples = describe((*table.key, column.name), rows[: validate.EXAMPLES])
    rule = validate.reference_rule(column, pointer.target)
    return RowsRejected(table.name, rule, len(rows), examples)


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column, or the elements of its lists, once each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flat: Any = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    return pc.unique(flat).drop_null()


def _ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield items, making the next one while DuckDB works on the present one."""
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = maker.submit(next, items, None)
            yield item


def _chunks(rows: Rows | pa.RecordBatchReader) -> Iterator[Rows]:
    import pyarrow as pa

    if not isinstance(rows, pa.RecordBatchReader):
        yield rows
        return
    batches: list[pa.RecordBatch] = []
    size = count = 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        count += batch.num_rows
        if count >= STREAM_ROWS or size >= STREAM_BYTES:
            yield pa.Table.from_batches(batches, rows.schema)
            batches, size, count = [], 0, 0
    if batches or not count:
        yield pa.Table.from_batches(batches, rows.schema)
