"""What a transaction does with rows: check them, drop bundles that break a rule, and insert.

Rows are staged in Arrow with the number of their bundle. A single row, the bundles of a spool and
a chunk of a load of millions of rows go through the same functions. They differ in where stored
keys are looked up: in the key index for a few, in the lake for many.

What inserts runs under the lake's lock and inside the transaction.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from store.errors import RowsRejected
from store.schema import row_checks
from store.schema.catalog import Catalog, Column, Table
from store.schema.row_checks import Stage, describe_keys, describe_rows, make_key_texts
from store.schema.sql_text import quote_names
from store.writing import bundle as bundles
from store.writing.bundle import Bundle, Rows
from store.writing.key_index import find_in_lake

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
CHUNK_ROWS = 500_000
CHUNK_BYTES = 256 << 20
"""Rows of a load that are staged, sorted and inserted as a whole."""
FIRST_SHARE = 4
"""The first chunk of a table is smaller by this, and the next ones double: the first one is read
while nothing is inserted."""
FEW_KEYS = 20_000
"""Keys of a table that a load keeps in memory, because later chunks refer to them too."""
Lookup: TypeAlias = "Callable[[Table, pa.Array], pa.Array]"
"""Returns those of some keys of a table, as texts, that are stored."""


def check_bundles(stage: Stage, given: Sequence[Mapping[str, Rows]]) -> list[dict[str, pa.Table]]:
    """Return the rows of bundles in the catalog's schema; raise RowsRejected for the first defect.

    These are the rules that need no lake. The rows of all bundles for a table are checked at once.
    """
    checked: list[dict[str, pa.Table]] = [{} for _ in given]
    together: dict[str, list[pa.Table]] = {}
    for own, tables in zip(checked, given, strict=True):
        for name, rows in tables.items():
            own[name] = bundles.fit_schema(stage.catalog.table(name), rows)
            together.setdefault(name, []).append(own[name])
    for name, parts in together.items():
        table = stage.catalog.table(name)
        whole = pa.concat_tables(parts)
        if not bundles.is_whole(whole):
            for part in parts:
                bundles.conform(table, part)
        stage.check_rows(table, whole.combine_chunks())
        for part in parts:
            if table.duplicates == "reject" and part.num_rows > 1:
                staged, alive = StagedRows.of(table, {0: part}), np.ones(1, dtype=bool)
                repeats = staged.find_repeats(pa.array([], pa.string()), alive)
                for error in _refuse_repeats(staged, repeats).values():
                    raise error
    return checked


@dataclass(frozen=True, kw_only=True)
class StagedRows:
    """Rows of one table, and where they come from."""

    table: Table
    rows: pa.Table
    keys: pa.Array
    """The key of each row, as `make_key_texts` returns it."""
    codes: np.ndarray[Any, Any]
    """A number for each row, which is the same for equal keys."""
    bundles: np.ndarray[Any, Any]
    """The number of the bundle of each row."""

    @classmethod
    def of(cls, table: Table, parts: Mapping[int, pa.Table]) -> StagedRows:
        """Stage the rows of some bundles, given by their number."""
        rows = pa.concat_tables(parts.values())
        # DuckDB reads many small chunks slowly.
        rows = rows.combine_chunks() if len(parts) > 1 else rows
        keys = make_key_texts(table, rows)
        numbers, counts = list(parts), [part.num_rows for part in parts.values()]
        return cls(
            table=table,
            rows=rows,
            keys=keys,
            codes=keys.dictionary_encode().indices.to_numpy(),
            bundles=np.repeat(np.array(numbers), counts),
        )

    def find_repeats(self, stored: pa.Array, alive: Mask) -> Mask:
        """Return which rows of the remaining bundles have a key that is stored or came before."""
        mine = alive[self.bundles]
        repeats = mine.copy()
        places = np.flatnonzero(mine)
        repeats[places[np.unique(self.codes[places], return_index=True)[1]]] = False
        if len(stored):
            held = _find_among(self.keys, stored)
            repeats |= mine & held.to_numpy(zero_copy_only=False)
        return repeats

    def list_keys(self, which: Mask) -> list[str]:
        """Return the keys of some of the rows."""
        return cast("list[str]", self.keys.filter(pa.array(which)).to_pylist())

    def insert(self, stage: Stage, kept: Mask) -> None:
        """Insert some of the rows."""
        if kept.any():
            rows = self.rows if kept.all() else self.rows.filter(pa.array(kept))
            insert_rows(stage, self.table, rows)


def insert_rows(stage: Stage, table: Table, rows: pa.Table) -> None:
    """Insert rows with the table's columns."""
    names = quote_names(tuple(table.columns))
    with stage.hold(table, rows) as staged:
        stage.connection.execute(
            f"INSERT INTO lake.{table.name} ({names}) SELECT {names} FROM {staged}"
        )


