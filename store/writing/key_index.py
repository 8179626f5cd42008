"""An index of the keys in a lake, beside its catalog, which replaces scans."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from store.lake.attachment import is_expired, list_filled_tables
from store.lake.location import METADATA, Location
from store.schema.catalog import Catalog
from store.schema.tables import Table
from store.writing import packed_runs
from store.writing.packed_runs import DIGEST_BYTES

if TYPE_CHECKING:
    import duckdb

Key: TypeAlias = "tuple[Any, ...]"
_T = TypeVar("_T")

_UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID_LENGTH = 36
_VARIABLES = 10_000
PACKED_ROWS = 10_000
BATCH_ROWS = 100_000


class KeyIndex:
    """Digests of the stored keys, in `keys.sqlite`: 16 bytes each, one B-tree for each table.

    Digests of many rows that were added at once are packed instead (`packed_runs`).

    The index states the snapshot that it is current to and follows the lake from there, which
    includes loads, killed writers and other hosts. Without a snapshot to start from, it is rebuilt.
    Losing the file loses no data. UUIDv7 ids grow with time, so for loads of many rows only the
    highest one is recorded. A later id is new without a lookup; for an earlier id the lake is
    queried once.

    Every method is called under the lake's lock.
    """

    def __init__(self, location: Location, catalog: Catalog) -> None:
        self._location = location
        self._file = location.key_index
        self._catalog = catalog
        self._index: sqlite3.Connection | None = None
        self._current: tuple[int, str] | None = None

    def close(self) -> None:
        """Close the file."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def follow(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Bring the index to the newest snapshot of the attached lake; return that snapshot."""
        return self._repair(connection, lambda index: self._follow(index, connection))

    def find_stored(
        self, connection: duckdb.DuckDBPyConnection, table: Table, keys: Collection[Key]
    ) -> set[Key]:
        """Return those of the keys that the lake holds, as of the last `follow` or `add`."""
        if not keys:
            return set()
        digests = {hash_key(key): key for key in keys}
        found = self._repair(connection, lambda index: _find_held(index, table, list(digests)))
        held = {digests[one] for one in found}
        return held | self._find_in_lake(connection, table, set(keys) - held)

    def add(self, connection: duckdb.DuckDBPyConnection, keys: Mapping[str, Iterable[Key]]) -> int:
        """Add the keys of the commit that has just been made; return its snapshot."""
        since = self._current[0] if self._current else 0
        snapshot, moment = _read_newest(self._location, connection, since)
        # If there were other commits in between, the next `follow` finds them.
        if self._index is not None and self._current and snapshot == self._current[0] + 1:
            try:
                with self._index as index:
                    for name, rows in keys.items():
                        _insert(index, name, ((hash_key(key),) for key in rows))
                    self._mark(index, snapshot, moment)
            except sqlite3.Error:
                # The rows are committed. An outdated index catches up, and a broken one is rebuilt.
                self._current = None
        return snapshot

    def _follow(self, index: sqlite3.Connection, connection: duckdb.DuckDBPyConnection) -> int:
        import duckdb

        self._current = index.execute("SELECT snapshot, moment FROM _state").fetchone()
        since = self._current[0] if self._current else 0
        newest = _read_newest(self._location, connection, since)
        if self._current == newest:
            return newest[0]
        if self._current and self._current[0] < newest[0]:
            since, moment = self._current
            # The time distinguishes a lake that was restored from a backup.
            if _read_time(self._location, connection, since) == moment:
                try:
                    with index:
                        self._take_since(index, connection, since, newest[0])
                        self._mark(index, *newest)
                    return newest[0]
                except duckdb.InvalidInputException as error:
                    if not is_expired(error):
                        raise
        filled = list_filled_tables(connection, self._location)
        with index:
            index.execute("DELETE FROM _highest")
            index.execute("DELETE FROM _packed")
            for table in self._catalog.tables.values():
                index.execute(f"DELETE FROM {table.name}")
                if table.name in filled:
                    self._take_keys(index, connection, table, f"lake.{table.name}")
            self._mark(index, *newest)
        return newest[0]

    def _take_since(
        self,
        index: sqlite3.Connection,
        connection: duckdb.DuckDBPyConnection,
        since: int,
        newest: int,
    ) -> None:
        changed = _list_changed(connection, since, newest)
        for table in self._catalog.tables.values():
            if changed is None or table.name in changed:
                rows = f"ducklake_table_insertions('lake', 'main', '{table.name}', "
                self._take_keys(index, connection, table, f"{rows}{since + 1}, {newest})")

    def _take_keys(
        self,
        index: sqlite3.Connection,
        connection: duckdb.DuckDBPyConnection,
        table: Table,
        rows: str,
    ) -> None:
        """Add the keys of stored rows."""
        names = ", ".join(f'"{name}"' for name in table.key)
        some = connection.execute(f"SELECT {names} FROM {rows} LIMIT {PACKED_ROWS}").fetchall()
        if len(some) < PACKED_ROWS:
            _insert(index, table.name, ((hash_key(key),) for key in some))
            return
        kept, others = "true", PACKED_ROWS
        if len(table.key) == 1:
            name = f'"{table.key[0]}"'
            # Measuring texts is faster than matching them.
            timed = f"length({name}) = {_UUID_LENGTH} AND regexp_full_match({name}, '{_UUID7}')"
            kept = f"NOT ({timed})"
            row = connection.execute(
                f"SELECT max({name}) FILTER ({timed}), count(*) FILTER ({kept}) FROM {rows}"
            ).fetchone()
            highest, others = row or (None, 0)
            if highest:
                index.execute(
                    "INSERT INTO _highest VALUES (?, ?) "
                    "ON CONFLICT DO UPDATE SET id = max(id, excluded.id)",
                    (table.name, highest),
                )
            if not others:
                return
        digests = _read_digests(
            connection,
            f"SELECT {_build_hash_sql(table)} AS digest FROM {rows} WHERE {kept} ORDER BY 1",
        )
        if others < PACKED_ROWS:
            _insert(index, table.name, ((one,) for one in _split_digests(digests)))
        else:
            packed_runs.add_run(index, table.name, digests)

    def _find_in_lake(
        self, connection: duckdb.DuckDBPyConnection, table: Table, keys: set[Key]
    ) -> set[Key]:
        """Ask the lake about ids no later than the highest that was loaded in bulk."""
        if not keys or len(table.key) != 1 or self._index is None:
            return set()
        row = self._index.execute(
            "SELECT id FROM _highest WHERE name = ?", (table.name,)
        ).fetchone()
        ids = [str(value) for (value,) in keys]
        unsure = [one for one in ids if row and one <= row[0] and re.fullmatch(_UUID7, one)]
        if not unsure:
            return set()
        # The range lets DuckLake skip files by their statistics.
        name = f'"{table.key[0]}"'
        rows = connection.execute(
            f"SELECT DISTINCT {name} FROM lake.{table.name} "
            f"WHERE {name} BETWEEN ? AND ? AND {name} IN (SELECT unnest(?))",
            [min(unsure), max(unsure), unsure],
        ).fetchall()
        with self._index as index:
            _insert(index, table.name, ((hash_key(row),) for row in rows))
        return set(rows)

    def _mark(self, index: sqlite3.Connection, snapshot: int, moment: str) -> None:
        index.execute("DELETE FROM _state")
        index.execute("INSERT INTO _state VALUES (?, ?)", (snapshot, moment))
        self._current = (snapshot, moment)

    def _repair(
        self, connection: duckdb.DuckDBPyConnection, work: Callable[[sqlite3.Connection], _T]
    ) -> _T:
        """Use the index; rebuild it first if it cannot be read."""
        try:
            return work(self._open())
        except sqlite3.DatabaseError:
            self.close()
            for file in self._file.parent.glob(f"{self._file.name}*"):
                file.unlink()
            self._follow(self._open(), connection)
            return work(self._open())

    def _open(self) -> sqlite3.Connection:
        # Do not write to a file that was deleted or replaced meanwhile.
        if self._index is not None and not self._file.exists():
            self.close()
        if self._index is None:
            # The folder is missing on a host that is new to a lake on a server.
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._index = index = sqlite3.connect(self._file, check_same_thread=False)
            # NORMAL in WAL mode: power loss may cost the last commits, never the file.
            index.execute("PRAGMA journal_mode = WAL")
            index.execute("PRAGMA synchronous = NORMAL")
            with index:
                for name in self._catalog.tables:
                    index.execute(
                        f"CREATE TABLE IF NOT EXISTS {name} (digest BLOB PRIMARY KEY) WITHOUT ROWID"
                    )
                packed_runs.create_tables(index)
                index.execute("CREATE TABLE IF NOT EXISTS _highest (name PRIMARY KEY, id)")
                index.execute("CREATE TABLE IF NOT EXISTS _state (snapshot, moment)")
        return self._index


