"""Size and speed of logged rollouts: `store.run` beside JSON Lines, Arrow IPC and W&B.

    python benchmarks/rollouts.py --rollouts 20000
    python benchmarks/rollouts.py --rollouts 2000 --wandb OTHER/bin/python   # has wandb installed

Token ids are those of the words of Python's own library, with the numbers that a vocabulary of
151,000 would give them. Log-probabilities are computed as samplers do: float32 logits minus their
log-sum-exp. Every rollout has a prompt of 100 tokens, ids, mask and log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import store
from store.lake import checksums
from store.lake.location import Location
from store.upkeep import maintenance

VOCABULARY = 151_000
PROMPT = 100
GROUP = 8
TOKEN_COLUMNS = ("completion_ids", "loss_mask", "sampler_logprobs", "old_logprobs", "ref_logprobs")
WANDB = """
import json, sys, time, wandb
run = wandb.init(mode="offline", dir=sys.argv[1])
seconds = 0
for line in sys.stdin:
    rows = json.loads(line)
    names = list(rows[0])
    began = time.perf_counter()
    table = wandb.Table(columns=names, data=[[row[name] for name in names] for row in rows])
    run.log({"rollouts": table})
    seconds += time.perf_counter() - began
began = time.perf_counter()
run.finish()
print(seconds + time.perf_counter() - began)
"""


class Sampler:
    """Makes rollouts whose ids and log-probabilities are distributed like those of a model."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        texts = [
            file.read_text("utf-8", "replace") for file in Path(os.__file__).parent.glob("*.py")
        ]
        words = re.findall(r" ?\w{1,8}|\s+|[^\w\s]", "\n".join(texts))
        _, ids = np.unique(words, return_inverse=True)
        names = self._random.permutation(VOCABULARY)[: ids.max() + 1]
        self._ids = names[ids].astype(np.int32)

    def sample(self, step: int, count: int, tokens: int) -> list[dict[str, Any]]:
        """Return the rollouts of one step."""
        rollouts: list[dict[str, Any]] = []
        for at in range(count):
            start = self._random.integers(0, len(self._ids) - tokens)
            group = np.random.default_rng((step, at // GROUP))
            prompt = group.integers(0, len(self._ids) - PROMPT)
            ids = self._ids[start : start + tokens].copy()
            # Other texts than those of an earlier rollout: exchange a tenth of the words.
            other = self._random.random(tokens) < 0.1
            ids[other] = self._random.choice(self._ids, int(other.sum()))
            sampled = self._sample_logprobs(tokens)
            rollouts.append(
                {
                    "step": step,
                    "group": at // GROUP,
                    "sample": at % GROUP,
                    "prompt_ids": self._ids[prompt : prompt + PROMPT],
                    "completion_ids": ids,
                    "loss_mask": np.ones(tokens, bool),
                    "sampler_logprobs": sampled,
                    "old_logprobs": np.minimum(
                        sampled + self._random.normal(0, 1e-2, tokens), 0
                    ).astype(np.float32),
                    "advantage": float(self._random.normal()),
                    "reward": float(self._random.random() < 0.5),
                }
            )
        return rollouts

    def _sample_logprobs(self, tokens: int) -> np.ndarray[Any, Any]:
        logits = self._random.normal(12, 2.5, (tokens, 64)).astype(np.float32)
        logits[:, 0] += self._random.choice([0, 8, 14, 20], tokens).astype(np.float32)
        total = np.log(np.exp(logits).sum(1)).astype(np.float32)
        chosen = (logits + self._random.gumbel(size=logits.shape)).argmax(1)
        return np.minimum(logits[np.arange(tokens), chosen] - total, 0)


def to_jsonl(rollout: dict[str, Any]) -> str:
    """Return a rollout as open-instruct writes it."""
    return json.dumps(
        {
            "step": rollout["step"],
            "sample_idx": rollout["sample"],
            "prompt_idx": rollout["group"],
            "prompt_tokens": rollout["prompt_ids"].tolist(),
            "response_tokens": rollout["completion_ids"].tolist(),
            "reward": rollout["reward"],
            "advantage": rollout["advantage"],
            "finish_reason": "stop",
            "logprobs": rollout["sampler_logprobs"].tolist(),
        }
    )


def main() -> None:
    """Measure, and print one table for each question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--per-step", type=int, default=200)
    parser.add_argument("--wandb", help="a Python that has wandb installed")
    options = parser.parse_args()
    sampler = Sampler()
    steps = options.rollouts // options.per_step
    seconds = dict.fromkeys(("store.run", "JSON Lines", "Arrow IPC"), 0.0)
    slowest = 0.0

    @contextmanager
    def timed(form: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds[form] += time.perf_counter() - began

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake, jsonl, ipc = folder / "lake", folder / "rollouts.jsonl", folder / "rollouts.arrow"
        writer: pa.RecordBatchFileWriter | None = None
        with store.run("benchmark", lake=str(lake), vocabulary=VOCABULARY) as run:
            with open(jsonl, "w", encoding="utf-8") as lines:
                for step in range(steps):
                    rollouts = sampler.sample(step, options.per_step, options.tokens)
                    before = seconds["store.run"]
                    with timed("store.run"):
                        run.log_rollouts(rollouts)
                    slowest = max(slowest, seconds["store.run"] - before)
                    with timed("JSON Lines"):
                        lines.writelines(f"{to_jsonl(one)}\n" for one in rollouts)
                        lines.flush()
                        os.fdatasync(lines.fileno())
                    with timed("Arrow IPC"):
                        batch = pa.RecordBatch.from_pylist(
                            [
                                {key: one[key] for key in one if key != "old_logprobs"}
                                for one in rollouts
                            ]
                        )
                        writer = writer or pa.ipc.new_file(str(ipc), batch.schema)
                        writer.write_batch(batch)
            assert writer is not None
            writer.close()
        maintenance.compact(Location.of(str(lake)))
        report_sizes(lake, {"JSON Lines": jsonl, "Arrow IPC": ipc}, options)
        if options.wandb:
            seconds["W&B offline"] = measure_wandb(options.wandb, sampler, steps, options, folder)
        print("\n| logged by | rollouts/s |\n|---|---|")
        for form, taken in seconds.items():
            print(f"| {form} | {steps * options.per_step / taken:,.0f} |")
        print(
            f"\nslowest call of log_rollouts, {options.per_step} rollouts: {slowest * 1e3:.0f} ms"
        )
        report_reading(lake, steps)


def report_sizes(lake: Path, files: dict[str, Path], options: argparse.Namespace) -> None:
    """Print bytes per token of the lake's columns and of the other forms."""
    total = options.rollouts // options.per_step * options.per_step * options.tokens
    sizes = dict.fromkeys(("prompt_ids", *TOKEN_COLUMNS), 0)
    for file in checksums.list_files(Location.of(str(lake))):
        if file.table != "rollout_tokens" or file.until is not None:
            continue
        footer = pq.read_metadata(lake / "data" / file.path)
        for group in range(footer.num_row_groups):
            for at in range(footer.num_columns):
                column = footer.row_group(group).column(at)
                name = column.path_in_schema.partition(".")[0]
                if name in sizes:
                    sizes[name] += column.total_compressed_size
    goal = ("prompt_ids", "completion_ids", "loss_mask", "sampler_logprobs")
    ours = sum(sizes[name] for name in goal)
    print("| form | bytes per token | 1M rollouts of 1,000 tokens | ratio |\n|---|---|---|---|")
    for form, size in {
        "lake: ids, mask, sampler's log-probabilities": ours,
        **{f"lake: {name}": sizes[name] for name in sizes if sizes[name]},
        **{form: file.stat().st_size for form, file in files.items()},
    }.items():
        each = size / total
        print(f"| {form} | {each:.2f} | {each:,.1f} GB | {size / ours:.1f} |")


def report_reading(lake: Path, steps: int) -> None:
    """Print how long it takes to read a step and a view over the last 100 steps.

    Processor time says what an idle machine needs, and the load how many shared this one.
    """
    first = max(0, steps - 100)
    questions: dict[str, Callable[[store.Lake], object]] = {
        "rows of one step": lambda opened: opened.run(
            f"FROM rollout_tokens WHERE step = {steps // 2}"
        ).arrow(),
        f"view rollout_steps over {steps - first} steps": lambda opened: opened.run(
            f"FROM rollout_steps WHERE step >= {first}"
        ).arrow(),
    }
    print("\n| read | ms, first | ms, median of 5 | ms of processor, median | load |")
    print("|---|---|---|---|---|")
    with store.open(str(lake)) as opened:
        for name, ask in questions.items():
            taken: list[float] = []
            worked: list[float] = []
            for _ in range(6):
                began, before = time.perf_counter(), time.process_time()
                ask(opened)
                taken.append((time.perf_counter() - began) * 1e3)
                worked.append((time.process_time() - before) * 1e3)
            median, own = np.median(taken[1:]), np.median(worked[1:])
            load = os.getloadavg()[0]
            print(f"| {name} | {taken[0]:,.0f} | {median:,.0f} | {own:,.0f} | {load:.0f} |")


def measure_wandb(
    python: str, sampler: Sampler, steps: int, options: argparse.Namespace, folder: Path
) -> float:
    """Return the seconds in which W&B logs as many rollouts to its folder, without a server."""
    lines = (
        json.dumps(
            [
                json.loads(to_jsonl(one))
                for one in sampler.sample(step, options.per_step, options.tokens)
            ]
        )
        for step in range(steps)
    )
    done = subprocess.run(
        [python, "-c", WANDB, str(folder)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
