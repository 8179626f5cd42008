"""Maintenance of a lake: compaction, expiry, backups, and what `store check` found whole."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from duckdb import CatalogException

import store
from store import faults
from store.errors import FlywheelError, LakeUnreachable
from store.faults import replace_file
from store.ids import uuid7
from store.lake import checksums
from store.lake.attachment import WRITE_DATA_PATH, attach, connect, list_filled_tables, pin
from store.lake.checksums import DataFile
from store.lake.data_files import NewFiles, Stamp
from store.lake.host import rename_durably
from store.lake.location import METADATA, FolderLocation, Location, ServerLocation
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.schema import catalog as catalogs
from store.schema import migrate
from store.schema.catalog import Catalog
from store.schema.sql_text import fetch_row

if TYPE_CHECKING:
    import duckdb

    from store.commandline.echo import Progress

_RECORD = "checked.json"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What `store check` has found whole, so that the next check does not read it again.

    The record is a cache of this host. It states the lake, the snapshot and the rules, and is not
    used for others. A file is trusted as long as its stamp (size, times, inode) stays what it was,
    and until a command finds damage: damage of the disk leaves the stamp as it was.
    """

    snapshot: int
    """All rows up to this snapshot keep the rules."""
    files: dict[str, Stamp]
    """Data files that are those that were committed: path from the data folder to stamp."""


NOTHING = Checked(snapshot=-1, files={})


def read_checked(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog
) -> Checked:
    """Return the record for the attached lake, or `NOTHING` if it does not apply any more.

    It does not apply to another lake, to a lake that was restored from a backup or moved, to other
    rules, or if a snapshot since then has expired.
    """
    try:
        found = json.loads((location.root / _RECORD).read_text("utf-8"))
        files = {str(path): tuple(stamp) for path, stamp in dict(found["files"]).items()}
        checked = Checked(snapshot=int(found["snapshot"]), files=files)
        same = found["state"] == _describe_state(connection, location, catalog, checked.snapshot)
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING
    (is_whole,) = fetch_row(
        connection,
        "SELECT count(*) = coalesce(max(snapshot_id), $since) - $since "
        "FROM ducklake_snapshots('lake') WHERE snapshot_id > $since",
        {"since": checked.snapshot},
    )
    return checked if same and is_whole else NOTHING


def write_checked(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog, checked: Checked
) -> None:
    """Store the record for the attached lake, if this host's folder of the lake is writable."""
    record = {
        "state": _describe_state(connection, location, catalog, checked.snapshot),
        "snapshot": checked.snapshot,
        "files": dict(sorted(checked.files.items())),
    }
    with suppress(FlywheelError), replace_file(location.root / _RECORD) as partial:
        partial.write_text(json.dumps(record), "utf-8")


def require_whole(
    location: Location, files: Iterable[DataFile], what: str, progress: Progress | None = None
) -> None:
    """Raise FlywheelError if files of a lake are damaged; the message says what was not done."""
    damaged = checksums.compare_files(files, progress).damaged
    if damaged:
        distrust(location)
        more = f" and {len(damaged) - 1} more files" if len(damaged) > 1 else ""
        raise FlywheelError(
            f"{damaged[0].file.table}: {damaged[0]}{more}",
            f"{what} `store check --full` names every damaged file. {checksums.RESTORE}",
        )


def distrust(location: Location) -> None:
    """Make the next check read every file again, because one was found damaged under its stamp."""
    with suppress(OSError):
        (location.root / _RECORD).unlink()


def _describe_state(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog, snapshot: int
) -> list[str]:
    row = connection.execute(
        location.qualify(
            f"SELECT snapshot_time::VARCHAR FROM {METADATA}.ducklake_snapshot WHERE snapshot_id = ?"
        ),
        [snapshot],
    ).fetchone()
    stated = {name: catalog.rules(table) for name, table in catalog.tables.items()}
    rules = hashlib.sha256(repr((catalog.tables, catalog.enums, stated)).encode()).hexdigest()
    return [location.url, str(row[0]) if row else "", rules, store.__version__]


