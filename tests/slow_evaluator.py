"""An evaluator that takes a moment for every kernel, and a lake whose kernels it judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders as b

import store

KERNELS = 12
EVALUATOR = '''
"""Take a moment for every kernel."""

import time
from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    seconds: float = 0.0
    """Seconds that a kernel takes."""


def judge(case, bench, config):
    time.sleep(config.seconds)
    return {"evaluations": [{
        "evaluation_id": "1", "evaluator": "slow", "evaluator_version": VERSION,
        "kernel_id": case.kernel_id, "task_id": case.task_id,
        "workload_id": case.workload_id, "device_id": bench.row["device_id"],
        "status": "correct",
    }]}
'''


def write(folder: Path) -> None:
    """Write the evaluator into a folder from which commands are run."""
    own = folder / "flywheel" / "evaluators"
    own.mkdir(parents=True)
    (own / "slow.py").write_text(EVALUATOR)


def append_kernels(url: str) -> None:
    """Append KERNELS kernels of one task to a lake."""
    task, policy = b.task(), b.policy()
    kernels = [b.kernel(code=f"class ModelNew:\n    n = {n}\n") for n in range(KERNELS)]
    rows: dict[str, Any] = {
        "tasks": [task],
        "task_labels": [b.label(task)],
        "workloads": [b.workload(task)],
        "devices": [b.device()],
        "kernels": kernels,
        "policies": [policy],
        "generations": [b.generation(policy, task, kernel) for kernel in kernels],
    }
    with store.writer(url, author="tests") as writer:
        writer.append(rows, "rows")


def command(url: str, *options: str) -> list[str]:
    """Return the words of a run on a lake."""
    return ["evaluators", "run", "--evaluator", "slow", "--device", "cpu", "--lake", url, *options]


def count_verdicts(url: str) -> list[int]:
    """Return the number of evaluations of each kernel that has one."""
    with store.open(url) as opened:
        rows = opened.sql("SELECT count(*) AS n FROM evaluations GROUP BY kernel_id").rows()
        return [row["n"] for row in rows]
