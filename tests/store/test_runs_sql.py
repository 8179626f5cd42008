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


def test_arms_are_compared_where_both_have_a_speed_with_and_without_copies(tmp_path: Path) -> None:
    policy, device = b.policy("last", stage="contrastive"), b.device()
    tasks = [b.task(name) for name in ("A", "B", "C")]
    runs = {
        arm: b.run(
            *("contrastive", "training"),
            run_id=arm,
            config=f'{{"config": {{"arm": "{arm}", "seed": 3}}}}',
        )
        for arm in ("bucket", "none")
    }
    tables: dict[str, list[b.Row]] = {
        "policies": [policy],
        "tasks": tasks,
        "task_labels": [b.label(task, task["task_id"][:5], suite="generated") for task in tasks],
        "workloads": [b.workload(task) for task in tasks],
        "devices": [device],
        "runs": list(runs.values()),
        "kernels": [],
        "generations": [],
        "evaluations": [],
        "timings": [],
    }

    def add_kernel(task: int, name: str, speedup: float) -> b.Row:
        kernel = b.kernel(name)
        made = b.evaluation(kernel, tasks[task], b.workload(tasks[task]), device)
        tables["kernels"].append(kernel)
        tables["evaluations"].append(made)
        tables["timings"] += b.session(made, [1.0] * 6, eager=[speedup] * 6)
        return kernel

    def add_answer(arm: str, task: int, kernel: b.Row, shown: b.Row | None = None) -> None:
        tables["generations"].append(
            b.generation(
                policy,
                tasks[task],
                kernel,
                exemplars=None if shown is None else [(shown, 8.0)],
                run_id=runs[arm]["run_id"],
                minute=len(tables["generations"]),
            )
        )

    teacher = add_kernel(0, "teacher", 8.0)
    add_answer("bucket", 0, teacher, teacher)
    add_answer("bucket", 0, add_kernel(0, "own", 2.0), teacher)
    add_answer("none", 0, add_kernel(0, "plain", 0.5))
    add_answer("bucket", 1, add_kernel(1, "slow", 0.5))
    add_answer("none", 1, add_kernel(1, "same", 2.0))
    add_answer("none", 2, add_kernel(2, "alone", 100.0))
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "two arms")
    with store.open(str(tmp_path / "lake")) as lake:
        rows = lake.sql((FOLDER / "arms.sql").read_text("utf-8")).rows()
    found = [
        (row["with_copies"], row["tasks"], row["geomean"], row["other_geomean"], row["faster"])
        for row in rows
    ]
    # sqrt(8 * 0.5) and sqrt(0.5 * 2); without the copy sqrt(2 * 0.5).
    assert found == [(True, 2, 2.0, 1.0, 1), (False, 2, 1.0, 1.0, 1)]
    assert {(row["arm"], row["other"], row["seed"]) for row in rows} == {("bucket", "none", "3")}
    assert [row["slower"] for row in rows] == [1, 1]


def test_training_curves_are_means_over_the_seeds_of_an_arm(tmp_path: Path) -> None:
    policy, task, kernel = b.policy("last", stage="contrastive"), b.task(), b.kernel()
    shared = b.run("contrastive", "training", run_id="elsewhere")
    tables: dict[str, list[b.Row]] = {
        "policies": [policy], "tasks": [task], "kernels": [kernel], "runs": [shared],
        "generations": [b.generation(policy, task, kernel, run_id="elsewhere", step=0)],
        "devices": [b.device(), b.device("other")], "workloads": [b.workload(task)],
        "rewards": [], "metrics": [],
    }  # fmt: skip
    tables["evaluations"] = [
        b.evaluation(kernel, task, b.workload(task), device) for device in tables["devices"]
    ]
    for place, (arm, seed, reward) in enumerate(
        [("none", 0, 1.0), ("none", 1, 2.0), ("bucket", 0, 4.0)]
    ):
        run_id = f"{arm}-{seed}"
        tables["runs"].append(b.run("contrastive", "training", run_id=run_id))
        for step in (0, 1):
            made = b.generation(
                policy, task, kernel, minute=1 + 2 * place + step,
                run_id=run_id, step=step, namespace=f"stage3/{arm}/{seed}",
            )  # fmt: skip
            tables["generations"].append(made)
            tables["rewards"].append(
                {
                    "run_id": run_id,
                    "generation_id": made["generation_id"],
                    "rule": "milestone",
                    "rule_version": 1,
                    "step": step,
                    "raw": reward + step,
                    "created_at": b.at(60),
                }
            )
        tables["metrics"].append(
            {
                "run_id": run_id,
                "name": "entropy",
                "step": 1,
                "value": reward / 10,
                "created_at": b.at(60),
            }
        )
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "three trainings")
    with store.open(str(tmp_path / "lake")) as lake:
        rows = lake.sql((FOLDER / "training_curves.sql").read_text("utf-8")).rows()
    assert [(row["arm"], row["step"]) for row in rows] == [
        ("bucket", 0), ("none", 0), ("bucket", 1), ("none", 1),
    ]  # fmt: skip
    _, first, _, second = rows
    assert (first["trainings"], first["answers"], first["kernels"]) == (2, 2, 2)
    assert (first["reward"], first["reward_least"], first["reward_greatest"]) == (1.5, 1.0, 2.0)
    assert (first["entropy"], first["entropy_least"], first["entropy_greatest"]) == (0.15, 0.1, 0.2)
    assert (second["reward"], second["entropy"]) == (2.5, None)


