"""Several judges of one machine at once, and what is said of one that has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import has_ended

from evaluators.device.lock import DeviceLock
from evaluators.judge import Config
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.processes.process_tree import find_descendants
from evaluators.sandbox.launcher import Template
from evaluators.scheduling.judge_threads import judge_cases
from evaluators.scheduling.judges.process import JudgeProcess
from store import ids
from store.errors import DeviceUnavailable

CONFIG = Config(
    draw_shapes=0,
    import_s=120.0,
    call_s=120.0,
    calls=2,
    timing_s=0.05,
    timing_limit_s=1.0,
    robustness=False,
    diagnosis=False,
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeProcess]:
    """Return a process that judges on the processor, with locks of its own."""
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(tmp_path))
    with JudgeProcess("judge", "cpu", CONFIG) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "left_out"),
    [
        (1, set[str]()),
        pytest.param(2, {"own_root"}, marks=pytest.mark.slow),
        (3, {"own_root", "seccomp"}),
    ],
)
def test_walls_are_left_out_only_for_a_fault_that_stays(
    monkeypatch: pytest.MonkeyPatch,
    bench: Bench,
    template: Template,
    faults: int,
    left_out: set[str],
) -> None:
    trials = iter(["it does not answer"] * faults)
    monkeypatch.setattr(Bench, "find_device_fault", lambda _: next(trials, None))
    monkeypatch.setattr("evaluators.judging.bench.TRIAL_PAUSE_S", 0.0)
    whole = set(bench.read_isolation()["holds"])
    with Bench("cpu", template=template) as tried:
        missing = whole - set(tried.read_isolation()["holds"])
    assert missing & {"own_root", "seccomp"} == left_out & whole


def test_a_device_that_fails_without_walls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "find_device_fault", lambda _: "it does not answer")
    monkeypatch.setattr("evaluators.judging.bench.TRIAL_PAUSE_S", 0.0)
    with pytest.raises(DeviceUnavailable, match="measured on: it does not answer"):
        Bench("cpu")


def case(task: str, code: str) -> Case:
    """Return a case that belongs to no lake."""
    task_id = ids.task_id(task)
    return Case(
        kernel_id=ids.content_id("file", code),
        task_id=task_id,
        workload_id=ids.workload_id(task_id, "{}"),
        code=code,
        task_code=task,
        trusted=True,
    )


class Killed:
    """A judge whose process is killed while it judges a slow kernel."""

    def __init__(self, host: JudgeProcess, slow_id: object) -> None:
        self._host, self._slow_id = host, slow_id
        self.signals = [signal.SIGKILL, signal.SIGSEGV]

    @property
    def row(self) -> dict[str, Any]:
        return self._host.row

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        if case.kernel_id == self._slow_id:
            threading.Timer(0.5, os.kill, (self._host.pid, self.signals.pop(0))).start()
        return self._host.judge(case)

    def restart(self) -> None:
        self._host.restart()


@pytest.mark.slow
def test_a_judge_that_dies_twice_costs_that_case_alone(
    host: JudgeProcess, task: str, right_candidate: str
) -> None:
    slow = case(task, "import time\ntime.sleep(1000)\n")
    right = case(task, right_candidate)
    judge = Killed(host, slow.kernel_id)
    results = {r.case.kernel_id: r for r in judge_cases([[slow, right]], [judge], [])}
    assert judge.signals == []
    lost, judged = results[slow.kernel_id], results[right.kernel_id]
    assert (lost.tables, "ended by SIGSEGV" in lost.fault) == (None, True)
    assert judged.tables is not None
    assert judged.tables["evaluations"][0]["status"] == "correct"
    # The idle judge keeps the workers of the task until another judge wants the memory.
    workers = find_descendants(host.pid)
    with DeviceLock.of_memory("cpu").hold_exclusive():
        assert len(find_descendants(host.pid)) < len(workers)


CHECK = ("-m", "evaluators", "check")


ENDLESS = """
import json, sys
from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.scheduling.judges.process import JudgeProcess
with JudgeProcess("judge", "cpu", Config(import_s=1000, build_s=1000, total_s=1000)) as host:
    print(host.pid, flush=True)
    host.judge(Case.read(json.load(sys.stdin)))
"""


@pytest.mark.slow
def test_a_judge_ends_amid_a_verdict_when_the_command_is_killed(task: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(json.dumps(case(task, "import time\ntime.sleep(1000)").write()))
        command.stdin.close()
        judge = int(command.stdout.readline())
        time.sleep(5)  # until the judge is amid the verdict
        command.kill()
    assert has_ended(judge)


@pytest.mark.slow
def test_eight_checks_at_once_are_all_judged(
    tmp_path: Path, task: str, right_candidate: str
) -> None:
    (tmp_path / "task.py").write_text(task)
    (tmp_path / "kernel.py").write_text(right_candidate)
    options = ["--on", "cpu", "--format", "json", "--calls", "3", "--timing-limit-s", "1"]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, *CHECK, "kernel.py", "--task", "task.py", *options),
                *("--import-s", "120", "--first-call-s", "120", "--lake", f"lake{number}"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FLYWHEEL_CACHE": str(tmp_path / "cache")},
        )
        for number in range(8)
    ]
    for process in processes:
        said, errors = process.communicate()
        assert process.returncode == 0, errors
        assert json.loads(said)["evaluations"][0]["status"] == "correct"
