"""A model overfitted on short answers to tasks of the starter suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from trainers.datasets.records import Dataset
from trainers.models import tiny_answers
from trainers.runs.recording import Run
from trainers.training.round_options import Config


def find_short_tasks(prompts: Dataset) -> dict[str, str]:
    """Return the tasks that `_tiny` has short answers to: id to name.

    Raises:
        FlywheelError: the dataset asks for none of them.
    """
    rows = prompts.table(["task_id", "task"]).to_pylist()
    tasks = {row["task_id"]: row["task"] for row in rows if row["task"] in tiny_answers.TEMPLATES}
    if not tasks:
        raise FlywheelError(
            f"dataset {prompts.name} asks for none of {', '.join(tiny_answers.TEMPLATES)}",
            "These are tasks of `store import starter`; or give a --model and no --overfit.",
        )
    return tasks


def overfit_on_short_answers(run: Run, config: Config, base: Path, prompts: Dataset) -> Path:
    """Return the folder of the model overfitted on short answers; made once."""
    out = run.job.out / "model" / "overfitted"
    if (out / "tokenizer_config.json").exists():
        return out
    tasks = find_short_tasks(prompts)
    rows = prompts.table(["task_id", "prompt"]).to_pylist()
    asked: dict[str, list[Any]] = {}
    for row in rows:
        if row["task_id"] in tasks:
            asked.setdefault(tasks[row["task_id"]], []).append(row["prompt"])
    return tiny_answers.overfit(base, asked, out, config.seed, run.job.say)
