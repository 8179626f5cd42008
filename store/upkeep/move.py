"""Moves a lake with its history to another place: other data files, another catalog database.

Snapshots keep their numbers and the lake its identity, so that tags and citations stay true. Both
places record the move until it is complete, and neither can be read or written meanwhile except
by the move. An interrupted move is run again: it continues with the files that are missing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import TYPE_CHECKING

from store import faults
from store.errors import FlywheelError, LakeUnreachable
from store.lake import checksums
from store.lake.attachment import attach, connect
from store.lake.data_files import DataFiles
from store.lake.location import FolderLocation, Location, Move
from store.upkeep.catalog_copy import Catalog, copy_catalog, digest_lake
from store.writing import spool
from store.writing.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.commandline.progress import Progress
    from store.lake.checksums import DataFile

AUTHOR = "store move"
_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a move did."""

    snapshots: int
    rows: int
    files: int
    """Data files of the lake."""
    copied: int
    """Data files that this run copied; the others were there."""


def move(source: Location, target: Location, progress: Progress | None = None) -> Summary | int:
    """Move a lake; return a summary, or the number of spooled files that it forwarded.

    The source is left in place, and refuses to be opened from then on. Where the lake was moved
    before, bundles in this host's spool for the source are committed to the target.

    Raises FlywheelError, with nothing lost, where the target holds something else, a data file is
    damaged, or the copy differs.
    """
    source.require_writable()
    away = source.read_move()
    if away is not None and (not away.is_away or away.url != target.url):
        source.refuse_move(away)
    if away is not None and target.read_move() is None:
        return _forward_spool(source, target)
    if away is None:
        source.require()
        with Writer(source, AUTHOR) as writer:
            writer.flush()
    with source.lock(AUTHOR, moving=True):
        lake_id = _read_lake_id(source)
        _require_room(source, target, lake_id)
        with target.lock(AUTHOR, moving=True):
            note = "Nothing is lost: the same command resumes the move."
            with faults.at(target.url, LakeUnreachable, note):
                return _move(source, target, lake_id, progress)


def _forward_spool(source: Location, target: Location) -> int:
    files = spool.forward(source.spool, target.spool)
    with Writer(target, AUTHOR) as writer:
        writer.flush()
    return files


def _read_lake_id(location: Location) -> str:
    connection = connect(to=location)
    try:
        attach(connection, location)
        row = connection.execute("SELECT lake_id FROM lake.lakes ORDER BY created_at").fetchone()
        assert row is not None
        return str(row[0])
    finally:
        connection.close()


def _require_room(source: Location, target: Location, lake_id: str) -> None:
    """Raise FlywheelError unless the target is empty or has an unfinished move of this lake."""
    if spool.list_files(source.spool):
        raise FlywheelError(
            f"a program has spooled bundles for {source.url} just now",
            "Stop the programs that write to it, and run this again.",
        )
    coming = target.read_move()
    if coming is not None and not coming.is_away and coming.lake_id == lake_id:
        return
    is_folder = isinstance(target, FolderLocation)
    if coming is not None or target.exists or (is_folder and not target.is_empty):
        raise FlywheelError(
            f"{target.url} is not empty", "Name a new folder, schema or prefix; nothing was moved."
        )
    if source.files == target.files:
        raise FlywheelError(
            f"both lakes would have their data files in {source.files.url}",
            "Name another place in data=: deleting the old lake would delete its files.",
        )
    inside = [
        new
        for new in _list_places(target)
        if any(PurePath(new).is_relative_to(old) for old in _list_places(source))
    ]
    if inside:
        raise FlywheelError(
            f"{inside[0]} is inside the lake itself",
            "Name a place outside of it: deleting the old lake would delete the new one.",
        )


def _list_places(location: Location) -> list[str]:
    """Return the folders and prefixes that are deleted together with a lake."""
    folders = [str(location.root)] if isinstance(location, FolderLocation) else []
    return [*folders, location.files.url]


def _move(source: Location, target: Location, lake_id: str, progress: Progress | None) -> Summary:
    """Copy, compare, and then retire the source and release the target, in this order."""
    target.announce_lake()
    # What a full disk stops from here on finds this record, and goes on.
    target.write_move(Move(lake_id=lake_id, url=source.url, is_away=False))
    target.prepare()
    target.write_salt(source.read_salt())
    files = checksums.list_files(source)
    copied = _copy_files(files, target.files, progress)
    with target.make_catalog() as place:
        if not place.exists:
            # Let DuckLake create its own tables.
            connection = connect(to=place)
            try:
                attach(connection, place, writable=True, create=True)
            finally:
                connection.close()
        with Catalog(source, writable=False) as old, Catalog(place, writable=True) as new:
            copy_catalog(old, new, target.files.url)
    damaged = checksums.find_damage(checksums.list_files(target), progress)
    checksums.require_whole(damaged, f"Nothing was moved: delete that file in {target.files.url}.")
    snapshots, rows = _require_equal(source, target)
    source.write_move(Move(lake_id=lake_id, url=target.url, is_away=True))
    target.write_move(None)
    return Summary(snapshots=snapshots, rows=rows, files=len(files), copied=copied)


def _copy_files(files: Sequence[DataFile], to: DataFiles, progress: Progress | None) -> int:
    """Copy the files that are missing or incomplete; return how many."""
    there = to.list_sizes()
    missing = [one for one in files if there.get(one.path) != one.bytes]
    megabytes = sum(one.bytes for one in missing) // 1_000_000
    done = 0
    with ThreadPoolExecutor(_THREADS) as threads:
        copies = threads.map(lambda one: to.copy_from(one.files, one.path), missing)
        for one, _ in zip(missing, copies, strict=True):
            done += one.bytes
            if progress is not None:
                progress(done // 1_000_000, megabytes, "MB of data files copied")
    return len(missing)


def _require_equal(source: Location, target: Location) -> tuple[int, int]:
    """Compare two lakes row by row and snapshot by snapshot; return how many of each they have."""
    snapshots = rows = 0
    for old, new in zip_longest(digest_lake(source), digest_lake(target)):
        if old != new:
            raise FlywheelError(
                f"the copy in {target.url} differs from {source.url} in {(old or new)[0]}",
                "Nothing was moved, and the lake is unchanged. Run `store check --full` on it, "
                "empty the target, and try again.",
            )
        name, parts = old
        if name == "snapshots":
            snapshots = len(parts)
        else:
            rows += sum(int(str(part[1])) for part in parts)
    return snapshots, rows
