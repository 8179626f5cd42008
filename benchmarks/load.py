"""Bulk load through the store against raw DuckLake: the same Arrow batches, sort order and options.

python benchmarks/load.py --kernels 1000000

The program generates the rows once into Parquet files, and both sides stream them. The store also
checks every rule, key and reference.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from generate import BATCH, Size, Source

import store
from store.lake.attachment import attach, connect
from store.lake.location import FolderLocation
from store.schema import catalog, migrate

MEASURED = ("kernels", "evaluations", "timings")


def stage(folder: Path, size: Size, texts: Path | None) -> dict[str, Path]:
    """Generate every table into a Parquet file; return them in order."""
    source = Source(size, texts)
    files: dict[str, Path] = {}
    for name in source.tables:
        files[name] = folder / f"{name}.parquet"
        reader = source.reader(name)
        with pq.ParquetWriter(files[name], reader.schema, compression="lz4") as sink:
            for batch in reader:
                sink.write_batch(batch)
    return files


def stream(file: Path) -> pa.RecordBatchReader:
    """Return the rows of a file as a stream of batches."""
    opened = pq.ParquetFile(file)
    return pa.RecordBatchReader.from_batches(
        opened.schema_arrow, opened.iter_batches(batch_size=BATCH)
    )


def load_with_store(url: Path, files: dict[str, Path]) -> dict[str, float]:
    """Load with `writer.load`; return seconds per table."""
    seconds: dict[str, float] = {}
    with store.writer(str(url), author="benchmarks") as writer:
        for name, file in files.items():
            begun = time.perf_counter()
            writer.load({name: stream(file)}, name, bundle_id=name)
            seconds[name] = time.perf_counter() - begun
    return seconds


def load_with_duckdb(url: Path, files: dict[str, Path]) -> dict[str, float]:
    """Load with one INSERT..SELECT a table in a lake of the same layout; return seconds."""
    location = FolderLocation(url)
    for folder in (url, location.data):
        folder.mkdir(parents=True, exist_ok=True)
    connection = connect()
    connection.execute("SET preserve_insertion_order = false")
    attach(connection, location, writable=True, create=True)
    migrate.migrate(connection, catalog.load())
    seconds: dict[str, float] = {}
    for name, file in files.items():
        begun = time.perf_counter()
        rows = stream(file)
        connection.register("given", rows)
        names = ", ".join(f'"{column}"' for column in rows.schema.names)
        connection.execute("BEGIN")
        connection.execute(f"INSERT INTO lake.{name} ({names}) SELECT {names} FROM given")
        connection.execute("CALL lake.set_commit_message('raw', 'raw', extra_info => '{}')")
        connection.execute("COMMIT")
        seconds[name] = time.perf_counter() - begun
    connection.close()
    return seconds


def main() -> None:
    """Time both sides in turn and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", type=Path)
    given = parser.parse_args()
    size = Size(kernels=given.kernels, evaluations=given.kernels)
    with tempfile.TemporaryDirectory(prefix="flywheel-load-") as folder:
        files = stage(Path(folder), size, given.texts)
        rows = {name: pq.ParquetFile(file).metadata.num_rows for name, file in files.items()}
        best: dict[str, dict[str, float]] = {"raw": {}, "store": {}}
        for round_ in range(given.rounds):
            for side, load in (("raw", load_with_duckdb), ("store", load_with_store)):
                url = Path(folder) / f"{side}{round_}"
                for name, seconds in load(url, files).items():
                    best[side][name] = min(seconds, best[side].get(name, seconds))
                shutil.rmtree(url)
    print("| table | rows | raw DuckLake s | store s | store rows/s | store / raw speed |")
    print("|---|---|---|---|---|---|")
    for name in MEASURED:
        _line(name, rows[name], best["raw"][name], best["store"][name])
    total = [sum(best[side][name] for name in MEASURED) for side in ("raw", "store")]
    _line("together", sum(rows[name] for name in MEASURED), *total)


def _line(name: str, rows: int, raw_s: float, store_s: float) -> None:
    print(
        f"| {name} | {rows} | {raw_s:.1f} | {store_s:.1f} | {rows / store_s:,.0f} "
        f"| {raw_s / store_s:.0%} |"
    )


if __name__ == "__main__":
    main()
