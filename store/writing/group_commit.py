"""The group commit: check keys and references against the lake, then insert.

Every function here runs under the lake's lock and inside the transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from store.errors import RowsRejected
from store.schema import row_checks
from store.schema.catalog import Catalog
from store.schema.row_checks import describe_rows
from store.schema.sql_text import quote_names
from store.schema.tables import Column, Table
from store.writing.bundle import Bundle
from store.writing.key_index import Key, KeyIndex

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def find_committed(connection: duckdb.DuckDBPyConnection, bundle_ids: list[str]) -> set[str]:
    """Return the bundle ids that are in the lake already."""
    rows = connection.execute(
        "SELECT bundle_id FROM lake.ingest_log WHERE bundle_id IN (SELECT unnest(?))", [bundle_ids]
    ).fetchall()
    return {str(row[0]) for row in rows}


def log_bundles(
    connection: duckdb.DuckDBPyConnection, stored: list[Bundle], counts: list[dict[str, int]]
) -> None:
    """Write the ingest_log rows of bundles."""
    import pyarrow as pa

    now = datetime.now(UTC)
    rows = pa.table(
        {
            "bundle_id": [made.bundle_id for made in stored],
            "author": [made.author for made in stored],
            "message": [made.message for made in stored],
            "row_counts": [json.dumps(count) for count in counts],
            "committed_at": pa.array([now] * len(stored), pa.timestamp("us", tz="UTC")),
        }
    )
    connection.register("_log", rows)
    connection.execute("INSERT INTO lake.ingest_log BY NAME SELECT * FROM _log")
    connection.unregister("_log")


@contextmanager
def use_one_thread(connection: duckdb.DuckDBPyConnection) -> Generator[None]:
    """Run the statements within on one thread.

    Starting and ending threads takes longer than inserting a group of bundles.
    """
    import duckdb

    row = connection.execute("SELECT current_setting('threads')").fetchone()
    assert row is not None
    connection.execute("SET threads = 1")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # an error within may have closed the connection
            connection.execute(f"SET threads = {row[0]}")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a group commit."""

    rejected: dict[int, RowsRejected]
    """Position of each refused bundle to the rule that it breaks."""
    keys: dict[str, list[Key]]
    """Table to the keys that the lake contains after the commit."""


def commit_group(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, keys: KeyIndex, made: list[Bundle]
) -> Outcome:
    """Insert the rows of the bundles that keep keys and references, and log these bundles."""
    staged = _stage(connection, catalog, keys, made)
    alive = set(range(len(made)))
    rejected: dict[int, RowsRejected] = {}
    # A bundle may refer to rows of a refused bundle, or repeat only its keys. Therefore repeat
    # until no further bundle is refused.
    while more := (
        _find_dangling(connection, catalog, keys, staged, alive)
        or _find_repeated_keys(staged, alive)
    ):
        rejected |= more
        alive -= more.keys()
    counts: dict[int, dict[str, int]] = {position: {} for position in sorted(alive)}
    for name, rows in staged.items():
        for position, count in _insert_staged(connection, rows, alive).items():
            counts[position][name] = count
    kept = [made[position] for position in counts]
    if kept:
        log_bundles(connection, kept, list(counts.values()))
    held = {name: list(rows.select_alive(alive)) for name, rows in staged.items()}
    held["ingest_log"] = [(one.bundle_id,) for one in kept]
    return Outcome(rejected=rejected, keys=held)


def insert_rows(connection: duckdb.DuckDBPyConnection, table: Table, rows: str) -> int:
    """Insert the rows of a relation with the table's columns; return how many."""
    names = quote_names(tuple(table.columns))
    inserted = connection.execute(
        f"INSERT INTO lake.{table.name} ({names}) SELECT {names} FROM ({rows})"
    ).fetchone()
    assert inserted is not None
    return int(inserted[0])


@dataclass(frozen=True, kw_only=True)
class _Staged:
    """The rows of all bundles for one table."""

    table: Table
    rows: pa.Table
    keys: list[Key]
    bundles: list[int]
    """Position of the bundle that each row came in."""
    stored: set[Key]
    """The keys that the lake has already."""

    def select_alive(self, alive: set[int]) -> Iterator[Key]:
        for key, position in zip(self.keys, self.bundles, strict=True):
            if position in alive:
                yield key


