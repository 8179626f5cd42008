"""The queries that docs/runs keeps give numbers worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import builders as b
import paired_tasks
import pytest

import store

FOLDER = Path(store.__file__).parent.parent / "docs" / "runs"


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_copy_of_a_kernel_is_one_whatever_its_path(tmp_path: Path) -> None:
    policy, task, device, workload = b.policy(), b.task(), b.device(), b.workload(b.task())
    teacher, other = b.kernel("slow", path="tuned_rows/x.py"), b.kernel("other")
    copy, fast = b.kernel("slow"), b.kernel("fast")
    run = b.run("contrastive", "training", config='{"config": {"arm": "bucket", "seed": 0}}')
    place: b.Row = {"run_id": run["run_id"], "step": 0, "namespace": "stage3/bucket/0"}
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


@pytest.mark.slow
def test_a_search_shows_what_its_supervised_rows_and_prompts_explain(tmp_path: Path) -> None:
    """Two constants make a setting; kernels (1, 1), (1, 2) and (2, 2) have speedups."""
    policy, device = b.policy(), b.device()
    names = {"trained": "Rows: root, sum", "one": "Rows: root, sum", "two": "Rows: ReLU, sum"}
    tasks = {name: b.task(name) for name in names}
    places = {
        name: b.workload(task, "cuda", '{"COLS": 8, "ROWS": 4}') for name, task in tasks.items()
    }
    settings = {
        (one, other): b.kernel(
            code=f"import triton\nA = {one}  # 1, 2\nB = {other}  # 1, 2\n    v = v * {one}\n"
        )
        for one, other in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3))
    }
    run = b.run("sft", "pipeline")
    rows = b.dataset(run, "sft-rows", pipeline="sft", rows=5)
    taught = [[(1, 1)], [(1, 2)], [(2, 1)], [(1, 1), (2, 1), (2, 2)], [(2, 1), (1, 1), (1, 2)]]
    speeds = {
        "trained": {(1, 1): 1.0, (1, 2): 2.0, (2, 2): 4.0},
        "one": {(1, 1): 0.5, (1, 2): 2.0, (2, 2): 4.0},
        "two": {},
    }
    verdicts = {
        (name, setting): b.evaluation(settings[setting], tasks[name], places[name], device)
        for name, judged in speeds.items()
        for setting in judged
    }
    prompts = {
        text: {
            "prompt_id": store.ids.compute_row_id("text", None, [f'[{{"content": "{text}"}}]']),
            "messages": f'[{{"content": "{text}"}}]', "created_at": b.at(0),
        }
        for text in ("bare", "right", "swapped", "other")
    }  # fmt: skip
    right = [(settings[1, 2], 2.0), (settings[2, 2], 6.0)]
    swapped = [(settings[1, 2], 6.0), (settings[2, 2], 2.0)]
    other = [(settings[1, 1], 2.0), (settings[2, 1], 2.0)]
    answers = [
        ("none", 0, "one", (1, 2), "bare", None, None),
        ("none", 1, "one", (1, 1), "bare", None, None),
        ("none", 0, "two", (3, 3), "bare", None, None),
        ("bucket", 0, "one", (2, 2), "right", right, (2, 2)),
        ("bucket", 1, "one", (2, 2), "right", right, (1, 2)),
        ("bucket", 0, "two", (3, 3), "other", other, None),
        ("shuffled", 0, "one", (1, 2), "swapped", swapped, (1, 2)),
        ("shuffled", 1, "one", (2, 2), "right", right, (2, 2)),
    ]
    generations = [
        b.generation(
            policy, tasks[name], settings[setting], minute=minute, step=1,
            namespace=f"arms/{arm}/{seed}/abc", prompt_id=prompts[prompt]["prompt_id"],
            exemplars=exemplars,
        )
        for minute, (arm, seed, name, setting, prompt, exemplars, _) in enumerate(answers)
    ]  # fmt: skip
    tables: dict[str, list[b.Row]] = {
        "policies": [policy], "tasks": list(tasks.values()), "devices": [device],
        "workloads": list(places.values()), "kernels": list(settings.values()),
        "task_labels": [
            b.label(
                tasks[name], f"tuned/{place}", title=title, suite="generated", problem_id=place,
                family="tuned_rows" if name == "trained" else "tuned_rows:held-out",
            )
            for place, (name, title) in enumerate(names.items())
        ],
        "splits": [
            b.split("tuned_rows", "train", suite="generated"),
            b.split("tuned_rows:held-out", "test", suite="generated"),
        ],
        "runs": [run], "datasets": [rows], "prompts": list(prompts.values()),
        "dataset_rows": [
            b.dataset_row(rows, tasks["trained"], [settings[one] for one in shown], index)
            for index, shown in enumerate(taught)
        ],
        "evaluations": list(verdicts.values()),
        "timings": [
            row
            for (name, setting), verdict in verdicts.items()
            for row in b.session(verdict, [1.0] * 7, eager=[speeds[name][setting]] * 7)
        ],
        "generations": generations,
        "analyses": [
            b.analysis(made, settings[named])
            for made, (*_, named) in zip(generations, answers, strict=True)
            if named is not None
        ],
    }  # fmt: skip
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(tables, "a search after a supervised training")
    with store.open(str(tmp_path / "lake")) as lake:
        found = {
            name: [
                tuple(row.values())
                for row in lake.sql((FOLDER / f"{name}.sql").read_text("utf-8")).rows()
            ]
            for name in (
                "changed_knobs", "supervised", "taught_settings", "drawn_settings", "labels",
                "setting_order", "seed_gains", "unsolved_by_none",
            )
        }  # fmt: skip
    # bucket at "one": 0, 0 of two knobs; at "two": (3, 3) has none in common with (1, 1), (2, 1).
    # Against the exemplars of the other task: 1, 1 for (2, 2) and 2 for (3, 3).
    assert found["changed_knobs"] == [("arms", "bucket", 3, 0.6667, 1.3333)]
    # One bare target has no speedup: the means of 1 and 2, and of 4 and 2.
    assert found["supervised"] == [(0, 3, 3, 2, 1.4142), (2, 2, 2, 2, 2.8284)]
    assert found["taught_settings"] == [
        ("arms", "bucket", 1, 3, 0.0, 0.6667, 0.0, 0.3333),
        ("arms", "none", 1, 3, 0.3333, 0.0, 0.3333, 0.3333),
        ("arms", "shuffled", 1, 2, 0.0, 0.5, 0.5, 0.0),
    ]
    # (1, 1) counts as 1. Bare draws: 1 and 2; the better of two is 2 in three of four cases. Shown
    # draws: 4 and 2, or 2 * 2 ** (3 / 4). Both tasks have the sizes of the trained one.
    drawn = (1, 1.4142, 2.8284, 2.0, 1.6818, 3.3636, 2.0)
    assert found["drawn_settings"] == [("test", False, *drawn), ("test", True, *drawn)]
    assert found["labels"] == [
        ("arms", "bucket", 3.0, 2, 0.5, 0, 0), ("arms", "shuffled", 3.0, 2, 1.0, 1, 1),
    ]  # fmt: skip
    # In units of ln 2, the pairs of settings differ by 1, 2, 1 and by 2, 3, 1: 1 - 2 / (6 + 14).
    assert found["setting_order"] == [("tuned_rows", 2, 3, 0.9, 3, 1.0)]
    ln2, title = (
        0.693147,
        ("search", "held-out tasks", "none", "Rows: root, sum", tasks["one"]["task_id"][:12]),
    )
    assert [row for row in found["seed_gains"] if row[2] == "none"] == [
        (
            "search", "held-out tasks", "none", "Rows: ReLU, sum", tasks["two"]["task_id"][:12],
            0, False, False, 0.0,
        ),
        (*title, 0, True, False, ln2), (*title, 1, True, False, round(2 * ln2, 6)),
    ]  # fmt: skip
    assert [row[5:] for row in found["seed_gains"] if row[2] == "shuffled"] == [
        (0, True, False, ln2), (1, True, True, 0.0),
    ]  # fmt: skip
    assert found["unsolved_by_none"] == [
        ("Rows: ReLU, sum", tasks["two"]["task_id"][:12], False, 1, "v = v * 3", 1)
    ]


@pytest.mark.slow
def test_pairs_of_tasks_give_intervals_and_sign_flips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gains = {("a", 0): 0.3, ("a", 1): 0.1, ("b", 0): 0.0, ("b", 1): 0.0, ("c", 0): 0.4}
    lines = [
        f"search,held-out tasks,none,Rows,{task},{seed},{task != 'c'},False,{gain}"
        for (task, seed), gain in gains.items()
    ]
    file = tmp_path / "seed_gains.csv"
    names = "part,side,other,title,task,seed,solved_by_none,same_prompts,gain"
    file.write_text("\n".join([names, *lines]) + "\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["paired_tasks.py", str(file)])
    paired_tasks.main()
    everything, solved, rest = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()[2:]
    ]
    # Means of tasks 0.2, 0 and 0.4: exp(0.2 ± 4.3027 * 0.2 / sqrt(3)). Four of eight signs reach
    # the sum, because b is 0: ++ and --.
    assert everything == [
        "search, none", "5", "3", "2", "1.221", "0.743", "2.007", "0.500", "1.000", "1.858",
    ]  # fmt: skip
    assert solved[:5] == ["search, none, solved by none", "4", "2", "1", "1.105"]
    assert (solved[8], rest[8]) == ("0.500", "0.500")
    assert rest[:6] == ["search, none, not solved", "1", "1", "1", "1.492", "nan"]
    turner = FOLDER / "turner-4" / "seed_gains.csv"
    monkeypatch.setattr(sys, "argv", ["paired_tasks.py", str(turner)])
    paired_tasks.main()
    figures = "| search, none | 18 | 6 | 4 | 1.912 | 1.049 | 3.484 | 0.125 |"
    assert capsys.readouterr().out.splitlines()[2].startswith(figures)
