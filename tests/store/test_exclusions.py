"""Options of `store query` that include what rankings leave out, with the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store

ROOT = Path(store.__file__).parents[1]
TASKS = "SELECT task FROM best_kernels ORDER BY task"


@pytest.fixture
def lake_with_weak_task(lake_url: str) -> str:
    """Return a lake with a weak task and another one, each with a ranked kernel."""
    device, policy = b.device(), b.policy()
    tasks = {name: b.task(name) for name in ("weak", "fine")}
    rows: dict[str, list[dict[str, Any]]] = {"devices": [device], "policies": [policy]}
    for name, task in tasks.items():
        workload, kernel = b.workload(task), b.kernel(name)
        verdict = b.evaluation(kernel, task, workload, device)
        several = {
            "tasks": [task],
            "task_labels": [b.label(task, name)],
            "workloads": [workload],
            "kernels": [kernel],
            "kernel_features": [b.features(kernel)],
            "generations": [b.generation(policy, task, kernel)],
            "evaluations": [verdict],
            "timings": b.session(verdict, [1.0] * 20, eager=[2.0] * 20),
            "task_audits": [b.task_audit(workload, device, ["zeros"])] if name == "weak" else [],
        }
        for table, more in several.items():
            rows.setdefault(table, []).extend(more)
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows")
    return lake_url


def query(lake_url: str, *options: str) -> tuple[list[str], str]:
    """Return the tasks that the command prints, and its notes."""
    done = commands.run(["store", "query", TASKS, "--lake", lake_url, *options], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [row["task"] for row in json.loads(done.stdout)], done.stderr


@pytest.mark.slow
def test_a_weak_task_is_left_out_and_said_to_be_unless_it_is_included(
    lake_with_weak_task: str,
) -> None:
    ranked, notes = query(lake_with_weak_task, "--format", "json")
    assert ranked == ["fine"]
    assert notes.splitlines()[-1] == (
        "left out: 1 trivial task, which an answer without its inputs passes (--include-trivial)"
    )
    ranked, notes = query(lake_with_weak_task, "--format", "json", "--include-trivial")
    assert ranked == ["fine", "weak"]
    assert "trivial task" not in notes
    assert "trivial task" not in query(lake_with_weak_task, "--format", "json", "--quiet")[1]
