"""Servers and workers that are killed: nothing is lost, and nothing is stored twice."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_services import (
    QUICK_EVALUATOR,
    FakeWorker,
    Service,
    count_evaluations,
    wait_until,
    write_kernel,
    write_lake,
)

import store
from evaluators import DeviceLock
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.leased_cases import name_verdict

OPTIONS = ("--evaluator", "quick", "--device", "cpu")
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


def count_claimed(service: Service) -> int:
    """Return the number of judgements that the worker has."""
    return sum(one["claims"] for one in service.call("GET", "/v1/health").json()["workers"])


def has_device(service: Service) -> bool:
    """Whether a worker has joined."""
    classes: dict[str, Any] = service.call("GET", "/v1/health").json()["classes"]
    return any(one["devices"] for one in classes.values())


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_server_lose_nothing(folder: Path, lake: str) -> None:
    with Service(lake, *OPTIONS, cwd=folder) as service:
        wait_until(lambda: has_device(service))
        views = [service.submit(f"{i} # sleep 0.4") for i in range(KERNELS)]
        wait_until(lambda: count_claimed(service))
        [worker] = find_children(service.process.pid)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: has_device(service))
        wait_until(lambda: count_claimed(service))
        port = service.port
        service.kill()
    with Service(lake, *OPTIONS, cwd=folder, port=port) as service:
        ends = [service.wait(view["id"]) for view in views]
        assert [end["status"] for end in ends] == ["done"] * KERNELS
        assert {end["verdict"]["status"] for end in ends} == {"correct"}
        assert count_evaluations(lake) == KERNELS
        # What is done is not judged again by a server that starts anew.
        again = service.submit("0 # sleep 0.4")
        assert (again["status"], again["verdict"]) == ("done", ends[0]["verdict"])


def is_asleep(pid: int) -> bool:
    """Whether a judge has loaded torch and does nothing for a second."""

    def read_ticks() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    try:
        before = read_ticks()
        time.sleep(1)
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text() and before == read_ticks()
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_judge_that_dies_with_a_case_each_time_costs_that_case_alone(
    folder: Path, lake: str
) -> None:
    with Service(lake, *OPTIONS, cwd=folder) as service:
        wait_until(lambda: has_device(service))
        slow = service.submit("slow # sleep 600")
        views = [service.submit(f"{i}") for i in range(KERNELS)]
        killed = 0
        while service.call("GET", f"/v1/judgements/{slow['id']}").json()["status"] != "fault":
            for worker in [*find_children(service.process.pid)]:
                for judge in [pid for pid in find_children(worker) if is_asleep(pid)]:
                    os.kill(judge, signal.SIGKILL)
                    killed += 1
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
        wait_until(lambda: has_device(service))
        views = [service.submit(f"{i} # sleep 1") for i in range(KERNELS)]
        wait_until(lambda: count_claimed(service))
        assert service.stop() == 0
    judged = count_evaluations(lake)
    assert 0 < judged < KERNELS
    with Service(lake, *OPTIONS, cwd=folder) as service:
        ends = [service.wait(view["id"]) for view in views]
        assert [end["status"] for end in ends] == ["done"] * KERNELS
    assert count_evaluations(lake) == KERNELS


@pytest.mark.slow
def test_a_worker_whose_judges_wait_for_their_device_ends_when_it_is_told(
    folder: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(folder / "locks"))
    held = DeviceLock.of_device("cpu")
    with held.hold_exclusive(), Service(lake, *OPTIONS, cwd=folder) as service:
        [worker] = wait_until(lambda: [*find_children(service.process.pid)])
        wait_until(lambda: [*find_children(worker)])  # its judge
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: worker not in find_children(service.process.pid), limit_s=30)
    held.close()


@pytest.mark.slow
def test_a_new_server_leaves_no_claimed_case_to_runs(empty_lake: Path, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", empty_lake)
    count = 300  # more than the recorder takes at a time
    kernels = [{"task": "square", "code": write_kernel(str(i))} for i in range(count)]
    with Service(lake, "--device", "none") as service:
        worker = FakeWorker(service)
        for start in range(0, count, 50):
            body = {"judgements": kernels[start : start + 50]}
            assert service.call("POST", "/v1/judgements/batch", body).is_success
        claims = list[dict[str, Any]]()
        while len(claims) < count:
            claims += worker.claim(count - len(claims))
        service.kill()
    evaluator = contract.load("judge")
    names = {name_verdict(evaluator, worker.row, Case.read(claim["case"])) for claim in claims}
    assert len(names) == count
    with Service(lake, "--device", "none") as service:
        # The recorder takes its leases before it queues anything.
        service.submit("another", task="cube")
        assert FakeWorker(service).claim()
        with store.Location.of(lake).open_leases() as leases:
            assert leases.take(sorted(names)) == set()


@pytest.mark.slow
def test_cases_of_a_silent_worker_go_to_another(empty_lake: Path, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", empty_lake)
    with Service(lake, "--device", "none") as service:
        silent, other = FakeWorker(service), FakeWorker(service)
        view = service.submit("abandoned")
        [claim] = silent.claim()
        [taken] = other.claim(wait_s=90)  # a lease ends after half a minute
        assert taken["judgement_id"] == claim["judgement_id"]
        other.answer(taken)
        assert service.wait(view["id"])["status"] == "done"
        assert silent.answer(claim).status_code in (404, 409)
    assert count_evaluations(lake) == 1
