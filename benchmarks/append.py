"""Appends of one bundle and of groups of bundles: the store against a raw DuckLake transaction.

python benchmarks/append.py --kernels 10000 1000000

Two equal lakes of each size get the same bundles in alternation. A bundle is one judged kernel: its
text, features, generation, evaluation and a timing session of two arms. The raw side inserts the
same rows, including the ingest_log row, in one transaction and checks nothing; the store validates,
spools durably, tests keys and references and commits. For a group of bundles, the store commits
all bundles in its spool at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from generate import Size, make, starter_texts

import store
from store.lake import attachment, location
from store.schema import catalog
from store.writing import bundle
from store.writing.bundle import Bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import builders

TABLES = ("kernels", "kernel_features", "generations", "evaluations", "timings")
SAMPLES = 20


def bundles_of(number: int, about: dict[str, str], seed: int) -> list[dict[str, pa.Table]]:
    """Return so many bundles of rows that no lake holds yet."""
    return [_bundle(about, f"{seed}-{index}") for index in range(number)]


def read_known(url: str | Path) -> dict[str, str]:
    """Return rows of a lake that bundles can point at."""
    with store.open(str(url)) as opened:
        row = opened.sql(
            "SELECT task_id, workload_id, device_id, policy_id, runs.run_id FROM workloads, "
            "(FROM devices LIMIT 1), (FROM policies LIMIT 1), (FROM runs LIMIT 1) AS runs LIMIT 1"
        ).one()
    assert row is not None
    return {name: str(value) for name, value in row.items()} | {"kind": "cpu"}


def _bundle(about: dict[str, str], name: str) -> dict[str, pa.Table]:
    texts, now, new_id = starter_texts(), datetime.now(UTC), store.ids.uuid7
    code = f"# {name}\n" + texts[hash(name) % len(texts)]
    of_run: dict[str, Any] = {"run_id": about["run_id"], "created_at": now}
    kernel = builders.kernel(code=code, source="appended", created_at=now)
    features = builders.features(
        kernel, ["fusion"], language="triton", has_device_code=True, triton_kernels=1,
        minhash_bands=list(range(16)), created_at=now,
    )  # fmt: skip
    attempt = builders.generation(about, about, kernel, generation_id=new_id(), **of_run)
    evaluation = builders.evaluation(
        kernel, about, about, about, evaluation_id=new_id(), max_scaled_error=0.5, **of_run
    )
    samples = [1.0 + 0.01 * block for block in range(SAMPLES)]
    rows = {
        "kernels": [kernel],
        "kernel_features": [features],
        "generations": [attempt],
        "evaluations": [evaluation],
        "timings": builders.session(evaluation, samples, eager=samples),
    }
    schemas = catalog.load()
    return {name: bundle.conform(schemas.table(name), made) for name, made in rows.items()}


class Raw:
    """The least that stores the same rows: one transaction of plain inserts."""

    def __init__(self, url: str | Path) -> None:
        place = location.Location.of(str(url))
        self._held = ExitStack()
        self._held.enter_context(place.lock())  # a server accepts commits of its holder only
        self._connection: duckdb.DuckDBPyConnection = attachment.connect(to=place)
        attachment.attach(self._connection, place, writable=True)
        self._log = catalog.load().table("ingest_log").arrow_schema

    def commit(self, bundles: list[dict[str, pa.Table]]) -> None:
        """Insert the rows of all bundles and their ingest_log rows."""
        self._connection.execute("BEGIN")
        for name in TABLES:
            self._insert(name, pa.concat_tables([rows[name] for rows in bundles]))
        logged = [
            {
                "bundle_id": store.ids.uuid7(),
                "author": "raw",
                "message": "raw",
                "row_counts": json.dumps({name: rows[name].num_rows for name in TABLES}),
                "committed_at": datetime.now(UTC),
            }
            for rows in bundles
        ]
        self._insert("ingest_log", pa.Table.from_pylist(logged, schema=self._log))
        self._connection.execute("CALL lake.set_commit_message('raw', 'raw', extra_info => '{}')")
        self._connection.execute("COMMIT")

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._connection.register("given", rows)
        self._connection.execute(f"INSERT INTO lake.{name} SELECT * FROM given")
        self._connection.unregister("given")

    def close(self) -> None:
        """Let go of the lake."""
        self._connection.close()
        self._held.close()


def copy_lake(made: Path, target: Path) -> None:
    """Copy a lake and its key index; its data files are shared, since they never change."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(made / "data", target / "data", copy_function=os.link)
    for file in made.glob("*.sqlite"):
        shutil.copy(file, target)


