"""Limits of a user's query: time, memory, spilled data, and size of the answer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from store.errors import FlywheelError

GB = 1_000_000_000
THREADS = 8
MEMORY_GB = 4.0
_MEMORY_VARIABLE = "FLYWHEEL_MEMORY_GB"
_DUCKDB_SHARE = 0.75
"""Part of the memory of a process that DuckDB may use; Python and Arrow need the rest."""


def read_memory_bytes() -> int:
    """Return the memory that DuckDB may use in this process, in bytes, before it spills to disk.

    It is three quarters of FLYWHEEL_MEMORY_GB, or of 4 GB. Raises FlywheelError if the variable is
    not a positive number.
    """
    text = os.environ.get(_MEMORY_VARIABLE, str(MEMORY_GB))
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise FlywheelError(
            f'{_MEMORY_VARIABLE} is "{text}", which is not a positive number',
            f"Set it to a number of GB, or unset it for {MEMORY_GB:g} GB.",
        )
    return int(_DUCKDB_SHARE * size * GB)


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """Limits on user SQL; the defaults suit a lake on a laptop.

    0 lifts a limit on rows or characters.
    """

    timeout: float = 300.0
    """End a query after this many seconds."""
    memory_gb: float = MEMORY_GB
    """Memory that a query may use, in GB."""
    threads: int = THREADS
    """Use at most this many threads for a query."""
    spill_gb: float = 10.0
    """Disk space that a query may use for data that does not fit into memory, in GB."""
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
        if not all(0 < value < float("inf") for value in sizes) or min(counts) < 0:
            raise FlywheelError(
                "a limit on queries must be a positive number",
                "Only --max-rows and --max-chars may be 0, which gives all rows.",
            )

    @property
    def spill_bytes(self) -> int:
        """Disk space that a query may use for data that does not fit into memory."""
        return int(self.spill_gb * GB)

    def settings(self) -> dict[str, str]:
        """Return DuckDB's settings for these limits, except the folder for spilled data."""
        return {
            "memory_limit": f"{int(self.memory_gb * GB)}B",
            "threads": str(min(self.threads, os.cpu_count() or 1)),
            "max_temp_directory_size": f"{self.spill_bytes}B",
        }

    def timeout_error(self) -> FlywheelError:
        """Return the error for a query that exceeded its time."""
        return FlywheelError(
            f"the query was ended: it took longer than {self.timeout:g} s",
            "Ask for less (a filter, an aggregate), or raise --timeout.",
        )

    def size_error(self) -> FlywheelError:
        """Return the error for an answer that is too large."""
        return FlywheelError(
            f"the answer is larger than {self.max_result_gb:g} GB",
            "Select fewer columns or rows, or raise --max-result-gb.",
        )

    def row_error(self, characters: int) -> FlywheelError:
        """Return the error for an answer whose first row is too long."""
        return FlywheelError(
            f"the first row has {characters} characters, and an answer may have {self.max_chars}",
            "Select fewer columns, or part of a text, such as left(code, 10000).",
        )

    def memory_error(self) -> FlywheelError:
        """Return the error for a query that needs more memory or spill than it may use."""
        return FlywheelError(
            f"the query needs more than {self.memory_gb:g} GB of memory, or more than "
            f"{self.spill_gb:g} GB of spill",
            "Ask for less (a filter, fewer columns), or raise --memory-gb or --spill-gb.",
        )
