"""The view search_curves and its exhibit: best speedups so far, with numbers worked out by hand."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from store.explore.report import build_report

LAPTOP, POLICY, RUN = b.device("laptop"), b.policy("learner"), b.run("search", "rollout")
TASKS = [b.task("one"), b.task("two")]
KERNELS: dict[float, b.Row] = {speed: b.kernel(f"{speed}x") for speed in (0.5, 2.0, 3.0, 8.0)}
ATTEMPTS: list[tuple[str, int, int, float | None]] = [
    # namespace, task, round, speedup of the kernel (None: no kernel)
    ("s/bucket/4", 0, 1, 2.0),
    ("s/bucket/4", 0, 1, 0.5),
    ("s/bucket/4", 0, 2, 8.0),
    ("s/bucket/4", 1, 1, None),
    ("s/bucket/4", 1, 1, 0.5),
    ("s/bucket/4", 1, 2, 3.0),
    ("s/none/4/0123456789ab", 0, 1, None),
    ("s/none/4/0123456789ab", 1, 1, None),
]


@pytest.fixture(scope="module")
def lake(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with two arms: one that finds kernels, and one that writes none."""
    tables: dict[str, list[dict[str, Any]]] = {
        "devices": [LAPTOP],
        "policies": [POLICY],
        "runs": [RUN],
        "tasks": TASKS,
        "task_labels": [b.label(task, f"t{place}") for place, task in enumerate(TASKS)],
        "workloads": [b.workload(task) for task in TASKS],
        "kernels": list(KERNELS.values()),
        "generations": [],
        "evaluations": [],
        "timings": [],
        "metrics": [
            {"run_id": RUN["run_id"], "name": "search/seconds", "step": step, "value": seconds,
             "created_at": b.START}
            for step, seconds in ((1, 10.0), (2, 30.0))
        ],
    }  # fmt: skip
    timed = set[tuple[int, float]]()
    for minute, (namespace, task, step, speed) in enumerate(ATTEMPTS):
        tables["generations"].append(
            b.generation(
                POLICY, TASKS[task], None if speed is None else KERNELS[speed], minute=minute,
                namespace=namespace, step=step, run_id=RUN["run_id"],
            )
        )  # fmt: skip
        if speed is None or (task, speed) in timed:
            continue
        timed.add((task, speed))
        verdict = b.evaluation(KERNELS[speed], TASKS[task], b.workload(TASKS[task]), LAPTOP)
        tables["evaluations"].append(verdict)
        tables["timings"] += b.session(verdict, [1.0] * 7, eager=[speed] * 7, compile=[2.0] * 7)
    failed = b.generation(
        POLICY, TASKS[0], None, minute=99, namespace="s/bucket/4", step=2, finish_reason="error"
    )
    tables["generations"].append(failed)
    url = tmp_path_factory.mktemp("curves") / "lake"
    shutil.copytree(empty_lake, url)
    with store.writer(str(url), author="tests") as writer:
        writer.append(tables, "rows")
    with store.open(str(url)) as opened:
        yield opened


def curve(lake: store.Lake, baseline: str, arm: str) -> list[dict[str, Any]]:
    return lake.run(
        "FROM search_curves WHERE baseline = $1 AND arm = $2 ORDER BY attempt", [baseline, arm]
    ).rows()


def test_the_best_so_far_is_averaged_over_all_tasks(lake: store.Lake) -> None:
    rows = curve(lake, "eager", "bucket")
    assert [row["attempt"] for row in rows] == [1, 2, 3]
    # Slower than eager and unsolved both count as 1.
    expected = [math.sqrt(2.0), math.sqrt(2.0), math.sqrt(8.0 * 3.0)]
    assert [row["geomean"] for row in rows] == pytest.approx(expected)
    assert [row["solved"] for row in rows] == [1, 2, 2]
    assert [row["faster"] for row in rows] == [1, 1, 2]
    assert {(row["tasks"], row["seed"], row["policy"]) for row in rows} == {(2, 4, "learner")}
    assert [(row["round"], row["seconds"]) for row in rows] == [(1, 10.0), (1, 10.0), (2, 40.0)]
    # Logarithms ln 8 and ln 3: the standard error over two tasks is half of their difference.
    half = 1.96 * (math.log(8) - math.log(3)) / 2
    last = rows[-1]
    assert last["low"] == pytest.approx(last["geomean"] / math.exp(half))
    assert last["high"] == pytest.approx(last["geomean"] * math.exp(half))


def test_an_arm_that_solves_nothing_has_a_curve_at_one(lake: store.Lake) -> None:
    [row] = curve(lake, "eager", "none")
    assert (row["geomean"], row["solved"], row["attempt"]) == (1.0, 0, 1)


def test_the_best_baseline_is_the_fastest_of_the_session(lake: store.Lake) -> None:
    # compile takes 2 ms, so 8x over eager is 2x over the best baseline, and 3x as well.
    assert curve(lake, "best", "bucket")[-1]["geomean"] == pytest.approx(2.0)


@pytest.mark.slow
def test_the_report_draws_the_arms(lake: store.Lake) -> None:
    [answer] = [one for one in build_report(lake).answers if one.title == "Search"]
    assert answer.sentence.startswith("In search s, variant bucket reaches ")
    assert "bucket" in answer.svg
    assert {row["arm"] for row in answer.rows} == {"bucket", "none"}