log = logging.getLogger(__name__)
# Files of a transaction that is still running must not look like orphans, and files that a
# running query has planned to read must not vanish.
ORPHAN_AGE = timedelta(days=2)
REPLACED_AGE = timedelta(days=1)
SMALL_FILE = 32 << 20
MERGED_AT_ONCE = 64
_UNCHANGED = "Nothing is lost."
_TOKENS = "lake.rollout_tokens"
_MESSAGE = "CALL lake.set_commit_message(getvariable('author'), 'maintenance', extra_info => '{}')"
_PARTIAL_CATALOG = "catalog.partial"
_OF_BACKUP = re.compile(rf"data|{re.escape(_PARTIAL_CATALOG)}.*")
"""Names in the folder of a backup that was stopped."""
_COPY_CATALOG = """
import sqlite3, sys
source, copy = map(sqlite3.connect, sys.argv[1:3])
with source, copy:
    source.backup(copy)
    copy.execute(sys.argv[3], sys.argv[4:5])
    copy.executescript(sys.argv[5])
# Without this, nobody could read the copy in a read-only folder.
copy.execute("PRAGMA journal_mode = DELETE")
copy.close()
source.close()
"""
_TEST_DATABASE = """
import json, sqlite3, sys
try:
    opened = sqlite3.connect(sys.argv[1], timeout=30)
    said = "; ".join(row[0] for row in opened.execute("PRAGMA integrity_check(3)"))
    opened.execute("SELECT count(*) FROM ducklake_snapshot").fetchone()
except sqlite3.Error as error:
    said = str(error)
print(json.dumps(said))
"""
_DATA_FILE = re.compile(
    r"main/[^/]+/ducklake-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    r"(-delete)?\.parquet"
)
"""Path of a data file as DuckLake names it, with a UUIDv7."""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Files and bytes before and after."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(location: Location) -> Compaction:
    """Write inlined rows to Parquet and merge small neighbouring files; every snapshot stays.

    Holds the lake's lock, so that no commit is under way; readers are not disturbed. Checksums of
    new files are recorded, and of older ones that have none. Answers that views keep
    (`store.lake.view_cache`) are brought up to date after that.

    Raises FlywheelError, with nothing changed, where a file that would be merged is damaged: the
    merged file would hide that.
    """
    with open_for_maintenance(location, "store compact") as connection:
        before = _measure_files(connection)
        files = checksums.list_attached_files(connection, location)
        touched = [one for one in files if one.sha256 is None or one.bytes < SMALL_FILE]
        require_whole(location, touched, "Nothing was compacted.")
        # Write inlined rows to files, except the checksums of these.
        # DuckLake takes milliseconds per column to plan the scan of a table without rows.
        tables = sorted(list_filled_tables(connection, location))
        calls = [
            f"CALL ducklake_flush_inlined_data('lake', table_name => '{name}')"
            for name in tables
            if name != checksums.TABLE
        ]
        _call(connection, location, *calls, moves_rows=True)
        # Merging wide texts takes memory per thread.
        connection.execute("SET threads = 1")
        _call(
            connection,
            location,
            "CALL ducklake_merge_adjacent_files('lake', "
            f"max_compacted_files => {MERGED_AT_ONCE}, max_file_size => {SMALL_FILE})",
        )
        if checksums.has_table(connection, location):
            # In a transaction of its own: DuckLake takes no rows while it merges.
            files = checksums.list_attached_files(connection, location)
            if unrecorded := [one.path for one in files if one.sha256 is None]:
                connection.execute("BEGIN")
                connection.execute(_MESSAGE)
                checksums.insert_checksums(connection, location, unrecorded)
                connection.execute("COMMIT")
        else:
            log.info("the lake has no table for checksums yet; `store init` makes it")
        _clean(connection, location)
        after = _measure_files(connection)
    with Lake(location) as reader:
        reader.write_cached_views()
    return Compaction(
        files_before=before[0], bytes_before=before[1], files_after=after[0], bytes_after=after[1]
    )


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """Snapshots that were removed (or would be), and why others stay."""

    expired: list[int]
    spared: dict[int, list[str]]


