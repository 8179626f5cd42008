"""An evaluator that takes a moment for every kernel, and a lake whose kernels it judges.

A device of it may become sick. A processor is never found so, and a GPU only by chance: `make_sick`
names the parents of judge processes, and from then on each of these crashes in its next kernel, and
its bench finds a fault of the device. What follows from that fault is no part of the evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import builders as b

import store

KERNELS = 12
EVALUATOR = '''
"""Take a moment for every kernel."""

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    seconds: float = 0.0
    """Seconds that a kernel takes."""


def judge(case, bench, config):
    ctypes.CDLL(None).prctl(15, b"judging", 0, 0, 0)  # the name of this process
    time.sleep(config.seconds)
    sick = str(os.getppid()) in Path(__file__).with_name("sick").read_text().split()
    if sick:
        bench.find_device_fault = lambda: "it multiplies matrices wrongly"
    return {"evaluations": [{
        "evaluation_id": "1", "evaluator": "slow", "evaluator_version": VERSION,
        "kernel_id": case.kernel_id, "task_id": case.task_id,
        "workload_id": case.workload_id, "device_id": bench.row["device_id"],
        "status": "crash" if sick else "correct", "reason": "signal" if sick else None,
    }]}
'''


def write(folder: Path) -> None:
    """Write the evaluator into a folder from which commands are run."""
    own = folder / "flywheel" / "evaluators"
    own.mkdir(parents=True)
    (own / "slow.py").write_text(EVALUATOR)
    make_sick(folder, [])


def make_sick(folder: Path, parents: Iterable[int]) -> None:
    """Make the devices of the judges of these processes sick, and all others well."""
    made = folder / "sick"
    made.write_text(" ".join(map(str, parents)))
    made.rename(folder / "flywheel" / "evaluators" / "sick")


def append_kernels(url: str) -> str:
    """Append KERNELS kernels of one task to a lake; return the task's id."""
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
    return str(task["task_id"])


def command(url: str, *options: str) -> list[str]:
    """Return the words of a run on a lake."""
    return ["evaluators", "run", "--evaluator", "slow", "--on", "cpu", "--lake", url, *options]


def count_verdicts(url: str) -> list[int]:
    """Return the number of evaluations of each kernel that has one, without other shapes."""
    own = "protocol IS DISTINCT FROM 'shape'"
    with store.open(url) as opened:
        rows = opened.sql(
            f"SELECT count(*) AS n FROM evaluations WHERE {own} GROUP BY kernel_id"
        ).rows()
        return [row["n"] for row in rows]
