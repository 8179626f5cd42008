"""`store compare`: what A and B measured, paired by task and shape, with an interval over tasks."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import commands
import numpy as np
import pytest

import store
from store.comparison.compare import Comparison, plan_comparison
from store.errors import FlywheelError, UnknownName, UnsafeSQL

ALICE, BOB, EVE = b.policy("alice"), b.policy("bob"), b.policy("eve")
H100, OTHER = b.device("H100", kind="cuda", host="rack-1"), b.device("H200", kind="cuda")
SECOND = b.device("H100", kind="cuda", host="rack-2", device_id="h100-of-rack-2")
TASKS = [b.task(f"task {n}") for n in range(6)]
SIZES = [b.workload(task) for task in TASKS]
SLOW, FAST, LATER, MOVED = (
    [b.kernel(f"{name} {n}") for n in range(6)] for name in ("slow", "fast", "later", "moved")
)
SPEED = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
"""Speedups of alice's kernels. Bob's first ones are 1.2 times as fast, his later ones 1.5 times."""


def judge(
    n: int,
    kernel: b.Row,
    speedup: float | None,
    device: b.Row = H100,
    *,
    latency: float | None = None,
    **options: Any,
) -> dict[str, list[b.Row]]:
    """Return a verdict on a kernel at task n, and a session with this speedup if it is correct.

    latency: the speedup by a second clock.
    """
    failed = {} if speedup else {"status": "incorrect", "reason": "incorrect_numerical"}
    row = b.evaluation(kernel, TASKS[n], SIZES[n], device, evaluator="judge", **failed, **options)
    # The two arms' drift cancels out: their ratio is the same in every block.
    drift = [1.0 + 0.01 * block for block in range(20)]
    eager = [(speedup or 1.0) * ms for ms in drift]
    timings = b.session(row, drift, eager=eager) if speedup else []
    if latency:
        eager = [latency * ms for ms in drift]
        timings += b.session(row, drift, clock="latency", eager=eager)
    return {"evaluations": [row], "timings": timings}


def add(*parts: dict[str, list[b.Row]]) -> dict[str, list[b.Row]]:
    """Return the rows of several parts by table."""
    names = {name for part in parts for name in part}
    return {name: [row for part in parts for row in part.get(name, [])] for name in names}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with two authors, two versions of the judge, two hosts and two devices.

    Bob has no correct kernel for task 4, and only alice tried task 5.
    """
    folder = str(tmp_path_factory.mktemp("compare") / "lake")
    attempts = [
        *(b.generation(ALICE, TASKS[n], SLOW[n]) for n in range(6)),
        *(b.generation(BOB, TASKS[n], FAST[n], minute=1) for n in range(5)),
        *(b.generation(BOB, TASKS[n], LATER[n], minute=2) for n in range(4)),
    ]
    verdicts = [
        *(judge(n, SLOW[n], SPEED[n], latency=1.0 if n < 2 else None) for n in range(6)),
        *(judge(n, FAST[n], SPEED[n] * 1.2 if n < 4 else None) for n in range(5)),
        *(judge(n, LATER[n], SPEED[n] * 1.5, latency=9.0 if n else None) for n in range(4)),
        # One kernel on two hosts or devices, or by an earlier version that let a wrong one pass.
        *(judge(n, MOVED[n], SPEED[n]) for n in range(3)),
        *(judge(n, MOVED[n], SPEED[n] * 1.1, SECOND) for n in range(3)),
        *(judge(n, SLOW[n], SPEED[n] * 2, OTHER) for n in range(1, 4)),
        *(judge(n, FAST[n], SPEED[n], version=0, minute=-9) for n in range(5)),
    ]
    with store.writer(folder, author="tests") as writer:
        writer.append(
            {
                "policies": [ALICE, BOB, EVE],
                "devices": [H100, SECOND, OTHER],
                "tasks": TASKS,
                "task_labels": [
                    b.label(task, f"level{1 + n // 3}/{n}", level=1 + n // 3, problem_id=n)
                    for n, task in enumerate(TASKS)
                ],
                "workloads": SIZES,
                "kernels": [*SLOW, *FAST, *LATER, *MOVED],
                "generations": attempts,
                **add(*verdicts),
            },
            "two authors",
        )
    return folder


@pytest.fixture(scope="module")
def lake(url: str) -> Iterator[store.Lake]:
    """Return a reader of the lake."""
    with store.open(url) as lake:
        yield lake


def test_authors_are_compared_by_the_best_kernel_of_each(lake: store.Lake) -> None:
    found = store.compare(lake, "author", "alice", "bob")
    assert found.ratio == pytest.approx(1.5, rel=1e-3)
    assert found.ratio_low < 1.5 < found.ratio_high
    assert (found.tasks, found.sessions) == (4, {"a": 4, "b": 4})
    assert found.attempts == {"a": 4, "b": 8}
    assert found.left_out == {"no correct kernel of B": 1, "not tried by B": 1}
    assert found.setting == {
        "device": "H100", "baseline": "eager", "clock": "gpu", "precision": "torch_default"
    }  # fmt: skip
    best = {kernel["kernel_id"] for kernel in LATER[:4]}
    assert {*found.pairs["kernel_id_b"].to_pylist()} == best
    # Where bob has no correct kernel, his speedup is 1, and alice's 3.
    assert found.tasks_missing_as_1 == 5
    assert found.ratio_missing_as_1 == pytest.approx((1.5**4 / 3.0) ** (1 / 5), rel=1e-3)
    assert "B / A = 1.500x" in str(found)


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("by", "a", "b", "ratio", "tasks"),
    [
        ("author", "alice", "policy-bob", 1.5, 4),
        ("host", "rack-1", "rack-2", 1.1, 3),
        ("device", "h100", "H200", 2.0, 3),
        ("judge-version", "0", "1", 1.2, 4),
    ],
)
def test_a_known_ratio_is_found_and_swapping_inverts_it(
    by: Any, a: str, b: str, ratio: float, tasks: int, lake: store.Lake
) -> None:
    found, swapped = store.compare(lake, by, a, b), store.compare(lake, by, b, a)
    assert found.ratio == pytest.approx(ratio, rel=1e-3)
    assert found.tasks == tasks
    for here, there in (
        (found.ratio, swapped.ratio),
        (found.ratio_low, swapped.ratio_high),
        (found.ratio_high, swapped.ratio_low),
        (found.ratio_missing_as_1 or 1.0, swapped.ratio_missing_as_1 or 1.0),
    ):
        assert here == pytest.approx(1 / there)
    assert found.sessions == {"a": swapped.sessions["b"], "b": swapped.sessions["a"]}
    assert found.resolved == pytest.approx(swapped.resolved)


