"""Intervals over tasks, and sign-flip tests, of the ratios of arms in docs/runs.

    python benchmarks/paired_tasks.py docs/runs/NAME/seed_gains.csv

Each row compares `bucket` with another arm on some of the tasks and seeds: on all, on tasks that
arm `none` solves, or on tasks and seeds at which both arms had the same prompts, or other ones.
Tasks of held-out families are left out. A task has the mean over its seeds. `differ` counts tasks
whose mean is not 1. `low` and `high` are the 95 % t interval over tasks, and `p` is that of the
two-sided sign-flip test over tasks. `share` is the part of the logarithm of the ratio that comes
from these rows, and `power 80 %` the ratio that the interval would tell from 1 with a probability
of about 80 %.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

EXACT = 16
"""With up to this many tasks, every combination of signs is tried."""
DRAWS = 100_000


class Comparison(NamedTuple):
    """The means of a comparison over tasks, in logarithms."""

    tasks: int
    differ: int
    mean: float
    error: float
    """Standard error of the mean."""
    p: float


def flip_signs(means: np.ndarray) -> float:
    """Return how often the mean of tasks with random signs is as far from 0 as the mean."""
    if len(means) <= EXACT:
        signs = np.array(list(itertools.product((1, -1), repeat=len(means))))
    else:
        signs = np.random.default_rng(0).choice([1, -1], (DRAWS, len(means)))
    return float(np.mean(np.abs(signs @ means) >= abs(means.sum()) - 1e-9))


def compare(rows: Sequence[dict[str, str]]) -> Comparison:
    """Return the comparison of some rows of seed_gains.csv over their tasks."""
    seeds: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        seeds[row["task"]].append(float(row["gain"]))
    means = np.array([np.mean(gains) for gains in seeds.values()])
    error = means.std(ddof=1) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    differ = int(np.sum(np.abs(means) > 1e-9))
    return Comparison(len(means), differ, float(means.mean()), float(error), flip_signs(means))


def list_parts(rows: Sequence[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each comparison, by its name."""
    parts: dict[str, list[dict[str, str]]] = {}
    for part, other in sorted({(row["part"], row["other"]) for row in rows}):
        paired = [row for row in rows if (row["part"], row["other"]) == (part, other)]
        column, names = "solved_by_none", ("solved by none", "not solved")
        if other != "none":
            column, names = "same_prompts", ("same prompts", "other prompts")
        parts[f"{part}, {other}"] = paired
        for value, name in zip(("True", "False"), names, strict=True):
            parts[f"{part}, {other}, {name}"] = [row for row in paired if row[column] == value]
    return {name: paired for name, paired in parts.items() if paired}


def main() -> None:
    """Print the comparisons."""
    from scipy import stats

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="seed_gains.csv")
    with parser.parse_args().file.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["side"] == "held-out tasks"]
    print("| bucket to | rows | tasks | differ | ratio | low | high | p | share | power 80 % |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    total = 0.0
    for name, paired in list_parts(rows).items():
        one = compare(paired)
        gain = sum(float(row["gain"]) for row in paired)
        total = gain if name.count(",") == 1 else total
        wide, seen = (float(stats.t.ppf(q, one.tasks - 1)) for q in (0.975, 0.8))
        figures = (
            math.exp(one.mean),
            math.exp(one.mean - wide * one.error),
            math.exp(one.mean + wide * one.error),
            one.p,
            gain / total,
            math.exp((wide + seen) * one.error),
        )
        cells = [name, str(len(paired)), str(one.tasks), str(one.differ)]
        print("| " + " | ".join([*cells, *(f"{figure:.3f}" for figure in figures)]) + " |")


if __name__ == "__main__":
    main()
