"""A cache beside the lake: Parquet files of views that depend only on each kernel's own rows.

Its aim: a query over 1,000,000 evaluations answers in a few seconds, and over 10,000,000 within a
minute; docs/benchmarks.md has figures with and without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import duckdb

from store.lake.attachment import is_expired
from store.lake.host import rename_durably
from store.lake.location import METADATA, Location
from store.schema.sql_text import fetch_row, quote_values

KEY = "kernel_id, task_id"
SOURCES = {
    "outcomes": ("evaluations",),
    "speedups": ("evaluations", "timings"),
    "pooled_speedups": ("evaluations", "timings"),
    "timed_arms": ("evaluations", "timings"),
    "nonequivalent": ("evaluations",),
    "fragile": ("evaluations",),
    "authors": ("generations",),
    "attempted_kernels": ("evaluations", "generations"),
    "evaluated_kernels": ("evaluations",),
    "shape_verdicts": ("evaluations", "timings"),
}
"""Views whose rows for a kernel and task follow from these tables' rows for that kernel and task
(and from rows that those refer to, which were there before them)."""
STORED_VIEWS = (
    "default_clocks", "scored_workloads", "leading_speedups", "judged_places", "solved_places",
    "timed_places", "evaluated_places", "attempted_tasks",
)  # fmt: skip
"""Views with few rows over many that other views mention several times, so that a reader stores
their rows."""
FIGURES = ("session_spreads",)
"""Small tables whose rows concern all keys. They are part of what a file's name states."""
OWN_SNAPSHOT_ID = ("generations",)
"""Tables with a column snapshot_id of their own, which hides DuckLake's."""
LARGE_ROWS = 100_000
"""A view is cached when its tables have at least this many rows."""
NEW_KEYS = 5_000
NEW_SHARE = 0.02
"""A file is rewritten when more keys than this, and than this share of its rows, have new rows."""
PART_ROWS = 4_000_000
"""A file is written in parts, because otherwise all rows would have to be in memory. The tasks of a
part have about this many rows in the view's tables, or it is one task."""
WEIGHTS = {"timings": 3}
"""Rows that count more than once, because they contain lists of samples."""


@dataclass(frozen=True, kw_only=True)
class NewKeys:
    """The keys that got rows after a snapshot, in a temporary table."""

    table: str
    """Its columns are those of `KEY`, and is_known: the kernel had rows before, perhaps."""
    count: int
    known: int
    later: Mapping[str, str]
    """SQL for the rows after the snapshot, by table; may follow FROM."""

    def build_rows(self, table: str, columns: str, whole: str) -> str:
        """Return SQL for all rows of a table that these keys have.

        A kernel that came after the snapshot has later rows only, so that the earlier ones are read
        only where other kernels got rows.
        """
        later = f"SELECT {columns} FROM {self.later[table]}"
        if not self.known:
            return later
        known = f"(FROM {self.table} WHERE is_known)"
        return (
            f"{_match_keys(f'({later})', 'ANTI', known)} "
            f"UNION ALL {_match_keys(f'({whole})', 'SEMI', known)}"
        )


@dataclass(frozen=True, kw_only=True)
class ViewQuestion:
    """A view as a reader would compute it from the tables."""

    view: str
    tables: tuple[str, ...]
    """Its sources that have rows."""
    text: str
    """Everything that determines its rows: its SQL, that of the views it reads, the columns of
    tables, and the rows of some; part of the file's name."""
    build_query: Callable[[NewKeys | None], str]
    """Returns SQL for the rows of all keys, or of some."""

    def name(self, snapshot: int, moment: str) -> str:
        """Return the name of a file with the rows at a snapshot, which has a time."""
        return f"{self.view}-{_shorten_hash(self.text)}-{snapshot}-{_shorten_hash(moment)}.parquet"