def test_a_kernel_that_a_version_finds_wrong_is_left_out(lake: store.Lake) -> None:
    found = store.compare(lake, "judge-version", "0", "1")
    assert found.judge_versions == {"a": [0], "b": [1]}
    assert found.left_out == {"no correct kernel of B": 1, "not judged by A": 1}
    assert found.ratio_missing_as_1 is None


def test_first_attempts_are_compared_at_equal_numbers(lake: store.Lake) -> None:
    found = store.compare(lake, "author", "alice", "bob", attempts=1)
    assert found.ratio == pytest.approx(1.2, rel=1e-3)
    assert found.attempts == {"a": 4, "b": 4}
    with pytest.raises(FlywheelError, match="no task in common"):
        store.compare(lake, "author", "alice", "bob", attempts=2)


def test_clocks_are_never_mixed(lake: store.Lake) -> None:
    """Of the two clocks, the one of more tasks is compared, and a condition chooses the other."""
    found = store.compare(lake, "author", "alice", "bob")
    assert {*found.pairs["clock"].to_pylist()} == {"gpu"}
    assert [(one["clock"], one["tasks"]) for one in found.other_settings] == [("latency", 1)]
    other = store.compare(lake, "author", "alice", "bob", where="clock = 'latency'")
    assert (other.tasks, other.setting["clock"]) == (1, "latency")
    assert other.ratio == pytest.approx(9.0, rel=1e-3)


def test_a_condition_chooses_pairs(lake: store.Lake) -> None:
    found = store.compare(lake, "author", "alice", "bob", where='"level" = 1')
    assert found.tasks == 3
    assert found.left_out["left out by --where, or another setting"] == 1
    for where, error in (
        ("no_column = 1", FlywheelError),
        ("1 = (SELECT count(*) FROM read_csv('/etc/passwd'))", UnsafeSQL),
        ("true) UNION (SELECT 1", FlywheelError),
    ):
        with pytest.raises(error):
            store.compare(lake, "author", "alice", "bob", where=where)


