"""A model overfitted on short answers to tasks of the starter suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import FlywheelError
from trainers.datasets.records import Dataset
from trainers.models import tiny_answers
from trainers.models.whole_folder import write_once
from trainers.runs.recording import Run

if TYPE_CHECKING:
    from pipelines import Message


def find_short_tasks(prompts: Dataset) -> dict[str, str]:
    """Return the tasks that `tiny_answers` has short answers to: id to name.

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


def list_short_prompts(prompts: Dataset) -> dict[str, list[list[Message]]]:
    """Return the prompts of a dataset that have short answers, by the name of the task."""
    tasks = find_short_tasks(prompts)
    asked: dict[str, list[list[Message]]] = {}
    for row in prompts.table(["task_id", "prompt"]).to_pylist():
        if row["task_id"] in tasks:
            asked.setdefault(tasks[row["task_id"]], []).append(row["prompt"])
    return asked


def overfit_on_short_answers(
    run: Run,
    base: Path,
    seed: int,
    list_prompts: Callable[[], Mapping[str, Sequence[list[Message]]]],
) -> Path:
    """Return the folder of the model overfitted on short answers; made once.

    Args:
        run: The run, whose folder contains that of the model.
        base: Folder of the model to begin with.
        seed: Seed of the order of the answers.
        list_prompts: Returns the prompts by the name of the task, if the model is missing.
    """
    return write_once(
        run.job.out / "model" / "overfitted",
        lambda folder: tiny_answers.overfit(base, list_prompts(), folder, seed, run.job.say),
    )
