"""Where files of a table end follows from the rows before: the start of a table never changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from store.hub import edition_writer

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.float32()))])


def rows(texts: list[str | None]) -> pa.Table:
    lists = [None if text is None else [float(len(text))] * (len(text) % 3) for text in texts]
    return pa.table([list(range(len(texts))), texts, lists], schema=SCHEMA)


def write_table(folder: Path, table: pa.Table, batch: int) -> list[edition_writer.Shard]:
    return edition_writer.write_shards(
        folder, "data/t/train", SCHEMA, table.to_batches(max_chunksize=batch)
    )


@settings(max_examples=count_examples(25), deadline=None)
@given(
    st.lists(st.none() | st.text(max_size=20), max_size=40),
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_more_rows_and_other_batches_leave_all_but_the_last_file(
    texts: list[str | None], fewer: int, batch: int, other: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(edition_writer, "BLOCK_ROWS", 3)
        patch.setattr(edition_writer, "GROUP_BYTES", 60)
        patch.setattr(edition_writer, "SHARD_BYTES", 120)
        whole = write_table(Path(folder) / "whole", rows(texts), batch)
        again = write_table(Path(folder) / "again", rows(texts), other)
        start = write_table(Path(folder) / "start", rows(texts[: len(texts) - fewer]), other)
        assert again == whole
        assert start[:-1] == whole[: max(0, len(start) - 1)]
        assert sum(one.rows for one in whole) == len(texts)
        parts = [pq.read_table(Path(folder) / "whole" / one.path) for one in whole]
        if parts:
            assert pa.concat_tables(parts).equals(rows(texts))