def test_refusals_say_what_to_do(lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match='Did you mean "alice"'):
        store.compare(lake, "author", "alise", "bob")
    with pytest.raises(UnknownName, match="no judge version"):
        store.compare(lake, "judge-version", "0", "thirteen")
    with pytest.raises(FlywheelError, match="the same author"):
        store.compare(lake, "author", "alice", "policy-alice")
    with pytest.raises(FlywheelError, match="6 not tried by B"):
        store.compare(lake, "author", "alice", "eve")
    with pytest.raises(FlywheelError, match="makes no attempts"):
        store.compare(lake, "host", "rack-1", "rack-2", attempts=3)
    with pytest.raises(FlywheelError, match="not between 0 and 1"):
        store.compare(lake, "host", "rack-1", "rack-2", resolution=5)


def test_one_task_has_the_interval_of_its_sessions(lake: store.Lake) -> None:
    found = store.compare(lake, "author", "alice", "bob", where="task = 'level1/0'")
    [pair] = found.pairs.to_pylist()
    assert (found.tasks, found.more_tasks) == (1, None)
    assert found.ratio_low == pytest.approx(pair["ratio_low"], rel=1e-3)
    assert found.more_sessions is not None


@pytest.mark.slow
def test_more_sessions_make_the_interval_narrower(
    url: str, lake: store.Lake, tmp_path: Path
) -> None:
    def width(found: Comparison) -> float:
        return math.log(found.ratio_high / found.ratio_low)

    copy = str(shutil.copytree(url, tmp_path / "lake"))
    with store.writer(copy, author="tests") as writer:
        again = [judge(n, SLOW[n], SPEED[n], minute=50) for n in range(4)]
        again += [judge(n, LATER[n], SPEED[n] * 1.5, minute=50) for n in range(4)]
        writer.append(add(*again), "sessions")
        with writer.reader() as longer:
            after = store.compare(longer, "author", "alice", "bob")
    before = store.compare(lake, "author", "alice", "bob")
    assert after.sessions == {"a": 8, "b": 8}
    assert width(after) < width(before)


def run_compare(url: str, *options: str) -> str:
    words = ["store", "--lake", url, "compare", "--by", "author", "alice", "bob", *options]
    return commands.run(words, cwd=".").stdout


def test_the_formats_of_the_command(url: str) -> None:
    shown = run_compare(url, "--resolution", "5%")
    assert "same on both sides: device H100" in shown
    assert "tasks left out: 1 no correct kernel of B, 1 not tried by B" in shown
    whole = json.loads(run_compare(url, "--format", "json"))
    assert len(whole["pairs"]) == whole["tasks"] == 4
    assert {row["task"] for row in whole["left_out_tasks"]} == {"level2/4", "level2/5"}


@pytest.mark.slow
def test_csv_has_the_pairs(url: str) -> None:
    whole = json.loads(run_compare(url, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(run_compare(url, "--format", "csv"))))
    assert [row["task"] for row in rows] == [row["task"] for row in whole["pairs"]]


@pytest.mark.parametrize("tasks", [3, 12])
def test_intervals_cover_and_the_plan_keeps_its_word(tasks: int) -> None:
    """Over 4,000 simulated comparisons: 95 % cover the truth, and the planned size finds it."""
    generator = np.random.default_rng(tasks)
    true, between, within = 0.05, 0.06, 0.03

    def cover(n: int, truth: float) -> tuple[float, float, list[int]]:
        means = generator.normal(truth, math.hypot(between, within), (4000, n))
        covered = found = 0
        more: list[int] = []
        for row in means:
            plan = plan_comparison(
                tasks=n,
                between=float(row.var(ddof=1)),
                within=within**2,
                sessions=2 * n,
                resolution=math.expm1(true),
            )
            reach = plan.quantile * plan.error
            covered += abs(row.mean() - truth) <= reach
            found += abs(row.mean()) > reach
            more.append(plan.more_tasks or 0)
        return covered / len(means), found / len(means), more

    covered, _, more = cover(tasks, 0.0)
    assert 0.94 < covered < 0.985
    known = plan_comparison(
        tasks=tasks,
        between=between**2 + within**2,
        within=within**2,
        sessions=2 * tasks,
        resolution=math.expm1(true),
    )
    assert known.more_tasks is not None
    assert 0.77 < cover(tasks + known.more_tasks, true)[1] < 0.84
    assert np.median(more) == pytest.approx(known.more_tasks, abs=12)