def find_missing(
    catalog: Catalog, staged: Mapping[str, StagedRows], alive: Mask, lookup: Lookup
) -> Iterator[tuple[Table, Column, Table, pa.Array]]:
    """Yield the references to rows that neither the lake nor a remaining bundle has.

    Each is a table and its column, the table that the column refers to, and the missing values.
    """
    import pyarrow.compute as pc

    for one in staged.values():
        for column, target in catalog.references(one.table):
            flat: Any = one.rows.column(column.name)
            if pa.types.is_list(flat.type):
                flat = pc.list_flatten(flat)
            if flat.null_count == len(flat):
                continue
            values: Any = pc.unique(flat).drop_null()
            if target.name in staged:
                beside = staged[target.name]
                keys = beside.keys
                if not alive.all():
                    keys = keys.filter(pa.array(alive[beside.bundles]))
                values = _leave_out(values, keys)
            if len(values):
                values = _leave_out(values, lookup(target, values))
            if len(values):
                yield one.table, column, target, values


def _find_among(values: Any, others: pa.Array) -> Any:
    # Imported here, because a program that only opens a writer waits for it.
    import pyarrow.compute as pc

    return pc.is_in(values, value_set=others.cast(pa.string()))


def _leave_out(values: Any, others: pa.Array) -> Any:
    import pyarrow.compute as pc

    return values.filter(pc.invert(_find_among(values, others)))


def store_bundles(
    stage: Stage, lookup: Lookup, given: list[Bundle]
) -> tuple[dict[int, RowsRejected], dict[str, list[str]]]:
    """Insert the rows of the bundles that keep keys and references, and log these bundles.

    Returns the rules that refused bundles break, by the position of each, and the keys of each
    table that the lake contains after the commit.
    """
    staged: dict[str, StagedRows] = {}
    for name, table in stage.catalog.tables.items():
        parts = {
            number: one.tables[name]
            for number, one in enumerate(given)
            if name in one.tables and one.tables[name].num_rows
        }
        if parts:
            staged[name] = StagedRows.of(table, parts)
    stored = {name: lookup(one.table, one.keys.unique()) for name, one in staged.items()}
    alive = np.ones(len(given), dtype=bool)
    rejected: dict[int, RowsRejected] = {}
    # A bundle may refer to rows of a refused bundle, or repeat only its keys. Therefore repeat
    # until no further bundle is refused.
    while True:
        refused: dict[int, RowsRejected] = {}
        for missing in find_missing(stage.catalog, staged, alive, lookup):
            refused |= _refuse_referring(staged[missing[0].name], missing, alive)
        if not refused:
            for name, one in staged.items():
                if one.table.duplicates == "reject":
                    refused |= _refuse_repeats(one, one.find_repeats(stored[name], alive))
        if not refused:
            break
        rejected |= refused
        alive[list(refused)] = False
    counts: dict[int, dict[str, int]] = {int(one): {} for one in np.flatnonzero(alive)}
    keys: dict[str, list[str]] = {}
    for name, one in staged.items():
        kept = alive[one.bundles]
        keys[name] = one.list_keys(kept)
        if one.table.duplicates == "skip":
            kept &= ~one.find_repeats(stored[name], alive)
        one.insert(stage, kept)
        added = np.bincount(one.bundles[kept], minlength=len(given))
        for number in np.flatnonzero(added).tolist():
            counts[number][name] = int(added[number])
    logged = [given[number] for number in counts]
    if logged:
        log_bundles(stage, logged, list(counts.values()))
    keys["ingest_log"] = [one.bundle_id for one in logged]
    return rejected, keys


def _refuse_repeats(staged: StagedRows, repeats: Mask) -> dict[int, RowsRejected]:
    bad: dict[int, list[str]] = defaultdict(list)
    for place in repeats.nonzero()[0].tolist():
        bad[int(staged.bundles[place])].append(str(staged.keys[place].as_py()))
    table, rule = staged.table, row_checks.describe_key(staged.table)
    return {
        number: RowsRejected(table.name, rule, len(keys), describe_keys(table, keys))
        for number, keys in bad.items()
    }


def _refuse_referring(
    staged: StagedRows, missing: tuple[Table, Column, Table, pa.Array], alive: Mask
) -> dict[int, RowsRejected]:
    _, column, target, values = missing
    unknown = set(values.to_pylist())
    bad: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for place, value in enumerate(staged.rows.column(column.name).to_pylist()):
        number = int(staged.bundles[place])
        shown = [one for one in (value if isinstance(value, list) else [value]) if one in unknown]
        if alive[number] and shown:
            bad[number].append((*staged.keys[place].as_py().split("\0"), shown[0]))
    return {
        number: _describe_missing(staged.table, column, target, len(rows), rows)
        for number, rows in bad.items()
    }


def _describe_missing(
    table: Table, column: Column, target: Table, count: int, rows: list[tuple[object, ...]]
) -> RowsRejected:
    shown = describe_rows((*table.key, column.name), rows[: row_checks.EXAMPLES])
    return RowsRejected(table.name, row_checks.describe_reference(column, target), count, shown)


