"""A kernel's pages say, beside the figures of a session that ranks nothing, why that is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import explorer_lakes
import pytest

import store
from store.dossier import pages

GPU = b.device("H200", kind="cuda")
TASK, WEAK = b.task("square"), b.task("weak")
OTHER = "computes another function than the task"
CONTENDED = "contended: other work ran on the host"
UNCHECKED = "answers of timed calls were not checked"
QUARANTINED = "the kernel is quarantined"
REASONS: dict[str, dict[str, str]] = {
    "honest": {},
    "another function": dict.fromkeys(("gpu", "latency"), OTHER),
    # A kernel that computes another function is so on a quiet and on a busy host.
    "both": dict.fromkeys(("gpu", "latency"), OTHER),
    "contended": dict.fromkeys(("gpu", "latency"), CONTENDED),
    "unchecked": dict.fromkeys(("gpu", "latency"), UNCHECKED),
    "disturbed by latency": {
        "latency": "disturbed: eager differs from eager, or the device was slowed down"
    },
    "cheat": dict.fromkeys(("gpu", "latency"), QUARANTINED),
    "wrong": dict.fromkeys(("gpu", "latency"), "the kernel is wrong"),
    "on a weak task": dict.fromkeys(("gpu", "latency"), "the task is trivial"),
    "training": dict.fromkeys(("gpu", "latency"), "its evaluation does not count"),
}
"""Name of a kernel to the clocks by which its session ranks nothing, with the reason."""
FLAGS = {
    "both": ["contended"], "contended": ["contended"], "unchecked": ["timed_outputs_unverified"],
}  # fmt: skip
KERNELS = {name: b.kernel(name) for name in REASONS}


def judge(name: str) -> b.Row:
    """Return the evaluation of a kernel with its session."""
    task = WEAK if name == "on a weak task" else TASK
    return b.evaluation(
        KERNELS[name], task, b.workload(task), GPU,
        equivalent=name not in ("another function", "both"),
        flags=FLAGS.get(name, []),
        protocol="training" if name == "training" else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a session by two clocks for each kernel."""
    folder = tmp_path_factory.mktemp("unranked") / "lake"
    policy, judged = b.policy(), {name: judge(name) for name in KERNELS}
    wrong = b.evaluation(
        KERNELS["wrong"], TASK, b.workload(TASK), GPU, "incorrect", minute=1
    )  # fmt: skip
    found = b.finding(KERNELS["cheat"])
    timings = [
        row | {"session_id": f"session of {name}"}
        for name, verdict in judged.items()
        for clock in ("gpu", "latency")
        for row in b.session(
            verdict, [1.0] * 8, clock=clock, eager=[2.0] * 8,
            disturbed=name == "disturbed by latency" and clock == "latency",
        )
    ]  # fmt: skip
    rows = {
        "tasks": [TASK, WEAK], "workloads": [b.workload(TASK), b.workload(WEAK)],
        "task_labels": [b.label(TASK), b.label(WEAK, "level1/2", problem_id=2)],
        "task_audits": [b.task_audit(b.workload(WEAK), GPU, ["zeros"])],
        "devices": [GPU], "policies": [policy], "kernels": list(KERNELS.values()),
        "evaluations": [*judged.values(), wrong], "timings": timings, "findings": [found],
        "standings": [b.standing(found)],
        "generations": [
            b.generation(policy, WEAK if name == "on a weak task" else TASK, kernel)
            for name, kernel in KERNELS.items()
        ],
    }  # fmt: skip
    with store.writer(str(folder), author="tests") as writer:
        writer.append(rows, "sessions that rank and sessions that do not")
    return folder


@pytest.fixture(scope="module")
def client(lake: Path) -> Iterator[Any]:
    with explorer_lakes.open_client(lake) as opened:
        yield opened


def reasons_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the reasons of rows by clock; rows of a clock agree."""
    return {row["clock"]: row["ranks_nothing"] for row in rows if row["ranks_nothing"]}


def test_the_view_has_a_reason_for_each_session_that_ranks_nothing(lake: Path) -> None:
    with store.open(str(lake)) as opened:
        rows = opened.sql("FROM unranked_sessions").rows()
        names = {kernel["kernel_id"]: name for name, kernel in KERNELS.items()}
        found = {name: dict[str, str]() for name in KERNELS}
        for row in rows:
            found[names[row["kernel_id"]]][row["clock"]] = row["reason"]
        assert found == REASONS
        assert all(row["device"] and row["measured_at"] for row in rows)
        # What ranks has no reason.
        ranked = opened.sql(
            "SELECT DISTINCT kernel_id FROM leading_speedups ANTI JOIN weak_tasks USING (task_id)"
        ).rows()
        assert {names[row["kernel_id"]] for row in ranked} == {"honest", "disturbed by latency"}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", REASONS)
def test_a_kernels_page_says_so_beside_its_sessions(client: Any, name: str) -> None:
    address = f"/kernel/{KERNELS[name]['kernel_id']}"
    timings = client.get(f"{address}.json?tab=timings").json()["views"]
    verdict = client.get(f"{address}.json").json()["views"]
    assert reasons_of(timings["sessions"]["rows"]) == REASONS[name]
    measured = {} if name == "training" else REASONS[name]
    assert reasons_of(timings["speedups"]["rows"]) == measured
    is_unranked = {row["rank"] is None for row in verdict["answer"]["rows"]}
    assert is_unranked == ({"gpu" in measured} if name != "training" else set())
    html = client.get(f"{address}?tab=timings").text
    for reason in REASONS[name].values():
        assert f" it ranks nothing: {reason}." in html
    assert ("ranks nothing:" in html) == bool(REASONS[name])


@pytest.mark.slow
def test_a_change_in_time_says_so_of_either_kernel(client: Any) -> None:
    honest, other = (KERNELS[name]["kernel_id"] for name in ("honest", "another function"))
    for kernel, against, whose in ((honest, other, "the other"), (other, honest, "this kernel")):
        address = f"/kernel/{kernel}.json?tab=changes&against={against}"
        rows = client.get(address).json()["views"]["change"]["rows"]
        assert {row["ranks_nothing"] for row in rows} == {f"{whose}: {OTHER}"}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "name", ["honest", "another function", "contended", "disturbed by latency"]
)
def test_store_show_says_so(lake: Path, name: str) -> None:
    with store.open(str(lake)) as opened:
        page = pages.read_kernel_page(opened, KERNELS[name]["kernel_id"])
        assert reasons_of(page.sections["Speedups"].to_pylist()) == REASONS[name]
        measured = pages.read_task_page(opened, "level1/1").sections["Measured"].to_pylist()
        rows = [row for row in measured if row["kernel"] == KERNELS[name]["kernel_id"][:12]]
        assert reasons_of(rows) == (REASONS[name] if rows else {})
        assert bool(rows) == (name != "another function")
