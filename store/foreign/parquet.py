"""Untrusted Parquet files: check how far they expand before they are read.

A file of a few hundred bytes can decode to gigabytes (a dictionary of one long text that every row
points at), and its metadata need not say so. A child process with a memory limit decodes each file
first and counts; this process reads only files that passed. Their columns may have types that are
lost because every value is NULL, and times in the future.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from store import faults
from store.bounds import GB, PARQUET_LIMITS, ParquetLimits
from store.errors import ImportFailed
from store.foreign import left_out
from store.schema.catalog import Table

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


PROGRAM = Path(__file__).parent / "parquet_size.py"
_MOST_ROWS = 100_000_000
"""Rows of one file."""


_LIMITS: ContextVar[ParquetLimits] = ContextVar("parquet_limits", default=PARQUET_LIMITS)


@contextmanager
def use_limits(limits: ParquetLimits) -> Generator[None]:
    """Set the limits for every check inside the block."""
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


def get_limits() -> ParquetLimits:
    """Return the limits in force."""
    return _LIMITS.get()


def check_files(files: Sequence[Path]) -> list[Path]:
    """Decode files in a child process and return those that can be read.

    An import leaves out a file that is no Parquet.

    Raises ImportFailed if a file expands beyond the limits in force.
    """
    if not files:
        return []
    limits = get_limits()
    asked = {
        "files": [str(file.resolve()) for file in files],
        "file_bytes": int(limits.max_file_gb * GB),
        "total_bytes": int(limits.max_total_gb * GB),
        "rows": _MOST_ROWS,
    }
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    sound: list[Path] = []
    for file, one in zip(files, found, strict=False):
        if one.get("damaged"):
            with left_out.errors():
                with faults.at(file, ImportFailed):
                    file.open("rb").close()
                raise ImportFailed(f"{file.name}: it {one['error']}", "Copy or download it again.")
        elif "error" in one:
            raise _refuse_size(file, str(one["error"]))
        else:
            left_out.get_record().note_file(file)
            sound.append(file)
    if len(found) < len(files):
        # The limits on memory or processor time ended the child in the middle of this file.
        size = f"{limits.max_file_gb:g} GB"
        raise _refuse_size(
            files[len(found)], f"cannot be decoded in the memory and time that {size} may take"
        )
    return sound


def _refuse_size(file: Path, reason: str) -> ImportFailed:
    return ImportFailed(
        f"{file.name} ({file.stat().st_size} bytes) {reason}",
        "Nothing of it was stored. If you trust its source, raise --max-file-gb or --max-total-gb.",
    )


def cast_null_types(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows in which a column of type null, or of lists of it, has the type of the catalog.

    Arrow writes such columns where it sees no value to take a type from. Neither a comparison with
    a stored column nor a cast of what DuckDB returns for it is possible. A list where the catalog
    has none is left unchanged; it is rejected later, when rows are conformed to the schema.
    """
    import pyarrow as pa

    for place, name in enumerate(rows.column_names):
        if name not in table.columns or not _has_null_type(rows.schema.field(place).type):
            continue
        try:
            typed = rows.column(place).cast(table.arrow_schema.field(name).type)
        except pa.ArrowException:
            continue
        rows = rows.set_column(place, name, typed)
    return rows


def _has_null_type(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.types.is_null(kind.value_type)
    return pa.types.is_null(kind)


def clamp_times(table: Table, rows: pa.Table, now: datetime) -> pa.Table:
    """Return rows with every TIMESTAMPTZ after `now` replaced by it; NULL stays NULL.

    Often the row with the latest time decides, so a row with a time in the future would always
    decide. A column without times is left unchanged; it is rejected later, when rows are conformed
    to the schema.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, name in enumerate(rows.column_names):
        column = table.columns.get(name)
        if column is None or column.type != "TIMESTAMPTZ":
            continue
        kind = pa.timestamp("us", tz="UTC")
        try:
            times = rows.column(place).cast(kind)
        except pa.ArrowException:
            continue
        latest = pa.scalar(now, kind)
        if pc.any(pc.greater(times, latest)).as_py():
            clamped = pc.if_else(pc.greater(times, latest), latest, times)
            rows = rows.set_column(place, name, clamped)
    return rows