class ViewCache:
    """Files with the rows of views at some snapshot: a cache that is safe to delete.

    The name of a file states its view, the SQL, the rows of `FIGURES` that the view reads, the
    snapshot and its time, so other SQL, a new figure or a lake restored from a backup uses another
    file. At a later snapshot, the rows of the file are valid except for keys with new rows; these
    are computed from the tables. At an earlier snapshot, the file is not used. A query that needs a
    file writes it. If that is impossible, because the folder is not writable or another process is
    writing a file, the rows are computed from the tables.

    A file in use has a shared lock, so that nobody removes it while it is read.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, location: Location, snapshot: int
    ) -> None:
        self._connection = connection
        self._location = location
        self._snapshot = snapshot
        self._folder = location.derived
        self._locked: dict[Path, int] = {}
        """The descriptors that lock files in use."""
        self._stored_keys: set[str] = set()

    def close(self) -> None:
        """Release the files in use."""
        for file in list(self._locked):
            self._unlock(file)

    def find_sql(self, question: ViewQuestion, *, make: bool = True) -> str | None:
        """Return SQL that reads a view from its file, or None without one.

        With `make`, a file that is missing or far behind is written.
        """
        files = self._list_files(question)
        # If a file of a later snapshot exists, most queries read that snapshot and not this one.
        make = make and not any(snapshot > self._snapshot for snapshot in files)
        usable = (one for one in sorted(files, reverse=True) if one <= self._snapshot)
        since = next((one for one in usable if self._lock(files[one])), None)
        new = None if since is None else self._find_new_keys(question, since)
        if since is None or new is None:
            return self._write(question, question.build_query(None)) if make else None
        if not new.count:
            return f"SELECT * FROM {_scan(files[since])}"
        valid = _match_keys(_scan(files[since]), "ANTI", new.table)
        rows = f"{valid} UNION ALL {question.build_query(new)}"
        (whole,) = fetch_row(self._connection, f"SELECT count(*) FROM {_scan(files[since])}")
        if make and new.count > max(NEW_KEYS, NEW_SHARE * whole):
            return self._write(question, rows) or rows
        return rows

    def list_parts(self, question: ViewQuestion, rows: str) -> list[tuple[str, str]]:
        """Return a condition for the tasks of each part of a view, and SQL for its rows.

        `rows` is SQL for the rows of all parts.
        """
        counts = " UNION ALL ".join(
            f"SELECT task_id, {WEIGHTS.get(table, 1)} * count(*) AS weight "
            f"FROM lake.main.{table} GROUP BY task_id"
            for table in question.tables
        )
        # The first tasks of all parts but the first.
        edges = self._connection.execute(
            "SELECT task_id FROM (SELECT task_id, sum(sum(weight)) OVER "
            f"(ORDER BY task_id NULLS FIRST)::BIGINT // {PART_ROWS} AS part "
            f"FROM ({counts}) GROUP BY task_id) "
            "QUALIFY row_number() OVER (PARTITION BY part ORDER BY task_id) = 1 "
            "ORDER BY part OFFSET 1"
        ).fetchall()
        starts = [quote_values((str(task),)) for (task,) in edges]
        lower = ["true", *(f"task_id >= {start}" for start in starts)]
        upper = [*(f"task_id < {start}" for start in starts), "true"]
        # An attempt at a problem that is no task of the lake has none.
        upper[0] = f"({upper[0]} OR task_id IS NULL)"
        conditions = [f"{low} AND {high}" for low, high in zip(lower, upper, strict=True)]
        return [(one, f"SELECT * FROM ({rows}\n) WHERE {one}") for one in conditions]

    def _find_new_keys(self, question: ViewQuestion, since: int) -> NewKeys | None:
        """Store the keys that got rows after a snapshot in a table.

        Returns None if they are unknown, because a snapshot since then has expired.
        """
        keys = f"_touched_{question.view}"
        later = {table: self._build_later(table, since) for table in question.tables}
        try:
            listed = " UNION ".join(f"FROM {self._keep_keys(one, since)}" for one in later)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {keys} AS {listed}")
        except duckdb.InvalidInputException as error:
            if not is_expired(error):
                raise
            return None
        counts = f"SELECT count(*), count(*) FILTER (WHERE is_known) FROM {keys}"
        count, known = fetch_row(self._connection, counts)
        return NewKeys(table=keys, count=count, known=known, later=later)

    def _keep_keys(self, table: str, since: int) -> str:
        """Return a temporary table with the keys of the rows after a snapshot, stored once."""
        name = f"_later_{table}_{since}"
        if name not in self._stored_keys:
            new_kernels = f"SELECT kernel_id FROM {self._build_later('kernels', since)}"
            rows = f"SELECT * FROM {self._build_later(table, since)}"
            self._connection.execute(
                f"CREATE TEMP TABLE {name} AS SELECT DISTINCT {KEY}, "
                f"kernel_id NOT IN ({new_kernels}) AS is_known "
                f"FROM ({rows}) WHERE kernel_id IS NOT NULL"
            )
            self._stored_keys.add(name)
        return name

    def _build_later(self, table: str, since: int) -> str:
        if since == self._snapshot:
            return f"lake.main.{table} WHERE false"
        if table not in OWN_SNAPSHOT_ID:
            return f"lake.main.{table} WHERE snapshot_id > {since}"
        place = f"'lake', 'main', '{table}'"
        return f"ducklake_table_insertions({place}, {since + 1}, {self._snapshot})"

    def _list_files(self, question: ViewQuestion) -> dict[int, Path]:
        names = {file.name: file for file in self._folder.glob(f"{question.view}-*.parquet")}
        parts = [name.removesuffix(".parquet").split("-") for name in names]
        snapshots = [int(part[2]) for part in parts if len(part) == 4 and part[2].isdecimal()]
        moments = self._read_times(snapshots)
        return {
            snapshot: names[name]
            for snapshot, moment in moments.items()
            if (name := question.name(snapshot, moment)) in names
        }

    def _read_times(self, snapshots: Sequence[int]) -> dict[int, str]:
        return dict(
            self._connection.execute(
                self._location.qualify(
                    "SELECT snapshot_id, snapshot_time::VARCHAR "
                    f"FROM {METADATA}.ducklake_snapshot "
                    f"WHERE snapshot_id IN (SELECT unnest({snapshots}::BIGINT[]))"
                )
            ).fetchall()
        )

    def _write(self, question: ViewQuestion, rows: str) -> str | None:
        """Write and lock the file of this snapshot, and remove those of the view that nobody reads.

        Returns SQL that reads it, or None where that is impossible.
        """
        name = question.name(self._snapshot, self._read_times([self._snapshot])[self._snapshot])
        file = self._folder / name
        partial = file.with_suffix(".partial")
        try:
            with _lock_folder(self._folder):
                if not self._lock(file):  # which another process has made in the meantime
                    try:
                        self._copy_rows(question, rows, partial)
                    except BaseException:
                        partial.unlink(missing_ok=True)
                        raise
                    rename_durably(partial, file)
                    if not self._lock(file):
                        return None
                for other in self._folder.glob(f"{question.view}-*.parquet"):
                    if other != file:
                        self._unlock(other)
                        _remove(other)
        except duckdb.InterruptException:
            raise
        except (OSError, duckdb.Error):
            return None
        return f"SELECT * FROM {_scan(file)}"

    def _copy_rows(self, question: ViewQuestion, rows: str, target: Path) -> None:
        # Sorted, so that equal values are adjacent, which reduces the size to a third.
        parts = self.list_parts(question, rows)
        ordered = [f"SELECT * FROM ({query}\n) ORDER BY {KEY}" for _, query in parts]
        if len(ordered) == 1:
            copy_rows(self._connection, ordered[0], target)
            return
        # The next process that writes a file removes the folder of one that was killed.
        with TemporaryDirectory(suffix=".partial", dir=self._folder) as scratch:
            files = [Path(scratch) / f"{number}.parquet" for number in range(len(ordered))]
            for query, file in zip(ordered, files, strict=True):
                copy_rows(self._connection, query, file)
            listed = quote_values(tuple(map(str, files)))
            copy_rows(self._connection, f"FROM read_parquet([{listed}])", target)

    def _lock(self, file: Path) -> bool:
        """Lock a file against removal; return whether it exists and is readable."""
        if file in self._locked:
            return True
        try:
            with ExitStack() as opened:
                descriptor = os.open(file, os.O_RDONLY)
                opened.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink == 0:
                    return False
                # A truncated file has no footer.
                self._connection.execute(f"SELECT count(*) FROM {_scan(file)}").fetchall()
                opened.pop_all()
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise  # which say nothing about the file
        except (OSError, duckdb.Error):
            return False
        self._locked[file] = descriptor
        return True

    def _unlock(self, file: Path) -> None:
        descriptor = self._locked.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)


def copy_rows(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    """Write the rows of a query to a Parquet file."""
    connection.execute(
        f"COPY ({query}) TO {quote_values((str(target),))} (FORMAT parquet, COMPRESSION zstd)"
    )


def _match_keys(rows: str, kind: Literal["SEMI", "ANTI"], keys: str) -> str:
    """Return SQL for the rows whose key is among others (SEMI), or is not (ANTI).

    The task of an attempt may be NULL, which USING would not find.
    """
    return (
        f"SELECT * FROM {rows} AS kept {kind} JOIN {keys} AS keys ON "
        "kept.kernel_id = keys.kernel_id AND kept.task_id IS NOT DISTINCT FROM keys.task_id"
    )


def _scan(file: Path) -> str:
    return f"read_parquet({quote_values((str(file),))})"


def _shorten_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    """Hold the lock for writing and removing files; raise OSError if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for partial in folder.glob("*.partial"):
            _remove(partial)  # of a process that was killed
        yield


def _remove(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)
