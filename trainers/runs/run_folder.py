"""The folder of a run: run.json, which resumes it, and its complete checkpoints."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import store
from store.errors import FlywheelError
from trainers.runs.job import Job

RUN_FILE = "run.json"


_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "duckdb")


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the complete checkpoints of a transformers Trainer with their steps, oldest first.

    A folder without trainer_state.json was being written when its process ended, since that file
    is written last.
    """
    found = [
        (int(one.name.partition("-")[2]), one)
        for one in folder.glob("checkpoint-*")
        if one.name.partition("-")[2].isdigit() and (one / "trainer_state.json").exists()
    ]
    return sorted(found)


def collect_versions() -> dict[str, str]:
    """Return the versions of the training libraries."""
    found = {"python": platform.python_version(), "kernel-flywheel": store.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def open_state(job: Job, config: Any) -> tuple[dict[str, Any], bool]:
    """Return the state of a new run, or of the one in the folder, and whether it is resumed."""
    file = job.out / RUN_FILE
    options = json.loads(json.dumps(asdict(config)))
    with store.open(job.lake_url, job.at) as lake:
        lake_id, snapshot = lake.lake_id, lake.snapshot
    if job.resume:
        if not file.exists():
            raise FlywheelError(
                f"{job.out} holds no run to resume", "Name the folder of one with --out."
            )
        state = json.loads(file.read_text("utf-8"))
        _check_same_run(job, state, options, lake_id)
        return state, True
    if job.out.exists() and (job.out.is_file() or any(job.out.iterdir())):
        hint = "--resume goes on with it; or name another folder with --out."
        what = "a run" if file.exists() else "something else"
        raise FlywheelError(
            f"{job.out} holds {what} already", hint if file.exists() else "Name another with --out."
        )
    job.out.mkdir(parents=True, exist_ok=True)
    return {
        "run_id": store.ids.uuid7(),
        "name": job.name,
        "lake_id": lake_id,
        "snapshot_id": snapshot,
        "config": options,
        "started_at": datetime.now(UTC).isoformat(),
    }, False


def _check_same_run(job: Job, state: dict[str, Any], options: dict[str, Any], lake_id: str) -> None:
    """Raise FlywheelError if the resumed run differs from the one in the folder."""
    if state["name"] != job.name:
        raise FlywheelError(f"{job.out} holds a run of {state['name']}, not of {job.name}")
    if state["lake_id"] != lake_id:
        raise FlywheelError(
            f"{job.out} holds a run over lake {state['lake_id']}, not {lake_id}",
            "Name that lake with --lake.",
        )
    other = sorted(
        name for name in options | state["config"] if options.get(name) != state["config"].get(name)
    )
    if other:
        was = ", ".join(f"{name} was {json.dumps(state['config'].get(name))}" for name in other)
        raise FlywheelError(
            f"the options are not those that the run began with: {was}",
            "Give the same, or begin another run: --model takes a checkpoint of this one.",
        )


def write_state(file: Path, state: dict[str, Any]) -> None:
    """Write a file completely or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n", "utf-8")
    partial.replace(file)
