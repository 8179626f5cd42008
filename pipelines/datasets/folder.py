"""The Parquet shards of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 1_000
SHARD_ROWS = 20_000


class Shards:
    """Parquet files of one split, opened as rows arrive and named when their number is known."""

    schema: pa.Schema
    """Schema of the rows; known after the first batch."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self._writer: Any = None
        self._rows = 0
        self._parts: list[Path] = []
        folder.mkdir(parents=True)

    def write(self, table: pa.Table) -> None:
        """Append one batch as one row group."""
        import pyarrow.parquet as pq

        self.schema = table.schema
        if self._writer is not None and self._rows + table.num_rows > SHARD_ROWS:
            self._close()
        if self._writer is None:
            part = self.folder / f"{len(self._parts):05d}.partial"
            self._parts.append(part)
            self._writer = pq.ParquetWriter(
                part,
                self.schema,
                compression="zstd",
                write_page_index=True,
                use_content_defined_chunking=True,
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._rows += table.num_rows

    def finish(self) -> list[Path]:
        """Close the last file and return all under their final names."""
        self._close()
        files: list[Path] = []
        for number, part in enumerate(self._parts):
            name = f"{self.split}-{number:05d}-of-{len(self._parts):05d}.parquet"
            files.append(part.rename(self.folder / name))
        return files

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._rows = None, 0
