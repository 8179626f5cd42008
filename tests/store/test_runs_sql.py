"""The queries that docs/runs keeps give numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import builders as b
import pytest

import store

FOLDER = Path(store.__file__).parent.parent / "docs" / "runs"


def test_stages_count_attempts_at_the_test_side_alone(tmp_path: Path) -> None:
    base = b.policy("base", stage="base")
    config = '{"config": {"arm": "bucket", "seed": 1}}'
    last = b.policy("last", stage="contrastive", round=2, config=config)
    tasks = {name: b.task(name) for name in ("A", "B", "seen")}
    sides = {"A": "softmax", "B": "softmax", "seen": "norm"}
    device = b.device()
    tables: dict[str, list[b.Row]] = {
        "policies": [base, last],
        "tasks": list(tasks.values()),
        "task_labels": [
            b.label(task, name, family=sides[name], suite="generated", problem_id=place)
            for place, (name, task) in enumerate(tasks.items())
        ],
        "splits": [
            b.split("softmax", "test", suite="generated"),
            b.split("norm", "train", suite="generated"),
        ],
        "workloads": [b.workload(task) for task in tasks.values()],
        "devices": [device],
        "kernels": [],
        "generations": [b.generation(base, tasks["A"], parse_error="no code")],
        "evaluations": [],
        "timings": [],
    }

    def attempt(task: str, name: str, status: str, speedup: float | None, times: int = 1) -> None:
        kernel = b.kernel(name)
        made = b.evaluation(kernel, tasks[task], b.workload(tasks[task]), device, status)
        tables["kernels"].append(kernel)
        tables["evaluations"].append(made)
        tables["generations"] += [
            b.generation(last, tasks[task], kernel, minute=place) for place in range(times)
        ]
        if speedup is not None:
            tables["timings"] += b.session(made, [1.0] * 6, eager=[speedup] * 6)

    attempt("A", "two", "correct", 2.0, times=3)
    attempt("A", "eight", "correct", 8.0)
    attempt("A", "wrong", "incorrect", None)
    attempt("B", "half", "correct", 0.5)
    attempt("B", "dead", "crash", None)
    attempt("seen", "fast", "correct", 100.0, times=5)
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "two policies")
    with store.open(str(tmp_path / "lake")) as lake:
        first, second = lake.sql((FOLDER / "stages.sql").read_text("utf-8")).rows()
        proof = lake.sql((FOLDER / "loop.sql").read_text("utf-8")).rows()
    assert (first["stages"], first["attempts"], first["with_code"]) == ("base", 1, 0)
    assert (first["executable_rate"], first["success_rate"], first["mean"]) == (0, 0, None)
    assert (second["stages"], second["arm"], second["seed"]) == ("stages 1 + 2 + 3", "bucket", "1")
    assert (second["attempts"], second["executable"], second["success"]) == (7, 6, 5)
    assert (second["unique_kernels"], second["unique_correct"]) == (5, 3)
    assert (second["solved"], second["tasks"], second["n"], second["pending"]) == (2, 2, 2, 0)
    # Wilson at 5 of 7, from the formula.
    assert (second["success_low"], second["success_high"]) == pytest.approx(
        (0.3589, 0.9178), abs=2e-4
    )
    # A: the geometric mean of 2, 2, 2, 8 is 2 ** 1.5; B: 0.5.
    assert second["mean"] == pytest.approx((2**1.5 + 0.5) / 2, abs=1e-3)
    assert second["geomean"] == pytest.approx(2**0.25, abs=1e-3)
    assert (second["median_low"], second["median_high"]) == (0.5, 2.828)
    assert proof == []
