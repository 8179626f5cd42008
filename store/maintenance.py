"""Keeping a lake in order: compaction, expiry, the check of every rule, and backups."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from store import catalog as catalogs
from store import lake, validate
from store.bundle import SUFFIX
from store.catalog import Catalog, Table
from store.errors import FlywheelError, RowsRejected
from store.history import statement
from store.reader import Lake

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

# Files of a transaction that is still running must not look like orphans, and files that a
# running query has planned to read must not vanish.
ORPHAN_AGE = timedelta(days=2)
REPLACED_AGE = timedelta(days=1)
SMALL_FILE = 32 << 20
MERGED_AT_ONCE = 64
_COPY_CATALOG = """
import sqlite3, sys
source, copy = map(sqlite3.connect, sys.argv[1:])
with source, copy:
    source.backup(copy)
copy.close()
source.close()
"""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Files and bytes before and after."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(location: lake.Location) -> Compaction:
    """Write inlined rows to Parquet and merge small neighbouring files; every snapshot stays.

    Holds the lake's lock, so that no commit is under way; readers are not disturbed.
    """
    with _maintained(location, "store compact") as connection:
        before = _sizes(connection)
        _call(connection, location, "CALL ducklake_flush_inlined_data('lake')")
        # Merging wide texts takes memory per thread.
        connection.execute("SET threads = 1")
        _call(
            connection,
            location,
            "CALL ducklake_merge_adjacent_files('lake', "
            f"max_compacted_files => {MERGED_AT_ONCE}, max_file_size => {SMALL_FILE})",
        )
        _clean(connection, location)
        after = _sizes(connection)
    return Compaction(
        files_before=before[0], bytes_before=before[1], files_after=after[0], bytes_after=after[1]
    )


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """Snapshots that went (or would go), and why others stayed."""

    expired: list[int]
    spared: dict[int, list[str]]


def expire(location: lake.Location, older_than: timedelta, *, dry_run: bool = False) -> Expiry:
    """Forget snapshots older than a span, except the newest, tagged and cited ones.

    A snapshot is cited by a dataset, a run or a generation that was read from it. Rows never
    go: only the possibility to read the lake as it was at that moment.
    """
    limit = datetime.now(UTC) - older_than
    spared: dict[int, list[str]] = {}
    # The lock comes first: a tag that is set meanwhile waits, and finds its snapshot or is refused.
    with _maintained(location, "store expire") as connection:
        with Lake(location) as reader:
            own = {"lake_id": reader.lake_id}
            for row in reader.run(statement("spared"), own).rows():
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


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a lake."""

    table: str
    rule: str
    count: int
    examples: list[str]


def check(location: lake.Location) -> list[Problem]:
    """Test the newest snapshot against every rule; an empty list is a clean lake.

    Keys, references and checks of all rows; row counts against ingest_log (lost, doubled or torn
    bundles); data files that are missing; rejected bundles in the spool.

    Files that a killed commit left behind are no problem, since no snapshot refers to them, and
    neither are bundles that still wait in the spool: both are logged.
    """
    location.require()
    catalog = catalogs.load()
    problems: list[Problem] = []
    with _maintained(location, "store check") as connection:
        there = {
            str(row[0])
            for row in connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'"
            ).fetchall()
        }
        missing = [name for name in catalog.tables if name not in there]
        if missing:
            raise FlywheelError(
                f"the lake has no table {missing[0]} yet", "Run `store init` to migrate it."
            )
        # One transaction: DuckLake would read its catalog anew for every query.
        connection.execute("BEGIN")
        problems += _check_files(connection, catalog)
        if not problems:  # rows in files that are missing can be asked nothing
            for table in catalog.tables.values():
                problems += _check_table(connection, catalog, table)
            problems += _check_counts(connection, catalog)
        connection.execute("ROLLBACK")
        _note_leftovers(connection, location)
    rejected = sorted((location.spool / "rejected").glob("*.json"))
    if rejected:
        reasons = [str(json.loads(file.read_text())["reason"]) for file in rejected[:3]]
        problems.append(
            Problem(
                table="spool",
                rule=f"no bundle was rejected (see {location.spool / 'rejected'})",
                count=len(rejected),
                examples=reasons,
            )
        )
    return problems


def backup(location: lake.Location, target: Path) -> tuple[int, int]:
    """Copy a lake to a folder that opens as a lake; return files copied and files already there.

    Data files never change, so a later backup to the same folder copies what is new. The catalog
    is copied last and in one piece, under the lock. Raises FlywheelError where the folder holds
    another lake, or is part of this one.
    """
    location.require()
    _check_target(location, target)
    copied = kept = 0
    with location.lock():
        for file in sorted(location.data.rglob("*.parquet")):
            there = target / "data" / file.relative_to(location.data)
            if there.exists() and there.stat().st_size == file.stat().st_size:
                kept += 1
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            partial = there.with_suffix(".partial")
            shutil.copy2(file, partial)
            partial.rename(there)
            copied += 1
        target.mkdir(parents=True, exist_ok=True)
        partial = target / "catalog.partial"
        partial.unlink(missing_ok=True)
        # In a process of its own: POSIX drops the locks that DuckDB's SQLite has on a file when
        # any other part of the same process closes that file.
        subprocess.run(
            [sys.executable, "-c", _COPY_CATALOG, str(location.catalog), str(partial)], check=True
        )
        # Journals of the catalog that is replaced would be taken for the new one's.
        for journal in target.glob("catalog.sqlite-*"):
            journal.unlink()
        partial.rename(target / "catalog.sqlite")
    return copied, kept


