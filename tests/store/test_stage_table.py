"""Stages are named by what happened to a policy; one that writes no kernel is a row too."""

from __future__ import annotations

from pathlib import Path

import builders as b
import commands
import pytest

import store


@pytest.mark.slow
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
            "SELECT stages, device, success, tasks, pending, n, mean_missing_as_1, common "
            "FROM stage_table WHERE level IS NULL"
        ).rows()
    # No task has a speedup of both authors.
    same = {"device": device["name"], "tasks": 2, "pending": 0, "common": 0}
    assert rows == [
        {"stages": "base", "success": 0, "n": 0, "mean_missing_as_1": 1.0} | same,
        {"stages": "sft", "success": 1, "n": 1, "mean_missing_as_1": 1.5} | same,
    ]


def stages_of(folder: Path, policies: list[b.Row]) -> list[tuple[str, str]]:
    """Return (policy, stages) of the table, where each policy has failed at the same task."""
    task, kernel, device = b.task("A"), b.kernel("square"), b.device()
    made = b.evaluation(kernel, task, b.workload(task), device, "correct")
    tables = {
        "policies": policies,
        "tasks": [task],
        "task_labels": [b.label(task, "board/1", problem_id=1, suite="board")],
        "workloads": [b.workload(task)],
        "kernels": [kernel],
        "devices": [device],
        "generations": [b.generation(one, task, parse_error="no code") for one in policies],
        "evaluations": [made],
        "timings": b.session(made, [1.0] * 6, eager=[2.0] * 6),
    }
    with store.writer(str(folder / "lake"), author="tests") as writer:
        writer.append(tables, "policies")
    with store.open(str(folder / "lake")) as lake:
        rows = lake.sql(
            "SELECT policy, stages FROM stage_table WHERE level IS NULL AND policy <> 'any'"
        ).rows()
    return [(row["policy"], row["stages"]) for row in rows]


def make_policy(
    name: str, stage: str | None, parent: b.Row | None = None, **columns: object
) -> b.Row:
    identity = None if parent is None else parent["policy_id"]
    return b.policy(name, stage=stage, parent_policy_id=identity, **columns)


@pytest.mark.slow
def test_stages_are_the_methods_that_a_policy_was_trained_by(tmp_path: Path) -> None:
    base = make_policy("base", "base")
    sft = make_policy("sft", "sft", base)
    rounds = [make_policy("round 1", "self-supervised", sft, round=1)]
    rounds += [make_policy("round 2", "self-supervised", rounds[0], round=2)]
    full = make_policy("full", "contrastive", rounds[1])
    direct = make_policy("direct", "contrastive", base)
    again = make_policy("again", "sft", full)
    mystery = make_policy("mystery", None)
    grown = make_policy("grown", "sft", mystery)
    released = b.policy("released", kind="released", stage="contrastive")
    tuned = make_policy("tuned", "sft", released)
    policies = [base, sft, *rounds, full, direct, again, mystery, grown, released, tuned]
    found = stages_of(tmp_path, policies)
    assert dict(found) == {
        "base": "base",
        "sft": "sft",
        "round 1": "sft + self-supervised",
        "round 2": "sft + self-supervised",
        "full": "sft + self-supervised + contrastive",
        "direct": "contrastive",
        "again": "sft + self-supervised + contrastive + sft",
        "grown": "unknown + sft",
        "released": "imported: contrastive",
        "tuned": "imported: contrastive + sft",
    }
    assert len(found) == 10
    assert found[0] == ("base", "base")


@pytest.mark.slow
def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    # Rows of others may say anything.
    one = b.policy("one", stage="sft", parent_policy_id="policy-two")
    two = b.policy("two", stage="contrastive", parent_policy_id="policy-one")
    itself = b.policy("itself", stage="sft", parent_policy_id="policy-itself")
    assert dict(stages_of(tmp_path, [one, two, itself])) == {
        "one": "contrastive + sft",
        "two": "sft + contrastive",
        "itself": "sft",
    }


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("kind", ["endpoint", "model"])
def test_a_policy_without_a_stage_has_no_row(kind: str, tmp_path: Path) -> None:
    assert stages_of(tmp_path, [b.policy("served", kind=kind)]) == []


@pytest.mark.slow
def test_the_terminal_says_that_rows_compare_different_tasks(tmp_path: Path) -> None:
    base = make_policy("base", "base")
    sft = make_policy("sft", "sft", base)
    tasks, device = [b.task(name) for name in "ABC"], b.device()
    tables: dict[str, list[b.Row]] = {
        "policies": [base, sft], "tasks": tasks, "devices": [device],
        "task_labels": [
            b.label(task, f"board/{place}", problem_id=place, suite="board")
            for place, task in enumerate(tasks)
        ],
        "workloads": [b.workload(task) for task in tasks],
    }  # fmt: skip
    for policy, solved in ((base, tasks[:2]), (sft, tasks[1:])):
        for task in solved:
            kernel = b.kernel(f"{policy['name']} {task['task_id'][:6]}")
            made = b.evaluation(kernel, task, b.workload(task), device)
            tables.setdefault("kernels", []).append(kernel)
            tables.setdefault("generations", []).append(b.generation(policy, task, kernel))
            tables.setdefault("evaluations", []).append(made)
            arms = b.session(made, [1.0] * 7, eager=[2.0] * 7)
            tables.setdefault("timings", []).extend(arms)
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "two policies with one task in common")
    sql = "SELECT policy, n, common FROM stage_table WHERE level IS NULL AND policy <> 'any'"
    words = ["store", "query", sql, "--lake", str(tmp_path / "lake"), "--format", "csv"]
    ended = commands.run(words, cwd=tmp_path)
    assert ended.stdout.splitlines() == ["policy,n,common", "base,2,1", "sft,2,1"]
    assert "2 rows have figures over more tasks (n) than all rows have in common" in ended.stderr
