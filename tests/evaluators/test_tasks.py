"""Audits of tasks in a lake, with the real command, and what a verdict says of a weak task."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import store
from evaluators.scheduling import task_audits

MODEL = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return {}\n"
    "def get_inputs(): return [torch.randn(N, 4)]\ndef get_init_inputs(): return []\nN = 8\n"
)
KERNEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 0\n"
TASKS = {"nothing": "x - x", "twice": "x * 2", "broken": "x.no_such_thing()"}
CPU: dict[str, Any] = {"device_id": "c" * 64, "kind": "cpu"}


@pytest.fixture
def lake_with_tasks(lake_url: str) -> str:
    """Return a lake with three tasks and one kernel for the first of them."""
    rows: dict[str, list[dict[str, Any]]] = {
        "tasks": [], "task_labels": [], "workloads": [],
        "policies": [{"policy_id": "someone", "name": "someone", "kind": "person"}],
    }  # fmt: skip
    for name, forward in TASKS.items():
        code = store.ids.normalize(MODEL.format(forward))
        task_id = store.ids.task_id(code)
        rows["tasks"].append({"task_id": task_id, "code": code, "source": "starter"})
        rows["task_labels"].append(
            {"suite": "starter", "suite_revision": "v1", "name": name, "task_id": task_id,
             "family": name, "source": "starter"}
        )  # fmt: skip
        rows["workloads"].append(
            {"workload_id": store.ids.workload_id(task_id, "{}"), "task_id": task_id,
             "name": "default", "axes": "{}", "generator": "get_inputs"}
        )  # fmt: skip
    kernel_id = store.ids.kernel_id({"kernel.py": KERNEL}, "kernel.py")
    rows["kernels"] = [
        {"kernel_id": kernel_id, "code": KERNEL, "path": "kernel.py", "entry_point": "ModelNew",
         "source": "starter"}
    ]  # fmt: skip
    rows["generations"] = [
        {"generation_id": "g", "task_id": rows["tasks"][0]["task_id"], "policy_id": "someone",
         "kernel_id": kernel_id, "source": "starter"}
    ]  # fmt: skip
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows")
    return lake_url


def evaluators(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "evaluators", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.slow
def test_tasks_are_audited_once_and_verdicts_on_weak_ones_say_so(lake_with_tasks: str) -> None:
    options = ("--device", "cpu", "--lake", lake_with_tasks)
    done = evaluators("tasks", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("task_audits +2 (1 weak, 1 cannot be run) → snapshot ")
    weak, broken, *_ = (line for line in done.stderr.splitlines() if ":" in line)
    assert weak.split() == ["weak:", "nothing", "mean,", "other_inputs,", "zeros"]
    assert broken.startswith("cannot be run: broken")
    assert "forward() failed" in done.stderr
    with store.open(lake_with_tasks) as lake:
        audits = lake.sql(
            "SELECT label.name, audit.weak, audit.passes, audit.repeatable, devices.kind "
            "FROM task_audits AS audit INNER JOIN devices USING (device_id) "
            "INNER JOIN task_labels AS label USING (task_id) ORDER BY label.name"
        ).rows()
        device = {"device_id": lake.sql("SELECT device_id FROM devices").rows()[0]["device_id"]}
        assert [task["task_name"] for task in task_audits.find_pending(lake, CPU | device)] == [
            "broken"
        ]
        assert len(task_audits.find_pending(lake, CPU)) == 3
    assert [(row["name"], row["weak"]) for row in audits] == [("nothing", True), ("twice", False)]
    assert audits[0]["passes"] == ["mean", "other_inputs", "zeros"]
    assert {row["kind"] for row in audits} == {"cpu"}

    done = evaluators("run", *options, "--timing-s", "0.1")
    assert done.returncode == 0, done.stderr
    with store.open(lake_with_tasks) as lake:
        [row] = lake.sql("SELECT status, flags, policy, rel_l2_error FROM evaluations").rows()
    assert row["status"] == "correct", row
    assert "weak_task" in row["flags"]
    assert row["policy"] == "torch_default"
