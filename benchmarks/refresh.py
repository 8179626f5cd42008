"""Queries after new timing sessions: how long the first answers take when the view cache is behind.

python benchmarks/refresh.py --lake DIR --sessions 1000

Works on a copy of a lake of benchmarks/generate.py whose view cache is filled. Each query is timed
on a filled cache, after new sessions were appended, and once more. Every query opens the lake anew.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from append import bundles_of, copy_lake, read_known

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
    given = parser.parse_args()
    made = given.lake.resolve()
    with TemporaryDirectory(prefix="flywheel-refresh-", dir=made.parent) as folder:
        lake = Path(folder) / "lake"
        copy_lake(made, lake)
        columns = {"empty cache s": time_queries(lake), "filled cache s": time_queries(lake)}
        for number in range(1, given.rounds + 1):
            append_sessions(lake, given.sessions, seed=number)
            columns[f"after {number * given.sessions} more s"] = time_queries(lake)
            columns[f"again {number} s"] = time_queries(lake)
    print("| query | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for name in QUERIES:
        print(f"| {name} | " + " | ".join(f"{one[name]:.2f}" for one in columns.values()) + " |")


if __name__ == "__main__":
    main()
