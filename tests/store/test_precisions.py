"""Verdicts and speedups by precision: what ranks, and that no table mixes two precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import builders as b
import pytest

import store

TASK = b.task()
GPU, CPU = b.device("H200", kind="cuda"), b.device("laptop")
SIZES = b.workload(TASK)
BOTH, STRICT, WRONG, CHEAT = (b.kernel(name) for name in ("both", "strict", "wrong", "cheat"))

Ask = Callable[..., list[dict[str, Any]]]


def judge(
    kernel: b.Row, precision: str | None, speedup: float | None = None, **options: Any
) -> dict[str, list[b.Row]]:
    """Return a verdict by a precision, with a session that shows this speedup over eager."""
    device = options.pop("device", GPU)
    row = b.evaluation(kernel, TASK, SIZES, device, precision=precision, **options)
    timings = [] if speedup is None else b.session(row, [1.0] * 9, eager=[speedup] * 9)
    return {"evaluations": [row], "timings": timings}


@pytest.fixture
def ask(writer: store.Writer, lake_url: str) -> Iterator[Ask]:
    """Return a function that stores rows beside the task and its kernels, and asks a query."""
    writer.append(
        {
            "tasks": [TASK],
            "task_labels": [b.label(TASK)],
            "workloads": [SIZES],
            "devices": [GPU, CPU],
            "kernels": [BOTH, STRICT, WRONG, CHEAT],
        },
        "kernels",
    )

    lakes: list[store.Lake] = []

    def one(query: str, *judged: dict[str, list[b.Row]]) -> list[dict[str, Any]]:
        for number, rows in enumerate(judged):
            writer.append(rows, f"verdict {number}")
        if judged:
            lakes.append(store.open(lake_url))
        return lakes[-1].sql(query).rows()

    yield one
    for lake in lakes:
        lake.close()


def test_torch_default_ranks_and_nothing_of_another_precision_ranks_beside_it(ask: Ask) -> None:
    found = ask(
        'SELECT kernel_id, speedup, "precision" FROM kernel_speedups',
        judge(BOTH, "fp32_strict", 2.0, minute=1),
        judge(BOTH, "torch_default", 1.25, minute=2),
        judge(STRICT, "fp32_strict", 4.0, minute=3),
    )
    ranked = {"kernel_id": BOTH["kernel_id"], "speedup": 1.25, "precision": "torch_default"}
    assert found == [ranked]
    assert ask('SELECT kernel_id, speedup, "precision" FROM best_kernels') == [ranked]
    every = ask('SELECT speedup, "precision" FROM pooled_speedups ORDER BY speedup')
    assert [(row["speedup"], row["precision"]) for row in every] == [
        (1.25, "torch_default"),
        (2.0, "fp32_strict"),
        (4.0, "fp32_strict"),
    ]
    for view in ("leaderboard", "fast_p"):
        columns = 'DISTINCT clock, "precision"'
        assert ask(f"SELECT {columns} FROM {view} WHERE level IS NULL AND policy = 'any'") == [
            {"clock": "gpu", "precision": "torch_default"}
        ]
    assert ask('SELECT speedup, clock, "precision" FROM history') == [
        {"speedup": 1.25, "clock": "gpu", "precision": "torch_default"}
    ]


@pytest.mark.slow
def test_a_leaderboard_has_one_row_by_the_clock_that_ranks_and_another_view_has_all(
    ask: Ask,
) -> None:
    row = b.evaluation(BOTH, TASK, SIZES, GPU, precision="torch_default")
    sessions = [
        timing
        for clock, speedup in (("gpu", 2.0), ("latency", 1.5), ("throughput", 1.25))
        for timing in b.session(row, [1.0] * 9, clock=clock, eager=[speedup] * 9)
    ]
    judged = {"evaluations": [row], "timings": sessions}
    strict = judge(STRICT, "fp32_strict", 4.0, minute=1)
    asked = "n, p50, clock, \"precision\" FROM {} WHERE level IS NULL AND policy = 'any'"
    ranking = {"n": 1, "p50": 2.0, "clock": "gpu", "precision": "torch_default"}
    assert ask(f"SELECT {asked.format('leaderboard')}", judged, strict) == [ranking]
    found = ask(f"SELECT ranks, {asked.format('leaderboard_by_clock')}")
    assert [tuple(one.values()) for one in found] == [
        (False, 1, 4.0, "gpu", "fp32_strict"),
        (True, 1, 2.0, "gpu", "torch_default"),
        (False, 1, 1.5, "latency", "torch_default"),
        (False, 1, 1.25, "throughput", "torch_default"),
    ]


@pytest.mark.slow
def test_where_nothing_was_timed_by_torch_default_fp32_strict_ranks(ask: Ask) -> None:
    found = ask(
        'SELECT speedup, "precision" FROM kernel_speedups',
        judge(BOTH, "allow_tf32", 3.0, minute=1),
        judge(BOTH, "fp32_strict custom_required", 2.0, minute=2),
    )
    assert found == [{"speedup": 2.0, "precision": "fp32_strict"}]


@pytest.mark.slow
def test_a_kernel_may_be_right_by_one_precision_and_wrong_by_another(ask: Ask) -> None:
    found = ask(
        "SELECT kernel_id, status, correct FROM outcomes ORDER BY status",
        judge(WRONG, "fp32_strict", status="incorrect", minute=1),
        judge(WRONG, "torch_default", 1.5, minute=2),
        judge(STRICT, "fp32_strict", status="incorrect", minute=3),
    )
    assert found == [
        {"kernel_id": WRONG["kernel_id"], "status": "correct", "correct": True},
        {"kernel_id": STRICT["kernel_id"], "status": "incorrect", "correct": False},
    ]
    assert [row["kernel_id"] for row in ask("FROM kernel_speedups")] == [WRONG["kernel_id"]]


@pytest.mark.slow
def test_a_cheat_that_one_precision_shows_counts_for_all(ask: Ask) -> None:
    found = ask(
        "SELECT status, correct FROM outcomes",
        judge(CHEAT, "torch_default", 9.0, minute=1),
        judge(CHEAT, "fp32_strict", status="rejected", minute=2),
    )
    assert found == [{"status": "rejected", "correct": False}]
    assert ask("FROM kernel_speedups") == []


@pytest.mark.slow
def test_a_verdict_by_torch_default_counts_for_other_cards_of_the_same_name(
    ask: Ask, writer: store.Writer
) -> None:
    second = b.device("H200", kind="cuda", device_id="f" * 64)
    writer.append({"devices": [second]}, "another card")
    judged = (
        judge(BOTH, "torch_default", 1.25, minute=1),
        judge(BOTH, "fp32_strict", minute=2, device=second, status="incorrect"),
        judge(STRICT, "fp32_strict", 2.0, minute=3, device=second),
    )
    both, strict = BOTH["kernel_id"], STRICT["kernel_id"]
    found = ask("SELECT kernel_id, device_id, correct FROM outcomes", *judged)
    assert sorted(found, key=str) == sorted(
        [
            {"kernel_id": both, "device_id": GPU["device_id"], "correct": True},
            {"kernel_id": strict, "device_id": second["device_id"], "correct": True},
        ],
        key=str,
    )
    rejected = judge(BOTH, "fp32_strict", minute=4, device=second, status="rejected")
    found = ask(f"SELECT device_id, correct FROM outcomes WHERE kernel_id = '{both}'", rejected)
    assert sorted(row["correct"] for row in found) == [False, True]


@pytest.mark.slow
def test_a_newer_version_supersedes_verdicts_by_every_precision(ask: Ask) -> None:
    found = ask(
        "SELECT status, correct FROM outcomes",
        judge(CHEAT, "fp32_strict", status="rejected", version=1, minute=1),
        judge(CHEAT, "torch_default", 2.0, version=2, minute=2),
    )
    assert found == [{"status": "correct", "correct": True}]
    assert [row["speedup"] for row in ask("FROM kernel_speedups")] == [2.0]


@pytest.mark.slow
def test_precisions_do_not_differ_on_a_processor_nor_where_none_is_named(ask: Ask) -> None:
    found = ask(
        'SELECT device, speedup, "precision" FROM kernel_speedups ORDER BY device',
        judge(BOTH, "fp32_strict", 2.0, device=CPU),
        judge(BOTH, None, 3.0),
    )
    assert found == [
        {"device": "H200", "speedup": 3.0, "precision": "torch_default"},
        {"device": "laptop", "speedup": 2.0, "precision": "torch_default"},
    ]


@pytest.mark.slow
def test_a_kernel_that_torch_default_finds_wrong_does_not_rank_by_another_precision(
    ask: Ask,
) -> None:
    found = ask(
        "SELECT n, mean, success, tasks FROM leaderboard WHERE policy = 'any' AND level IS NULL",
        judge(WRONG, "fp32_strict", 5.0, minute=1),
        judge(WRONG, "torch_default", status="incorrect", minute=2),
    )
    assert found == [{"n": 0, "mean": None, "success": 0, "tasks": 1}]
    assert ask("FROM best_kernels") == ask("FROM kernel_speedups") == ask("FROM history") == []
    # Nor does a kernel of the same task that only fp32_strict judged: one task, one precision.
    assert ask("FROM best_kernels", judge(STRICT, "fp32_strict", 4.0, minute=3)) == []
    assert [row["speedup"] for row in ask("FROM pooled_speedups ORDER BY speedup")] == [4.0, 5.0]
    [best] = ask("FROM best_kernels", judge(BOTH, "torch_default", 1.25, minute=4))
    assert (best["speedup"], best["precision"]) == (1.25, "torch_default")


@pytest.mark.slow
def test_a_disturbed_session_does_not_make_way_for_another_precision(ask: Ask) -> None:
    disturbed = judge(BOTH, "torch_default", 2.0, minute=1)
    disturbed["timings"] = [row | {"disturbed": True} for row in disturbed["timings"]]
    assert ask("FROM best_kernels", disturbed, judge(STRICT, "fp32_strict", 4.0, minute=2)) == []


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("precision", ["torch_default_ x", "", "bfloat16", " torch_default"])
def test_a_precision_that_does_not_exist_does_not_rank(ask: Ask, precision: str) -> None:
    assert ask("FROM best_kernels", judge(BOTH, precision, 5.0, minute=1)) == []
    found = ask(
        'SELECT speedup, "precision" FROM best_kernels',
        judge(STRICT, "allow_tf32", 1.5, minute=2),
    )
    assert found == [{"speedup": 1.5, "precision": "allow_tf32"}]
