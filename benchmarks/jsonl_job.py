"""The job of contrastive-batch on JSON lines with `datasets`, as it is done without a store.

Run by benchmarks/contrastive.py: python benchmarks/jsonl_job.py FOLDER PROMPTS. The folder holds
tasks.jsonl and history.jsonl (one line per evaluation with text and samples); prompts.parquet is
written to it. Kernels are scored with `map`, grouped and drawn in Python, rendered with `map`.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import datasets

BUCKET_WIDTH, TEMPERATURE, EXEMPLARS = 0.25, 1.0, 2


def scores(batch: dict[str, list[Any]]) -> dict[str, list[float]]:
    """Return the median ratio of the paired samples of each line."""
    pairs = zip(batch["baseline_ms"], batch["kernel_ms"], strict=True)
    return {
        "score": [
            statistics.median(b / k for b, k in zip(baseline, kernel, strict=True))
            for baseline, kernel in pairs
        ]
    }


def draw(buckets: dict[int, list[tuple[float, int]]], dice: random.Random) -> list[int]:
    """Return lines out of distinct buckets: softmax over mean scores, then any of the bucket."""
    means = {one: statistics.fmean(score for score, _ in buckets[one]) for one in buckets}
    mu, sigma = statistics.fmean(means.values()), statistics.pstdev(means.values()) or 1.0
    left, chosen = dict(means), []
    for _ in range(min(EXEMPLARS, len(means))):
        weights = [math.exp((mean - mu) / sigma / TEMPERATURE) for mean in left.values()]
        bucket = dice.choices(list(left), weights)[0]
        del left[bucket]
        chosen.append(dice.choice(buckets[bucket])[1])
    return chosen


def main() -> None:
    """Make the prompts of the folder's history."""
    folder, prompts = Path(sys.argv[1]), int(sys.argv[2])
    datasets.disable_progress_bars()
    read = {
        name: datasets.load_dataset("json", data_files=str(folder / f"{name}.jsonl"), split="train")
        for name in ("tasks", "history")
    }
    tasks = {row["task_id"]: row["code"] for row in read["tasks"] if row["train"]}
    lines = read["history"]
    failed = {
        kernel
        for kernel, status in zip(lines["kernel_id"], lines["status"], strict=True)
        if status != "correct"
    }
    shown = lines.filter(
        lambda batch: [
            task in tasks and kernel not in failed and not held
            for task, kernel, held in zip(
                batch["task_id"], batch["kernel_id"], batch["quarantined"], strict=True
            )
        ],
        batched=True,
    ).map(scores, batched=True, remove_columns=["kernel_ms", "baseline_ms"])
    groups: dict[str, dict[int, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for index, (task, score) in enumerate(zip(shown["task_id"], shown["score"], strict=True)):
        groups[task][math.floor(score / BUCKET_WIDTH)].append((score, index))
    dice, names = random.Random(0), sorted(groups)
    picked = [
        {"task_id": task, "exemplars": draw(groups[task], dice)}
        for task in (names[number % len(names)] for number in range(prompts))
    ]

    def render_row(row: dict[str, Any]) -> dict[str, str]:
        kernels = [shown[index] for index in row["exemplars"]]
        texts = [f"## {one['score']:.2f}x\n```python\n{one['code']}\n```" for one in kernels]
        return {"prompt": "\n\n".join([tasks[row["task_id"]], *texts])}

    made = datasets.Dataset.from_list(picked).map(render_row)
    made.to_parquet(str(folder / "prompts.parquet"))


if __name__ == "__main__":
    main()
