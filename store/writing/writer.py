"""The writer: checks bundles, spools them, and commits the spool under the lake's lock; runs."""

from __future__ import annotations

import json
import logging
import platform
import sqlite3
import time
from asyncio import CancelledError
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from store import describe_version, faults
from store.commandline import interrupts
from store.errors import (
    CommitConflict,
    FlywheelError,
    LakeUnreachable,
    RowsRejected,
    summarize_error,
)
from store.ids import uuid7
from store.lake import checksums
from store.lake.attachment import (
    attach,
    connect,
    find_newest_snapshot,
    mark_files,
    record_data_path,
)
from store.lake.data_files import NewFiles
from store.lake.location import Location
from store.schema import catalog as catalogs
from store.schema.catalog import Table
from store.schema.migrate import migrate
from store.schema.row_checks import Stage
from store.schema.sql_text import fetch_row
from store.writing import bundle as bundles
from store.writing import spool, transaction
from store.writing.bundle import Bundle, Rows
from store.writing.key_index import KeyIndex
from store.writing.spool import Place, Record, Spool

if TYPE_CHECKING:
    from store.lake.reader import Lake


log = logging.getLogger(__name__)
LOCKED_S = 30.0
MANY_ROWS = 10_000
"""Rows of a load whose keys take long to index."""
_KEPT = "Nothing is lost: what was spooled is kept, and the next append or `store init` commits it."