def expire(location: Location, older_than: timedelta, *, dry_run: bool = False) -> Expiry:
    """Forget snapshots older than a span, except the newest, tagged and cited ones.

    A snapshot is cited by a dataset, a run or a generation that was read from it. Rows are never
    removed; only the ability to read the lake as of that moment is lost.
    """
    limit = datetime.now(UTC) - older_than
    spared: dict[int, list[str]] = {}
    # Take the lock first: a tag that is added meanwhile waits, and finds its snapshot or is
    # refused.
    with open_for_maintenance(location, "store expire") as connection:
        with Lake(location) as reader:
            own = {"lake_id": reader.lake_id}
            for row in reader.run(read_sql(__file__, "spared"), own).rows():
                spared.setdefault(int(row["snapshot_id"]), []).append(str(row["why"]))
            spared.setdefault(reader.snapshot, []).append("the newest")
        old = connection.execute(
            "SELECT snapshot_id FROM ducklake_snapshots('lake') WHERE snapshot_time < ? ORDER BY 1",
            [limit],
        ).fetchall()
        expired = [int(row[0]) for row in old if row[0] not in spared]
        if expired and not dry_run:
            _call(
                connection,
                location,
                f"CALL ducklake_expire_snapshots('lake', versions => {expired})",
            )
            _clean(connection, location)
    return Expiry(expired=expired, spared=spared)


def expire_tokens(location: Location, run_id: str, *, dry_run: bool = False) -> int:
    """Delete the rows of `rollout_tokens` that a run has, in one commit; return how many.

    These are the only rows that are ever deleted. Snapshots from before keep them until they
    expire. Raises FlywheelError, with nothing deleted, while a tag, or a dataset with kernels of
    the run, needs a snapshot that has them.
    """
    with open_for_maintenance(location, "store expire") as connection:
        files = connection.execute(
            f"SELECT filename, count(*) FROM {_TOKENS} WHERE run_id = ? GROUP BY filename", [run_id]
        ).fetchall()
        count = sum(int(rows) for _, rows in files)
        with Lake(location) as reader:
            cited = reader.run(
                read_sql(__file__, "token_citations"),
                {"lake_id": reader.lake_id, "run_id": run_id},
            ).rows()
        reasons: list[str] = []
        for row in cited:
            version = f"{_TOKENS} AT (VERSION => {int(row['snapshot_id'])})"
            with suppress(CatalogException):  # the table is newer than the snapshot
                if connection.execute(
                    f"FROM {version} WHERE run_id = ? LIMIT 1", [run_id]
                ).fetchone():
                    reasons.append(f"{row['why']} (snapshot {row['snapshot_id']})")
        if reasons:
            raise FlywheelError(
                f"the tokens of run {run_id[:12]} are needed by {', '.join(reasons[:3])}",
                "Nothing was deleted. Remove a tag by `store tag rm`; a dataset keeps them.",
            )
        if not count or dry_run:
            return count
        written = NewFiles(connection, location.files, ["rollout_tokens", "ingest_log"])
        connection.execute("BEGIN")
        # DuckLake drops a file whose rows are all deleted, and would write a list of deleted rows
        # otherwise, which checksums, backups and other readers would have to know of. Therefore
        # the rows of other runs in these files are written again.
        names = [str(name) for name, _ in files]
        connection.execute(
            f"CREATE TEMP TABLE kept AS SELECT * FROM {_TOKENS} "
            "WHERE filename IN (SELECT unnest(?)) AND run_id <> ?",
            [names, run_id],
        )
        connection.execute(f"DELETE FROM {_TOKENS} WHERE filename IN (SELECT unnest(?))", [names])
        connection.execute(f"INSERT INTO {_TOKENS} FROM kept")
        message = f"tokens of run {run_id} deleted"
        connection.execute(
            "INSERT INTO lake.ingest_log BY NAME SELECT ? AS bundle_id, 'store expire' AS author, "
            "? AS message, ? AS row_counts, now() AS committed_at",
            [uuid7(), message, json.dumps({"rollout_tokens": -count})],
        )
        connection.execute("CALL lake.set_commit_message('store expire', ?)", [message])
        if paths := written.sync():
            checksums.insert_checksums(connection, location, paths)
        connection.execute("COMMIT")
        _clean(connection, location)
    return count