def test_answers_of_trained_models_are_a_part_of_their_own(tmp_path: Path) -> None:
    policy, task, device = b.policy("last", stage="contrastive"), b.task(), b.device()
    fast, slow = (b.kernel(code=f"TILE = {tile}\nWARPS = 4  # warps\n") for tile in (64, 8))
    spaces = {
        "arms/none/0/abc": [slow],
        "trained-none/none/0/abc": [fast, slow],
        "trained-top/top/0/abc": [slow],
        "stage3/none/0": [fast],
    }
    tables: dict[str, list[b.Row]] = {
        "policies": [policy], "tasks": [task], "kernels": [fast, slow], "devices": [device],
        "task_labels": [b.label(task, family="tuned_rows:held-out", suite="generated")],
        "workloads": [b.workload(task)], "evaluations": [], "timings": [], "generations": [],
    }  # fmt: skip
    for kernel, speedup in ((fast, 4.0), (slow, 2.0)):
        made = b.evaluation(kernel, task, b.workload(task), device)
        tables["evaluations"].append(made)
        tables["timings"] += b.session(made, [1.0] * 6, eager=[speedup] * 6)
    for name, kernels in spaces.items():
        for kernel in kernels:
            minute = len(tables["generations"])
            tables["generations"].append(
                b.generation(policy, task, kernel, minute=minute, step=1, namespace=name)
            )
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "a search and the answers of a trained model")
    with store.open(str(tmp_path / "lake")) as lake:
        bests, singles, settings = (
            {
                (row["part"], row["arm"]): row
                for row in lake.sql((FOLDER / f"{name}.sql").read_text("utf-8")).rows()
            }
            for name in ("by_task", "rounds", "settings")
        )
    none, top, search = ("stage 3", "none"), ("stage 3", "top"), ("search", "none")
    assert {arm: row["geomean"] for arm, row in bests.items()} == {
        none: 4.0, top: 2.0, search: 2.0
    }  # fmt: skip
    assert {arm: (row["attempts"], row["near_best"]) for arm, row in singles.items()} == {
        none: (2, 0.5), top: (1, 0.0), search: (1, 0.0),
    }  # fmt: skip
    slowest = ("tuned_rows", 1, "TILE = 8, WARPS = 4", 1.0, 2.0)
    names = ("family", "settings", "most_frequent", "share", "geomean")
    assert {arm: tuple(row[name] for name in names) for arm, row in settings.items()} == {
        none: ("tuned_rows", 2, "TILE = 8, WARPS = 4", 0.5, 2.0), top: slowest, search: slowest,
    }  # fmt: skip


