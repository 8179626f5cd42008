"""Loads in bulk: streams of rows go straight into the lake, chunk by chunk, in one transaction.

Every function here runs inside the caller's transaction and under the lake's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from store import bundle as bundles
from store import validate
from store.bundle import Rows
from store.catalog import Catalog, Table
from store.commit import insert
from store.errors import RowsRejected
from store.validate import Need, columns, describe

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STREAM_ROWS = 250_000
STREAM_BYTES = 512 << 20


def stream(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    tables: Mapping[str, Rows | pa.RecordBatchReader],
) -> dict[str, int]:
    """Insert tables chunk by chunk, checking each; keys and references stand at the end.

    Returns rows inserted per table. Memory is bounded by a chunk and the narrow key columns.
    """
    import numpy as np
    import pyarrow as pa

    # Files are sorted as the catalog says; keeping the order of arrival would cost the second core.
    connection.execute("SET preserve_insertion_order = false")
    counts: dict[str, int] = {}
    wanted: list[Need] = []
    for name, rows in tables.items():
        table = catalog.table(name)
        counts[name] = 0
        for index, chunk in enumerate(_ahead(_chunks(rows))):
            conformed = bundles.conform(table, chunk)
            # Rows are numbered, so that of equal keys the first can stand.
            numbers = pa.array(np.arange(conformed.num_rows))
            connection.register("_chunk", conformed.append_column("_row", numbers))
            validate.check_rows(connection, catalog, table, conformed)
            validate.check_repeats(table, conformed)
            counts[name] += _insert_chunk(connection, table)
            for position, need in enumerate(validate.needs(catalog, table, "_chunk")):
                values = f"_need_{name}_{position}"
                if index == 0:
                    connection.execute(f"CREATE TEMP TABLE {values} AS {need.values}")
                    wanted.append(Need(table, need.column, need.target, f"FROM {values}"))
                else:
                    connection.execute(f"INSERT INTO {values} {need.values}")
            connection.unregister("_chunk")
    for need in wanted:
        missing = _missing(connection, need)
        if missing:
            raise _dangling(connection, need, missing)
        connection.execute(f"DROP TABLE {need.values.removeprefix('FROM ')}")
    return counts


def _dangling(
    connection: duckdb.DuckDBPyConnection, need: Need, missing: list[str]
) -> RowsRejected:
    """Find the rows with missing references: they have just been inserted."""
    value = f'"{need.column.name}"'
    pointed = f"unnest({value})" if need.column.type.endswith("[]") else value
    key = columns(need.table.key)
    rows = connection.execute(
        f"SELECT {key}, any_value(v) FROM (SELECT {key}, {pointed} AS v "
        f"FROM lake.{need.table.name}) WHERE v IN (SELECT unnest(?)) GROUP BY {key} ORDER BY ALL",
        [missing],
    ).fetchall()
    names = (*need.table.key, need.column.name)
    examples = describe(names, rows[: validate.EXAMPLES])
    rule = validate.reference_rule(need.column, need.target)
    return RowsRejected(need.table.name, rule, len(rows), examples)


def _missing(connection: duckdb.DuckDBPyConnection, need: Need) -> list[str]:
    """Return values that are no key of the target in the lake."""
    key = f'"{need.target.key[0]}"'
    # The join builds on the few values, so that their range prunes the lake's files.
    rows = connection.execute(
        f"""
        WITH needed AS MATERIALIZED (SELECT DISTINCT v FROM ({need.values})),
        found AS (SELECT DISTINCT v FROM lake.{need.target.name} JOIN needed ON v = {key})
        SELECT v FROM needed WHERE v NOT IN (FROM found) ORDER BY v
        """
    ).fetchall()
    return [str(row[0]) for row in rows]


def _insert_chunk(connection: duckdb.DuckDBPyConnection, table: Table) -> int:
    rows = "FROM _chunk"
    if table.duplicates == "skip":
        return insert(connection, table, _unstored(connection, table, rows, order="_row"))
    repeated = connection.execute(_stored_among(table, rows)).fetchall()
    if repeated:
        examples = describe(table.key, sorted(repeated, key=str)[: validate.EXAMPLES])
        raise RowsRejected(table.name, validate.unique_rule(table), len(repeated), examples)
    return insert(connection, table, rows)


def _stored_among(table: Table, rows: str) -> str:
    """Return SQL for the keys of rows that the lake holds already."""
    key = columns(table.key)
    return (
        f"SELECT DISTINCT {key} FROM lake.{table.name} "
        f"JOIN (SELECT DISTINCT {key} FROM ({rows})) USING ({key})"
    )


def _unstored(connection: duckdb.DuckDBPyConnection, table: Table, rows: str, *, order: str) -> str:
    """Return SQL for the rows whose key is new, each key once, the first by `order`.

    The rows carry whole texts, so the costly forms are used only where they are needed.
    """
    key = columns(table.key)
    found = connection.execute(
        f"SELECT count(*) > count(DISTINCT ({key})) FROM ({rows}) "
        f"UNION ALL SELECT count(*) > 0 FROM ({_stored_among(table, rows)})"
    ).fetchall()
    repeats, stored = bool(found[0][0]), bool(found[1][0])
    if stored:
        rows = f"SELECT * FROM ({rows}) ANTI JOIN ({_stored_among(table, rows)}) USING ({key})"
    if repeats:
        window = f"row_number() OVER (PARTITION BY {key} ORDER BY {order})"
        rows = f"SELECT * FROM ({rows}) QUALIFY {window} = 1"
    return rows


def _ahead(chunks: Iterator[Rows]) -> Iterator[Rows]:
    """Yield chunks, reading the next one while DuckDB works on the present one."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


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
