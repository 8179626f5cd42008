"""Reads untrusted Parquet files: columns by name, rows in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import ImportFailed
from store.foreign import parquet

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BUFFER_BYTES = 1 << 20
BATCH_BYTES = 16 << 20


def find(root: Path) -> list[Path]:
    """Return a file, or the Parquet files below a folder, in order.

    Raises ImportFailed if there is none, or one exceeds the limits of `store.foreign.parquet`.
    """
    if root.is_file():
        parquet.check_files([root])
        return [root]
    found = sorted(file for file in root.rglob("*.parquet") if file.is_file())
    inside = root.resolve()
    for file in found:
        if not file.resolve().is_relative_to(inside):
            raise ImportFailed(f"{file} is a link out of {root}", "Copy the file into the folder.")
    if not found:
        raise ImportFailed(f"{root} holds no .parquet file", "Name a file or a folder of them.")
    parquet.check_files(found)
    return found


def digest(file: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def column_names(file: Path) -> list[str]:
    """Return the names of a file's columns."""
    return list(_open(file).schema_arrow.names)


def read_distinct(file: Path, column: str) -> list[str]:
    """Return the distinct texts of a column, in order; raises ImportFailed if it is missing."""
    opened = _open(file)
    _require(file, opened, [column])
    found: dict[str, None] = {}
    for batch in _iterate_batches(file, opened, [column], 10_000):
        found |= {
            value: None for value in batch.column(0).to_pylist() if isinstance(value, str) and value
        }
    return sorted(found)


def read_batches(
    file: Path, wanted: Mapping[str, bool], rows: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in batches of at most `rows`, and of about BATCH_BYTES at most.

    `wanted` states for each column whether it is required; other missing columns are None.

    Raises:
        ImportFailed: the file is not Parquet or truncated, or a required column is missing.
    """
    opened = _open(file)
    _require(file, opened, [name for name, required in wanted.items() if required])
    rows = min(rows, _count_rows(opened, BATCH_BYTES))
    there = [name for name in wanted if name in opened.schema_arrow.names]
    missing: dict[str, Any] = {name: None for name in wanted if name not in there}
    for batch in _iterate_batches(file, opened, there, rows):
        yield [row | missing for row in batch.to_pylist()]


def _open(file: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, a column of a row group is read as a whole.
        return pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise ImportFailed(f"{file} cannot be read as Parquet: {error}") from error


def _count_rows(opened: pq.ParquetFile, size: int) -> int:
    """Return how many rows of mean length, by the metadata, take `size` bytes; at least 1."""
    meta = opened.metadata
    stated = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
    return max(1, size * max(meta.num_rows, 1) // max(stated, 1))


def _iterate_batches(
    file: Path, opened: pq.ParquetFile, names: list[str], rows: int
) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from opened.iter_batches(batch_size=rows, columns=names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{file} cannot be read: {error}") from error


def _require(file: Path, opened: pq.ParquetFile, names: list[str]) -> None:
    there = opened.schema_arrow.names
    for name in names:
        if name not in there:
            raise ImportFailed(f"{file} has no column {name}", f"It has {', '.join(there[:20])}.")
