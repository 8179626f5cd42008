"""A cache beside the lake: Parquet files of views that depend only on each kernel's own rows."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from store.lake.attachment import is_expired
from store.lake.cache import task_parts
from store.lake.cache.cache_folder import CacheFolder
from store.lake.cache.kept_files import (
    KEY,
    KeptFiles,
    NewKeys,
    ViewQuestion,
    build_scan,
    copy_rows,
    escape,
    match_keys,
)
from store.lake.cache.task_parts import DividedView, Part, TaskParts
from store.lake.data_files.files import FolderFiles
from store.lake.location import METADATA, Location

if TYPE_CHECKING:
    import duckdb

SOURCES = {
    "outcomes": ("evaluations",),
    "speedups": ("evaluations", "timings"),
    "pooled_speedups": ("evaluations", "timings"),
    "timed_arms": ("evaluations", "timings"),
    "nonequivalent": ("evaluations",),
    "fragile": ("evaluations",),
    "authors": ("generations",),
    "attempted_kernels": ("evaluations", "generations"),
    "failing_verdicts": ("evaluations",),
    "evaluated_kernels": ("evaluations",),
    "shape_verdicts": ("evaluations", "timings"),
}
"""Views whose rows for a kernel and task follow from these tables' rows for that kernel and task
(and from rows that those refer to, which were there before them)."""
FIGURES = ("session_spreads",)
"""Small tables whose rows concern all keys. They are part of what a file's name states."""
OWN_SNAPSHOT_ID = ("generations",)
"""Tables with a column snapshot_id of their own, which hides DuckLake's."""
LARGE_ROWS = 100_000
"""A view is cached when its tables have at least this many rows."""
DELTA_KEYS = 5_000
DELTA_SHARE = 0.002
"""A delta is written when more keys than this, and than this share of the base, have new rows."""
BASE_SHARE = 0.05
"""The base is rewritten when more than this share of it is outdated."""