class Writer(AbstractContextManager["Writer"]):
    """Appends rows to a lake; `store.writer` creates it.

    Any number of processes may hold one. Use it as a context manager, or call `close`.
    """

    def __init__(self, location: Location, author: str) -> None:
        interrupts.note("committed rows are kept. Run the command again to resume.", replace=False)
        self.location = location
        self.author = author
        self._catalog = catalogs.load()
        self._connection = connect(to=location)
        (self._threads,) = fetch_row(self._connection, "SELECT current_setting('threads')")
        self._use_one_thread()
        self._stage = Stage(self._connection, self._catalog)
        self._keys = KeyIndex(location, self._catalog)
        self._spool = Spool(location.spool, author)
        self._is_lost = False
        """Whether the connection is to be made again."""
        self._held = ExitStack()
        try:
            self._held.enter_context(location.keep_open())
            with self._lock():
                is_new = not location.exists
                location.prepare()
                if is_new:
                    with location.make_catalog() as new:
                        attach(self._connection, new, writable=True, create=True)
                        migrate(self._connection, self._catalog)
                        self._connection.execute("DETACH lake")
                    log.info("made a new lake at %s", location.url)
                attach(self._connection, location, writable=True)
                mark_files(self._connection, location)
                record_data_path(self._connection, location)
                for line in migrate(self._connection, self._catalog):
                    log.info("lake: %s", line)
                self._seen = find_newest_snapshot(self._connection)
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Bundles that were appended without waiting stay in the spool."""
        self._spool.close()
        self._keys.close()
        self._connection.close()
        self._held.close()

    def append(
        self,
        tables: Mapping[str, Rows],
        message: str,
        *,
        bundle_id: str | None = None,
        wait: bool = True,
    ) -> int:
        """Store one bundle and return a snapshot that contains it.

        Rows are checked before anything is written. With `wait=False` the bundle is only spooled
        (durably); the next `append` or `flush` of any process commits it, and the newest snapshot
        that this writer has seen is returned.

        Raises:
            RowsRejected: rows break a rule; nothing of the bundle is stored.
            CommitConflict: another program holds the lake's catalog.

        After any error but RowsRejected, the bundle waits in the spool, and the next commit of any
        process stores it.
        """
        (rows,) = transaction.check_bundles(self._stage, [tables])
        given = bundles.select_given(self._catalog, tables, rows)
        identity = bundle_id or bundles.hash_content(self.author, given)
        bundle = Bundle(bundle_id=identity, message=message, author=self.author, tables=dict(rows))
        return self._store([bundle], wait=wait)

    def append_all(self, given: Sequence[Bundle], *, wait: bool = True) -> int:
        """Store several bundles, each of them completely or not at all; return a snapshot.

        Faster than one `append` each: rows are checked together, and synced to disk once. The
        arguments and the result are those of `append`.

        Raises:
            RowsRejected: rows of a bundle break a rule. Nothing of this bundle is stored, and the
                others are. If several are refused, the error is that of one of them.
            CommitConflict: another program holds the lake's catalog; the bundles wait in the spool.
        """
        refused: RowsRejected | None = None
        accepted: list[Bundle] = []
        try:
            checked = transaction.check_bundles(self._stage, [one.tables for one in given])
        except RowsRejected:
            checked = None
        for number, bundle in enumerate(given):
            try:
                # Check each bundle separately to find the ones that break a rule.
                if checked is not None:
                    rows = checked[number]
                else:
                    (rows,) = transaction.check_bundles(self._stage, [bundle.tables])
                accepted.append(replace(bundle, author=self.author, tables=dict(rows)))
            except RowsRejected as error:
                refused = refused or error
        try:
            snapshot = self._store(accepted, wait=wait) if accepted else self._seen
        except RowsRejected as error:
            raise refused or error from None
        if refused is not None:
            raise refused
        return snapshot

    def flush(self) -> int:
        """Commit everything spooled so far by any process; return the snapshot that contains it.

        Bundles that were spooled without waiting and broke a rule are left in spool/rejected, with
        a warning; `store check` lists them.
        """
        with self._spool.turn():
            self._commit_waiting()
        return self._seen

    def load(
        self, tables: Mapping[str, Rows | pa.RecordBatchReader], message: str, *, bundle_id: str
    ) -> int | None:
        """Store many rows in one transaction, without the spool; return its snapshot.

        Readers are consumed once, a few batches at a time. Returns None, with nothing read, when
        `bundle_id` has been stored before.

        Raises:
            RowsRejected: rows break a rule; nothing is stored.
            CommitConflict: another program holds the lake's catalog; nothing is stored.
        """
        bundle = Bundle(bundle_id=bundle_id, message=message, author=self.author)
        with self._lock():
            if self.has_bundle(bundle_id):
                return None
            self._connection.execute(f"SET threads = {self._threads}")
            try:
                with self._transaction(message):
                    counts = transaction.load_tables(self._stage, tables)
                    transaction.log_bundles(self._stage, [bundle], [counts])
                # Index many keys now, so that the next append does not have to wait for it.
                many = sum(counts.values()) >= MANY_ROWS
                follow = self._keys.follow if many else find_newest_snapshot
                self._seen = follow(self._connection)
            finally:
                self._use_one_thread()
        return self._seen

    def has_bundle(self, bundle_id: str) -> bool:
        """Return whether a bundle of this identity has been committed."""
        return bundle_id in self.find_committed([bundle_id])

    def find_committed(self, bundle_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return those bundles that have been committed, each with its number of rows by table."""
        logged = "SELECT bundle_id, row_counts FROM lake.ingest_log"
        query = f"{logged} WHERE bundle_id IN (SELECT unnest(?))"
        with self._explain_faults():
            rows = self._connection.execute(query, [bundle_ids]).fetchall()
        return {identity: json.loads(counts) for identity, counts in rows}

    def find_newest(self) -> int:
        """Return the newest snapshot of the lake."""
        with self._explain_faults():
            return find_newest_snapshot(self._connection)

    def choose_time(self, table: str) -> datetime:
        """Return the time of a new row that must count as the latest of its table.

        It is now, or just after the newest row if the clock of the host that wrote it is ahead.
        """
        with self._explain_faults():
            (last,) = fetch_row(self._connection, f"SELECT max(created_at) FROM lake.{table}")
        now = datetime.now(UTC)
        return now if last is None else max(now, last + timedelta.resolution)

    def reader(self, at: str | int | None = None) -> Lake:
        """Open a pinned reader of the same lake."""
        from store.lake.reader import Lake

        return Lake(self.location, at)

    def _store(self, given: list[Bundle], *, wait: bool) -> int:
        """Commit checked bundles with all that is spooled, or spool them; return a snapshot."""
        if not wait:
            self._spool.write(given)
            return self._seen
        with self._spool.turn(wait=False) as is_taken:
            if is_taken:
                try:
                    errors = self._commit_waiting(given)
                except BaseException:
                    # Whatever has ended the commit, the next one stores these rows, once.
                    self._spool.write(given)
                    raise
                _raise_first(errors)
                return self._seen
        # Another writer commits: it, or the next one, commits what is spooled for all who wait.
        place = self._spool.write(given)
        with self._spool.turn():
            if place.is_waiting:
                _raise_first(self._commit_waiting(awaited=place))
                return self._seen
        with self._explain_faults():
            self._seen = find_newest_snapshot(self._connection)
        _raise_first(spool.take_back(place, len(given)))
        return self._seen

    def _commit_waiting(
        self, own: Sequence[Bundle] = (), awaited: Place | None = None
    ) -> list[FlywheelError]:
        """Commit the spool in groups, with own bundles at the end; keep refused bundles of others.

        Returns why bundles of the caller are refused: its own, or those of the awaited record.
        """
        errors: list[FlywheelError] = []
        snapshot: int | None = None
        with self._lock():
            for records, finished in spool.read_groups(self._catalog, self.location.spool, own):
                given: dict[str, Bundle] = {}
                # A retried bundle is in several records, which are committed or rejected together.
                copies: dict[str, list[tuple[Record, int]]] = {}
                for record in records:
                    if record.damage is not None and record.place == awaited:
                        errors.append(FlywheelError(record.damage))
                    elif record.damage is not None:
                        spool.keep_record(record)
                    for position, bundle in enumerate(record.bundles):
                        given.setdefault(bundle.bundle_id, bundle)
                        copies.setdefault(bundle.bundle_id, []).append((record, position))
                snapshot = self._keys.follow(self._connection)
                log_table = self._catalog.table("ingest_log")
                for identity in self._lookup(log_table, pa.array(given, pa.string())).to_pylist():
                    del given[str(identity)]
                if given:
                    fresh = list(given.values())
                    snapshot, refused = self._commit(fresh)
                    for number, error in refused.items():
                        for record, position in copies[fresh[number].bundle_id]:
                            if record.place is None or record.place == awaited:
                                errors.append(error)
                            else:
                                spool.keep_bundle(record, position, error)
                for file in finished:
                    file.unlink(missing_ok=True)
            self._seen = snapshot or find_newest_snapshot(self._connection)
        return errors

    def _lookup(self, table: Table, keys: pa.Array) -> pa.Array:
        return self._keys.find_stored(self._connection, table, keys)

    def _commit(self, given: list[Bundle]) -> tuple[int, dict[int, FlywheelError]]:
        """Commit bundles in one transaction; return the snapshot, and the refused by position.

        If DuckDB cannot store the rows of one, each bundle is committed separately.
        """
        message = given[0].message if len(given) == 1 else f"{len(given)} bundles"
        until = time.monotonic() + LOCKED_S
        try:
            while True:
                try:
                    with self._transaction(message, of=given):
                        rejected, keys = transaction.store_bundles(self._stage, self._lookup, given)
                    break
                except CommitConflict:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)
        except Exception as error:
            self._require_lock(error)
            self._raise_fault(error)
            if len(given) == 1:
                reason = FlywheelError(f"DuckDB cannot store the rows: {error}")
                return self._keys.follow(self._connection), {0: reason}
            alone = [self._commit([bundle]) for bundle in given]
            return alone[-1][0], {at: why[0] for at, (_, why) in enumerate(alone) if why}
        return self._keys.add(self._connection, keys), dict(rejected)

    @contextmanager
    def _transaction(self, message: str, of: list[Bundle] | None = None) -> Generator[None]:
        authors = sorted({made.author for made in of}) if of else [self.author]
        given = {name for made in of for name in made.tables} if of else {*self._catalog.tables}
        new = NewFiles(self._connection, self.location.files, given | {"ingest_log"})
        self._stage.register(given | {"ingest_log"})
        self._connection.execute("BEGIN")
        try:
            yield
            extra = json.dumps({"bundles": len(of) if of else 1, "authors": authors})
            self._connection.execute(
                "CALL lake.set_commit_message(?, ?, extra_info => ?)",
                [authors[0] if len(authors) == 1 else "committer", message, extra],
            )
            written = new.sync()
            if written and checksums.TABLE in self._catalog.tables:
                checksums.insert_checksums(self._connection, self.location, written)
            self._connection.execute("COMMIT")
        except BaseException as error:
            try:
                self._connection.execute("ROLLBACK")
            except duckdb.Error:
                # An internal error invalidates the database; only a new connection helps.
                self._is_lost = not self.location.holds_lock()
                if not self._is_lost:
                    self._attach_again()
            self._raise_foreign(error)
            raise

    def _require_lock(self, error: Exception) -> None:
        """Raise LakeUnreachable or CommitConflict where others are to blame, not the rows."""
        if not self.location.holds_lock():
            self._is_lost = True
            raise LakeUnreachable(
                f"the connection to {self.location.url} was lost during a commit",
                "Run this again; what was spooled is kept.",
            ) from error
        self._raise_foreign(error)

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Hold the lake's lock, with a connection to it that works."""
        with self.location.lock(self.author), self._explain_faults():
            if self._is_lost:
                self._attach_again()
            try:
                yield
            except duckdb.Error as error:
                self._require_lock(error)
                raise

    @contextmanager
    def _explain_faults(self) -> Generator[None]:
        """Raise errors of disks, networks and servers with a message that says what to do."""
        try:
            yield
        except (duckdb.Error, sqlite3.Error) as error:
            self._raise_fault(error)
            raise

    def _raise_fault(self, error: Exception) -> None:
        """Raise what disk, memory, network or another program caused; do nothing for the rows."""
        if isinstance(error, duckdb.InterruptException):
            raise error
        # Our own use of SQLite is the key index, a file of this host.
        is_index = isinstance(error, sqlite3.Error)
        place = self.location.key_index if is_index else self.location.catalog_name
        fault = faults.explain(error, place, LakeUnreachable, _KEPT)
        if fault is not None:
            self._is_lost = faults.is_disconnected(error)
            raise fault from error

    def _raise_foreign(self, error: BaseException) -> None:
        """Raise KeyboardInterrupt or CommitConflict for DuckDB's forms of them; else do nothing."""
        is_interrupt = str(error).startswith("KeyboardInterrupt")
        if is_interrupt or isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        # A holder that has lost the lock can have committed last, after this transaction had begun,
        # and SQLite does not wait when a transaction that has read begins to write.
        fault = faults.explain(error, self.location.catalog_name)
        if isinstance(fault, CommitConflict):
            raise fault from error

    def _attach_again(self) -> None:
        self._connection.close()
        self._connection = connect(to=self.location)
        self._use_one_thread()
        self._stage = Stage(self._connection, self._catalog)
        attach(self._connection, self.location, writable=True)
        self._is_lost = False

    def _use_one_thread(self) -> None:
        # Starting and ending threads takes longer than inserting a group of bundles.
        with suppress(duckdb.Error):  # an internal error has invalidated the database
            self._connection.execute("SET threads = 1")