def _check_target(location: lake.Location, target: Path) -> None:
    there = lake.Location(target.resolve())
    if there.root.is_relative_to(location.root):
        raise FlywheelError(f"{target} lies in the lake itself", "Name a folder outside of it.")
    if there.exists:
        with Lake(location) as own, Lake(there) as other:
            if own.lake_id != other.lake_id:
                raise FlywheelError(
                    f"{target} holds another lake", "Name a new folder, or this lake's backup."
                )


@contextmanager
def _maintained(location: lake.Location, author: str) -> Generator[duckdb.DuckDBPyConnection]:
    location.require()
    connection = lake.connect()
    try:
        with location.lock():
            lake.attach(connection, location, writable=True)
            connection.execute(f"SET VARIABLE author = '{author}'")
            yield connection
    finally:
        connection.close()


def _call(connection: duckdb.DuckDBPyConnection, location: lake.Location, call: str) -> None:
    """Run a maintenance call in a commit that names its author."""
    began_s = time.time()
    connection.execute("BEGIN")
    connection.execute(
        "CALL lake.set_commit_message(getvariable('author'), 'maintenance', extra_info => '{}')"
    )
    connection.execute(call).fetchall()
    lake.sync_files(location, began_s)
    connection.execute("COMMIT")


def _clean(connection: duckdb.DuckDBPyConnection, location: lake.Location) -> None:
    now = datetime.now(UTC)
    for call, age in (("cleanup_old_files", REPLACED_AGE), ("delete_orphaned_files", ORPHAN_AGE)):
        before = f"TIMESTAMPTZ '{(now - age).isoformat()}'"
        connection.execute(f"CALL ducklake_{call}('lake', older_than => {before})").fetchall()
    for file in location.spool.glob("*.partial"):
        # Of a process that was killed before its bundle was whole.
        if datetime.fromtimestamp(file.stat().st_mtime, UTC) < now - ORPHAN_AGE:
            file.unlink()


def _sizes(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    row = connection.execute(
        "SELECT sum(file_count)::BIGINT, sum(file_size_bytes)::BIGINT "
        "FROM ducklake_table_info('lake')"
    ).fetchone()
    assert row is not None
    return int(row[0] or 0), int(row[1] or 0)


def _check_table(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, table: Table
) -> list[Problem]:
    relation = f"lake.{table.name}"
    problems: list[Problem] = []
    try:
        validate.check_rules(connection, catalog, table, relation)
    except RowsRejected as error:
        problems.append(_problem(error))
    key = validate.columns(table.key)
    repeated = connection.execute(
        f"SELECT {key}, count(*) FROM {relation} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL"
    ).fetchall()
    if repeated:
        problems.append(
            Problem(
                table=table.name,
                rule=validate.unique_rule(table),
                count=len(repeated),
                examples=validate.describe((*table.key, "rows"), repeated[:3]),
            )
        )
    for need in validate.needs(catalog, table, relation):
        dangling = connection.execute(
            f"SELECT v FROM ({need.values}) ANTI JOIN lake.{need.target.name} AS t "
            f'ON v = t."{need.target.key[0]}" ORDER BY v'
        ).fetchall()
        if dangling:
            problems.append(
                Problem(
                    table=table.name,
                    rule=validate.reference_rule(need.column, need.target),
                    count=len(dangling),
                    examples=validate.describe((need.column.name,), dangling[:3]),
                )
            )
    return problems


def _check_counts(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> list[Problem]:
    """Compare rows with what ingest_log says was committed."""
    logged: dict[str, int] = {}
    for (counts,) in connection.execute("SELECT row_counts FROM lake.ingest_log").fetchall():
        for name, count in json.loads(counts).items():
            logged[name] = logged.get(name, 0) + int(count)
    problems: list[Problem] = []
    for table in catalog.tables.values():
        if table.name in ("ingest_log", "lakes"):
            continue
        row = connection.execute(f"SELECT count(*) FROM lake.{table.name}").fetchone()
        assert row is not None
        stored, expected = int(row[0]), logged.get(table.name, 0)
        if stored != expected:
            problems.append(
                Problem(
                    table=table.name,
                    rule="rows are those of committed bundles",
                    count=abs(stored - expected),
                    examples=[f"{stored} rows stored, {expected} rows logged"],
                )
            )
    return problems


def _check_files(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> list[Problem]:
    problems: list[Problem] = []
    for name in catalog.tables:
        listed = connection.execute(
            f"SELECT data_file FROM ducklake_list_files('lake', '{name}')"
        ).fetchall()
        gone = [str(row[0]) for row in listed if row[0] and not Path(str(row[0])).exists()]
        if gone:
            problems.append(
                Problem(table=name, rule="its files exist", count=len(gone), examples=gone[:3])
            )
    return problems


def leftovers(location: lake.Location) -> list[str]:
    """Return the data files that no snapshot refers to: those of commits that were killed."""
    with _maintained(location, "store check") as connection:
        return _leftovers(connection)


def _leftovers(connection: duckdb.DuckDBPyConnection) -> list[str]:
    orphans = connection.execute(
        "CALL ducklake_delete_orphaned_files('lake', dry_run => true, cleanup_all => true)"
    ).fetchall()
    return [str(row[0]) for row in orphans]


def _note_leftovers(connection: duckdb.DuckDBPyConnection, location: lake.Location) -> None:
    orphans = _leftovers(connection)
    if orphans:
        log.info(
            "%d files of commits that were killed; `store compact` removes them when they are "
            "%d days old, such as %s",
            len(orphans),
            ORPHAN_AGE.days,
            orphans[0],
        )
    waiting = len(list(location.spool.glob(f"*{SUFFIX}")))
    if waiting:
        log.info("%d bundles wait in %s; the next append takes them in", waiting, location.spool)


def _problem(error: RowsRejected) -> Problem:
    return Problem(table=error.table, rule=error.rule, count=error.count, examples=error.examples)
