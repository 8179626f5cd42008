"""Limits of a user's query: time, memory, spilled data, and size of the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from store.bounds import GB, MOST_GB, THREADS, Bounds, read_bounds
from store.errors import FlywheelError


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