class ViewCache:
    """Files with the rows of views at some snapshot: a cache that is safe to delete.

    A base has all rows of a view at a snapshot, and a delta those of the keys that got rows since
    then, at a later one. The name of a file states its view, the SQL, the rows of `FIGURES` that
    the view reads, the snapshots and their times, so other SQL, a new figure or a lake restored
    from a backup uses another file. At a later snapshot, the
    rows of the files are valid except for keys with new rows; these are computed from the tables.
    At an earlier snapshot, the files are not used. A query that needs a file writes it. If that is
    impossible, because the folder is not writable or another process is writing a file, the rows
    are computed from the tables.

    A file in use has a shared lock, so that nobody removes it while it is read.

    Args:
        connection: Where the lake is attached at the snapshot.
        location: Where the lake is.
        snapshot: The snapshot that is read.
        spill_bytes: Disk space for temporary files, as far as their disk has room.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        location: Location,
        snapshot: int,
        spill_bytes: int,
    ) -> None:
        self._connection = connection
        self._location = location
        self._snapshot = snapshot
        self._files = CacheFolder(location.derived, self._is_readable)
        self._parts = TaskParts(connection, spill_bytes)
        self._stored_keys: set[str] = set()

    def close(self) -> None:
        """Release the files in use."""
        self._files.close()

    def find_sql(self, question: ViewQuestion, *, make: bool = True) -> str | None:
        """Return SQL that reads a view from its files, or None without them.

        With `make`, files that are missing or far behind are written.
        """
        states = self._list_states(question)
        # If a file of a later snapshot exists, most queries read that snapshot and not this one.
        make = make and not any(max(one)[0] > self._snapshot for one in states)
        kept = self._find_kept(question, states)
        new = None if kept is None else self.find_new_keys(question, kept)
        if kept is None or new is None:
            made = self.write_base(question) if make else None
            return None if made is None else f"SELECT * FROM {build_scan(made.base)}"
        known, whole = self._count_rows(kept)
        if new.count + known == 0:
            return f"SELECT * FROM {build_scan(kept.base)}"
        answer = kept.build_rows(new.table)
        if new.count:
            answer += f" UNION ALL {question.build_query(new)}"
        if make and new.count + known > BASE_SHARE * whole:
            made = self.write_base(question, answer)
            answer = answer if made is None else f"SELECT * FROM {build_scan(made.base)}"
        elif make and new.count > max(DELTA_KEYS, DELTA_SHARE * whole):
            later = self._write_delta(question, kept, new)
            if later is not None:
                self._connection.execute(f"TRUNCATE {new.table}")
                answer = later.build_rows(new.table)
        return answer

    def is_newest(self, question: ViewQuestion) -> bool:
        """Return whether no file of a later snapshot exists, which most queries would read."""
        return all(max(one)[0] <= self._snapshot for one in self._list_states(question))

    def find_base(self, question: ViewQuestion) -> KeptFiles | None:
        """Lock and return the newest base of a view, and its newest delta if it has one."""
        return self._find_kept(question, self._list_states(question))

    def find_new_keys(self, question: ViewQuestion, kept: KeptFiles) -> NewKeys | None:
        """Store the keys with rows that are not in the files in a table.

        Returns None if they are unknown, because a snapshot since then has expired.
        """
        import duckdb

        keys = f"_touched_{question.view}"
        later = {table: self._build_later(table, kept.since) for table in question.tables}
        try:
            listed = " UNION ".join(f"FROM {self._keep_keys(one, kept.since)}" for one in later)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {keys} AS {listed}")
        except duckdb.InvalidInputException as error:
            if not is_expired(error):
                raise
            return None
        count, known = self._fetch_counts(
            f"SELECT count(*), count(*) FILTER (WHERE is_known) FROM {keys}"
        )
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

    def _count_rows(self, kept: KeptFiles) -> tuple[int, int]:
        """Return the number of keys of the delta, and of rows of the base."""
        return self._fetch_counts(
            f"SELECT (SELECT count(*) FROM ({kept.delta_keys})), count(*) "
            f"FROM {build_scan(kept.base)}"
        )

    def _fetch_counts(self, query: str) -> tuple[int, int]:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def _build_later(self, table: str, since: int) -> str:
        """Return SQL for the rows of a table that are newer than a snapshot."""
        if since == self._snapshot:
            return f"lake.main.{table} WHERE false"
        if table not in OWN_SNAPSHOT_ID:
            return f"lake.main.{table} WHERE snapshot_id > {since}"
        place = f"'lake', 'main', '{table}'"
        return f"ducklake_table_insertions({place}, {since + 1}, {self._snapshot})"

    def _list_states(self, question: ViewQuestion) -> list[tuple[tuple[int, str], ...]]:
        """Return the snapshots and times of the files that are of this view and lake."""
        found: dict[str, list[int]] = {}
        for file in self._files.folder.glob(f"{question.view}-*-*-*.parquet"):
            snapshots = file.stem.split("-")[2::2]
            if all(one.isdecimal() for one in snapshots):
                found[file.name] = [int(one) for one in snapshots]
        moments = self._read_times([one for snapshots in found.values() for one in snapshots])
        states = [
            tuple((one, moments[one]) for one in snapshots)
            for snapshots in found.values()
            if all(one in moments for one in snapshots)
        ]
        return [one for one in states if question.name(*one) in found]

    def _find_kept(
        self, question: ViewQuestion, states: list[tuple[tuple[int, str], ...]]
    ) -> KeptFiles | None:
        """Lock and return the newest base, and its newest delta."""
        usable = sorted(
            (one for one in states if max(one)[0] <= self._snapshot), key=max, reverse=True
        )
        for base in (one for one in usable if len(one) == 1):
            file = self._files.folder / question.name(*base)
            if not self._files.lock(file):
                continue
            for one in usable:
                delta = self._files.folder / question.name(*one)
                if len(one) == 2 and one[0] == base[0] and self._files.lock(delta):
                    return KeptFiles(base=file, base_state=base[0], delta=delta, since=one[1][0])
            return KeptFiles(base=file, base_state=base[0], delta=None, since=base[0][0])
        return None

    def _read_times(self, snapshots: list[int]) -> dict[int, str]:
        return dict(
            self._connection.execute(
                self._location.qualify(
                    "SELECT snapshot_id, snapshot_time::VARCHAR "
                    f"FROM {METADATA}.ducklake_snapshot "
                    f"WHERE snapshot_id IN (SELECT unnest({snapshots}::BIGINT[]))"
                )
            ).fetchall()
        )

    def write_base(self, question: ViewQuestion, answer: str | None = None) -> KeptFiles | None:
        """Write a base of this snapshot; return None where that is impossible.

        Without an answer, its rows are computed from the tables.
        """
        parts = self._parts.list_parts(question.view, question.tables)
        rows = answer or self._divide(question, parts) or question.build_query(None)

        def write(target: Path) -> None:
            # Sorted, so that equal values are adjacent, which reduces the size to a third. In
            # parts, because otherwise all rows would have to be in memory.
            with self._files.make_scratch() as folder:
                files: list[Path] = []
                with closing(self._compute(question, parts, rows, folder)) as queries:
                    for query in queries:
                        files.append(folder / f"{len(files)}.parquet")
                        self._copy(f"SELECT * FROM ({query}\n) ORDER BY {KEY}", files[-1])
                if len(files) == 1:
                    files[0].rename(target)
                    return
                listed = ", ".join(f"'{escape(file)}'" for file in files)
                self._copy(f"FROM read_parquet([{listed}])", target)

        state = self._read_state()
        made = self._write(question, question.name(state), write)
        if made is None:
            return None
        return KeptFiles(base=made, base_state=state, delta=None, since=state[0])

    def _write_delta(
        self, question: ViewQuestion, kept: KeptFiles, new: NewKeys
    ) -> KeptFiles | None:
        """Write a delta of this snapshot; return None where that is impossible."""
        rows = f"{kept.build_delta_rows(new.table)} UNION ALL {question.build_query(new)}"
        outdated = f"(SELECT {KEY} FROM {new.table} UNION {kept.delta_keys})"
        unanswered = f"{KEY}, false AS _answered"
        query = (
            f"WITH answered AS MATERIALIZED ({rows}\n) SELECT *, true AS _answered FROM answered "
            f"UNION ALL BY NAME {match_keys(outdated, 'ANTI', 'answered', unanswered)}"
        )
        made = self._write(
            question,
            question.name(kept.base_state, self._read_state()),
            lambda target: self._copy(query, target),
            kept.base,
        )
        return None if made is None else replace(kept, delta=made, since=self._snapshot)

    def _read_state(self) -> tuple[int, str]:
        return self._snapshot, self._read_times([self._snapshot])[self._snapshot]

    def compute_parts(self, question: ViewQuestion, whole: str) -> Generator[tuple[str, str]]:
        """Yield a condition for the tasks of each part of a view, and SQL for its rows.

        The SQL can be used until the next part is asked for. `whole` is SQL for all rows.
        """
        parts = self._parts.list_parts(question.view, question.tables)
        rows = self._divide(question, parts) or whole
        with (
            self._files.make_scratch() as folder,
            closing(self._compute(question, parts, rows, folder)) as queries,
        ):
            for part, query in zip(parts, queries, strict=True):
                yield part.condition, query

    def _divide(self, question: ViewQuestion, parts: list[Part]) -> DividedView | None:
        """Return how to compute a view from files of its parts, where that saves time."""
        is_local = isinstance(self._location.files, FolderFiles)
        direct = task_parts.DIRECT_PARTS if is_local else 1
        return question.divide() if len(parts) > direct else None

    def _compute(
        self, question: ViewQuestion, parts: list[Part], rows: str | DividedView, folder: Path
    ) -> Generator[str]:
        """Yield SQL for the rows of each part."""
        if isinstance(rows, DividedView):
            yield from self._parts.divide(question.view, parts, rows, folder)
            return
        for part in parts:
            yield f"SELECT * FROM ({rows}\n) WHERE {part.condition}"

    def _write(
        self, question: ViewQuestion, name: str, write: Callable[[Path], None], *keep: Path
    ) -> Path | None:
        import duckdb

        try:
            return self._files.replace(f"{question.view}-*.parquet", name, write, keep)
        except duckdb.InterruptException:
            raise
        except (OSError, duckdb.Error):
            return None

    def _is_readable(self, file: Path) -> bool:
        """Return whether a file has its footer, which a truncated one lacks."""
        import duckdb

        try:
            self._connection.execute(f"SELECT count(*) FROM {build_scan(file)}").fetchall()
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise  # says nothing about the file
        except duckdb.Error:
            return False
        return True

    def _copy(self, query: str, target: Path) -> None:
        copy_rows(self._connection, query, target)