@contextmanager
def twins(folder: Path, made: Path) -> Iterator[tuple[store.Writer, Raw]]:
    """Open two copies of a lake, one for each side."""
    for name in ("store", "raw"):
        copy_lake(made, folder / name)
        store.writer(str(folder / name), author="benchmarks").close()  # to today's catalog
    raw = Raw(folder / "raw")
    with store.writer(str(folder / "store"), author="benchmarks") as writer:
        first = _bundle(read_known(made), "first")
        begun = time.perf_counter()
        writer.append(first, "first")
        print(f"\nfirst append after the bulk load: {time.perf_counter() - begun:.2f} s")
        raw.commit([first])
        yield writer, raw
    raw.close()


def singles(writer: store.Writer, raw: Raw, given: list[dict[str, pa.Table]]) -> None:
    """Append bundles one by one on both sides in turn and print what they took."""
    seconds: dict[str, list[float]] = {"raw": [], "store": []}
    for rows in given:
        begun = time.perf_counter()
        raw.commit([rows])
        seconds["raw"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        writer.append(rows, "one bundle")
        seconds["store"].append(time.perf_counter() - begun)
    for measure, of in (("p50", 50), ("p95", 95)):
        theirs, ours = (float(np.percentile(seconds[side], of)) for side in ("raw", "store"))
        _line(f"one bundle, {measure}", theirs, ours)


def groups(writer: store.Writer, raw: Raw, given: list[list[dict[str, pa.Table]]]) -> None:
    """Commit groups of bundles on both sides in turn and print what they took.

    The store gets every second group in one call, and the bundles of the others one by one.
    """
    seconds: dict[str, list[float]] = {"raw": [], "commit": [], "one by one": [], "together": []}
    for number, tables in enumerate(given):
        begun = time.perf_counter()
        raw.commit(tables)
        seconds["raw"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        if number % 2:
            for rows in tables:
                writer.append(rows, "one of many", wait=False)
        else:
            bundles = [
                Bundle(bundle_id=store.ids.uuid7(), message="one of many", tables=dict(rows))
                for rows in tables
            ]
            writer.append_all(bundles, wait=False)
        spooled = time.perf_counter()
        writer.flush()
        done = time.perf_counter()
        seconds["commit"].append(done - spooled)
        seconds["one by one" if number % 2 else "together"].append(done - begun)
    theirs, commit, alone, together = (statistics.median(times) for times in seconds.values())
    name = f"group of {len(given[0])}"
    _line(f"{name}, commit only", theirs, commit)
    _line(f"{name}, checked, spooled and committed, `append_all`", theirs, together)
    _line(f"{name}, checked, spooled and committed, `append` for each", theirs, alone)


def _line(what: str, raw_s: float, store_s: float) -> None:
    print(
        f"| {what} | {raw_s * 1e3:.0f} | {store_s * 1e3:.0f} | {store_s / raw_s:.2f} "
        f"| {raw_s / store_s:.0%} |",
        flush=True,
    )


def main() -> None:
    """Time both sides at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[10_000])
    parser.add_argument("--bundles", type=int, default=50, help="number of single appends per side")
    parser.add_argument("--groups", type=int, default=14, help="number of group commits per side")
    parser.add_argument("--group", type=int, default=100, help="number of bundles in a group")
    parser.add_argument("--lake", type=Path, help="use this generated lake instead of making one")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    for kernels in given.kernels:
        with tempfile.TemporaryDirectory(prefix="flywheel-append-", dir=given.folder) as folder:
            made = given.lake or Path(folder) / "made"
            if given.lake is None:
                size = Size(kernels=kernels, evaluations=kernels)
                make(str(made), size, say=lambda _: None)
            about = read_known(made)
            with twins(Path(folder), made) as (writer, raw):
                print(f"\n| {kernels} kernels | raw DuckLake ms | store ms | times | speed |")
                print("|---|---|---|---|---|")
                singles(writer, raw, bundles_of(given.bundles, about, seed=1))
                count = given.groups * given.group
                flat = bundles_of(count, about, seed=2)
                groups(
                    writer,
                    raw,
                    [flat[start : start + given.group] for start in range(0, count, given.group)],
                )


if __name__ == "__main__":
    main()
