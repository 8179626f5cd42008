"""Bounds of every DuckDB connection: memory, threads, and disk space for temporary data."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
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

    Raises:
        FlywheelError: a variable is not a positive number.
    """
    memory = _read_bytes(_MEMORY_VARIABLE)
    spill = _read_bytes(_SPILL_VARIABLE)
    if spill is None:
        spill = 0 if folder is None else measure_share(folder)
    return Bounds(
        memory_bytes=int(_DUCKDB_SHARE * (MEMORY_GB * GB if memory is None else memory)),
        spill_bytes=spill,
    )


def measure_share(folder: Path) -> int:
    """Return how many bytes of temporary data the disk of a folder has room for.

    What of the path does not exist yet is on the disk of its parent.
    """
    while not folder.exists():
        folder = folder.parent
    return int(SPILL_SHARE * shutil.disk_usage(folder).free)


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
