"""An index of the keys in a lake, beside its catalog, which replaces scans."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import duckdb
import pyarrow as pa

from store.lake.attachment import is_expired, list_filled_tables
from store.lake.location import METADATA, Location
from store.lake.sql_files import read_sql
from store.schema.catalog import Catalog, Table
from store.schema.row_checks import Export
from store.schema.sql_text import quote_values

_T = TypeVar("_T")

_UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID_LENGTH = 36
_DIGEST_BYTES = 16
_CUT = f"""
WITH RECURSIVE places(place) AS (
    SELECT 1
    UNION ALL
    SELECT place + {_DIGEST_BYTES} FROM places WHERE place + {_DIGEST_BYTES} < length(:joined)
), given(digest) AS (SELECT substr(:joined, place, {_DIGEST_BYTES}) FROM places)
"""
"""Cuts digests from one value, which is three times as fast as handing over each of them."""
DELETABLE = "rollout_tokens"
"""The only table whose rows can be deleted: by `store expire --tokens`."""
BATCH_ROWS = 100_000


class KeyIndex:
    """Digests of the stored keys, in `keys.sqlite`: 16 bytes each, one B-tree for each table.

    A key is a text as `row_checks.make_key_texts` makes it. Hashes are spread over all files of a
    table, so only an index finds one fast. UUIDv7 ids grow with time: of these only the highest is
    recorded. A later id is new without a lookup; about an earlier id the lake is asked once.

    The index states the snapshot that it is current to and follows the lake from there, which
    includes loads, killed writers and other hosts. Without a snapshot to start from, it is rebuilt.
    Losing the file loses no data.

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
        self, connection: duckdb.DuckDBPyConnection, table: Table, keys: pa.Array
    ) -> pa.Array:
        """Return those of the keys that the lake holds, as of the last `follow` or `add`."""
        digests = {hash_key(key): key for key in cast("list[str]", keys.to_pylist())}
        query = f"{_CUT} SELECT digest FROM {table.name} WHERE digest IN (SELECT digest FROM given)"
        given = {"joined": b"".join(digests)}
        stored = self._repair(connection, lambda index: index.execute(query, given).fetchall())
        held = {digests[one] for (one,) in stored}
        held |= self._find_earlier(connection, table, set(digests.values()) - held)
        return pa.array(held, pa.string())

    def add(self, connection: duckdb.DuckDBPyConnection, keys: Mapping[str, list[str]]) -> int:
        """Add the keys of the commit that has just been made; return its snapshot."""
        since = self._current[0] if self._current else 0
        snapshot, moment = _read_newest(self._location, connection, since)
        # If there were other commits in between, the next `follow` finds them.
        if self._index is not None and self._current and snapshot == self._current[0] + 1:
            try:
                with self._index as index:
                    for name, some in keys.items():
                        _insert(index, name, (hash_key(key) for key in some if not _is_timed(key)))
                        _raise_highest(index, name, filter(_is_timed, some))
                    self._mark(index, snapshot, moment)
            except sqlite3.Error:
                # The rows are committed. An outdated index catches up, and a broken one is rebuilt.
                self._current = None
        return snapshot

    def _follow(self, index: sqlite3.Connection, connection: duckdb.DuckDBPyConnection) -> int:
        self._current = index.execute("SELECT snapshot, moment FROM _state").fetchone()
        since = self._current[0] if self._current else 0
        newest = _read_newest(self._location, connection, since)
        if self._current == newest:
            return newest[0]
        if self._current and self._current[0] < newest[0]:
            since, moment = self._current
            # The time distinguishes a lake that was restored from a backup.
            row = connection.execute(
                self._location.qualify(f"SELECT {_MOMENT} FROM {_SNAPSHOTS} WHERE snapshot_id = ?"),
                [since],
            ).fetchone()
            if row is not None and str(row[0]) == moment:
                try:
                    # The tables that got rows since; unknown where some snapshots have expired.
                    query = read_sql(__file__, "changed_tables")
                    rows = connection.execute(query, {"since": since}).fetchall()
                    is_known = rows[0][1] == newest[0] - since
                    changed = {row[0] for row in rows} if is_known else None
                    with index:
                        for table in self._catalog.tables.values():
                            if table.name == DELETABLE and (changed is None or rows[0][2]):
                                index.execute(f"DELETE FROM {table.name}")
                                self._take_keys(index, connection, table, f"lake.{table.name}")
                            elif changed is None or table.name in changed:
                                place = f"'lake', 'main', '{table.name}', {since + 1}, {newest[0]}"
                                source = f"ducklake_table_insertions({place})"
                                self._take_keys(index, connection, table, source)
                        self._mark(index, *newest)
                    return newest[0]
                except duckdb.InvalidInputException as error:
                    if not is_expired(error):
                        raise
        filled = list_filled_tables(connection, self._location)
        with index:
            index.execute("DELETE FROM _highest")
            index.execute("DROP TABLE IF EXISTS _packed")  # of version 3 of the form
            for table in self._catalog.tables.values():
                index.execute(f"DELETE FROM {table.name}")
                if table.name in filled:
                    self._take_keys(index, connection, table, f"lake.{table.name}")
            self._mark(index, *newest)
        return newest[0]

    def _take_keys(
        self,
        index: sqlite3.Connection,
        connection: duckdb.DuckDBPyConnection,
        table: Table,
        rows: str,
    ) -> None:
        key = _build_key_sql(table)
        # Measuring texts is faster than matching them.
        timed = f"length({key}) = {_UUID_LENGTH} AND regexp_full_match({key}, '{_UUID7}')"
        digest = f"unhex(sha256({key})[:{2 * _DIGEST_BYTES}])"
        answer = connection.execute(
            f"SELECT CASE WHEN NOT ({timed}) THEN {digest} END AS digest, "
            f"max({key}) FILTER ({timed}) FROM {rows} GROUP BY digest ORDER BY digest"
        )
        while some := answer.fetchmany(BATCH_ROWS):
            _insert(index, table.name, (digest for digest, _ in some if digest is not None))
            _raise_highest(index, table.name, [str(one) for _, one in some if one is not None])

    def _find_earlier(
        self, connection: duckdb.DuckDBPyConnection, table: Table, keys: set[str]
    ) -> set[str]:
        """Ask the lake about ids that are no later than the highest that it holds."""
        if not keys or self._index is None:
            return set()
        row = self._index.execute(
            "SELECT id FROM _highest WHERE name = ?", (table.name,)
        ).fetchone()
        unsure = [key for key in keys if row and key <= row[0] and _is_timed(key)]
        if not unsure:
            return set()
        stored = find_in_lake(connection, table, pa.array(unsure, pa.string()))
        ids = cast("list[str]", stored.to_pylist())
        with self._index as index:
            _insert(index, table.name, map(hash_key, ids))
        return set(ids)

    def _mark(self, index: sqlite3.Connection, snapshot: int, moment: str) -> None:
        index.execute("DELETE FROM _state")
        index.execute("INSERT INTO _state VALUES (?, ?)", (snapshot, moment))
        self._current = (snapshot, moment)

    def _repair(
        self, connection: duckdb.DuckDBPyConnection, work: Callable[[sqlite3.Connection], _T]
    ) -> _T:
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
                index.execute("CREATE TABLE IF NOT EXISTS _highest (name PRIMARY KEY, id)")
                index.execute("CREATE TABLE IF NOT EXISTS _state (snapshot, moment)")
        return self._index


