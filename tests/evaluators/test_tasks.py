"""Audits of tasks in a lake, with the real command, and what a verdict says of a weak task."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
import torch

import store
from evaluators.device.fingerprint import read_fingerprint
from evaluators.judging.bench import Bench
from evaluators.judging.weak_tasks import VERSION, build_audit_row
from evaluators.references.module import TaskModule
from evaluators.references.task import ReferenceFailed
from evaluators.scheduling import task_audits
from store.errors import SandboxFailed
from store.importers import measured
from store.importers.reading.pieces import run_import

MODEL = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return {}\n"
    "def get_inputs(): return [torch.randn(N, 4)]\ndef get_init_inputs(): return []\nN = 8\n"
)
KERNEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 0\n"
TASKS = {"nothing": "x - x", "twice": "x * 2", "broken": "x.no_such_thing()"}
NOW = datetime.now(UTC)
CPU: dict[str, Any] = {"device_id": "c" * 64, "kind": "cpu", "name": "another"}


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
    options = ("--on", "cpu", "--lake", lake_with_tasks)
    done = evaluators("tasks", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("task_audits +2 (1 trivial, 1 cannot be run) → snapshot ")
    lines = done.stderr.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [[str(n), "of", "3"] for n in (1, 2, 3)]
    weak, broken, *_ = (line for line in lines[3:] if ":" in line)
    assert weak.split() == ["trivial:", "nothing", "mean,", "other_inputs,", "zeros"]
    assert broken.startswith("cannot be run: broken")
    assert "forward() failed" in done.stderr
    with store.open(lake_with_tasks) as lake:
        audits = lake.sql(
            "SELECT label.name, audit.weak, audit.passes, audit.repeatable, devices.kind "
            "FROM task_audits AS audit INNER JOIN devices USING (device_id) "
            "INNER JOIN task_labels AS label USING (task_id) ORDER BY label.name"
        ).rows()
        device = {"name": lake.sql("SELECT name FROM devices").rows()[0]["name"]}
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
        [row] = lake.sql(
            "SELECT status, flags, precision, rel_l2_error FROM evaluations "
            "WHERE protocol IS DISTINCT FROM 'shape'"
        ).rows()
    assert row["status"] == "correct", row
    assert "weak_task" in row["flags"]
    assert row["precision"] == "torch_default"


STARTS = (
    "import sys\nfrom evaluators.cli import app\n"
    "def tell(event, args):\n"
    "    if event == 'subprocess.Popen':\n"
    "        print('started', *args[1], file=sys.stderr)\n"
    "sys.addaudithook(tell)\napp.main()\n"
)
"""Runs `evaluators`, and says which programs it starts."""


@pytest.mark.slow
def test_no_judge_is_started_where_every_task_is_audited(lake_with_tasks: str) -> None:
    device = read_fingerprint("cpu")
    with store.writer(lake_with_tasks, author="tests") as writer:
        with writer.reader() as lake:
            pending = task_audits.find_pending(lake, device)
        rows = [
            {name: task[name] for name in ("task_id", "workload_id")}
            | {"passes": [], "weak": False, "repeatable": True, "created_at": NOW}
            | {"device_id": device["device_id"], "auditor_version": VERSION}
            for task in pending
        ]
        snapshot = writer.append({"devices": [device], "task_audits": rows}, "audits")
    words = ["tasks", "--on", "cpu", "--lake", lake_with_tasks]
    done = subprocess.run(
        [sys.executable, "-c", STARTS, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"0 tasks pending on {device['name']} at snapshot {snapshot}\n"
    assert f"started {sys.executable}" not in done.stderr


class Slow:
    """An auditor that answers about the first of the tasks and is stuck with the others."""

    row: ClassVar[dict[str, Any]] = {**CPU, "name": "slow", "model": "m", "created_at": NOW}

    def audit(self, task: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any] | None, str]:
        if task["task_name"] != "nothing":
            time.sleep(limit_s)
            raise SandboxFailed("the judge process is stuck")
        named = {name: task[name] for name in ("task_id", "workload_id")}
        verdict = {"passes": ["zeros"], "weak": True, "repeatable": True, "created_at": NOW}
        device = {"device_id": CPU["device_id"], "auditor_version": VERSION}
        return named | verdict | device, ""

    def restart(self) -> None: ...


class Crowded(Slow):
    """An auditor that has too little memory while another one audits."""

    at_work: ClassVar[int] = 0

    def audit(self, task: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any] | None, str]:
        Crowded.at_work += 1
        time.sleep(0.2)
        is_alone = Crowded.at_work == 1
        Crowded.at_work -= 1
        answer = super().audit({**task, "task_name": "nothing"}, limit_s)
        return answer if is_alone else (None, "out of memory")


def test_a_task_that_fails_beside_others_is_tried_again_alone(lake_with_tasks: str) -> None:
    numbers: list[int] = []
    tally = task_audits.run(
        lake_with_tasks,
        [Crowded(), Crowded(), Crowded()],
        None,
        60.0,
        lambda _, n, __: numbers.append(n),
    )
    assert (tally.audited, tally.failed) == (3, {})
    assert numbers == [1, 2, 3]


@pytest.mark.slow
def test_results_are_committed_as_they_come_and_a_task_has_a_time_limit(
    lake_with_tasks: str,
) -> None:
    stored: list[int] = []

    def report(result: task_audits.Result, number: int, of: int) -> None:
        with store.open(lake_with_tasks) as lake:
            stored.append(len(lake.sql("FROM task_audits").rows()))

    tally = task_audits.run(lake_with_tasks, [Slow(), Slow()], None, 0.3, report)
    assert stored == [1, 1, 1]
    assert (tally.audited, list(tally.weak)) == (1, ["nothing"])
    assert set(tally.failed.values()) == {"no result after 0.3 s"}
    again = task_audits.run(lake_with_tasks, [Slow()], "twice", 0.1)
    assert (again.audited, list(again.failed)) == (0, ["twice"])


@pytest.mark.slow
def test_a_task_too_large_for_the_memory_is_named(bench: Bench) -> None:
    text = MODEL.format("torch.cat([x, x, x])").replace("N = 8", "N = 1 << 30")
    task = {"task_code": text, "axes": "{}", "task_id": "t", "workload_id": "w"}
    with pytest.raises(ReferenceFailed, match=r"too large: inputs of 17\.2 GB .* 1 GB are free"):
        build_audit_row({**task, "free_bytes": 10**9}, bench)
    small = {**task, "task_code": text.replace("1 << 30", "8"), "free_bytes": 10**9}
    assert build_audit_row(small, bench)["weak"] is False


@pytest.mark.slow
def test_shipped_audits_are_imported_without_verdicts(lake_with_tasks: str, tmp_path: Path) -> None:
    """A folder of task_audits alone, as `benchmarks/measured_rows.py` writes it."""
    task_audits.run(lake_with_tasks, [Slow()], None, 0.1)
    with store.open(lake_with_tasks) as lake:
        for name in ("devices", "task_audits"):
            rows = lake.run(f"FROM {name}").arrow().cast(lake.catalog.table(name).arrow_schema)
            pq.write_table(rows, tmp_path / f"{name}.parquet")
        texts = ("tasks", "task_labels", "workloads")
        tables = {name: lake.run(f"FROM {name}").arrow() for name in texts}
    fresh = str(tmp_path / "fresh")
    with store.writer(fresh, author="tests") as writer:
        writer.append(tables, "tasks")
        summary = run_import(writer, measured, tmp_path, measured.Config())
    with store.open(fresh) as lake:
        assert len(lake.sql("FROM weak_tasks").rows()) == 1, summary


def test_a_module_in_a_closure_is_copied_with_the_module(tmp_path: Path) -> None:
    code = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"line": nn.Linear(4, 4)})
        import torch.nn.functional as F
        parts = self.parts
        self.run = lambda x: F.relu(parts.line(x)) + 1 / 3

    def forward(self, x):
        return self.run(x)

def get_inputs():
    return [torch.randn(2, 4)]

def get_init_inputs():
    return []
"""
    (tmp_path / "task.py").write_text(code)
    task = TaskModule(str(tmp_path / "task.py"), {}, "cpu")
    [x] = task.inputs(0)
    copied = task.module()
    torch.nn.init.zeros_(copied.parts["line"].weight)
    torch.nn.init.zeros_(copied.parts["line"].bias)
    assert torch.equal(copied(x), torch.full((2, 4), 1 / 3))
    value, [exact] = task.answer([x], 0)
    assert not torch.equal(value, copied(x))
    assert exact is not None
    # In double precision, the answer has bits that float32 has not.
    assert not torch.equal(exact, exact.float().double())
