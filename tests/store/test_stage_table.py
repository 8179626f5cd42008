"""A policy that writes no kernel at all stands in the tables beside those that do."""

from __future__ import annotations

from pathlib import Path

import builders as b

import store


def test_a_base_model_without_any_kernel_is_a_row_with_no_success(tmp_path: Path) -> None:
    base, sft = b.policy("base", stage="base"), b.policy("sft", stage="sft", round=1)
    tasks = [b.task("A"), b.task("B")]
    kernel, device = b.kernel("square"), b.device()
    sizes = b.workload(tasks[0])
    made = b.evaluation(kernel, tasks[0], sizes, device, "correct")
    tables = {
        "policies": [base, sft],
        "tasks": tasks,
        "task_labels": [
            b.label(task, f"board/{place}", problem_id=place, suite="board")
            for place, task in enumerate(tasks)
        ],
        "workloads": [sizes],
        "kernels": [kernel],
        "devices": [device],
        "generations": [
            *(b.generation(base, task, parse_error="no code") for task in tasks),
            b.generation(sft, tasks[0], kernel),
            b.generation(sft, tasks[1], parse_error="no code"),
        ],
        "evaluations": [made],
        "timings": b.session(made, [1.0] * 6, eager=[2.0] * 6),
    }
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "a base model that gives no code")
    with store.open(str(tmp_path / "lake")) as lake:
        rows = lake.sql(
            "SELECT stages, device, success, tasks, pending, n, mean_missing_as_1 "
            "FROM stage_table WHERE level IS NULL"
        ).rows()
    same = {"device": device["name"], "tasks": 2, "pending": 0}
    assert rows == [
        {"stages": "base", "success": 0, "n": 0, "mean_missing_as_1": 1.0} | same,
        {"stages": "stage 1", "success": 1, "n": 1, "mean_missing_as_1": 1.5} | same,
    ]
