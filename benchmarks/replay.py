"""Differences between the steps of a GRPO run and their replays from the lake.

python benchmarks/replay.py                                              # tiny, on a processor
python benchmarks/replay.py --model model.gguf --max-completion 256      # SmolLM2, on a GPU

Makes a run in float32 with a checkpoint at its end, and on a GPU also one in bf16 with a checkpoint
after each step. Every step is replayed, one with other options, one micro-batch alone, and the
float32 run is trained again without sampling. Rewards come from the ids of attempts, so that there
is something to learn whatever the model writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import store

_ROOT = Path(store.__file__).parent.parent
_RULE = '''"""Rewards that differ whatever the attempts are: the first digits of their ids."""

from dataclasses import dataclass

import numpy as np

from trainers.rewarding.scoring import Terms

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Its options."""


def raw(rows, config):
    return np.array([int(one[:4], 16) / 65536 for one in rows["generation_id"].to_pylist()])
'''
_SHARED = (
    *("--starter", "--tasks", "diag_matmul", "--tasks", "triangular_matmul"),
    *("--no-mask-truncated", "--reward-rule", "spread", "--trl", "learning_rate=1e-5"),
)
_TINY = ("--preset", "tiny", "--no-overfit", "--strategy", "none")
_SIZED = ("--exemplar-device", "H200", "--group-size", "8", "--trl", "gradient_checkpointing=false")


def run_trainers(folder: Path, *words: str, accepted: tuple[int, ...] = (0,)) -> tuple[str, float]:
    """Run a command of `trainers` in a folder; return its output and seconds, or leave."""
    line = [sys.executable, "-m", "trainers", *words, "-q"]
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    begun = time.monotonic()
    done = subprocess.run(
        line, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    if done.returncode not in accepted:
        sys.exit(f"{' '.join(line)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout, time.monotonic() - begun


def replay(folder: Path, run_id: str, step: int, *words: str) -> tuple[list[dict[str, Any]], float]:
    """Return the figures of a replay, and its seconds."""
    line = ("replay", run_id, "--step", str(step), "--format", "json", *words)
    printed, seconds = run_trainers(folder, *line, accepted=(0, 1))
    return json.loads(printed), seconds


def describe(figures: list[dict[str, Any]]) -> str:
    """Say how many figures are equal, and which differs most."""
    compared = [row for row in figures if row["difference"] is not None]
    equal = sum(row["difference"] == 0 for row in compared)
    text = f"{equal} of {len(compared)} equal"
    if equal == len(compared):
        return text
    relative = {row["figure"]: row["difference"] / max(abs(row["logged"]), 1.0) for row in compared}
    worst = max(relative, key=relative.__getitem__)
    return f"{text}, largest relative difference {relative[worst]:.1e} ({worst})"


def read_metrics(folder: Path, run_id: str) -> str:
    """Return seconds of the steps of a run, and their part that stored tokens."""
    with store.open(str(folder / "lake")) as lake:
        [row] = lake.sql(
            "SELECT sum(value) FILTER (name = 'step_time') AS steps, "
            "sum(value) FILTER (name = 'store/tokens_s') AS tokens FROM metrics "
            "WHERE run_id = $run_id",
            {"run_id": run_id},
        ).rows()
        [kept] = lake.sql(
            "SELECT sum(len(completion_ids)) AS tokens FROM rollout_tokens WHERE run_id = $run_id",
            {"run_id": run_id},
        ).rows()
    share = row["tokens"] / row["steps"]
    return (
        f"{kept['tokens']} tokens sampled; {row['steps']:.1f} s in steps; storing tokens takes "
        f"{row['tokens']:.3f} s ({share:.2%})"
    )


def find_run(folder: Path) -> str:
    """Return the newest run that has tokens."""
    with store.open(str(folder / "lake")) as lake:
        [row] = lake.sql("SELECT max(run_id) AS run_id FROM rollout_tokens").rows()
    return row["run_id"]


def measure(folder: Path, name: str, steps: int, model: tuple[str, ...]) -> None:
    """Make a run of a precision, replay it in each way, and print what differs."""
    float32 = name == "float32"
    saved = ("--save-steps", str(steps)) if float32 else ("--save-steps", "1")
    precision = ("--trl", "bf16=false") if float32 else ("--trl", "bf16=true")
    line = ("run", "contrastive", *_SHARED, *model, "--steps", str(steps), *saved, *precision)
    _, seconds = run_trainers(folder, *line, "--out", f"runs/{name}")
    run_id = find_run(folder)
    print(f"\n{name}: {steps} steps in {seconds:.0f} s; {read_metrics(folder, run_id)}", flush=True)
    for step in range(steps):
        figures, seconds = replay(folder, run_id, step)
        print(f"  step {step}: {describe(figures)}; {seconds:.0f} s", flush=True)
    figures, _ = replay(folder, run_id, 0, "--micro-batch", "0")
    parts = {row["figure"]: row["replayed"] for row in figures}
    print(f"  step 0, micro-batch 0: loss {parts['loss']:.3e}", flush=True)
    figures, _ = replay(folder, run_id, 0, "--beta", "0.1", "--trl", "loss_type=dapo")
    for row in figures:
        if row["figure"] in ("loss", "grad_norm"):
            print(
                f"  step 0, beta 0.1 and dapo: {row['figure']} {row['logged']:.3e} → "
                f"{row['replayed']:.3e}",
                flush=True,
            )
    if float32:
        from trainers.models import loading

        figures, seconds = replay(folder, run_id, 0, "--train", "--out", "runs/again")
        again, final = (folder / "runs" / one / "final" for one in ("again", name))
        same = loading.hash_weights(again) == loading.hash_weights(final)
        print(
            f"  trained again in {seconds:.0f} s: {describe(figures)}; weights "
            f"{'equal bit for bit' if same else 'differ'}",
            flush=True,
        )


def main() -> None:
    """Make the runs and print the differences of their replays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model to train (default: the tiny preset)")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompts-per-step", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="answers in one pass")
    parser.add_argument("--max-completion", type=int, default=16, help="tokens of an answer")
    options = parser.parse_args()
    import torch

    gpu = torch.cuda.is_available()
    sizes = (
        *("--prompts-per-step", str(options.prompts_per_step), "--batch", str(options.batch)),
        *("--max-completion", str(options.max_completion)),
    )
    model = (*_SIZED, "--model", str(Path(options.model).absolute())) if options.model else _TINY
    where = torch.cuda.get_device_name() if gpu else "a processor"
    print(f"torch {torch.__version__} on {where}, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = folder / "flywheel" / "rewards"
        rules.mkdir(parents=True)
        (rules / "spread.py").write_text(_RULE)
        for precision in ("float32", "bf16") if gpu else ("float32",):
            measure(folder, precision, options.steps, (*model, *sizes))


if __name__ == "__main__":
    main()
