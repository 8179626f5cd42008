"""Fork servers are forks of one process, their template, and end with it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from commands import has_ended

from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.processes.process_tree import count_threads_below
from evaluators.sandbox.launcher import ForkServer, Template
from evaluators.scheduling.judges.process import JudgeProcess
from store.errors import SandboxFailed

MAIN = b"from evaluators.worker.fork_server import run_template"
"""What the command line of a template contains."""


def test_fork_servers_are_forks_with_a_mark_and_a_session_of_their_own(
    template: Template, fork_server: ForkServer
) -> None:
    with ForkServer(template) as other:
        other.wait_ready()
        assert other.limits == fork_server.limits
        assert {other.pid, fork_server.pid} <= set(count_threads_below(template.pid))
        for server in (other, fork_server):
            assert os.getsid(server.pid) == server.pid
            assert find_marked(server.marker) == {server.pid}
    assert has_ended(other.pid)
    assert fork_server.is_alive


def test_what_nobody_has_waited_for_ends_at_once() -> None:
    template = Template(1)
    with ForkServer(template) as started:
        assert template.pid == 0
        started.begin()
        pid = template.pid
    assert not template.has_started  # the end has not waited for the import of torch
    template.close()
    assert has_ended(pid)
    assert not Path(started.scratch).exists()


@pytest.mark.slow
def test_a_template_that_has_ended_starts_again() -> None:
    with Template(1) as template, ForkServer(template) as lost:
        lost.wait_ready()
        os.kill(template.pid, signal.SIGKILL)
        with pytest.raises(SandboxFailed):
            lost.receive("started", 60)
        assert has_ended(lost.pid)
        assert not lost.is_alive
        with ForkServer(template) as following:
            following.wait_ready()
            assert following.limits == lost.limits


@pytest.mark.slow
def test_a_judge_goes_on_after_the_end_of_its_template(right_candidate: str, task: str) -> None:
    names = ("kernel_id", "task_id", "workload_id")
    case = Case(**dict.fromkeys(names, "k"), code=right_candidate, task_code=task)
    config = Config(
        draw_shapes=0,
        import_s=120.0,
        call_s=120.0,
        timing_s=0.1,
        timing_limit_s=2.0,
        robustness=False,
        diagnosis=False,
    )
    with JudgeProcess("judge", "cpu", config) as host:
        assert host.judge(case)["evaluations"][0]["status"] == "correct"
        below = list(count_threads_below(host.pid))
        [template] = [
            pid
            for pid in below
            if MAIN in Path(f"/proc/{pid}/cmdline").read_bytes() and read_parent(pid) == host.pid
        ]
        ended = {template, *count_threads_below(template)}
        os.kill(template, signal.SIGKILL)
        # One fault tells of the lost worker of the task, another one of its fork server.
        statuses = [host.judge(case)["evaluations"][0]["status"] for _ in range(3)]
        assert set(statuses[:2]) <= {"evaluator_error", "correct"}
        assert statuses[2] == "correct"
        assert all(map(has_ended, ended))


def read_parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def find_marked(marker: str) -> set[int]:
    """Return the processes with the mark of a fork server in their environment."""
    marked: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes():
                marked.add(int(entry.name))
    return marked
