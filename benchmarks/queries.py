"""Queries on the lake's views against hand-written DuckDB SQL over the same Parquet files.

python benchmarks/queries.py --lake DIR          (a lake of benchmarks/generate.py)

Both sides alternate in one process. The program compares their answers, then their best times. The
first query on a large lake fills the view cache (store/lake/view_cache.py): `first` is the query on
a copy with an empty cache; later queries use the filled cache.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import duckdb
from append import copy_lake

import store

Answer: TypeAlias = "list[tuple[Any, ...]]"
HAND = Path(__file__).parent / "by_hand"
_SHORT_S = 1.0
_MANY = 10  # times as many rounds for a question that takes milliseconds
QUESTIONS = {
    "best kernel per task": (
        "best_kernels",
        "SELECT task_id, kernel_id, speedup FROM best_kernels ORDER BY task_id",
    ),
    "stage table": (
        "stage_table",
        "SELECT policy_id, n, mean, max, p75, p50, p25, geomean, faster FROM stage_table "
        "WHERE level IS NULL ORDER BY policy_id",
    ),
    "point lookup with text": (
        "kernel",
        "SELECT kernel_id, code FROM kernels WHERE kernel_id = $kernel_id",
    ),
}


def open_by_hand(lake: store.Lake) -> duckdb.DuckDBPyConnection:
    """Return a plain DuckDB with one view per table over the lake's Parquet files."""
    connection = duckdb.connect()
    for name in lake.catalog.tables:
        files = sorted((lake.location.data / "main" / name).glob("*.parquet"))
        if files:
            listed = ", ".join(f"'{file}'" for file in files)
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet([{listed}])")
        else:  # a few rows, which the lake keeps in its catalog
            connection.register(name, lake.run(f"FROM {name}").arrow())
    return connection


def agree(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Whether two answers are the same, up to rounding of the last digits."""
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) else a == b
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def time_question(ask: Callable[[], list[tuple[Any, ...]]]) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the seconds that a question takes, and its answer."""
    begun = time.perf_counter()
    answer = ask()
    return time.perf_counter() - begun, answer


def main() -> None:
    """Compare both sides on a copy of the lake."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    # Beside the lake, since its data files are linked.
    made = Path(given.lake).resolve()
    with TemporaryDirectory(prefix="flywheel-queries-", dir=made.parent) as folder:
        copy_lake(made, Path(folder) / "lake")
        compare(Path(folder) / "lake", given.rounds)


def compare(place: Path, rounds: int) -> None:
    """Run every query on both sides over a lake with an empty view cache; print the ratios."""
    with store.open(str(place)) as lake:
        hand = open_by_hand(lake)
        row = lake.run("SELECT kernel_id FROM kernels ORDER BY kernel_id DESC LIMIT 1").one()
        assert row is not None
        print("| query | by hand s | lake, first s | lake s | lake / by hand |")
        print("|---|---|---|---|---|")
        for title, (file, question) in QUESTIONS.items():
            plain = (HAND / f"{file}.sql").read_text("utf-8")
            arguments = {"kernel_id": row["kernel_id"]} if "$kernel_id" in plain else None
            seconds: tuple[list[float], list[float]] = ([], [])

            def ask(q: str = question, a: dict[str, Any] | None = arguments) -> Answer:
                return [tuple(one.values()) for one in lake.sql(q, a).rows()]

            made, _ = time_question(ask)
            for _ in range(rounds if made > _SHORT_S else _MANY * rounds):
                first, left = time_question(
                    lambda p=plain, a=arguments: hand.execute(p, a).fetchall()
                )
                second, right = time_question(ask)
                assert agree(left, right), f"{title}: the answers differ"
                seconds[0].append(first)
                seconds[1].append(second)
            ratio = statistics.median(b / a for a, b in zip(*seconds, strict=True))
            hand_s, lake_s = map(min, seconds)
            print(
                f"| {title} | {hand_s:.3f} | {made:.3f} | {lake_s:.3f} | {ratio:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
