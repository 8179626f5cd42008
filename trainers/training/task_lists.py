"""The tasks that GRPO trains on, in the order of its steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import store
from store.dossier.names import read_task_names
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
    tasks = list(dict.fromkeys(row["task_id"] for row in rows))
    if not wanted:
        return tasks
    with store.open(run.job.lake_url) as lake:
        names = read_task_names(lake)
    chosen: set[str] = set()
    for one in wanted:
        found = {row["task_id"] for row in names.match(one)}
        if not found.intersection(tasks):
            raise UnknownName.among("task of the dataset", one, {row["task"] for row in rows})
        chosen |= found
    return [one for one in tasks if one in chosen]


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
    """Import the starter suite if one of the tasks, or the default lake, is missing.

    Raises LakeNotFound if a lake that --lake or FLYWHEEL_LAKE names is missing.
    """
    from store.importers import starter
    from store.importers.reading.run import run_import, summarize

    try:
        with store.open(job.lake_url) as lake:
            names = read_task_names(lake)
        if all(map(names.match, tasks)):
            return
    except LakeNotFound:
        if job.lake_url or os.environ.get("FLYWHEEL_LAKE"):
            raise  # a mistyped name must not become a lake
    with store.writer(job.lake_url, author="store import starter") as writer:
        summary = run_import(writer, starter, None, starter.Config(measured=False))
    job.say(f"starter    {summarize(summary)}")
