"""Rows of a lake in Python: a Polars LazyFrame and a stream of prompts, beside plain SQL.

python benchmarks/dataframes.py --lake DIR          (a lake of benchmarks/generate.py)

Each way runs in a process of its own, once before it is timed. CPU seconds and the largest resident
memory include the start of the process and its imports.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import store

COLUMNS = ("task_id", "kernel_id", "speedup")
FAST = 1.3


def count_rows(way: str, url: str, prompts: int) -> int:
    """Read rows in one way; return how many there are."""
    with store.open(url) as lake:
        if way == "sql":
            query = f"SELECT {', '.join(COLUMNS)} FROM speedups WHERE speedup > $1"
            return lake.sql(query, [FAST]).polars().height
        if way == "sql, all columns":
            return lake.sql("FROM speedups").polars().height
        if way == "lazy":
            import polars as pl

            frame = lake.lazy("speedups").filter(pl.col("speedup") > FAST).select(COLUMNS)
            return frame.collect().height
        if way == "lazy, all columns":
            return lake.lazy("speedups").collect().height
        import pipelines

        return sum(1 for _ in pipelines.stream("contrastive-batch", lake, limit=prompts))


WAYS = ("sql", "lazy", "sql, all columns", "lazy, all columns", "stream")


def main() -> None:
    """Read the arguments; print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=[1_000])
    parser.add_argument("--way", choices=WAYS, help="read in one way, in this process")
    given = parser.parse_args()
    if given.way:
        rows = count_rows(given.way, given.lake, given.prompts[0])
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + used.ru_stime
        print(f"| {given.way} | {rows:,} | {seconds:.1f} | {used.ru_maxrss / 1024:,.0f} |")
        return
    print("| way | rows | CPU s | MB |\n|---|---:|---:|---:|", flush=True)
    for way in WAYS:
        for prompts in given.prompts if way == "stream" else given.prompts[:1]:
            command = [sys.executable, __file__, "--lake", given.lake, "--way", way]
            for output in (subprocess.DEVNULL, None):
                subprocess.run([*command, "--prompts", str(prompts)], check=True, stdout=output)


if __name__ == "__main__":
    main()
