"""Checksums of data files: computed in the commit that writes a file, compared later.

The table `file_checksums` stores them. It stays in the lake's catalog database (compaction leaves
it there), so that every backup includes it and it needs no file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from store import faults
from store.errors import summarize_error
from store.lake.attachment import attach, connect
from store.lake.data_files import DataFiles, Stamp
from store.lake.location import METADATA, Location
from store.lake.sql_files import read_sql
from store.schema.sql_text import fetch_row

if TYPE_CHECKING:
    from store.commandline.echo import Progress

TABLE = "file_checksums"
RESTORE = (
    "Copy the file back from a backup, or `store pull` or `store import` its rows into a new lake."
)
_THREADS = 8
_NONE: Mapping[str, Stamp] = MappingProxyType({})


@dataclass(frozen=True)
class DataFile:
    """One Parquet file that some snapshot of a lake reads."""

    table: str
    path: str
    """Path from the lake's data folder."""
    files: DataFiles
    """Those of the lake."""
    since: int
    """First snapshot that reads it."""
    until: int | None
    """First snapshot that no longer reads it; None while the newest one does."""
    bytes: int
    """Size when it was committed."""
    rows: int
    sha256: str | None
    """None if no checksum was recorded, as for files of older versions or of other programs."""

    @property
    def snapshots(self) -> str:
        """The snapshots that read it, in words."""
        if self.until is None:
            return f"snapshot {self.since} and later"
        if self.until == self.since + 1:
            return f"snapshot {self.since}"
        return f"snapshots {self.since} to {self.until - 1}"

    def is_read_at(self, snapshot: int) -> bool:
        """Return whether a snapshot reads it."""
        return self.since <= snapshot and (self.until is None or snapshot < self.until)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A data file that differs from the committed one."""

    file: DataFile
    what: str

    def __str__(self) -> str:
        return f"{self.file.path} ({self.file.snapshots}): {self.what}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a comparison of files with the committed ones found."""

    files: list[DataFile]
    damaged: list[Damage]
    stamps: dict[str, Stamp]
    """Path to what the file was before it was read, of every file that is there."""
    unread: frozenset[str]
    """Paths of the files that were trusted and not read."""


def insert_checksums(
    connection: duckdb.DuckDBPyConnection, location: Location, files: Sequence[str]
) -> None:
    """Compute and insert the checksums of data files, in the transaction that commits them."""
    with ThreadPoolExecutor(_THREADS) as threads:
        hashes = list(threads.map(location.files.hash, files))
        sizes = [size for size, *_ in threads.map(location.files.stamp, files)]
    rows = pa.table(
        {
            "path": list(files),
            "sha256": hashes,
            "bytes": sizes,
            "created_at": pa.array([datetime.now(UTC)] * len(files), pa.timestamp("us", tz="UTC")),
        }
    )
    connection.register("_checksums", rows)
    connection.execute(f"INSERT INTO lake.{TABLE} BY NAME SELECT * FROM _checksums")
    connection.unregister("_checksums")


def list_attached_files(
    connection: duckdb.DuckDBPyConnection, location: Location, *, with_checksums: bool = True
) -> list[DataFile]:
    """Return the data files of an attached lake, with their checksums if recorded."""
    rows = connection.execute(location.qualify(read_sql(__file__, "data_files"))).fetchall()
    hashes: dict[str, str] = {}
    if rows and with_checksums and has_table(connection, location):
        hashes = dict(connection.execute(f"SELECT path, sha256 FROM lake.{TABLE}").fetchall())
    return [
        DataFile(table, path, location.files, since, until, size, count, hashes.get(path))
        for table, path, since, until, size, count in rows
    ]


def list_files(location: Location) -> list[DataFile]:
    """Return the data files of a lake, as `list_attached_files` does."""
    with connect(to=location) as connection:
        attach(connection, location)
        return list_attached_files(connection, location)