def _raise_first(errors: Sequence[FlywheelError]) -> None:
    for error in errors[1:]:
        log.warning("another bundle was refused: %s", error)
    if errors:
        raise errors[0]


LONGEST_ERROR = 300


@dataclass
class RunRecord:
    """A run that is stored in a lake and has not ended."""

    run_id: str
    snapshot: int
    """Snapshot with the row of the run; after the run, snapshot with its end."""
    error: BaseException | None = None
    """Why the run counts as failed although it ends without raising an error."""


def make_run(
    *,
    kind: str,
    name: str,
    config: Mapping[str, Any] | str,
    run_id: str | None = None,
    lake_id: str | None = None,
    snapshot_id: int | None = None,
    started_at: datetime | None = None,
) -> dict[str, Any]:
    """Return the row of a run of this process; by default it has a new id and began now."""
    return {
        "run_id": run_id or uuid7(),
        "kind": kind,
        "name": name,
        "config": config if isinstance(config, str) else json.dumps(config, sort_keys=True),
        "version": describe_version(),
        "lake_id": lake_id,
        "snapshot_id": snapshot_id,
        "host": platform.node(),
        "started_at": started_at or datetime.now(UTC),
    }


def make_end(
    run_id: str, outcome: str = "finished", error: str | None = None, number: int = 1
) -> dict[str, Any]:
    """Return a row of run_ends, which says that a run has ended or was resumed now."""
    return {
        "run_id": run_id,
        "number": number,
        "outcome": outcome,
        "error": error,
        "created_at": datetime.now(UTC),
    }


