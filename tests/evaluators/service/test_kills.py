"""Servers and judges that are killed: nothing is lost, and nothing is stored twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_services import (
    QUICK_EVALUATOR,
    Service,
    count_evaluations,
    wait_until,
    write_lake,
)

import store
from evaluators import DeviceLock

OPTIONS = ("--evaluator", "quick", "--on", "cpu")
KERNELS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an evaluator that judges quickly."""
    evaluators = tmp_path / "flywheel" / "evaluators"
    evaluators.mkdir(parents=True)
    (evaluators / "quick.py").write_text(QUICK_EVALUATOR)
    return tmp_path


@pytest.fixture
def lake(folder: Path, empty_lake: Path) -> str:
    """Return a lake with two tasks."""
    return write_lake(folder / "lake", empty_lake)


def find_children(parent: int) -> Iterator[int]:
    """Yield the processes that a process has started."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            yield from map(int, (task / "children").read_text().split())


def read_name(pid: int) -> str:
    """Return the name of a process; that of a judge says what it waits for."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_judging(service: Service) -> bool:
    """Whether a judge has a case."""
    classes: dict[str, Any] = service.call("GET", "/v1/health").json()["classes"]
    return any(one["running"] for one in classes.values())


def let_go(folder: Path, *numbers: int) -> None:
    """Let the judge be done with kernels."""
    for number in numbers:
        (folder / "flywheel" / "evaluators" / f"go{number}").touch()


@pytest.mark.slow
def test_a_killed_judge_and_a_killed_server_lose_nothing(folder: Path, lake: str) -> None:
    with Service(lake, *OPTIONS, cwd=folder) as service:
        wait_until(service.has_device)
        views = [service.submit(f"{i} # until go{i}") for i in range(KERNELS)]
        wait_until(lambda: is_judging(service))
        for judge in find_children(service.process.pid):
            os.kill(judge, signal.SIGKILL)
        let_go(folder, 0)
        service.wait(views[0]["id"])
        wait_until(lambda: is_judging(service))
        port, judges = service.port, [*find_children(service.process.pid)]
        service.kill()
    wait_until(lambda: not any(Path(f"/proc/{judge}").exists() for judge in judges))
    let_go(folder, *range(KERNELS))
    with Service(lake, *OPTIONS, cwd=folder, port=port) as service:
        ends = [service.wait(view["id"]) for view in views]
        assert [end["status"] for end in ends] == ["done"] * KERNELS
        assert {end["verdict"]["status"] for end in ends} == {"correct"}
        assert count_evaluations(lake) == KERNELS
        # What is done is not judged again by a server that starts anew.
        again = service.submit("0 # until go0")
        assert (again["status"], again["verdict"]) == ("done", ends[0]["verdict"])


@pytest.mark.slow
def test_a_judge_that_dies_with_a_case_each_time_costs_that_case_alone(
    folder: Path, lake: str
) -> None:
    with Service(lake, *OPTIONS, cwd=folder) as service:
        wait_until(service.has_device)
        slow = service.submit("slow # until never")
        views = [service.submit(f"{i}") for i in range(KERNELS)]
        killed = 0
        while service.call("GET", f"/v1/judgements/{slow['id']}").json()["status"] != "fault":
            for judge in find_children(service.process.pid):
                if read_name(judge) == "never":
                    os.kill(judge, signal.SIGKILL)
                    killed += 1
            time.sleep(0.05)
        end = service.wait(slow["id"])
        assert end["fault"]["reason"] == "internal"
        assert "ended by SIGKILL" in end["fault"]["message"]
        assert killed >= 2
        assert {service.wait(view["id"])["verdict"]["status"] for view in views} == {"correct"}
    with store.open(lake) as opened:
        rows = opened.sql("SELECT status, count(*) AS n FROM evaluations GROUP BY ALL").rows()
    assert {row["status"]: row["n"] for row in rows} == {"correct": KERNELS, "evaluator_error": 1}


@pytest.mark.slow
def test_a_server_that_ends_finishes_what_is_judged_and_keeps_the_rest(
    folder: Path, lake: str
) -> None:
    with Service(lake, *OPTIONS, cwd=folder) as service:
        wait_until(service.has_device)
        views = [service.submit(f"{i} # until go{i}") for i in range(KERNELS)]
        wait_until(lambda: is_judging(service))
        service.process.send_signal(signal.SIGTERM)
        for number in range(KERNELS - 1):  # the judge may get one more before the server knows
            let_go(folder, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                service.process.wait(30)
                break
        assert service.process.returncode == 0
    judged = count_evaluations(lake)
    assert 0 < judged < KERNELS
    let_go(folder, *range(KERNELS))
    with Service(lake, *OPTIONS, cwd=folder) as service:
        ends = [service.wait(view["id"]) for view in views]
        assert [end["status"] for end in ends] == ["done"] * KERNELS
    assert count_evaluations(lake) == KERNELS


@pytest.mark.slow
def test_a_server_whose_judges_wait_for_their_device_ends_when_it_is_told(
    folder: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(folder / "locks"))
    held = DeviceLock.of_device("cpu")
    with held.hold_exclusive(), Service(lake, *OPTIONS, cwd=folder) as service:
        [judge] = wait_until(lambda: [*find_children(service.process.pid)])
        assert service.stop() == 0
        assert not Path(f"/proc/{judge}").exists()
    held.close()
