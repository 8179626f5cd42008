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
    for rows_of_file in _cut_files(_cut_groups(_cut_blocks(schema, batches))):
        path = f"{prefix}-{len(made):05d}.parquet"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = raw = 0
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            write_page_index=True,
            use_content_defined_chunking=True,
        ) as writer:
            for group, size in rows_of_file:
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
                raw += size
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


def _cut_blocks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of exactly BLOCK_ROWS rows from any batches; the last one has the rest."""
    import pyarrow as pa

    waiting = schema.empty_table()
    for batch in batches:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        whole = waiting.num_rows // BLOCK_ROWS * BLOCK_ROWS
        for start in range(0, whole, BLOCK_ROWS):
            yield waiting.slice(start, BLOCK_ROWS)
        waiting = waiting.slice(whole)
    if waiting.num_rows:
        yield waiting


def _cut_groups(blocks: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, int]]:
    """Join blocks to row groups of about GROUP_BYTES; yield each with its size."""
    import pyarrow as pa

    parts: list[pa.Table] = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += sum(_count_bytes(column) for column in block.columns)
        if size >= GROUP_BYTES:
            yield pa.concat_tables(parts).combine_chunks(), size
            parts, size = [], 0
    if parts:
        yield pa.concat_tables(parts).combine_chunks(), size


def _cut_files(
    groups: Iterator[tuple[pa.Table, int]],
) -> Iterator[Iterator[tuple[pa.Table, int]]]:
    """Yield one iterator of row groups per file; read each to its end before the next one."""
    first = next(groups, None)
    total = 0
    while first is not None:
        limit = max(SHARD_BYTES, total // SHARE)
        following: list[tuple[pa.Table, int]] = []

        def iterate_file(
            start: tuple[pa.Table, int] = first,
            rest: list[tuple[pa.Table, int]] = following,
            limit: int = limit,
        ) -> Iterator[tuple[pa.Table, int]]:
            nonlocal total
            size = start[1]
            total += size
            yield start
            while size < limit:
                more = next(groups, None)
                if more is None:
                    return
                size += more[1]
                total += more[1]
                yield more
            after = next(groups, None)
            if after is not None:
                rest.append(after)

        yield iterate_file()
        first = following[0] if following else None


def _count_bytes(values: Any) -> int:
    """Return the size of values by their content, not by their layout in memory."""
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