def log_bundles(stage: Stage, stored: list[Bundle], counts: list[dict[str, int]]) -> None:
    """Write the ingest_log rows of bundles."""
    now = datetime.now(UTC)
    rows = [
        {
            "bundle_id": one.bundle_id,
            "author": one.author,
            "message": one.message,
            "row_counts": json.dumps(count),
            "committed_at": now,
        }
        for one, count in zip(stored, counts, strict=True)
    ]
    table = stage.catalog.table("ingest_log")
    insert_rows(stage, table, bundles.conform(table, rows))


def load_tables(stage: Stage, tables: Mapping[str, Rows | pa.RecordBatchReader]) -> dict[str, int]:
    """Insert tables chunk by chunk, each as one bundle is stored; return rows inserted per table.

    Memory is limited to two chunks: one is read and checked while another one is inserted. A row
    may refer to one that comes later, so missing references are looked up again at the end.
    """
    # Files are sorted as the catalog says; preserving the order of arrival would use only one core.
    connection, catalog = stage.connection, stage.catalog
    connection.execute("SET preserve_insertion_order = false")

    known: dict[str, pa.Array] = {}

    def lookup(table: Table, keys: pa.Array) -> pa.Array:
        return find_in_lake(connection, table, keys)

    def lookup_referred(table: Table, values: pa.Array) -> pa.Array:
        # Every chunk refers to the same few tasks, workloads, devices and runs.
        before = known.get(table.name, values[:0])
        stored: Any = lookup(table, _leave_out(values, before))
        stored = pa.concat_arrays([before, stored.cast(before.type)])
        if len(stored) <= FEW_KEYS:
            known[table.name] = stored
        return stored

    alive = np.ones(1, dtype=bool)
    counts: dict[str, int] = {}
    later: dict[tuple[str, str], list[pa.Array]] = {}
    for name, rows in tables.items():
        table = catalog.table(name)
        counts[name] = repeated = 0
        examples: list[str] = []
        with closing(_read_chunks(stage, table, rows)) as chunks:
            for staged in chunks:
                repeats = staged.find_repeats(lookup(table, staged.keys), alive)
                missing = find_missing(catalog, {name: staged}, alive, lookup_referred)
                for _, column, _, values in missing:
                    later.setdefault((name, column.name), []).append(values)
                kept = ~repeats
                if table.duplicates == "reject" and repeats.any():
                    repeated += int(repeats.sum())
                    examples += describe_keys(table, staged.list_keys(repeats))
                else:
                    staged.insert(stage, kept)
                counts[name] += int(kept.sum())
        if repeated:
            rule = row_checks.describe_key(table)
            raise RowsRejected(name, rule, repeated, examples[: row_checks.EXAMPLES])
    for (name, column_name), values in later.items():
        table = catalog.table(name)
        column = table.columns[column_name]
        target = catalog.table(str(column.references))
        unique: Any = pa.chunked_array(values).unique()
        unknown = _leave_out(unique, lookup(target, unique))
        if not len(unknown):
            continue
        # Find the rows that have them: they have just been inserted.
        value = f'"{column_name}"'
        listed = f"unnest({value})" if column.type.endswith("[]") else value
        key = quote_names(table.key)
        referring = connection.execute(
            f"SELECT {key}, any_value(v) FROM (SELECT {key}, {listed} AS v "
            f"FROM lake.{name}) WHERE v IN (SELECT unnest(?)) GROUP BY {key} ORDER BY ALL",
            [unknown.to_pylist()],
        ).fetchall()
        raise _describe_missing(table, column, target, len(referring), referring)
    return counts


def _read_chunks(
    stage: Stage, table: Table, rows: Rows | pa.RecordBatchReader
) -> Generator[StagedRows]:
    """Yield rows that keep the rules, in chunks; the next one is read and checked meanwhile."""

    def cut() -> Iterator[Rows]:
        if not isinstance(rows, pa.RecordBatchReader):
            yield rows
            return
        batches: list[pa.RecordBatch] = []
        count = size = 0
        share = FIRST_SHARE
        for batch in rows:
            batches.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if count >= CHUNK_ROWS // share or size >= CHUNK_BYTES // share:
                yield pa.Table.from_batches(batches, rows.schema)
                batches, count, size, share = [], 0, 0, max(1, share // 2)
        if batches or share == FIRST_SHARE:  # the columns of no rows are checked too
            yield pa.Table.from_batches(batches, rows.schema)

    pieces = cut()

    # A connection of its own, because it runs beside the inserts.
    with stage.connection.cursor() as cursor, ThreadPoolExecutor(1) as reader:
        checks = Stage(cursor, stage.catalog)

        def read() -> StagedRows | None:
            if (piece := next(pieces, None)) is None:
                return None
            chunk = bundles.conform(table, piece)
            checks.check_rows(table, chunk)
            return StagedRows.of(table, {0: chunk})

        coming = reader.submit(read)
        while (staged := coming.result()) is not None:
            coming = reader.submit(read)
            yield staged
