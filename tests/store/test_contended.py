"""A session beside other work on its host, or with unchecked timed calls, ranks nothing."""

from __future__ import annotations

from pathlib import Path

import builders as b
import pytest

import store

GPU = b.device("H200", kind="cuda")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("flag", ["contended", "timed_outputs_unverified"])
def test_a_disturbed_or_unchecked_evaluation_ranks_by_no_clock(tmp_path: Path, flag: str) -> None:
    both, alone = b.task("both"), b.task("alone")
    quiet, busy, repeated = (b.kernel(name) for name in ("quiet", "busy", "repeated"))
    policy = b.policy()
    verdicts = [
        b.evaluation(quiet, both, b.workload(both), GPU, flags=["near_roofline"]),
        b.evaluation(busy, both, b.workload(both), GPU, flags=[flag]),
        b.evaluation(busy, alone, b.workload(alone), GPU, flags=["confirmed_win", flag]),
        # The quiet session of a kernel counts, although one with the flag is newer.
        b.evaluation(repeated, both, b.workload(both), GPU, minute=1),
        b.evaluation(repeated, both, b.workload(both), GPU, minute=2, flags=[flag]),
    ]
    timings = [
        row
        for verdict, speedup in zip(verdicts, (2.0, 5.0, 5.0, 1.5, 5.0), strict=True)
        for clock, disturbed in (
            ("gpu", False),
            ("latency", flag in (verdict.get("flags") or ())),
        )
        for row in b.session(
            verdict, [1.0] * 8, clock=clock, disturbed=disturbed, eager=[speedup] * 8
        )
    ]
    rows = {
        "tasks": [both, alone], "task_labels": [b.label(both, "both"), b.label(alone, "alone")],
        "workloads": [b.workload(both), b.workload(alone)], "kernels": [quiet, busy, repeated],
        "devices": [GPU], "policies": [policy], "evaluations": verdicts, "timings": timings,
        "generations": [
            b.generation(policy, both, quiet), b.generation(policy, both, busy),
            b.generation(policy, alone, busy), b.generation(policy, both, repeated),
        ],
    }  # fmt: skip
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(rows, "two kernels, one beside other work")
        with writer.reader() as lake:

            def ask(query: str) -> list[tuple[object, ...]]:
                return [tuple(row.values()) for row in lake.sql(query).rows()]

            assert ask("SELECT task, kernel_id, speedup, fragile FROM best_kernels") == [
                ("both", quiet["kernel_id"], 2.0, [])
            ]
            ranked = "SELECT kernel_id, speedup FROM kernel_speedups ORDER BY speedup"
            assert ask(ranked) == [(repeated["kernel_id"], 1.5), (quiet["kernel_id"], 2.0)]
            assert {speedup for _, speedup in ask('SELECT kernel_id, speedup FROM "history"')} == {
                2.0
            }
            assert ask(
                "SELECT DISTINCT speedup, disturbed FROM speedups WHERE clock = 'gpu' ORDER BY ALL"
            ) == [(1.5, False), (2.0, False), (5.0, True)]
            # The task is solved, without a speedup.
            [(success, timed)] = ask(
                "SELECT success, n FROM leaderboard WHERE level IS NULL AND policy = 'any'"
            )
            assert (success, timed) == (2, 1)
            assert ask(
                "SELECT DISTINCT disturbed FROM timed_places "
                f"WHERE task_id = '{alone['task_id']}' AND clock = 'gpu'"
            ) == [(True,)]