def test_answers_of_a_training_count_by_the_protocol_that_judged_them(tmp_path: Path) -> None:
    policy, task, device, workload = b.policy(), b.task(), b.device(), b.workload(b.task())
    fast, slow, wrong = b.kernel("fast"), b.kernel("slow"), b.kernel("wrong")
    verdicts = [
        b.evaluation(slow, task, workload, device),
        b.evaluation(fast, task, workload, device, protocol="training"),
        b.evaluation(wrong, task, workload, device, "incorrect", protocol="training"),
    ]
    spaces = {"none": [slow, wrong], "bucket": [fast, slow]}
    generations = [
        b.generation(
            policy, task, kernel, minute=len(arm) + place, step=0, namespace=f"stage3/{arm}/0",
            exemplars=[(slow, 2.0)] if arm == "bucket" else None,
        )
        for arm, kernels in spaces.items()
        for place, kernel in enumerate(kernels)
    ]  # fmt: skip
    tables: dict[str, list[b.Row]] = {
        "policies": [policy], "tasks": [task], "devices": [device], "workloads": [workload],
        "task_labels": [b.label(task, family="tuned_rows", suite="generated")],
        "splits": [b.split("tuned_rows", "train", suite="generated")],
        "kernels": [fast, slow, wrong], "generations": generations, "evaluations": verdicts,
        "timings": b.session(verdicts[0], [1.0] * 6, eager=[2.0] * 6)
        + b.session(verdicts[1], [1.0] * 6, eager=[4.0] * 6),
    }  # fmt: skip
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "a training")
    with store.open(str(tmp_path / "lake")) as lake:
        (bucket, none), counts = (
            lake.sql((FOLDER / f"{name}.sql").read_text("utf-8")).rows()
            for name in ("training_answers", "search_arms")
        )
    assert (bucket["arm"], bucket["prompts"], bucket["answers"]) == ("bucket", 1, 2)
    # The geometric means of 4 and 2, and of 2 and, for the wrong one, 1.
    assert (bucket["geomean"], none["geomean"]) == (2.8284, 1.4142)
    assert (bucket["ratio"], bucket["low"], bucket["high"]) == (2.0, 2.0, 2.0)
    assert (bucket["best_shown"], bucket["beats_shown"]) == (2.0, 0.5)
    assert (none["ratio"], none["best_shown"], none["beats_shown"]) == (None, None, None)
    assert {row["arm"]: (row["correct"], row["fast_1"]) for row in counts} == {
        "bucket": (1.0, 1.0), "none": (0.5, 1.0),
    }  # fmt: skip


def test_a_copy_of_a_kernel_is_one_whatever_its_path(tmp_path: Path) -> None:
    policy, task, device, workload = b.policy(), b.task(), b.device(), b.workload(b.task())
    teacher, other = b.kernel("slow", path="tuned_rows/x.py"), b.kernel("other")
    copy, fast = b.kernel("slow"), b.kernel("fast")
    run = b.run("contrastive", "training", config='{"config": {"arm": "bucket", "seed": 0}}')
    place = {"run_id": run["run_id"], "step": 0, "namespace": "stage3/bucket/0"}
    answered = [copy, fast]
    verdicts = [b.evaluation(kernel, task, workload, device) for kernel in answered]
    none = b.run("contrastive", "none", config='{"config": {"arm": "none", "seed": 0}}')
    tables: dict[str, list[b.Row]] = {
        "policies": [policy], "tasks": [task], "devices": [device], "workloads": [workload],
        "task_labels": [b.label(task, family="tuned_rows", suite="generated")],
        "splits": [b.split("tuned_rows", "train", suite="generated")],
        "kernels": [teacher, other, copy, fast], "evaluations": verdicts,
        "runs": [run, none | {"kind": "training"}],
        "generations": [
            b.generation(
                policy, task, kernel, minute=at, exemplars=[(teacher, 4.0), (other, 1.5)], **place
            )
            for at, kernel in enumerate(answered)
        ]
        + [b.generation(policy, task, fast, minute=9, run_id=none["run_id"], step=0)],
        "timings": [
            row
            for verdict, speedup in zip(verdicts, (4.0, 2.0), strict=True)
            for row in b.session(verdict, [1.0] * 7, eager=[speedup] * 7)
        ],
    }  # fmt: skip
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "a training")
    with store.open(str(tmp_path / "lake")) as lake:
        counts, steps, arms = (
            lake.sql((FOLDER / f"{name}.sql").read_text("utf-8")).rows()
            for name in ("search_arms", "steps", "arms")
        )
    assert [row["copies"] for row in counts] == [0.5]
    assert {row["arm"]: row["copies"] for row in steps} == {"bucket": 1, "none": 0}
    assert {row["with_copies"]: row["geomean"] for row in arms} == {True: 4.0, False: 2.0}