def backup(location: Location, target: Path, *, without_tokens: bool = False) -> tuple[int, int]:
    """Copy a lake to a folder that opens as a lake; return files copied and files already there.

    Without tokens, no snapshot of the copy has rows of `rollout_tokens`, and its catalog says how
    many were left out (`count_left_out`).

    The catalog is copied first and in one piece, and gets its name when the data files that it
    names are there. These never change, so a later backup to the same folder copies what is new.
    Nothing is written to the lake, and its lock is not needed: it keeps files that are replaced
    meanwhile for `REPLACED_AGE`. Raises FlywheelError if the folder contains something else than a
    backup of this lake, is part of the lake, or a file to copy differs from the committed one.
    """
    location.require()
    if isinstance(location, ServerLocation):
        raise FlywheelError(
            f"the catalog of {location.url} is on a server, which has its own backups",
            f"Run these in this order:\n{location.describe_backup()}",
        )
    assert isinstance(location, FolderLocation)
    with open_for_reading(location):
        there = FolderLocation(target.resolve())
        if there.root.is_relative_to(location.root):
            raise FlywheelError(
                f"{target} is inside the lake itself", "Name a folder outside of it."
            )
        if there.root.exists() and not there.root.is_dir():
            raise FlywheelError(f"{target} is not a folder", "Name a new folder.")
        if not there.exists and there.find_foreign_file(_OF_BACKUP) is not None:
            raise FlywheelError(
                f"{target} is not empty, and no backup of this lake",
                "Name a new or empty folder, or an earlier backup of this lake; nothing was "
                "copied.",
            )
        if there.exists:
            with Lake(location) as own, Lake(there) as other:
                if own.lake_id != other.lake_id:
                    raise FlywheelError(
                        f"{target} holds another lake", "Name a new folder, or this lake's backup."
                    )
                if other.snapshot > own.snapshot:
                    raise FlywheelError(
                        f"the backup in {target} has snapshot {other.snapshot}, and this lake only "
                        f"{own.snapshot}: it was restored from an older one",
                        "Nothing was copied. Name a new folder, or delete that backup.",
                    )
    there.announce_lake()
    return _copy(location, target, without_tokens=without_tokens)


def count_left_out(connection: duckdb.DuckDBPyConnection, location: Location) -> int:
    """Return how many token rows the backups that an attached lake comes from have left out."""
    query = (
        f"SELECT coalesce(sum(value::BIGINT), 0)::BIGINT FROM {METADATA}.ducklake_metadata "
        "WHERE key = 'flywheel_tokens_left_out'"
    )
    return int(fetch_row(connection, location.qualify(query))[0])


