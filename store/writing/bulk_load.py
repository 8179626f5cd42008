"""Bulk loads: streams of rows go directly into the lake, chunk by chunk, in one transaction.

Every function here runs inside the caller's transaction and under the lake's lock.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from store.errors import RowsRejected
from store.schema import row_checks
from store.schema.catalog import Catalog
from store.schema.row_checks import describe_rows
from store.schema.sql_text import quote_names, quote_values
from store.schema.tables import Table
from store.writing import bundle as bundles
from store.writing.bundle import Rows
from store.writing.foreign_keys import (
    ForeignKeyValues,
    LoadedKeys,
    check_references,
    copy_values,
)
from store.writing.group_commit import insert_rows

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

CHUNK_ROWS = 500_000
CHUNK_BYTES = 512 << 20
"""Rows of a chunk, which is sorted and inserted as a whole."""
PIECE_ROWS = 20_000
PIECE_BYTES = 64 << 20
"""Rows of a piece of a chunk. DuckDB inserts one piece while the next ones are read and checked."""
MANY_ROWS = 10_000
"""Rows of a load whose keys take long to index."""
_T = TypeVar("_T")


def load_tables(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    tables: Mapping[str, Rows | pa.RecordBatchReader],
) -> dict[str, int]:
    """Insert tables chunk by chunk and check each chunk, with its keys and references.

    Returns rows inserted per table. Memory is limited to a chunk and a few pieces, and the
    references to rows that have not come yet, which are checked at the end.
    """
    # Import what threads need now: an interrupt may leave an import of this thread half done, and
    # another thread would then wait for its lock for ever.
    for module in ("numpy", "pyarrow.dataset"):  # DuckDB imports both to read a table of pyarrow
        importlib.import_module(module)
    # Files are sorted as the catalog says; preserving the order of arrival would use only one core.
    connection.execute("SET preserve_insertion_order = false")
    counts: dict[str, int] = {}
    foreign_keys: list[ForeignKeyValues] = []
    loaded = LoadedKeys()
    for name, rows in tables.items():
        table = catalog.table(name)
        keys: list[pa.Table] = []
        of_table = [ForeignKeyValues(table, *reference) for reference in catalog.references(table)]
        checked = _check_batches(connection, catalog, table, keys, of_table, rows)
        stored = _StoredKeys(table)
        with closing(_read_ahead(checked)) as pieces:
            counts[name] = 0
            for first in pieces:
                chunk = _collect_chunk(table, first, pieces, loaded)
                count = _insert_chunk(connection, table, chunk)
                counts[name] += count
                if table.duplicates == "reject":
                    stored.check_chunk(connection, _take_rows(keys, count))
                for foreign_key in of_table:
                    foreign_key.keep_missing(connection, loaded)
        stored.raise_if_repeated()
        foreign_keys += of_table
    check_references(connection, foreign_keys, loaded)
    return counts


def _check_batches(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    table: Table,
    keys: list[pa.Table],
    foreign_keys: list[ForeignKeyValues],
    rows: Rows | pa.RecordBatchReader,
) -> Generator[tuple[pa.Table, bool]]:
    """Yield rows that keep the rules, piece by piece, each with whether a chunk ends there.

    Collects their keys and references. If an equal key means an equal row, a chunk contains each
    key once.
    """
    seen = _SeenKeys(table)
    # A separate connection, because it runs beside the inserts.
    with connection.cursor() as cursor:
        cursor.execute("SET python_enable_replacements = true")
        for given, last in _read_ahead(_cut_pieces(rows)):
            piece = bundles.conform(table, given)
            row_checks.check_rows(cursor, catalog, table, piece)
            if table.duplicates == "skip":
                piece = seen.select_first_of_each_key(cursor, piece)
            else:
                keys.append(copy_values(piece.select(list(table.key))))
            for foreign_key in foreign_keys:
                foreign_key.add(piece)
            yield piece, last
            if last:
                seen = _SeenKeys(table)


@dataclass(frozen=True)
class _SeenKeys:
    """The keys of a chunk so far."""

    table: Table
    keys: list[pa.Table] = field(default_factory=list["pa.Table"])
    hashes: set[Any] = field(default_factory=set[Any])

    def select_first_of_each_key(
        self, connection: duckdb.DuckDBPyConnection, rows: pa.Table
    ) -> pa.Table:
        """Return the next rows whose keys are new, each key once."""
        import numpy as np
        import pyarrow as pa

        keys = copy_values(rows.select(list(self.table.key)))
        answer = connection.execute(f"SELECT hash({quote_names(self.table.key)}) FROM keys")
        hashes = set[Any](answer.to_arrow_table().column(0).to_pylist())
        repeats = len(hashes) < rows.num_rows or not self.hashes.isdisjoint(hashes)
        self.keys.append(keys)
        self.hashes.update(hashes)
        if not repeats:
            return rows
        whole = pa.concat_tables(self.keys)
        numbered = whole.append_column("_row", pa.array(np.arange(whole.num_rows)))
        first = numbered.group_by(list(self.table.key)).aggregate([("_row", "min")])
        kept = np.zeros(whole.num_rows, dtype=bool)
        kept[first.column("_row_min").to_numpy()] = True
        return rows.filter(pa.array(kept[whole.num_rows - rows.num_rows :]))


def _insert_chunk(
    connection: duckdb.DuckDBPyConnection, table: Table, pieces: Iterator[pa.Table]
) -> int:
    """Insert rows as they come, without rows that the lake has already if the table allows that."""
    import duckdb
    import pyarrow as pa

    refused: list[BaseException] = []
    reading, over = threading.Lock(), threading.Event()

    def next_piece() -> pa.Table | None:
        with reading:
            return None if over.is_set() else next(pieces, None)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while (piece := next_piece()) is not None:
                yield from piece.to_batches()
        except GeneratorExit:
            raise  # DuckDB has let go of the stream
        except BaseException as error:
            refused.append(error)
            raise

    key = quote_names(table.key)
    # NOT IN, because an anti join might hash the incoming rows instead, including their texts.
    new = f" WHERE ({key}) NOT IN (SELECT ({key}) FROM lake.{table.name})"
    connection.register("_chunk", pa.RecordBatchReader.from_batches(table.open_schema, batches()))
    try:
        return insert_rows(
            connection, table, f"FROM _chunk{new if table.duplicates == 'skip' else ''}"
        )
    except duckdb.Error:
        # DuckDB passes on an error of the stream as text.
        if refused:
            raise refused.pop() from None
        raise
    finally:
        # A failed insert in one of DuckDB's threads may leave another thread waiting for rows.
        with reading:
            over.set()
        connection.unregister("_chunk")


def _take_rows(tables: list[pa.Table], count: int) -> list[pa.Table]:
    """Take the first tables with that many rows out of a list that another thread appends to."""
    taken: list[pa.Table] = []
    while count > 0:
        taken.append(tables.pop(0))
        count -= taken[-1].num_rows
    return taken


@dataclass
class _StoredKeys:
    """The keys of a table that the rows repeat, which the lake or an earlier chunk has."""

    table: Table
    count: int = 0
    examples: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def check_chunk(self, connection: duckdb.DuckDBPyConnection, keys: list[pa.Table]) -> None:
        """Count the keys of the chunk just inserted that other rows of the lake have.

        Raises RowsRejected if they repeat within the chunk.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not keys:
            return
        rows, first = pa.concat_tables(keys), self.table.key[0]
        if _has_repeats(connection, self.table, rows):
            row_checks.check_keys(self.table, rows)
        key = quote_names(self.table.key)
        lowest, highest = (quote_values((str(one),)) for one in pc.min_max(rows[first]).values())
        stored = (
            f"FROM lake.{self.table.name} SEMI JOIN rows USING ({key}) "
            f'WHERE "{first}" BETWEEN {lowest} AND {highest}'
        )
        row = connection.execute(f"SELECT count(*) {stored}").fetchone()
        if row and row[0] > rows.num_rows:
            self.count += int(row[0]) - rows.num_rows
            repeated = f"SELECT {key} {stored} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL"
            self.examples += connection.execute(
                f"{repeated} LIMIT {row_checks.EXAMPLES}"
            ).fetchall()

    def raise_if_repeated(self) -> None:
        """Raise RowsRejected if any chunk repeated a key."""
        if self.count:
            rule = row_checks.describe_key(self.table)
            examples = describe_rows(self.table.key, self.examples[: row_checks.EXAMPLES])
            raise RowsRejected(self.table.name, rule, self.count, examples)