def hash_key(key: Key) -> bytes:
    """Return the 16-byte digest of a key; `_build_hash_sql` computes the same in SQL."""
    # No key contains a NUL (catalog.py), so a NUL can separate the parts.
    return hashlib.sha256("\0".join(str(value) for value in key).encode()).digest()[:DIGEST_BYTES]


def _build_hash_sql(table: Table) -> str:
    parts = [f'"{name}"::VARCHAR' for name in table.key]
    whole = parts[0] if len(parts) == 1 else f"concat_ws(chr(0), {', '.join(parts)})"
    return f"unhex(sha256({whole})[:32])"


def _read_digests(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """Yield the digests that a query returns, joined in pieces.

    All of them as Python objects would take ten times as much memory.
    """
    answer = connection.execute(query)
    while rows := answer.fetchmany(BATCH_ROWS):
        yield b"".join([row[0] for row in rows])


def _split_digests(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), DIGEST_BYTES):
            yield piece[start : start + DIGEST_BYTES]


def _find_held(index: sqlite3.Connection, table: Table, digests: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(digests), _VARIABLES):
        some = digests[start : start + _VARIABLES]
        marks = ", ".join("?" * len(some))
        query = f"SELECT digest FROM {table.name} WHERE digest IN ({marks})"
        found += [row[0] for row in index.execute(query, some)]
    return found + packed_runs.find_digests(index, table.name, set(digests).difference(found))


