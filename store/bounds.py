"""Bounds of every DuckDB connection (memory, threads, temporary data), and of a user's queries."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import FlywheelError

if TYPE_CHECKING:
    import duckdb


GB = 1_000_000_000
MEMORY_GB = 4.0
THREADS = 8
MOST_GB = 1e9
"""DuckDB takes no larger sizes."""
SPILL_SHARE = 0.5
"""Part of the free disk space that temporary data may take."""
_DUCKDB_SHARE = 0.75
"""Part of the memory of a process that DuckDB may use; Python and Arrow need the rest."""
_MEMORY_VARIABLE = "FLYWHEEL_MEMORY_GB"
_SPILL_VARIABLE = "FLYWHEEL_SPILL_GB"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one connection may use, and the options that raise it."""

    memory_bytes: int
    spill_bytes: int
    threads: int = THREADS
    memory_option: str = _MEMORY_VARIABLE
    spill_option: str = _SPILL_VARIABLE

    def apply(self, connection: duckdb.DuckDBPyConnection, folder: Path | None) -> None:
        """Set the bounds of a connection, which spills to a folder, or nowhere."""
        place = "" if folder is None else str(folder).replace("'", "''")
        connection.execute(f"SET temp_directory = '{place}'")
        connection.execute(f"SET memory_limit = '{self.memory_bytes}B'")
        connection.execute(f"SET max_temp_directory_size = '{self.spill_bytes}B'")
        self._limit_threads(connection)

    def use_threads(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give a connection that has one thread all that the process may use, up to the bound."""
        connection.execute("RESET threads")
        self._limit_threads(connection)

    def _limit_threads(self, connection: duckdb.DuckDBPyConnection) -> None:
        # Fewer where the process may use fewer processors.
        row = connection.execute("SELECT current_setting('threads')").fetchone()
        assert row is not None
        if int(row[0]) > self.threads:
            connection.execute(f"SET threads = {self.threads}")

    def explain(self, error: BaseException, query: str) -> FlywheelError | None:
        """Return the error of a query that exceeded a bound; None for any other error."""
        if "max_temp_directory_size" in str(error):
            bound = f"{self.spill_bytes / GB:.3g} GB of disk space for temporary data"
            return _refuse(query, bound, self.spill_option)
        if "Out of Memory Error" in str(error) or isinstance(error, MemoryError):
            return self.explain_memory(query)
        return None

    def explain_memory(self, query: str) -> FlywheelError:
        """Return the error of a query that exceeded its memory."""
        return _refuse(query, f"{self.memory_bytes / GB:.3g} GB of memory", self.memory_option)


def _refuse(query: str, bound: str, option: str) -> FlywheelError:
    return FlywheelError(
        f"{query} needs more than {bound}",
        f"Ask for less (a filter, fewer columns), or raise {option}.",
    )


def read_bounds(folder: Path | None) -> Bounds:
    """Return the bounds of this process's connections.

    DuckDB may use three quarters of FLYWHEEL_MEMORY_GB, or of 4 GB. It may spill FLYWHEEL_SPILL_GB,
    or half of the free disk space.

    Args:
        folder: Where they spill; None is nowhere.

    Raises FlywheelError if a variable is not a positive number.
    """
    memory = _read_bytes(_MEMORY_VARIABLE)
    spill = _read_bytes(_SPILL_VARIABLE)
    if spill is None and folder is not None:
        # What of the path does not exist yet is on the disk of its parent.
        there = next(part for part in (folder, *folder.parents) if part.exists())
        spill = int(SPILL_SHARE * shutil.disk_usage(there).free)
    return Bounds(
        memory_bytes=int(_DUCKDB_SHARE * (MEMORY_GB * GB if memory is None else memory)),
        spill_bytes=spill or 0,
    )


def _read_bytes(variable: str) -> int | None:
    text = os.environ.get(variable)
    if text is None:
        return None
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size <= MOST_GB:
        raise FlywheelError(
            f'{variable} is "{text}", which is not a positive number of at most {MOST_GB:g}',
            "Set it to a number of GB, or unset it.",
        )
    return int(size * GB)


@dataclass(frozen=True, kw_only=True)
class ParquetLimits:
    """How large foreign Parquet files may be once they are decoded."""

    max_file_gb: float = 1.0
    """Refuse a Parquet file that decodes to more than N GB."""
    max_total_gb: float = 16.0
    """Refuse Parquet files that decode to more than N GB together."""

    def __post_init__(self) -> None:
        """Refuse a limit that lets nothing through."""
        if not (self.max_file_gb > 0 and self.max_total_gb > 0):
            raise FlywheelError("a limit on Parquet files must be above 0")


PARQUET_LIMITS = ParquetLimits()


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """Limits on user SQL; the defaults suit a lake on a laptop.

    0 lifts a limit on rows or characters.
    """

    timeout: float = 300.0
    """End a query after this many seconds."""
    memory_gb: float | None = None
    """Memory that a query may use, in GB (default: three quarters of FLYWHEEL_MEMORY_GB)."""
    threads: int = THREADS
    """Use at most this many threads for a query."""
    spill_gb: float | None = None
    """Disk space that a query may use for data that does not fit into memory, in GB (default:
    FLYWHEEL_SPILL_GB, or half of the free space)."""
    max_rows: int = 1_000_000
    """Cut the answer after this many rows and say so; 0 gives all rows."""
    max_chars: int = 0
    """Cut the answer after this many characters of JSON and say so; 0 gives all rows."""
    max_result_gb: float = 1.0
    """Refuse an answer larger than this many GB."""

    def __post_init__(self) -> None:
        """Refuse limits under which no query can be answered."""
        sizes = (self.timeout, self.memory_gb, self.spill_gb, self.max_result_gb, self.threads)
        counts = (self.max_rows, self.max_chars)
        if not all(size is None or 0 < size <= MOST_GB for size in sizes) or min(counts) < 0:
            raise FlywheelError(
                f"a limit on queries must be a positive number of at most {MOST_GB:g}",
                "Only --max-rows and --max-chars may be 0, which gives all rows.",
            )

    def find_bounds(self, folder: Path | None) -> Bounds:
        """Return the bounds of the connection that answers the queries and spills to a folder."""
        bounds = replace(read_bounds(folder), threads=self.threads)
        if self.memory_gb is not None:
            size = int(self.memory_gb * GB)
            bounds = replace(bounds, memory_bytes=size, memory_option="--memory-gb")
        if self.spill_gb is not None:
            size = int(self.spill_gb * GB)
            bounds = replace(bounds, spill_bytes=size, spill_option="--spill-gb")
        return bounds

    def timeout_error(self, query: str = "the query") -> FlywheelError:
        """Return the error for a query that exceeded its time."""
        return FlywheelError(
            f"{query} was ended: it took longer than {self.timeout:g} s",
            "Ask for less (a filter, an aggregate), or raise --timeout.",
        )
