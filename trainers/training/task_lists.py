"""The tasks that GRPO trains on, in the order of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import store
from store.errors import LakeNotFound, UnknownName
from trainers.datasets.records import Dataset
from trainers.runs.job import Job
from trainers.runs.recording import Run
from trainers.training.grpo_options import Config

if TYPE_CHECKING:
    import datasets


def choose_tasks(run: Run, dataset: Dataset, wanted: tuple[str, ...]) -> list[str]:
    """Return the ids of the tasks to train on, in the order of the dataset.

    Raises:
        UnknownName: a task is not in the dataset.
    """
    rows = dataset.columns(["task_id", "task"], run.job.out / "cache").to_list()
    names = {row["task_id"]: row["task"] for row in rows}
    for name in wanted:
        if name not in names and name not in names.values():
            raise UnknownName.among("task of the dataset", name, set(names.values()))
    return [one for one, name in names.items() if not wanted or {one, name} & set(wanted)]


def list_steps(tasks: list[str], config: Config) -> datasets.Dataset:
    """Return the rows of GRPOTrainer: the tasks of all steps, shuffled again for each pass.

    TRL's own shuffling restarts when a run is resumed, and it drops rows that do not fill a step.
    """
    import datasets

    wanted = config.steps * config.prompts_per_step
    ids: list[str] = []
    for time_round in range(-(-wanted // len(tasks))):
        parts = ("order", str(config.seed), str(time_round))
        keyed = sorted((store.ids.content_id(*parts, task), task) for task in tasks)
        ids += [task for _, task in keyed]
    # A placeholder for the prompt of the step, so that TRL knows its shape.
    prompt = [{"role": "user", "content": ""}]
    return datasets.Dataset.from_dict({"task_id": ids[:wanted], "prompt": [prompt] * wanted})


def import_starter(job: Job, tasks: tuple[str, ...]) -> None:
    """Import the starter suite if the lake, or one of the tasks, is missing."""
    from store.importers import starter
    from store.importers.reading.run import run_import, summarize

    try:
        with store.open(job.lake_url) as lake:
            rows = lake.run('SELECT DISTINCT "name" FROM task_names').rows()
        if not set(tasks) - {row["name"] for row in rows}:
            return
    except LakeNotFound:
        job.say("creating a new lake")
    with store.writer(job.lake_url, author="store import starter") as writer:
        summary = run_import(writer, starter, None, starter.Config(measured=False))
    job.say(f"starter    {summarize(summary)}")
