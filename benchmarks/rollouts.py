"""Size and speed of logged rollouts: `store.run` beside JSON Lines, Arrow IPC and W&B.

    python benchmarks/rollouts.py --rollouts 20000
    python benchmarks/rollouts.py --rollouts 1000000 --limit-s 480   # reports what it has by then
    python benchmarks/rollouts.py --rollouts 2000 --wandb OTHER/bin/python   # has wandb installed

Token ids are those of the words of Python's own library, with the numbers that a vocabulary of
151,000 would give them. Log-probabilities are computed as samplers do: float32 logits minus their
log-sum-exp. Every rollout has a prompt of 100 tokens, ids, mask and log-probabilities. The other
forms store the first rollouts only (`--others`). TMPDIR names the disk that is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import store
from store.lake import checksums
from store.lake.location import Location
from store.upkeep import maintenance
from store.writing import spool

VOCABULARY = 151_000
PROMPT = 100
GROUP = 8
LAST_BIT = np.float32(2**-19)
"""Of a logit between 16 and 32 in float32."""
WANDB_ROLLOUTS = 2_000
PROGRESS_S = 10.0
PARTS = 5
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
    """Makes rollouts whose ids and log-probabilities are distributed like those of a model.

    It varies a pool, which is a hundred times as fast as sampling, and repeats no list.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        texts = [
            file.read_text("utf-8", "replace") for file in Path(os.__file__).parent.glob("*.py")
        ]
        words = re.findall(r" ?\w{1,8}|\s+|[^\w\s]", "\n".join(texts))
        _, ids = np.unique(words, return_inverse=True)
        names = self._random.permutation(VOCABULARY)[: ids.max() + 1]
        self._ids = names[ids].astype(np.int32)
        self._logprobs = np.concatenate([self._sample_logprobs(1 << 14) for _ in range(16)])

    def sample(self, step: int, count: int, tokens: int) -> list[dict[str, Any]]:
        """Return the rollouts of one step."""
        random, shape = self._random, (count, tokens)
        starts = random.integers(0, len(self._ids) - tokens, (count, 1))
        ids = self._ids[starts + np.arange(tokens)]
        # Other texts than those of an earlier rollout: exchange a tenth of the words.
        other = random.random(shape, np.float32) < 0.1
        ids[other] = random.choice(self._ids, int(other.sum()))
        # Log-probabilities are multiples of the last bit of the logits that they come from.
        drawn = random.choice(self._logprobs, shape)
        drawn *= 1 + 0.01 * random.standard_normal(shape, np.float32)
        sampled = np.round(drawn / LAST_BIT) * LAST_BIT
        old = np.minimum(sampled + 0.01 * random.standard_normal(shape, np.float32), 0)
        prompts = random.integers(0, len(self._ids) - PROMPT, count // GROUP + 1)
        return [
            {
                "step": step,
                "group": at // GROUP,
                "sample": at % GROUP,
                "prompt_ids": self._ids[prompts[at // GROUP] :][:PROMPT],
                "completion_ids": ids[at],
                "loss_mask": np.ones(tokens, bool),
                "sampler_logprobs": sampled[at],
                "old_logprobs": old[at],
                "advantage": float(random.normal()),
                "reward": float(random.random() < 0.5),
            }
            for at in range(count)
        ]

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
    """Measure, and print one table for each question as soon as it is answered."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--per-step", type=int, default=200)
    parser.add_argument(
        "--others", type=int, default=20_000, help="rollouts that JSON Lines and Arrow IPC store"
    )
    parser.add_argument("--limit-s", type=float, default=math.inf, help="log no longer than this")
    parser.add_argument("--wandb", help="a Python that has wandb installed")
    options = parser.parse_args()
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    sampler = Sampler()
    with tempfile.TemporaryDirectory() as name:
        lake = Path(name) / "lake"
        others = measure_others(sampler, options, Path(name))
        steps = log_to_lake(lake, sampler, options)
        report_reading(lake, steps, "as it was logged")
        began = time.perf_counter()
        compaction = maintenance.compact(Location.of(str(lake)))
        print(
            f"\ncompacted {compaction.files_before:,} files to {compaction.files_after:,} "
            f"in {time.perf_counter() - began:,.0f} s"
        )
        report_sizes(lake, steps * options.per_step * options.tokens, others)
        report_reading(lake, steps, "compacted")


def measure_others(sampler: Sampler, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Print how fast the other forms store the first rollouts; return their bytes per token."""
    jsonl, ipc = folder / "rollouts.jsonl", folder / "rollouts.arrow"
    steps = min(options.rollouts, options.others) // options.per_step
    seconds = {"JSON Lines": 0.0, "Arrow IPC": 0.0}
    writer: pa.RecordBatchFileWriter | None = None
    with open(jsonl, "w", encoding="utf-8") as lines:
        for step in range(steps):
            rollouts = sampler.sample(step, options.per_step, options.tokens)
            began = time.perf_counter()
            lines.writelines(f"{to_jsonl(one)}\n" for one in rollouts)
            lines.flush()
            os.fdatasync(lines.fileno())
            seconds["JSON Lines"] += time.perf_counter() - began
            began = time.perf_counter()
            batch = pa.RecordBatch.from_pylist(
                [{key: one[key] for key in one if key != "old_logprobs"} for one in rollouts]
            )
            writer = writer or pa.ipc.new_file(str(ipc), batch.schema)
            writer.write_batch(batch)
            seconds["Arrow IPC"] += time.perf_counter() - began
    if writer is None:
        return {}
    writer.close()
    count = steps * options.per_step
    rates = {form: count / taken for form, taken in seconds.items()}
    if options.wandb:
        few = min(count, WANDB_ROLLOUTS) // options.per_step
        taken = measure_wandb(options.wandb, sampler, few, options, folder)
        rates["W&B offline"] = few * options.per_step / taken
    print(f"| the first {count:,} logged by | rollouts/s |\n|---|---|")
    for form, rate in rates.items():
        print(f"| {form} | {rate:,.0f} |")
    sizes: dict[str, float] = {}
    for form, file in {"JSON Lines": jsonl, "Arrow IPC": ipc}.items():
        sizes[form] = file.stat().st_size / (count * options.tokens)
        file.unlink()
    return sizes


def log_to_lake(lake: Path, sampler: Sampler, options: argparse.Namespace) -> int:
    """Log rollouts until all are logged or the time is up, and print the rate; return the steps."""
    began = shown = time.perf_counter()
    limit = began + options.limit_s
    calls: list[float] = []
    processor: list[float] = []
    with store.run("benchmark", lake=str(lake), vocabulary=VOCABULARY) as run:
        for step in range(options.rollouts // options.per_step):
            rollouts = sampler.sample(step, options.per_step, options.tokens)
            now, before = time.perf_counter(), time.thread_time()
            run.log_rollouts(rollouts)
            calls.append(time.perf_counter() - now)
            processor.append(time.thread_time() - before)
            if now > min(shown + PROGRESS_S, limit):
                shown = now
                waiting = sum(
                    file.stat().st_size for file in spool.list_files(Location.of(str(lake)).spool)
                )
                print(
                    f"{len(calls) * options.per_step:,} rollouts in {now - began:,.0f} s, "
                    f"{options.per_step / np.mean(calls[-50:]):,.0f} rollouts/s, "
                    f"{waiting >> 20:,} MiB wait for a commit, "
                    f"{psutil.Process().memory_info().rss >> 20:,} MiB of memory",
                    file=sys.stderr,
                    flush=True,
                )
            if now > limit:
                break
        ended = time.perf_counter()
    count = len(calls) * options.per_step
    print(f"\n| {count:,} logged by store.run | rollouts/s | by processor time |\n|---|---|---|")
    parts = zip(np.array_split(calls, PARTS), np.array_split(processor, PARTS), strict=True)
    for number, (part, own) in enumerate([*parts, (np.array(calls), np.array(processor))], 1):
        if len(part):
            name = f"part {number} of {PARTS}" if number <= PARTS else "all"
            rates = f"{options.per_step / part.mean():,.0f} | {options.per_step / own.mean():,.0f}"
            print(f"| {name} | {rates} |")
    print(
        f"\ncall of log_rollouts, {options.per_step} rollouts: median "
        f"{np.median(calls) * 1e3:,.0f} ms, slowest {max(calls) * 1e3:,.0f} ms; the last commit "
        f"ended {time.perf_counter() - ended:,.1f} s after the last call; at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB of memory"
    )
    return len(calls)


def report_sizes(lake: Path, tokens: int, others: dict[str, float]) -> None:
    """Print bytes per token of the lake's columns and of the other forms."""
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
    ours = sum(sizes[name] for name in goal) / tokens
    print("\n| form | bytes per token | 1M rollouts of 1,000 tokens | ratio |\n|---|---|---|---|")
    for form, each in {
        "lake: ids, mask, sampler's log-probabilities": ours,
        **{f"lake: {name}": sizes[name] / tokens for name in sizes if sizes[name]},
        **others,
    }.items():
        print(f"| {form} | {each:.2f} | {each:,.1f} GB | {each / ours:.1f} |")


def report_reading(lake: Path, steps: int, state: str) -> None:
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
    print(f"\n| read, {state} | ms, first | ms, median of 5 | ms of processor, median | load |")
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