def has_table(connection: duckdb.DuckDBPyConnection, location: Location) -> bool:
    """Return whether the attached lake has the table of checksums."""
    # Not `duckdb_tables`, for which DuckLake counts the rows of every table.
    query = f"SELECT count(*) FROM {METADATA}.ducklake_table WHERE table_name = '{TABLE}'"
    return bool(fetch_row(connection, location.qualify(f"{query} AND end_snapshot IS NULL"))[0])


def compare_files(
    files: Iterable[DataFile],
    progress: Progress | None = None,
    trusted: Mapping[str, Stamp] = _NONE,
) -> Comparison:
    """Compare files with what was committed: by checksum, or by their footer without one.

    `trusted` has stamps of files that were whole. A file that still has that stamp is not read.
    """
    listed = list(files)
    damaged: list[Damage] = []
    done = 0
    with ThreadPoolExecutor(_THREADS) as threads:
        found = zip(listed, threads.map(_find_stamp, listed), strict=True)
        stamps = {one.path: stamp for one, stamp in found if stamp is not None}
        # DuckLake's catalog, and not the record of what is trusted, says how long a file is.
        unread = frozenset(
            one.path
            for one in listed
            if one.path in stamps
            and stamps[one.path] == trusted.get(one.path)
            and stamps[one.path][0] == one.bytes
        )
        read = [one for one in listed if one.path not in unread]
        megabytes = sum(one.bytes for one in read) // 1_000_000
        for one, what in zip(read, threads.map(_test_file, read), strict=True):
            done += one.bytes
            if progress is not None:
                progress(done // 1_000_000, megabytes, "MB of data files compared")
            if what is not None:
                damaged.append(Damage(file=one, what=what))
    return Comparison(files=listed, damaged=damaged, stamps=stamps, unread=unread)


def find_undecodable(files: Iterable[DataFile]) -> Iterator[Damage]:
    """Read whole files and yield the ones that cannot be decoded."""
    import pyarrow.parquet as pq

    for one in files:
        try:
            with pq.ParquetFile(one.path, filesystem=one.files.filesystem) as opened:
                for batch in opened.iter_batches():
                    batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            faults.raise_unless_damage(error, one.files.locate(one.path))
            yield Damage(file=one, what=f"cannot be decoded: {summarize_error(error)}")


def copy_files(
    files: Iterable[DataFile], to: DataFiles, progress: Progress | None = None
) -> tuple[int, int]:
    """Copy files of a lake to another place; return how many were copied, and how many were there.

    A file that is there has the same size. Raises OSError.
    """
    listed, there = list(files), to.list_sizes()
    missing = [one for one in listed if there.get(one.path) != one.bytes]
    megabytes = sum(one.bytes for one in missing) // 1_000_000
    done = 0
    with ThreadPoolExecutor(_THREADS) as threads:
        copies = threads.map(lambda one: to.copy_from(one.files, one.path), missing)
        for one, _ in zip(missing, copies, strict=True):
            done += one.bytes
            if progress is not None:
                progress(done // 1_000_000, megabytes, "MB of data files copied")
    return len(missing), len(listed) - len(missing)


def _find_stamp(one: DataFile) -> Stamp | None:
    """Return the stamp of a file; None where `_test_file` says what is wrong."""
    try:
        return one.files.stamp(one.path)
    except OSError:
        return None


def _test_file(one: DataFile) -> str | None:
    try:
        size, *_ = one.files.stamp(one.path)
        if size != one.bytes:
            state = "is cut short" if size < one.bytes else "was replaced"
            return f"{state}: it has {size} bytes, {one.bytes} were committed"
        if one.sha256 is not None:
            is_same = one.files.hash(one.path) == one.sha256
            changed = "its bytes changed since they were committed (another sha256)"
            return None if is_same else changed
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        faults.raise_unless_damage(error, one.files.locate(one.path))
        return f"cannot be read: {error.strerror or error}"
    # Without a recorded checksum, the footer has to do.
    import pyarrow.parquet as pq

    try:
        count = pq.read_metadata(one.path, filesystem=one.files.filesystem).num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        faults.raise_unless_damage(error, one.files.locate(one.path))
        return f"is not a whole Parquet file: {summarize_error(error)}"
    return None if count == one.rows else f"holds {count} rows, {one.rows} were committed"