@contextmanager
def record_run(
    writer: Writer,
    run: Mapping[str, Any],
    message: str,
    tables: Mapping[str, Rows] | None = None,
    *,
    resumed: bool = False,
) -> Generator[RunRecord]:
    """Store a run, hold the lease named by its id while it runs, and store how it ended.

    The end is failed or interrupted if the block raises an error, which is raised again. A killed
    process stores no end and loses the lease, so that `store show` reports the run as killed.

    Args:
        writer: Where to append. It must be open until the run has ended.
        resumed: Whether the lake may have the run already.

    Raises FlywheelError if another process runs this run.
    """
    run_id = str(run["run_id"])
    with writer.location.open_leases() as leases:
        if not leases.take([run_id]):
            raise FlywheelError(
                f"another process runs {run['name']} {run_id}",
                "Wait until it ends, or stop it; then resume the run.",
            )
        begun: dict[str, Rows] = {"runs": [run], **(tables or {})}
        number = 1
        if resumed:
            writer.flush()
            with writer.reader() as lake:
                stored = lake.run(
                    "SELECT coalesce(max(run_ends.number), 0) AS ends FROM runs "
                    "LEFT JOIN run_ends ON run_ends.run_id = runs.run_id "
                    "WHERE runs.run_id = $1 GROUP BY runs.run_id",
                    [run_id],
                ).one()
            if stored is not None:
                begun["run_ends"] = [make_end(run_id, "resumed", number=stored["ends"] + 1)]
                number = stored["ends"] + 2
        record = RunRecord(run_id, writer.append(begun, message))
        try:
            yield record
        except BaseException as error:
            end = make_end(run_id, *_describe_end(error), number=number)
            try:
                with interrupts.wait_for("the end of the run to be stored"):
                    writer.append({"run_ends": [end]}, f"{run['name']} {end['outcome']}")
            except Exception as fault:
                # The error that ended the run is the one to report.
                log.warning("the end of run %s is not stored: %s", run_id, summarize_error(fault))
            raise
        outcome = ("finished", None) if record.error is None else _describe_end(record.error)
        end = make_end(run_id, *outcome, number=number)
        record.snapshot = writer.append({"run_ends": [end]}, f"{run['name']} {end['outcome']}")


def _describe_end(error: BaseException) -> tuple[str, str | None]:
    if isinstance(error, KeyboardInterrupt | CancelledError) or interrupts.is_pending():
        return "interrupted", None
    kind = None if isinstance(error, FlywheelError) else type(error).__name__
    text = ": ".join(filter(None, [kind, *str(error).splitlines()[:1]]))
    return "failed", text[:LONGEST_ERROR]
