"""Queries after new timing sessions: how long the first answers take when the view cache is behind.

python benchmarks/refresh.py --lake DIR --sessions 1000
python benchmarks/refresh.py --lake DIR --sessions 1000 --prompts 1000 100000

Works on a copy of a lake of benchmarks/generate.py. Each query is timed on an empty and on a filled
view cache, after new sessions were appended, and once more. Every query opens the lake anew. With
`--prompts`, contrastive batches of these sizes take the place of the queries; with `--queries` as
well, they follow them. Each batch is a command with a process of its own, and the first query or
batch pays for what is missing in the cache.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from append import bundles_of, copy_lake, read_known
from contrastive import PIPELINE, measure_command

import store
from store.writing.bundle import Bundle

QUERIES = {
    "best_kernels": "SELECT task_id, kernel_id, speedup FROM best_kernels ORDER BY ALL",
    "leaderboard": "FROM leaderboard",
    "stage_table": "FROM stage_table",
}
GROUP = 250


def time_queries(url: Path) -> dict[str, float]:
    """Return the seconds of every query, each with a lake that is opened for it."""
    seconds: dict[str, float] = {}
    for name, query in QUERIES.items():
        begun = time.perf_counter()
        with store.open(str(url)) as lake:
            lake.sql(query).rows()
        seconds[name] = time.perf_counter() - begun
    return seconds


def time_batches(url: Path, sizes: list[int]) -> tuple[dict[str, float], float]:
    """Time contrastive batches of these numbers of prompts, one after another.

    Returns their seconds, and the most memory that one held, in GB.
    """
    seconds: dict[str, float] = {}
    peak = 0.0
    for size in sizes:
        with TemporaryDirectory(prefix="batch-", dir=url.parent) as folder:
            options = f"--lake {url} --limit {size} --seed 0 --out {folder}/dataset".split()
            took, held = measure_command([*PIPELINE, *options], Path(folder))
        peak = max(peak, held)
        seconds[f"batch of {size:,}"] = took
    return seconds, peak


def append_sessions(url: Path, count: int, seed: int) -> None:
    """Append judged and timed kernels, one session each."""
    rows = bundles_of(count, read_known(url), seed)
    with store.writer(str(url), author="benchmarks") as writer:
        for start in range(0, count, GROUP):
            writer.append_all(
                [
                    Bundle(bundle_id=f"{seed}-{start + n}", message="one", tables=dict(tables))
                    for n, tables in enumerate(rows[start : start + GROUP])
                ]
            )


def main() -> None:
    """Time the queries before and after appends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--sessions", type=int, default=1000, help="number of new sessions")
    parser.add_argument("--rounds", type=int, default=2, help="number of times that they are added")
    parser.add_argument("--prompts", type=int, nargs="+", help="time batches of these sizes")
    parser.add_argument("--queries", action="store_true", help="with --prompts: queries as well")
    given = parser.parse_args()
    peaks: dict[str, float] = {}
    # A new process counts the memory of the one that starts it, so this one is started first.
    starter = ProcessPoolExecutor(1, get_context("spawn"))
    starter.submit(time.sleep, 0).result()

    def measure(lake: Path) -> dict[str, float]:
        seconds: dict[str, float] = {}
        if given.queries or not given.prompts:
            seconds |= time_queries(lake)
            peaks["queries"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if given.prompts:
            took, peak = starter.submit(time_batches, lake, given.prompts).result()
            seconds |= took
            peaks["batches"] = max(peak, peaks.get("batches", 0.0))
        print(seconds, file=sys.stderr, flush=True)
        return seconds

    made = given.lake.resolve()
    with TemporaryDirectory(prefix="flywheel-refresh-", dir=made.parent) as folder:
        lake = Path(folder) / "lake"
        copy_lake(made, lake)
        columns = {"empty cache s": measure(lake), "filled cache s": measure(lake)}
        for number in range(1, given.rounds + 1):
            append_sessions(lake, given.sessions, seed=number)
            columns[f"after {number * given.sessions} more s"] = measure(lake)
            columns[f"again {number} s"] = measure(lake)
    print("| query | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for name in columns["empty cache s"]:
        print(f"| {name} | " + " | ".join(f"{one[name]:.2f}" for one in columns.values()) + " |")
    for name, peak in peaks.items():
        print(f"Peak memory of {name}: {peak:.2f} GB")
    starter.shutdown()


if __name__ == "__main__":
    main()
