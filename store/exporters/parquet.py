"""Tables or views as Parquet, one file each; a large one is a folder of files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from store.exporters.writing.run import Tables, stream_tables
from store.lake.reader import Lake

Config = Tables
FILE_ROWS = 10_000_000
"""Most rows of a file. Engines that work on many machines read a table by its files."""


def write(lake: Lake, folder: Path, config: Tables) -> dict[str, int]:
    """Write TABLE.parquet for every table with rows.

    It is a file, or, above FILE_ROWS rows, a folder of part-00000.parquet and so on, as Spark, Ray
    Data and Polars read it.
    """
    rows = files = 0
    for name, stream in stream_tables(lake, config):
        target = folder / f"{name}.parquet"
        target.mkdir()
        count = 0
        parts: list[Path] = []
        with ExitStack() as stack:
            sink: pq.ParquetWriter | None = None
            for batch in stream:
                if sink is None or count >= len(parts) * FILE_ROWS:
                    stack.close()
                    parts.append(target / f"part-{len(parts):05}.parquet")
                    sink = stack.enter_context(
                        pq.ParquetWriter(
                            parts[-1], stream.schema, compression="zstd", write_page_index=True
                        )
                    )
                sink.write_batch(batch)
                count += batch.num_rows
        if len(parts) == 1:
            # A folder cannot be replaced by the file in it in one step.
            whole = target.with_name(f"{target.name}.whole")
            parts[0].rename(whole)
            target.rmdir()
            whole.rename(target)
        files += len(parts)
        rows += count
    return {"files": files, "rows": rows}
