"""Writes tables as Parquet for the Hub, in order of arrival, so that older files stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.lake.checksums import hash_file

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 256
GROUP_BYTES = 2 << 20
"""Approximate size of a row group before compression: what the Hub's viewer reads for one page."""
SHARD_BYTES = 2 << 20
"""A file ends with the row group that reaches this size, before compression, or …"""
SHARE = 16
"""… or 1/SHARE of all earlier bytes, so that a later edition changes only a small part."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One Parquet file, identified by its content."""

    path: str
    """Path in the repository."""
    sha256: str
    bytes: int
    raw_bytes: int
    """Size of its values before compression."""
    rows: int


def write_shards(
    folder: Path, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> list[Shard]:
    """Write rows as `<prefix>-00000.parquet` and so on below a folder; return the files.

    The end of a file depends only on the rows before it, and names do not contain the number of
    files. Rows added at the end therefore leave every file except the last one unchanged. Without
    rows there is no file, because `datasets` cannot read an empty one.
    """
    import pyarrow.parquet as pq

    made: list[Shard] = []
    groups = _cut_groups(schema, batches)
    group, total = next(groups, None), 0
    while group is not None:
        path = f"{prefix}-{len(made):05d}.parquet"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        limit = max(SHARD_BYTES, total // SHARE)
        rows = raw = 0
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            write_page_index=True,
            use_content_defined_chunking=True,
        ) as writer:
            while group is not None and raw < limit:
                whole, size = group
                writer.write_table(whole, row_group_size=whole.num_rows)
                rows += whole.num_rows
                raw += size
                group = next(groups, None)
        total += raw
        made.append(
            Shard(
                path=path,
                sha256=hash_file(file),
                bytes=file.stat().st_size,
                raw_bytes=raw,
                rows=rows,
            )
        )
    return made


def _cut_groups(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.Table, int]]:
    """Yield row groups of about GROUP_BYTES, each with its size.

    A group consists of blocks of BLOCK_ROWS rows, wherever batches end; the last one has the rest.
    """
    import pyarrow as pa

    waiting, blocks, size = schema.empty_table(), list[pa.Table](), 0
    for batch in batches:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows >= BLOCK_ROWS:
            block, waiting = waiting.slice(0, BLOCK_ROWS), waiting.slice(BLOCK_ROWS)
            blocks.append(block)
            size += sum(map(_count_bytes, block.columns))
            if size >= GROUP_BYTES:
                yield pa.concat_tables(blocks).combine_chunks(), size
                blocks, size = [], 0
    if blocks or waiting.num_rows:
        size += sum(map(_count_bytes, waiting.columns))
        yield pa.concat_tables([*blocks, waiting]).combine_chunks(), size


def _count_bytes(values: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 4 * len(values) + _count_bytes(pc.list_flatten(values))
    if pa.types.is_struct(kind):
        return sum(_count_bytes(pc.struct_field(values, [at])) for at in range(kind.num_fields))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return 4 * len(values) + int(pc.sum(pc.binary_length(values)).as_py() or 0)
    return len(values) * (kind.bit_width + 7) // 8