def _copy(
    location: FolderLocation, target: Path, *, without_tokens: bool = False
) -> tuple[int, int]:
    note = "What was copied stays; run this again to copy the rest."
    with faults.at(target, note=note):
        target.mkdir(parents=True, exist_ok=True)
        copy = FolderLocation(target.resolve(), catalog_file=_PARTIAL_CATALOG)
        copy.delete_catalog()
        # In a process of its own: POSIX drops the locks that DuckDB's SQLite has on a file when
        # any other part of the same process closes that file.
        source = location.find_readable_catalog()
        done = subprocess.run(
            [
                *(sys.executable, "-c", _COPY_CATALOG, str(source), str(copy.catalog)),
                *(WRITE_DATA_PATH, f"{copy.files.url}/"),
                read_sql(__file__, "without_tokens") if without_tokens else "",
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            copy.delete_catalog()
            raise sqlite3.OperationalError((done.stderr.splitlines() or ["it was killed"])[-1])
        there = copy.files.list_sizes()
        files = [replace(one, files=location.files) for one in checksums.list_files(copy)]
        missing = [one for one in files if there.get(one.path) != one.bytes]
        require_whole(location, missing, "The backup's catalog is as it was before.")
        counts = checksums.copy_files(files, copy.files)
        copies = (replace(one, files=copy.files) for one in missing)
        damaged = checksums.compare_files(copies).damaged
        for one in damaged:  # so that the next backup copies it again
            (copy.data / one.file.path).unlink(missing_ok=True)
        if damaged:
            raise FlywheelError(
                f"a copy differs from its file: {damaged[0]}",
                "The backup's catalog is as it was before. Run this again. If it fails again, "
                f"test the disk of {target}.",
            )
        # SQLite would apply the journals of the replaced catalog to the new one.
        for journal in target.glob("catalog.sqlite-*"):
            journal.unlink()
        rename_durably(copy.catalog, FolderLocation(target).catalog)
    return counts


def restore(location: Location, source: Path) -> tuple[int, int]:
    """Copy a backup to the place of a lake that has lost its catalog; return what `backup` does.

    Data files that are there stay, and a damaged catalog is kept under another name. Raises
    FlywheelError, with nothing changed, if the catalog is whole, or the folder has other files.
    """
    saved = FolderLocation(source.resolve())
    if not isinstance(location, FolderLocation):
        raise FlywheelError(
            f"the catalog of {location.url} is on a server, which restores its own backups",
            "docs/cluster.md has the commands.",
        )
    saved.require_writable()
    Lake(saved).close()
    with location.lock("store restore"):
        if location.exists:
            location.catalog.open("rb").close()  # no right to read it is no damage
            if find_catalog_damage(location) is None:
                raise FlywheelError(
                    f"the catalog of {location.url} is whole; nothing was restored",
                    "To put the backup in its place, move the folder away first.",
                )
            for file in location.root.glob("catalog.sqlite*"):
                file.rename(file.with_name(file.name.replace("sqlite", "damaged")))
        log.info("restoring the lake at %s", location.url)
        return _copy(saved, location.root)


@contextmanager
def open_for_maintenance(location: Location, author: str) -> Generator[duckdb.DuckDBPyConnection]:
    """Hold the lake's lock and a connection that may write; refuse a lake of a newer version."""
    location.require()
    with (
        connect(to=location) as connection,
        location.lock(author),
        faults.at(location.catalog_name, LakeUnreachable, _UNCHANGED),
    ):
        attach(connection, location, writable=True)
        migrate.refuse_newer(migrate.read_record(connection), catalogs.load())
        connection.execute(f"SET VARIABLE author = '{author}'")
        yield connection


def _call(
    connection: duckdb.DuckDBPyConnection, location: Location, *calls: str, moves_rows: bool = False
) -> None:
    """Run maintenance calls in a commit that names its author.

    A commit that moves inlined rows waits for queries, and is given up if they take too long.
    """
    tables = connection.execute("SELECT table_name FROM ducklake_table_info('lake')").fetchall()
    written = NewFiles(connection, location.files, [str(name) for (name,) in tables])
    connection.execute("BEGIN")
    connection.execute(_MESSAGE)
    for call in calls:
        connection.execute(call).fetchall()
    written.sync()
    with location.wait_for_queries() if moves_rows else nullcontext(True) as is_free:
        connection.execute("COMMIT" if is_free else "ROLLBACK")
    if not is_free:
        log.info("queries read the lake; rows of small commits stay in its catalog for now")


@contextmanager
def open_for_reading(location: Location) -> Generator[duckdb.DuckDBPyConnection]:
    """Yield a connection to the newest snapshot, without the lock and the right to write.

    Inlined rows stay where they are meanwhile.
    """
    location.require()
    with connect(to=location) as connection, location.hold_inlined_rows():
        pin(connection, location)
        yield connection


def _clean(connection: duckdb.DuckDBPyConnection, location: Location) -> None:
    """Delete the files that the lake's own compactions and expiries replaced long enough ago.

    Raises FlywheelError, with nothing deleted, if the catalog schedules what is no data file.
    """
    scheduled = connection.execute(
        f"SELECT path, path_is_relative "
        f"FROM {location.qualify(f'{METADATA}.ducklake_files_scheduled_for_deletion')}"
    ).fetchall()
    for path, is_relative in scheduled:
        if not is_relative or not _DATA_FILE.fullmatch(path):
            raise FlywheelError(
                f"{location.catalog_name} schedules {path} for deletion, which is not named like "
                "a data file of a lake",
                "Nothing was deleted. Another program has written this catalog: use a backup.",
            )
    before = f"TIMESTAMPTZ '{(datetime.now(UTC) - REPLACED_AGE).isoformat()}'"
    connection.execute(
        f"CALL ducklake_cleanup_old_files('lake', older_than => {before})"
    ).fetchall()


def _measure_files(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    sums = "SELECT sum(file_count)::BIGINT, sum(file_size_bytes)::BIGINT"
    files, size = fetch_row(connection, f"{sums} FROM ducklake_table_info('lake')")
    return int(files or 0), int(size or 0)


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A data file that the catalog does not know: of a failed commit, or of another catalog."""

    path: str
    """Path from the lake's data folder."""
    bytes: int
    written_at: datetime
    """By the name of the file or the time of its last change, whichever is later."""
    is_newer: bool
    """Whether it was written after the last commit of rows that the catalog has: if an older copy
    of the catalog was put back, the file has rows of the newer one."""

    @property
    def is_removable(self) -> bool:
        """Whether no commit that is under way, and no newer catalog, can have written it."""
        return not self.is_newer and datetime.now(UTC) - self.written_at > ORPHAN_AGE


def list_leftovers(location: Location) -> list[Orphan]:
    """Return the orphans of a lake."""
    with open_for_reading(location) as connection:
        return list_orphans(connection, location)


def list_orphans(connection: duckdb.DuckDBPyConnection, location: Location) -> list[Orphan]:
    """Return the files of an attached lake that are named as DuckLake does and not in its catalog.

    Other files are none of the lake's.
    """
    there = location.files.list_sizes()
    # After that list, so that it has no file of a later commit.
    known = {one.path for one in checksums.list_attached_files(connection, location)}
    known |= {
        str(path)
        for (path,) in connection.execute(
            "SELECT path FROM "
            + location.qualify(f"{METADATA}.ducklake_files_scheduled_for_deletion")
        ).fetchall()
    }
    last_s = float(fetch_row(connection, read_sql(__file__, "last_rows"))[0] or 0)
    orphans: list[Orphan] = []
    for path in sorted(path for path in there if path not in known and _DATA_FILE.fullmatch(path)):
        milliseconds = int(path.rpartition("/ducklake-")[2].replace("-", "")[:12], 16)
        with suppress(FileNotFoundError):  # removed since
            size, changed_ns, *_ = location.files.stamp(path)
            seconds = min(time.time(), max(milliseconds / 1e3, changed_ns / 1e9))
            written_at = datetime.fromtimestamp(seconds, UTC)
            is_newer = milliseconds / 1e3 > last_s
            orphans.append(Orphan(path=path, bytes=size, written_at=written_at, is_newer=is_newer))
    return orphans


def remove_orphans(location: Location, orphans: Sequence[Orphan]) -> int:
    """Delete those of the files that still are orphans and removable; return how many were deleted.

    Raises FlywheelError, with nothing deleted, where the data files are not those of the catalog.
    """
    paths = {one.path for one in orphans}
    with open_for_maintenance(location, "store compact") as connection:
        files = checksums.list_attached_files(connection, location, with_checksums=False)
        there = location.files.list_sizes()
        if files and not any(one.path in there for one in files):
            raise FlywheelError(
                f"none of the {len(files)} data files that {location.catalog_name} names is in "
                f"{location.files.url}: this catalog belongs to another lake",
                "Nothing was deleted. Put back the catalog of this lake from a backup.",
            )
        removed = [
            one.path
            for one in list_orphans(connection, location)
            if one.is_removable and one.path in paths
        ]
        for path in removed:
            location.files.filesystem.delete_file(path)
    return len(removed)


def find_catalog_damage(location: Location) -> str | None:
    """Return what SQLite says is wrong with the catalog database, or None; a server tests its own.

    SQLite runs in a process of its own: POSIX drops the locks that DuckDB's SQLite has on a file
    when any other part of the same process closes that file.

    Raises:
        CommitConflict: another program holds the database.
        LakeUnreachable: it cannot be opened.
    """
    if not isinstance(location, FolderLocation):
        return None
    command = [sys.executable, "-c", _TEST_DATABASE, str(location.find_readable_catalog())]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return (answer.stderr.splitlines() or ["no answer"])[-1]
    report = str(json.loads(answer.stdout))
    if report == "ok":
        return None
    faults.raise_unless_damage(OSError(report), location.catalog)
    return report