def _has_repeats(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table) -> bool:
    """Return whether a key, or its hash, repeats among the rows."""
    if row_checks.is_ascending(table, rows):
        return False
    row = connection.execute(
        f"SELECT count(*) > count(DISTINCT hash({quote_names(table.key)})) FROM rows"
    ).fetchone()
    return row is None or bool(row[0])


def _read_ahead(items: Generator[_T]) -> Generator[_T]:
    """Yield items, and compute the next one in the background."""
    with closing(items), ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = maker.submit(next, items, None)
            yield item


def _collect_chunk(
    table: Table,
    first: tuple[pa.Table, bool],
    following: Iterator[tuple[pa.Table, bool]],
    loaded: LoadedKeys,
) -> Iterator[pa.Table]:
    """Yield the rows of a chunk, and note their keys; read it to its end."""
    for rows, last in chain([first], following):
        loaded.note(table, rows)
        yield rows
        if last:
            return


def _cut_pieces(rows: Rows | pa.RecordBatchReader) -> Generator[tuple[Rows, bool]]:
    """Cut rows into pieces; yield each with whether a chunk ends there. Yields at least one."""
    import pyarrow as pa

    if not isinstance(rows, pa.RecordBatchReader):
        yield rows, True
        return
    batches: list[pa.RecordBatch] = []
    count = size = chunk_count = chunk_size = 0
    any_yet = False
    for batch in rows:
        batches.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= PIECE_ROWS or size >= PIECE_BYTES:
            chunk_count += count
            chunk_size += size
            last = chunk_count >= CHUNK_ROWS or chunk_size >= CHUNK_BYTES
            yield pa.Table.from_batches(batches, rows.schema), last
            any_yet = True
            batches, count, size = [], 0, 0
            if last:
                chunk_count = chunk_size = 0
    if batches or not any_yet:
        yield pa.Table.from_batches(batches, rows.schema), True
