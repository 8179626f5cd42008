"""Prompts of a training step: of a few tasks, against choosing them out of those of all tasks.

python benchmarks/prompts.py --lake DIR --tasks 1 8

`wanted` is what a step of `trainers run contrastive`, a round of a search and the tool make_prompt
do: only the kernels of the wanted tasks are scored and drawn. `out of all` selects the rows of all
tasks and keeps those of the wanted ones. The program asserts that both give the same rows. Every
round opens the lake anew, as a step does, and the first round, which may fill the view cache, does
not count.
"""

from __future__ import annotations

import argparse
import time

import store
from pipelines import Job, Request, contrastive_batch, make_counter, select_rows, select_tasks

NAME = "contrastive-batch"


def make_job(lake: store.Lake, tasks: tuple[str, ...] | None) -> Job:
    """Return the job that makes the prompts of some tasks, or of all."""
    return Job(
        lake=lake,
        pipeline=NAME,
        module=contrastive_batch,
        config=contrastive_batch.Config(per_task=1),
        request=Request(tasks=tasks),
        name=NAME,
        counter=make_counter(None),
    )


def select(url: str, tasks: tuple[str, ...], *, out_of_all: bool) -> tuple[float, list[object]]:
    """Select the rows of some tasks with a new reader; return the seconds and the rows."""
    begun = time.perf_counter()
    with store.open(url) as lake:
        rows = select_rows(make_job(lake, None if out_of_all else tasks)).rows.to_pylist()
    seconds = time.perf_counter() - begun
    return seconds, [row for row in rows if row["task_id"] in tasks]


def main() -> None:
    """Time both ways in turn, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lake", required=True, help="lake made by generate.py")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 8], help="numbers of tasks")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with store.open(given.lake) as lake:
        rows_of_tasks = select_tasks(lake, Request()).rows.to_pylist()
        known = sorted(str(row["task_id"]) for row in rows_of_tasks)
    select(given.lake, tuple(known), out_of_all=True)
    print("| tasks | prompts | wanted s | out of all s | ratio |")
    print("|---|---|---|---|---|")
    for count in [*given.tasks, len(known)]:
        tasks = tuple(known[:count])
        best = [float("inf"), float("inf")]
        rows: list[list[object]] = [[], []]
        for _ in range(given.rounds):
            for side in (0, 1):
                seconds, rows[side] = select(given.lake, tasks, out_of_all=side == 1)
                best[side] = min(best[side], seconds)
            assert rows[0] == rows[1], f"other rows for {count} tasks"
        print(
            f"| {count} | {len(rows[0])} | {best[0]:.2f} | {best[1]:.2f} "
            f"| {best[0] / best[1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
