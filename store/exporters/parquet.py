"""Tables or views as Parquet files, one each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store.exporters.writing.tables import Tables, stream_tables

if TYPE_CHECKING:
    from store.lake.reader import Lake

Config = Tables


def write(lake: Lake, folder: Path, config: Tables) -> dict[str, int]:
    """Write TABLE.parquet for every table with rows."""
    import pyarrow.parquet as pq

    rows = files = 0
    for name, stream in stream_tables(lake, config):
        file = folder / f"{name}.parquet"
        with pq.ParquetWriter(
            file, stream.schema, compression="zstd", write_page_index=True
        ) as sink:
            for batch in stream:
                sink.write_batch(batch)
                rows += batch.num_rows
        files += 1
    return {"files": files, "rows": rows}