def _stage(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, keys: KeyIndex, made: list[Bundle]
) -> dict[str, _Staged]:
    import pyarrow as pa

    staged: dict[str, _Staged] = {}
    for name, table in catalog.tables.items():
        parts: list[pa.Table] = []
        positions: list[int] = []
        for position, one in enumerate(made):
            if name in one.tables and one.tables[name].num_rows:
                parts.append(one.tables[name])
                positions += [position] * one.tables[name].num_rows
        if parts:
            rows = pa.concat_tables(parts).combine_chunks()
            of_rows = list(zip(*(rows.column(part).to_pylist() for part in table.key), strict=True))
            staged[name] = _Staged(
                table=table,
                rows=rows,
                keys=of_rows,
                bundles=positions,
                stored=keys.find_stored(connection, table, set(of_rows)),
            )
    return staged


def _find_repeated_keys(staged: dict[str, _Staged], alive: set[int]) -> dict[int, RowsRejected]:
    """Find bundles that repeat a key of the lake or of an earlier bundle against the rules."""
    rejected: dict[int, RowsRejected] = {}
    for rows in staged.values():
        if rows.table.duplicates == "skip":
            continue
        first: dict[Key, int] = {}
        bad: dict[int, list[Key]] = {}
        for key, position in zip(rows.keys, rows.bundles, strict=True):
            if position in alive and (
                key in rows.stored or first.setdefault(key, position) != position
            ):
                bad.setdefault(position, []).append(key)
        rule = row_checks.describe_key(rows.table)
        rejected |= _refuse(rows.table, rule, rows.table.key, bad)
    return rejected


def _find_dangling(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    keys: KeyIndex,
    staged: dict[str, _Staged],
    alive: set[int],
) -> dict[int, RowsRejected]:
    """Find bundles that refer to rows which neither the lake nor a remaining bundle has."""
    rejected: dict[int, RowsRejected] = {}
    for rows in staged.values():
        for column, target in catalog.references(rows.table):
            values = _list_distinct(rows.rows.column(column.name))
            if target.name in staged:
                values -= {key[0] for key in staged[target.name].select_alive(alive)}
            unknown: set[Key] = {(value,) for value in values}
            unknown -= keys.find_stored(connection, target, unknown)
            if unknown:
                missing = {key[0] for key in unknown}
                rejected |= _find_referring(rows, column, target, missing, alive)
    return rejected


def _list_distinct(column: pa.ChunkedArray) -> set[object]:
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    values: set[object] = set(pc.unique(flat).to_pylist())
    return values - {None}


def _find_referring(
    staged: _Staged, column: Column, target: Table, missing: set[object], alive: set[int]
) -> dict[int, RowsRejected]:
    """Refuse the remaining bundles in which a reference has one of the missing values."""
    bad: dict[int, list[Key]] = {}
    values = staged.rows.column(column.name).to_pylist()
    for key, position, value in zip(staged.keys, staged.bundles, values, strict=True):
        pointed = value if isinstance(value, list) else [value]
        if position in alive and not missing.isdisjoint(pointed):
            shown = next(one for one in pointed if one in missing)
            bad.setdefault(position, []).append((*key, shown))
    rule = row_checks.describe_reference(column, target)
    return _refuse(staged.table, rule, (*staged.table.key, column.name), bad)


def _refuse(
    table: Table, rule: str, names: tuple[str, ...], bad: dict[int, list[Key]]
) -> dict[int, RowsRejected]:
    return {
        position: RowsRejected(
            table.name, rule, len(rows), describe_rows(names, rows[: row_checks.EXAMPLES])
        )
        for position, rows in bad.items()
    }


def _insert_staged(
    connection: duckdb.DuckDBPyConnection, staged: _Staged, alive: set[int]
) -> Counter[int]:
    """Insert the rows of the remaining bundles; for equal keys, only the first that is not stored.

    Returns how many rows each bundle added.
    """
    import pyarrow as pa

    skips = staged.table.duplicates == "skip"
    seen = set(staged.stored)
    wanted: list[bool] = []
    for key, position in zip(staged.keys, staged.bundles, strict=True):
        wanted.append(position in alive and not (skips and key in seen))
        if wanted[-1]:
            seen.add(key)
    if any(wanted):
        rows = staged.rows if all(wanted) else staged.rows.filter(pa.array(wanted))
        connection.register("_staged", rows)
        insert_rows(connection, staged.table, "FROM _staged")
        connection.unregister("_staged")
    return Counter(position for position, kept in zip(staged.bundles, wanted, strict=True) if kept)
