"""Reads untrusted Parquet files: columns by name, rows in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import ImportFailed
from store.foreign import parquet
from store.importers.reading import sources

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
    for file in found:
        sources.resolve_regular(file, root)
    if not found:
        raise ImportFailed(f"{root} holds no .parquet file", "Name a file or a folder of them.")
    parquet.check_files(found)
    return found


def column_names(file: Path) -> list[str]:
    """Return the names of a file's columns."""
    return list(_open(file).schema_arrow.names)


def read_batches(
    file: Path, columns: Mapping[str, bool], rows: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in batches of at most `rows`, and of about BATCH_BYTES at most.

    `columns` states for each column whether it is required; other missing columns are None.

    Raises:
        ImportFailed: the file is not Parquet or truncated, or a required column is missing.
    """
    import pyarrow as pa

    opened = _open(file)
    names = opened.schema_arrow.names
    for name, is_required in columns.items():
        if is_required and name not in names:
            raise ImportFailed(f"{file} has no column {name}", f"It has {', '.join(names[:20])}.")
    meta = opened.metadata
    stated = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
    # Rows of mean length, by the metadata, that take BATCH_BYTES.
    most = max(1, BATCH_BYTES * max(meta.num_rows, 1) // max(stated, 1))
    present = [name for name in columns if name in names]
    missing: dict[str, Any] = {name: None for name in columns if name not in names}
    try:
        for batch in opened.iter_batches(batch_size=min(rows, most), columns=present):
            yield [row | missing for row in batch.to_pylist()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{file} cannot be read: {error}") from error


def _open(file: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, a column of a row group is read as a whole.
        return pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise ImportFailed(f"{file} cannot be read as Parquet: {error}") from error
