"""The report counts a session as quiet by each clock apart, as the rankings do."""

from __future__ import annotations

from pathlib import Path

import builders as b
import pytest
from panels import ask

import store

CLOCKS = ("gpu", "latency", "throughput")
GPU = b.device("H200", kind="cuda")
NOISY = {
    "quiet": (),
    "busy host": ("latency", "throughput"),
    "short": ("gpu",),
    "contended": (),
    "noisy": CLOCKS,
}
"""Name of a task to the clocks by which its session is noisy."""


def measure(judged: b.Row, noisy: tuple[str, ...], clocks: tuple[str, ...]) -> list[b.Row]:
    """Return the rows of one session that reads some clocks."""
    session_id = f"session of {judged['evaluation_id']}"
    return [
        row | {"session_id": session_id}
        for clock in clocks
        for row in b.session(
            judged, [1.0] * 8, clock=clock, disturbed=clock in noisy, eager=[2.0] * 8
        )
    ]


def fill(url: str) -> None:
    """Make a lake of one kernel for each task, and one session on a processor."""
    laptop, policy = b.device("laptop"), b.policy()
    tasks = {name: b.task(name) for name in NOISY}
    kernels = {name: b.kernel(name) for name in NOISY}
    sizes = {name: b.workload(task) for name, task in tasks.items()}
    judged = {
        name: b.evaluation(
            kernels[name], task, sizes[name], GPU,
            flags=["contended"] if name == "contended" else [],
        )
        for name, task in tasks.items()
    }  # fmt: skip
    elsewhere = b.evaluation(kernels["quiet"], tasks["quiet"], sizes["quiet"], laptop)
    rows = {
        "tasks": list(tasks.values()), "kernels": list(kernels.values()), "policies": [policy],
        "task_labels": [b.label(task, name) for name, task in tasks.items()],
        "workloads": list(sizes.values()), "devices": [GPU, laptop],
        "evaluations": [*judged.values(), elsewhere],
        "generations": [b.generation(policy, tasks[name], kernels[name]) for name in NOISY],
        "timings": [
            *(row for name in NOISY for row in measure(judged[name], NOISY[name], CLOCKS)),
            *measure(elsewhere, (), ("throughput",)),
        ],
    }  # fmt: skip
    with store.writer(url, author="tests") as writer:
        writer.append(rows, "sessions that are quiet by some clocks")


@pytest.mark.slow
def test_a_session_is_quiet_by_each_clock_apart(tmp_path: Path) -> None:
    fill(str(tmp_path / "lake"))
    with store.open(str(tmp_path / "lake")) as lake:
        held = {
            row["what"]: (row["count"], row["of which"])
            for row in ask(lake, "report/contents")
            if row["what"].startswith("timing sessions")
        }
        assert held == {
            # The session of "noisy" is quiet by no clock, and that of "contended" ranks by none.
            "timing sessions": (6, 4),
            "timing sessions, by the clock gpu": (5, 2),
            "timing sessions, by the clock latency": (5, 2),
            "timing sessions, by the clock throughput": (6, 3),
        }
        devices = {row["device"]: row for row in ask(lake, "report/devices")}
        by_clock = {
            device: (
                row["timing sessions"], *(row[f"quiet by {clock}"] for clock in CLOCKS)
            )
            for device, row in devices.items()
        }  # fmt: skip
        assert by_clock == {"H200": (5, 2, 2, 2), "laptop": (1, None, None, 1)}
        # A task ranks by a clock where the session is quiet by it.
        ranked = lake.sql(
            "SELECT clock, n FROM leaderboard_by_clock "
            "WHERE device = 'H200' AND level IS NULL AND policy = 'any' ORDER BY clock"
        ).rows()
        assert {row["clock"]: row["n"] for row in ranked} == {
            clock: devices["H200"][f"quiet by {clock}"] for clock in CLOCKS
        }


def test_a_lake_without_sessions_says_so(lake_url: str) -> None:
    with store.writer(lake_url, author="tests") as writer:
        writer.append({"devices": [GPU]}, "a device")
    with store.open(lake_url) as lake:
        held = [row for row in ask(lake, "report/contents") if "sessions" in row["what"]]
        assert [(row["what"], row["count"], row["of which"]) for row in held] == [
            ("timing sessions", 0, 0)
        ]