def _insert(index: sqlite3.Connection, name: str, digests: Iterable[tuple[bytes, ...]]) -> None:
    index.executemany(f"INSERT OR IGNORE INTO {name} VALUES (?)", digests)


def _read_newest(
    location: Location, connection: duckdb.DuckDBPyConnection, since: int
) -> tuple[int, str]:
    """Return the newest snapshot and its time; `since` is one that is not newer, if it is there."""
    for later in (f"WHERE snapshot_id >= {since}", ""):
        # The database evaluates the condition, and sends all rows that keep it.
        row = connection.execute(
            location.qualify(
                f"SELECT snapshot_id, {_MOMENT} FROM {_SNAPSHOTS} {later} ORDER BY 1 DESC LIMIT 1"
            )
        ).fetchone()
        if row is not None:
            break
    assert row is not None
    return int(row[0]), str(row[1])


def _read_time(
    location: Location, connection: duckdb.DuckDBPyConnection, snapshot: int
) -> str | None:
    row = connection.execute(
        location.qualify(f"SELECT {_MOMENT} FROM {_SNAPSHOTS} WHERE snapshot_id = ?"), [snapshot]
    ).fetchone()
    return None if row is None else str(row[0])


def _list_changed(
    connection: duckdb.DuckDBPyConnection, since: int, newest: int
) -> set[str] | None:
    """Return the tables that got rows after a snapshot; None where some snapshots have expired."""
    rows = connection.execute(
        """
        WITH later AS (
            SELECT changes FROM ducklake_snapshots('lake') WHERE snapshot_id > $since
        ), ids AS (
            SELECT unnest(list_concat(changes['tables_inserted_into'], changes['inlined_insert']))
            FROM later
        )
        SELECT table_name, (SELECT count(*) FROM later) FROM ducklake_table_info('lake')
        WHERE table_id::VARCHAR IN (FROM ids) OR table_name = 'lakes'
        """,
        {"since": since},
    ).fetchall()
    return {row[0] for row in rows} if rows[0][1] == newest - since else None


# An index of another format is treated like one of another lake.
_MOMENT = "concat('form 3, ', snapshot_time)"
_SNAPSHOTS = f"{METADATA}.ducklake_snapshot"
