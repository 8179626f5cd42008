"""The starter suite for a run in a folder without a lake."""

from __future__ import annotations

import os

import store
from store.dossier.pages import read_task_names
from store.errors import LakeNotFound
from trainers.runs.job import Job


def import_starter(job: Job, tasks: tuple[str, ...] = ()) -> None:
    """Import the starter suite if one of the tasks, every task, or the default lake is missing.

    Raises LakeNotFound if a lake that --lake or FLYWHEEL_LAKE names is missing.
    """
    from store.importers import starter
    from store.importers.reading.pieces import run_import, summarize

    try:
        with store.open(job.lake_url) as lake:
            names = read_task_names(lake)
            known = lake.run("SELECT 1 FROM tasks LIMIT 1").one() is not None
        if known and all(map(names.match, tasks)):
            return
    except LakeNotFound:
        if job.lake_url or os.environ.get("FLYWHEEL_LAKE"):
            raise  # a mistyped name must not become a lake
    with store.writer(job.lake_url, author="store import starter") as writer:
        summary = run_import(writer, starter, None, starter.Config())
    job.say(f"starter    {summarize(summary)}")
