"""Overhead of the store in training: contrastive and sft against plain TRL with the same work.

python benchmarks/trainer_overhead.py --steps 6

GRPO: `trainers run contrastive --preset tiny` against a GRPOTrainer with the same tasks, model and
sizes. Its reward is a Python function that parses an answer, calls the same judge, and stores
nothing. TRL measures the step times. The store's share is the time of rendering, appending and
rewarding in a step, without judging.
SFT: `trainers run sft --preset tiny` against an SFTTrainer with the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import store
from evaluators.judging.case import Case

WARM_UP = 1
"""Steps that count in no median: processes and caches start in them."""
_SFT_STEPS = 40
_NO_SAVE = 10_000


def command(folder: Path, *words: str) -> None:
    """Run `trainers run` in a folder; leave where it fails."""
    line = [sys.executable, "-m", "trainers", "run", *words, "--lake", str(folder / "lake"), "-q"]
    root = str(Path(store.__file__).parent.parent)
    done = subprocess.run(
        line, cwd=folder, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(line)}\n{done.stderr}")


def metric(folder: Path, trainer: str, name: str) -> list[float]:
    """Return a metric of the newest run of a trainer, by step."""
    with store.open(str(folder / "lake")) as lake:
        rows = lake.sql(
            "SELECT value FROM metrics WHERE name = $name AND run_id = (SELECT max(run_id) FROM "
            "runs WHERE kind = 'training' AND name = $trainer) ORDER BY step",
            {"name": name, "trainer": trainer},
        ).rows()
    return [row["value"] for row in rows]


def run_plain_grpo(folder: Path, steps: int) -> list[float]:
    """Return the step times of TRL alone, with a reward that is a Python function."""
    import datasets
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.timing.surprising_wins import select_ranking_rows
    from store import ids
    from store.code.completion import parse_completion
    from trainers import contrastive
    from trainers.models import loading
    from trainers.runs.job import Job
    from trainers.training import judging

    preset = contrastive.PRESETS["tiny"]
    config = contrastive.Config(**preset | {"steps": steps, "save_steps": _NO_SAVE})
    model = folder / "run" / "model" / "overfitted"
    with store.open(str(folder / "lake")) as lake:
        prompts = lake.sql(
            "SELECT prompt_id, messages, task_id FROM prompts WHERE prompt_id IN "
            "(SELECT prompt_id FROM generations WHERE run_id IS NOT NULL) ORDER BY prompt_id"
        ).rows()
        codes = {
            row["task_id"]: row["code"]
            for row in lake.sql("SELECT task_id, code FROM tasks").rows()
        }
    first = {row["task_id"]: json.loads(row["messages"]) for row in reversed(prompts)}
    known: dict[tuple[str, str], float] = {}

    with JudgeProcess("judge", "cpu", judging.parse_options(config.judge)) as host:

        def reward(completions: list[Any], task_id: list[str], **columns: Any) -> list[float]:
            return [
                judge_once(turns[-1]["content"], task)
                for turns, task in zip(completions, task_id, strict=True)
            ]

        def judge_once(text: str, task: str) -> float:
            code = parse_completion(text).code
            if code is None:
                return -1.0
            if (code, task) not in known:
                known[code, task] = ask_judge(code, task)
            return known[code, task]

        def ask_judge(code: str, task: str) -> float:
            tables = host.judge(
                Case(
                    kernel_id=ids.kernel_id({"kernel.py": code}, "kernel.py"),
                    task_id=task,
                    workload_id=ids.workload_id(task),
                    code=code,
                    task_code=codes[task],
                )
            )
            if tables["evaluations"][0]["status"] != "correct":
                return -1.0
            ranking = select_ranking_rows(tables["timings"])
            arms = {arm: row["samples_ms"] for arm, row in ranking.items()}
            ratios = [a / b for a, b in zip(arms["eager"], arms["kernel"], strict=True)]
            return 2.0 if statistics.median(ratios) > 1.05 else 1.0

        settings = contrastive.make_settings(
            Job(name="plain", lake_url=None, out=folder / "plain", quiet=True), config
        )
        trainer = GRPOTrainer(
            model=loading.load_model(model),
            reward_funcs=reward,
            args=GRPOConfig(**settings | {"report_to": "none", "disable_tqdm": True}),
            train_dataset=datasets.Dataset.from_list(
                [{"prompt": messages, "task_id": task} for task, messages in first.items()]
            ),
            processing_class=loading.load_tokenizer(model),
        )
        trainer.train()
    return [row["step_time"] for row in trainer.state.log_history if "step_time" in row]


def run_plain_sft(run: Path) -> float:
    """Return the tokens a second of TRL alone on the rows of an sft run."""
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from trainers import sft
    from trainers.datasets import records
    from trainers.models import loading
    from trainers.training import trl_trainers

    made = records.find_dataset(str(run.parent / "lake"), "sft", "prompt-completion")
    model = next((run / "model").iterdir())
    preset = sft.PRESETS["tiny"]
    preset = sft.Config(
        **preset | {"save_steps": _NO_SAVE, "trl": (*preset["trl"], f"max_steps={_SFT_STEPS}")}
    )
    settings = trl_trainers.make_sft_settings(preset, run / "plain")
    arguments = SFTConfig(**settings | {"report_to": "none", "disable_tqdm": True})
    trainer = SFTTrainer(
        model=loading.load_model(model),
        args=arguments,
        train_dataset=made.columns(["prompt", "completion"], run / "cache"),
        processing_class=loading.load_tokenizer(model),
    )
    trainer.train()
    return rate(trainer.state.log_history)


def rate(history: list[dict[str, Any]]) -> float:
    """Return tokens a second out of what a trainer logged."""
    tokens = max(row["num_tokens"] for row in history if "num_tokens" in row)
    return tokens / next(row["train_runtime"] for row in history if "train_runtime" in row)


def main() -> None:
    """Run both sides in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of sft; the best one counts")
    parser.add_argument("--no-sft", action="store_true", help="skip sft")
    parser.add_argument("--plain-sft", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain_sft is not None:
        print(run_plain_sft(given.plain_sft))
        return
    print("| job | with the store | plain TRL | ratio |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        steps = str(given.steps)
        command(folder, "contrastive", "--preset", "tiny", "--steps", steps, "--out", "run")
        ours = statistics.median(metric(folder, "contrastive", "step_time")[WARM_UP:])
        plain = statistics.median(run_plain_grpo(folder, given.steps)[WARM_UP:])
        print(
            f"| GRPO, median seconds per step | {ours:.2f} | {plain:.2f} | {ours / plain:.3f} |",
            flush=True,
        )
        parts = [
            metric(folder, "contrastive", f"{name}_s")[WARM_UP:]
            for name in ("prompts/render", "store/attempts", "store/rewards")
        ]
        alone = statistics.median(map(sum, zip(*parts, strict=True)))
        print(f"| seconds of the store in a step | {alone:.2f} |  | {alone / ours:.3f} |")
        if not given.no_sft:
            more = ["--save-steps", str(_NO_SAVE), "--trl", f"max_steps={_SFT_STEPS}"]
            with_store = without = 0.0
            for round_ in range(given.rounds):
                out = f"sft{round_}"
                command(folder, "sft", "--preset", "tiny", *more, "--out", out)
                tokens = max(metric(folder, "sft", "num_tokens"))
                [seconds] = metric(folder, "sft", "train_runtime")
                with_store = max(with_store, tokens / seconds)
                alone = subprocess.run(
                    [sys.executable, __file__, "--plain-sft", str(folder / out)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                without = max(without, float(alone.stdout.splitlines()[-1]))
            ratio = with_store / without
            print(f"| SFT, tokens per second | {with_store:.0f} | {without:.0f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
