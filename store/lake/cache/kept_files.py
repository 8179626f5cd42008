"""A view at a snapshot, and the files of the cache that contain its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import duckdb

    from store.lake.cache.task_parts import DividedView

KEY = "kernel_id, task_id"


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
            f"{match_keys(f'({later})', 'ANTI', known)} "
            f"UNION ALL {match_keys(f'({whole})', 'SEMI', known)}"
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
    divide: Callable[[], DividedView | None]
    """Returns how to compute it from files with rows of its tables, if it reads no cached views."""

    def name(self, *states: tuple[int, str]) -> str:
        """Return the name of a file for snapshots, each with its time: of the base, of the delta.

        A base has one snapshot.
        """
        parts = [f"{snapshot}-{_shorten_hash(moment)}" for snapshot, moment in states]
        return f"{self.view}-{_shorten_hash(self.text)}-{'-'.join(parts)}.parquet"


@dataclass(frozen=True, kw_only=True)
class KeptFiles:
    """The files with the rows of a view at a snapshot, both locked."""

    base: Path
    base_state: tuple[int, str]
    delta: Path | None
    """The keys that got rows after the base, with all rows of the view for them."""
    since: int

    @property
    def delta_keys(self) -> str:
        """SQL for the keys of the delta."""
        if self.delta is None:
            return f"SELECT {KEY} FROM {build_scan(self.base)} WHERE false"
        return f"SELECT DISTINCT {KEY} FROM {build_scan(self.delta)}"

    def build_rows(self, touched: str) -> str:
        """Return SQL for the rows of the view, except for the keys in a table."""
        outdated = f"(SELECT {KEY} FROM {touched} UNION {self.delta_keys})"
        rows = match_keys(build_scan(self.base), "ANTI", outdated)
        return rows if self.delta is None else f"{rows} UNION ALL {self.build_delta_rows(touched)}"

    def build_delta_rows(self, touched: str) -> str:
        """Return SQL for the rows of the delta, except for the keys in a table."""
        if self.delta is None:
            return f"SELECT * FROM {build_scan(self.base)} WHERE false"
        delta = f"(FROM {build_scan(self.delta)} WHERE _answered)"
        return match_keys(delta, "ANTI", touched, "* EXCLUDE (_answered)")


def _shorten_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def match_keys(rows: str, kind: Literal["SEMI", "ANTI"], keys: str, columns: str = "*") -> str:
    """Return SQL for the rows whose key is among others (SEMI), or is not (ANTI).

    The task of an attempt may be NULL, which USING would not find.
    """
    return (
        f"SELECT {columns} FROM {rows} AS kept {kind} JOIN {keys} AS keys ON "
        "kept.kernel_id = keys.kernel_id AND kept.task_id IS NOT DISTINCT FROM keys.task_id"
    )


def build_scan(file: Path) -> str:
    """Return SQL that reads a file, to follow FROM."""
    return f"read_parquet('{escape(file)}')"


def escape(path: Path) -> str:
    """Return a path for an SQL string."""
    return str(path).replace("'", "''")


def copy_rows(
    connection: duckdb.DuckDBPyConnection, query: str, target: Path, *options: str
) -> None:
    """Write the rows of a query to a Parquet file, or with further options to a folder."""
    listed = ", ".join(("FORMAT parquet", "COMPRESSION zstd", *options))
    connection.execute(f"COPY ({query}) TO '{escape(target)}' ({listed})")