def hash_key(key: str) -> bytes:
    """Return the 16-byte digest of a key, given as the text that `_build_key_sql` computes."""
    return hashlib.sha256(key.encode()).digest()[:_DIGEST_BYTES]


def find_in_lake(connection: duckdb.DuckDBPyConnection, table: Table, keys: pa.Array) -> pa.Array:
    """Return those of some keys, as texts, that the attached lake holds."""
    import pyarrow.compute as pc

    if not len(keys):
        return keys
    # The range lets DuckLake skip files by their statistics.
    lowest, highest = (str(one.as_py()).split("\0")[0] for one in pc.min_max(keys).values())
    between = f'"{table.key[0]}" BETWEEN {quote_values((lowest,))} AND {quote_values((highest,))}'
    candidates = Export(pa.table([keys], names=["key"]))
    connection.register("candidates", candidates)
    answer = connection.execute(
        f"SELECT DISTINCT key FROM (SELECT {_build_key_sql(table)} AS key "
        f"FROM lake.{table.name} WHERE {between}) SEMI JOIN candidates USING (key)"
    )
    found: Any = answer.to_arrow_table().column("key")
    candidates.rows = None  # the connection keeps the object until the transaction ends
    return found.combine_chunks()


def _build_key_sql(table: Table) -> str:
    """Return SQL for the text that `row_checks.make_key_texts` makes of a key."""
    parts = [f'"{name}"::VARCHAR' for name in table.key]
    return parts[0] if len(parts) == 1 else f"concat_ws(chr(0), {', '.join(parts)})"


def _is_timed(key: str) -> bool:
    return len(key) == _UUID_LENGTH and re.fullmatch(_UUID7, key) is not None


def _insert(index: sqlite3.Connection, name: str, digests: Iterable[bytes]) -> None:
    joined = b"".join(digests)
    if joined:
        query = f"INSERT OR IGNORE INTO {name} {_CUT} SELECT digest FROM given"
        index.execute(query, {"joined": joined})


def _raise_highest(index: sqlite3.Connection, name: str, ids: Iterable[str]) -> None:
    highest = max(ids, default=None)
    if highest is not None:
        index.execute(
            "INSERT INTO _highest VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET id = max(id, excluded.id)",
            (name, highest),
        )


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


# An index of another format is treated like one of another lake.
_MOMENT = "concat('form 4, ', snapshot_time)"
_SNAPSHOTS = f"{METADATA}.ducklake_snapshot"
