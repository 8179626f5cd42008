"""The experiment in lab/scores: its grid, its prompts, its trainings and its figures."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.scores import answer, budget, carry, figures, grid, prompts, tasks

SQL = Path(prompts.__file__).parent / "flywheel/pipelines/sql/scored_settings"


# --- the grid ---


@pytest.mark.slow
def test_grid_has_2376_kernels_that_differ_in_their_knobs_alone() -> None:
    kernels = list(grid.list_kernels())
    assert len(kernels) == len({kernel.place for kernel in kernels}) == 2376
    assert (tasks.count_settings("train"), tasks.count_settings("test")) == (792, 1584)
    assert len(tasks.list_tasks()) == 54
    bodies = {
        (kernel.task.task_id, re.sub(r"(?m)^([A-Z_]+) = \d+", r"\1", kernel.code))
        for kernel in kernels
    }
    assert len(bodies) == 54
    for kernel in kernels[::100]:
        assert answer.read_setting(kernel.code) == kernel.setting


@pytest.mark.slow
def test_tasks_take_turns_among_as_many_as_there_are_judges() -> None:
    kernels = list(grid.list_kernels())
    order = list(grid.take_turns(kernels, 4))
    assert sorted(one.place for one in order) == sorted(one.place for one in kernels)
    first = [one.task.task_id for one in order[:8]]
    assert len({*first}) == 4
    assert first[:4] == first[4:]
    # A fifth task begins only after one of the four ends.
    names = [one.task.task_id for one in order]
    fifth = next(place for place, name in enumerate(names) if name not in first)
    assert any(name not in names[fifth:] for name in first)


def test_thirds_hold_whole_shapes() -> None:
    thirds = [tasks.list_third(third) for third in range(tasks.THIRDS)]
    assert sum(map(len, thirds)) == len(frozenset.union(*thirds)) == 54
    for third in thirds:
        held = {(task.family, task.shape) for task in tasks.list_tasks() if task.task_id in third}
        assert {family for family, _ in held} == set(tasks.KNOBS)
        assert len(third) == len(held) * len(tasks.OPERATIONS)


def test_prompts_of_a_train_operation_are_equal_at_all_shapes() -> None:
    for family in tasks.KNOBS:
        for operation, split in tasks.OPERATIONS.items():
            mine = [
                task
                for task in tasks.list_tasks()
                if (task.family, task.operation) == (family, operation)
            ]
            assert len(mine) == tasks.SHAPES[family]
            texts = {answer.mask_sizes(task.code) for task in mine}
            assert split == "test" or len(texts) == 1
            for task, text in zip(
                mine, map(answer.mask_sizes, (t.code for t in mine)), strict=True
            ):
                sizes = re.findall(r"^[A-Z]+ = (\d+)$", task.code, re.MULTILINE)
                assert len(sizes) == 2
                assert not set(sizes) & set(re.findall(r"\d+", text))


def verdict(kernel: grid.GridKernel, status: str = "correct", *, disturbed: bool = False) -> Any:
    case = kernel.make_case().write()
    timing = {"arm": "kernel", "noisy": False, "disturbed": disturbed}
    return {
        "case": case,
        "device": {"name": "H100"},
        "tables": {
            "evaluations": [{"status": status, "evaluator_version": 10, "flags": []}],
            "timings": [timing] if status == "correct" else [],
        },
    }


@pytest.mark.slow
def test_disturbed_kernels_are_judged_once_more_and_faults_again(tmp_path: Path) -> None:
    first, second, third, fourth = list(grid.list_kernels(("train",)))[:4]
    results = [
        verdict(first),
        verdict(second, disturbed=True),
        verdict(third, "evaluator_error"),
        verdict(fourth, "timeout"),
    ]
    file = tmp_path / "a.jsonl.gz"
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in results)
    # A command that was killed has not closed its file.
    file.write_bytes(file.read_bytes()[:-4])
    read = list(grid.read_results([file]))
    assert read == results
    pending = grid.find_pending(read, ("train",))
    assert len(pending) == 790
    assert {second.place, third.place} <= set(pending)
    again = grid.find_pending([*read, verdict(second, disturbed=True)], ("train",))
    assert second.place not in again
    assert len(again) == 789


def test_verdicts_are_never_appended_to_a_file_that_may_be_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(b"")
    with pytest.raises(grid.FlywheelError, match="Name another file"):
        grid.judge(file, [], device="cpu", workers=1, budget=budget.Budget(1))


def test_a_grid_has_one_version_and_one_kind_of_device(tmp_path: Path) -> None:
    kernel = next(grid.list_kernels(("train",)))
    other = verdict(kernel)
    other["device"] = {"name": "H200"}
    (tmp_path / "results").mkdir()
    with gzip.open(tmp_path / "results" / "a.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in (verdict(kernel), other))
    with pytest.raises(grid.FlywheelError, match="H200"):
        grid.load(tmp_path)
    assert not (tmp_path / "lakes").exists()


# --- rows and arms: the SQL of the pipeline on a surface of two tasks and three settings ---


def surface(speedups: dict[str, tuple[str, str, list[float | None]]], split: str) -> pa.Table:
    """Return a surface; task to shape, operation, and the speedups of its settings A=1, A=2 …"""
    rows = [
        {
            "split": split,
            "family": "tuned_rows",
            "shape": shape,
            "operation": operation,
            "task_id": task,
            "kernel_id": f"{operation}/{number}",
            "setting": f"A={number}",
            "status": "correct" if speedup else "timeout",
            "speedup": speedup,
            "disturbed": False,
            "judged": 1,
            "evaluator_version": 10,
            "protocol": "training",
            "device": "H100",
            "outcome": math.log(speedup or min(one for one in values if one)),
            "shown_score": speedup and round(speedup, 2),
        }
        for task, (shape, operation, values) in speedups.items()
        for number, speedup in enumerate(values, 1)
    ]
    return pa.Table.from_pylist(rows)


def ask(name: str, parameters: dict[str, Any], table: pa.Table, texts: dict[str, str]) -> Any:
    database = duckdb.connect()
    database.register("surface", table)
    database.register("asked", pa.table({"task_id": list(texts)}))
    database.register("tasks", pa.table({"task_id": list(texts), "code": list(texts.values())}))
    statement = (SQL / f"{name}.sql").read_text("utf-8")
    return database.execute(statement, parameters).to_arrow_table().to_pylist()


def test_rows_answer_with_the_best_kernel_in_every_form() -> None:
    table = surface(
        {
            "s": ("32 x 8", "square", [1.0, 2.0, 4.0, None]),
            "t": ("8 x 32", "square", [4.0, 2.0, 1.0, 2.0]),
        },
        "train",
    )
    parameters = {"seed": 0, "scored": 4, "unscored": 4, "bare": 5}
    rows = ask("rows", parameters, table, {"s": "", "t": ""})
    forms: dict[str, int] = {}
    for row in rows:
        forms[row["form"]] = forms.get(row["form"], 0) + row["copies"]
        best = {"s": "square/3", "t": "square/1"}[row["task_id"]]
        assert row["kernel_ids"][-1] == best
        if row["form"] == "none":
            assert row["kernel_ids"] == [best]
            continue
        one, other = row["right_scores"]
        assert one != other  # so the two kernels with 2.0 are never shown together
        assert row["fastest"] == (1 if one > other else 2)
        assert row["shown_scores"] == (row["right_scores"] if row["form"] == "right" else None)
    # s has three pairs of correct kernels, and t has five with different scores.
    assert forms == {"right": 4, "no_scores": 4, "none": 5}


def test_arms_show_the_same_exemplars_in_the_same_order() -> None:
    table = surface(
        {
            "s": ("32 x 8", "ReLU", [1.0, 2.0, 4.0]),
            "t": ("8 x 32", "cut", [4.0, 2.0, 1.0]),
            "u": ("8 x 32", "ReLU", [8.0, 3.0, 1.5]),
        },
        "test",
    )
    texts = {"s": "ROWS = 32\nCOLS = 8\nrelu", "t": "cut", "u": "ROWS = 8\nCOLS = 32\nrelu"}
    rows = ask("arms", {"seed": 0, "draws": 2}, table, texts)
    places = {
        (place["task_id"], place["draw"], place["arm"]): row | place
        for row in rows
        for place in row["places"]
    }
    # Two draws of three arms, and one prompt without kernels, for each task. Only s and t have
    # another task to show kernels of, each other: u has the shape of t and the operation of s.
    assert len(places) == 3 * (2 * 3 + 1) + 2 * 2
    for (task, draw, arm), row in places.items():
        right = places[task, draw, "right"] if arm != "none" else row
        if arm == "none":
            assert row["kernel_ids"] == []
            continue
        assert row["settings"] == right["settings"]
        assert (row["kernel_ids"] == right["kernel_ids"]) == (arm != "other_task")
        shown = right["right_scores"]
        wanted = {"right": shown, "reversed": shown[::-1], "no_scores": None}
        if arm in wanted:
            assert row["shown_scores"] == wanted[arm]
            assert shown[0] != shown[1]
    other = places["s", 1, "other_task"]
    assert all(kernel.startswith("cut/") for kernel in other["kernel_ids"])
    numbers = [int(setting.partition("=")[2]) for setting in other["settings"]]
    assert other["shown_scores"] == [[4.0, 2.0, 1.0][number - 1] for number in numbers]
    # Without sizes and kernels, the prompts of s and u are one text.
    assert sum(not row["kernel_ids"] for row in rows) == 2


# --- the figures, with numbers worked out by hand ---


@pytest.fixture
def database() -> duckdb.DuckDBPyConnection:
    return figures.connect()


def figure(database: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    return database.execute(figures.read_query(name)).to_arrow_table().to_pylist()


def add_units(
    database: duckdb.DuckDBPyConnection, right: dict[tuple[str, int], float], passed: bool
) -> None:
    """Add units: those of the arm right, and 0 in the arms that it is compared with."""
    rows = [
        {"arm": arm, "task_id": task, "seed": seed, "prompts": 1}
        | {"score": score if arm == "right" else 0.0}
        for (task, seed), score in right.items()
        for arm in ("right", "reversed", "no_scores", "other_task")
    ]
    database.register("units", pa.Table.from_pylist(rows))
    database.execute(f"CREATE TABLE gate_passed AS SELECT {passed} AS passed")


@pytest.mark.slow
def test_interval_of_two_tasks_and_two_trainings(database: duckdb.DuckDBPyConnection) -> None:
    # Task means 2 and 4, training means 2 and 4, rest 0: each cell is their sum less the mean 3.
    # MS of tasks = 2 * ((2 - 3)² + (4 - 3)²) / 1 = 4, the same of trainings, and 0 of the rest.
    # The variance is (4 + 4 - 0) / 4 = 2, with (4 + 4)² / (16 / 1 + 16 / 1) = 2 degrees of freedom.
    add_units(database, {("s", 0): 1.0, ("s", 1): 3.0, ("t", 0): 3.0, ("t", 1): 5.0}, passed=True)
    first, *_ = figure(database, "hypotheses")
    assert first["hypothesis"] == "H2a"
    assert first["ratio"] == round(math.exp(3), 4)
    assert first["standard_error"] == round(math.sqrt(2), 4)
    assert first["df"] == 2.0
    # The 97.5 % quantile of t with 2 degrees of freedom is 4.3027.
    assert first["low"] == round(math.exp(3 - 4.302653 * math.sqrt(2)), 4)
    assert first["high"] == pytest.approx(math.exp(3 + 4.302653 * math.sqrt(2)), rel=1e-5)
    # P(T > t) with 2 degrees of freedom is (1 - t / sqrt(2 + t²)) / 2, here with t² = 9 / 2.
    assert first["p"] == round(1 - math.sqrt(4.5 / 6.5), 5)
    # Task means 2 and 4 with flipped signs: two of four totals reach 6.
    assert first["flipped_p"] == pytest.approx(0.5, abs=0.01)
    assert first["accepted"] is False


def test_cells_are_compared_beside_tasks(database: duckdb.DuckDBPyConnection) -> None:
    # Cells have the means (1 + 3) / 2 and 6, so 4 ± 12.7062 * 2 (t with 1 degree of freedom); two
    # of four signs reach their sum.
    add_units(database, {("s", 0): 1.0, ("t", 0): 3.0, ("u", 0): 6.0}, passed=True)
    shapes: dict[str, tuple[str, str, list[float | None]]] = {
        task: (shape, "ReLU", [1.0]) for task, shape in (("s", "a"), ("t", "a"), ("u", "b"))
    }
    database.register("surface", surface(shapes, "test"))
    first, *_ = figure(database, "cells")
    assert (first["cells"], first["standard_error"], first["flipped_p"]) == (2, 2.0, 0.5)
    assert first["ratio"] == round(math.exp(4), 4)
    assert first["low"] == pytest.approx(math.exp(4 - 12.706205 * 2), abs=1e-4)
    assert first["high"] == pytest.approx(math.exp(4 + 12.706205 * 2), rel=1e-5)
    assert first["greatest"] == round(math.exp(6), 4)


def test_trainings_that_differ_by_chance_alone_add_nothing(
    database: duckdb.DuckDBPyConnection,
) -> None:
    # Three tasks with means 1, 2 and 3, two trainings with means 2 and 2. MS of tasks is 2 * 2 / 2,
    # MS of trainings is 0, and that of the rest 0.5: residuals are ±0.5 in s and t, and 0 in u. The
    # variance is 2 / 6, with 3 - 1 degrees of freedom.
    cells = {
        ("s", 0): 1.5,
        ("s", 1): 0.5,
        ("t", 0): 1.5,
        ("t", 1): 2.5,
        ("u", 0): 3.0,
        ("u", 1): 3.0,
    }
    add_units(database, cells, passed=True)
    first, *_ = figure(database, "hypotheses")
    assert first["df"] == 2.0
    assert first["standard_error"] == round(math.sqrt(1 / 3), 4)
    assert first["ratio"] == round(math.exp(2), 4)


def test_one_training_has_an_interval_over_tasks(database: duckdb.DuckDBPyConnection) -> None:
    # Differences 1, 2, 3: variance 1 over 3 tasks, t(2) = 4.3027, so 2 ± 2.484.
    add_units(database, {("s", 7): 1.0, ("t", 7): 2.0, ("u", 7): 3.0}, passed=True)
    first, *_ = figure(database, "hypotheses")
    assert (first["trainings"], first["df"]) == (1, 2.0)
    assert first["low"] == round(math.exp(2 - 4.302653 / math.sqrt(3)), 4)


@pytest.mark.slow
def test_hypotheses_are_accepted_in_their_order_and_behind_the_gate(
    database: duckdb.DuckDBPyConnection,
) -> None:
    cells = {
        (f"t{n}", seed): 1.0 + 0.01 * n + 0.003 * seed * n for n in range(6) for seed in (0, 1)
    }
    add_units(database, cells, passed=True)
    assert [row["accepted"] for row in figure(database, "hypotheses")] == [True, True, True]
    # Without scores it is as good, so H1' is not accepted either, though its interval lies above 0.
    database.execute(
        "CREATE TABLE changed AS SELECT * REPLACE (CASE arm WHEN 'no_scores' THEN "
        "(SELECT mine.score FROM units AS mine WHERE mine.arm = 'right' "
        "AND mine.task_id = units.task_id AND mine.seed = units.seed) ELSE score END AS score) "
        "FROM units"
    )
    database.execute("CREATE OR REPLACE TEMP VIEW units AS FROM changed")
    rows = figure(database, "hypotheses")
    assert [row["accepted"] for row in rows] == [True, False, False]
    assert rows[2]["low"] > 1
    database.execute("UPDATE gate_passed SET passed = false")
    assert not any(row["accepted"] for row in figure(database, "hypotheses"))


def add_prompts(database: duckdb.DuckDBPyConnection) -> None:
    """Add two prompts of a task with speedups 1, 2 and 4, scored after one training."""
    table = surface({"s": ("32 x 8", "ReLU", [1.0, 2.0, 4.0])}, "test")
    database.register("surface", table)
    chances = {
        # The grid has 0.8 of the probability: 0.5 by K = 1 and 0.3 by K = 2.
        "p": [(1, "A=1", 0.4), (1, "A=3", 0.1), (2, "A=2", 0.2), (2, "A=3", 0.1)],
        "q": [(None, "A=1", 0.5), (None, "A=2", 0.0), (None, "A=3", 0.5)],
    }
    rows = [
        {"seed": 0, "prompt_id": prompt, "named": named, "setting": setting, "probability": chance}
        for prompt, row in chances.items()
        for named, setting, chance in row
    ]
    database.register("prompts", pa.Table.from_pylist(rows))
    place = {"task_id": "s", "draw": 1, "right_scores": [2.0, 1.0]}
    arms = [
        {"prompt_id": "p", "family": "tuned_rows", "operation": "ReLU", "settings": ["A=2", "A=1"],
         "shown_scores": [1.0, 2.0], "places": [place | {"arm": "reversed"}]},
        {"prompt_id": "q", "family": "tuned_rows", "operation": "ReLU", "settings": [],
         "shown_scores": None, "places": [place | {"arm": "none"}]},
    ]  # fmt: skip
    database.register("arms", pa.Table.from_pylist(arms))
    for name in figures.TABLES:
        database.execute(f"CREATE TABLE {name} AS {figures.read_query(name)}")


def test_the_score_of_a_prompt_is_its_expected_outcome(database: duckdb.DuckDBPyConnection) -> None:
    add_prompts(database)
    rows = database.execute("SELECT arm, expected, mass, first_share FROM scores").fetchall()
    found = {arm: tuple(values) for arm, *values in rows}
    # (0.4 ln 1 + 0.2 ln 2 + 0.2 ln 4) / 0.8 = 0.75 ln 2, and K = 1 has 0.5 of 0.8.
    assert found["reversed"] == pytest.approx((0.75 * math.log(2), 0.8, 0.625), rel=1e-6)
    assert found["none"][:2] == pytest.approx((math.log(2), 1.0), rel=1e-6)
    assert found["none"][2] is None
    arms = {row["arm"]: row["geomean"] for row in figure(database, "arms")}
    assert arms == {
        "(best setting)": 4.0, "(uniform)": 2.0, "none": 2.0, "reversed": round(2**0.75, 4),
    }  # fmt: skip
    [task] = figure(database, "by_task")
    assert (task["reversed"], task["none"], task["right"]) == (round(2**0.75, 3), 2.0, None)


def test_labels_say_whether_a_swapped_label_is_followed(
    database: duckdb.DuckDBPyConnection,
) -> None:
    add_prompts(database)
    # The labels are 1.0 and 2.0, and the model names the first one with 0.625, not the higher one.
    assert figure(database, "labels") == [
        {
            "arm": "reversed", "labels_differ_by": "1.5 and more", "prompts": 1,
            "names_higher_label": 0.0, "geomean": round(2**0.75, 4),
        }
    ]  # fmt: skip


def test_gate_counts_prompts_whose_faster_kernel_is_named(
    database: duckdb.DuckDBPyConnection,
) -> None:
    rows = [
        {"seed": 0, "prompt_id": f"p{n}", "named": named, "setting": "A=1", "probability": chance}
        for n in range(20)
        for named, chance in ((1, 0.6), (2, 0.3))
    ]
    database.register("gate", pa.Table.from_pylist(rows))
    ids = [f"p{n}" for n in range(20)]
    # The first kernel is named in all 20 prompts, and is the faster one in 19, then in 18 of them.
    for right, passed in ((19, True), (18, False)):
        fastest = [1] * right + [2] * (20 - right)
        database.register("training_rows", pa.table({"prompt_id": ids, "fastest": fastest}))
        assert figure(database, "gate") == [
            {"seed": 0, "prompts": 20, "named_right": right, "share": right / 20, "passed": passed}
        ]


def test_ceilings_are_those_of_a_reader_of_the_train_grid(
    database: duckdb.DuckDBPyConnection,
) -> None:
    speedups = add_two_shapes(database)
    arms = [
        {"prompt_id": f"{arm} {shape}", "family": "tuned_rows", "operation": "ReLU",
         "settings": ["A=1", "A=2"], "shown_scores": shown,
         "places": [{"task_id": shape, "arm": arm, "draw": 1, "right_scores": row[:2]}]}
        for shape, row in speedups
        for arm, shown in (
            ("right", row[:2]), ("reversed", row[1::-1]), ("no_scores", None),
        )
    ]  # fmt: skip
    database.register("arms", pa.Table.from_pylist(arms))
    found = {row.pop("arm"): row for row in figure(database, "ceilings")}
    geomeans = {arm: row["geomean"] for arm, row in found.items()}
    # Right labels tell the shape. Labels 2 and 1 are nearer to 1 and 2 than to 8 and 2, and so are
    # labels 2 and 8: the reader takes the third setting, which is 8 and 1 times as fast. Without
    # scores, the first setting and the third are equally good, and each is 8 and 1 times as fast.
    assert geomeans == {"right": 8.0, "reversed": 2.8284, "no_scores": 2.8284}
    # As a pair without an order, 1 and 2 are the first shape and 8 and 2 the other.
    assert [found[arm]["unbound"] for arm in geomeans] == [8.0, 2.8284, 8.0]


def add_two_shapes(database: duckdb.DuckDBPyConnection) -> tuple[tuple[str, list[float]], ...]:
    """Add a train and a test task of two shapes; return the speedups of both by shape.

    At the first shape the third setting is best, at the other one the first.
    """
    speedups = ("32 x 8", [1.0, 2.0, 8.0]), ("8 x 32", [8.0, 2.0, 1.0])
    train = surface(
        {f"train {shape}": (shape, "square", [*row]) for shape, row in speedups}, "train"
    )
    test = surface({shape: (shape, "ReLU", [*row]) for shape, row in speedups}, "test")
    database.register("surface", pa.concat_tables([train, test]))
    return speedups


def test_answers_say_which_shape_they_are_for(database: duckdb.DuckDBPyConnection) -> None:
    add_two_shapes(database)
    chances = {
        "right": {"A=3": 0.6, "A=1": 0.2},
        "reversed": {"A=1": 0.6, "A=2": 0.2},
        "no_scores": {"A=3": 0.4, "A=1": 0.4},
    }
    prompts = [
        {"seed": seed, "prompt_id": arm, "named": 1, "setting": setting, "probability": chance}
        for seed in range(3)
        for arm, row in chances.items()
        for setting, chance in row.items()
    ]
    database.register("prompts", pa.Table.from_pylist(prompts))
    arms = [
        {"prompt_id": arm, "family": "tuned_rows"}
        | {"places": [{"task_id": "32 x 8", "arm": arm, "draw": 1}]}
        for arm in chances
    ]
    database.register("arms", pa.Table.from_pylist(arms))
    # Probabilities are shares of the grid's 0.8. `right` and `reversed` share 0.25 of A=1; a prompt
    # without another pair is not compared with one.
    assert figure(database, "exchanged") == [
        {"other": other, "prompts": 3, "distance": distance, "same_first": same}
        for other, distance, same in (
            ("right, another training", 0.0, 1.0), ("no_scores", 0.25, 0.0),
            ("reversed", 0.75, 0.0),
        )
    ]  # fmt: skip
    assert figure(database, "implied") == [
        {"arm": arm, "own_shape": own, "own_is_largest": largest, "any_shape": anywhere}
        for arm, own, largest, anywhere in (
            ("right", 0.75, 1.0, 1.0), ("no_scores", 0.5, 1.0, 1.0), ("reversed", 0.0, 0.0, 0.75),
        )
    ]  # fmt: skip
    units = [{"arm": "right", "task_id": "32 x 8", "seed": 0, "score": 0.5, "prompts": 1}]
    database.register("units_before", pa.Table.from_pylist(units))
    database.execute(f"CREATE TABLE units_constant AS {figures.read_query('constant_units')}")
    constant = {row["task_id"]: row["score"] for row in figure(database, "constant_units")[1:]}
    # A=1 and A=3 are equally good over the shapes; the later name is taken.
    assert constant == {"32 x 8": pytest.approx(math.log(8)), "8 x 32": 0.0}
    decided = {
        row["arm"]: row["score"] for row in figure(database, "decided_units")
        if row["seed"] == 0 and row["task_id"] == "32 x 8"
    }  # fmt: skip
    # Under the belief of `right`, 0.75 for the first shape, A=3 is best; `reversed` believes in the
    # other shape alone, so it takes A=1; to `no_scores` both are as good.
    eight = pytest.approx(math.log(8))
    assert decided == {"right": eight, "reversed": 0.0, "no_scores": eight, "constant": eight}


def test_a_list_of_settings_searches_without_a_model(database: duckdb.DuckDBPyConnection) -> None:
    add_two_shapes(database)
    attempts = [
        {"seed": 0, "arm": "right", "task_id": task, "draw": 1, "round": number}
        | {"shown": shown, "setting": "A=2"}
        for task, shown in (("32 x 8", ["A=1", "A=2"]), ("8 x 32", ["A=2", "A=3"]))
        for number in (1, 2)
    ]
    database.register("attempts", pa.Table.from_pylist(attempts))
    # The list is A=3, A=1 and any: the first task is at 2, then 8; the second at 2, 2, then 8.
    found = [(row["round"], row["best_so_far"]) for row in figure(database, "listed")]
    assert found == [(0, 2.0), (1, 4.0), (2, 8.0), (3, 8.0)]


def test_single_answers_are_looked_up_in_the_grid(database: duckdb.DuckDBPyConnection) -> None:
    add_prompts(database)
    answers = [
        {"prompt_id": "p", "task_id": "s", "arm": "reversed", "draw": 1, "kernel_id": kernel}
        for kernel in ("ReLU/2", "ReLU/3", "elsewhere", None)
    ]
    database.register("answers", pa.Table.from_pylist(answers))
    # Speedups 2, 4, 1 and 1; of those in the grid 2 and 4; ReLU/2 has the setting of an exemplar.
    assert figure(database, "answers") == [
        {
            "arm": "reversed", "answers": 4, "with_code": 0.75, "in_grid": 0.5, "copies": 0.25,
            "geomean": round(8**0.25, 4), "geomean_in_grid": round(8**0.5, 4),
        }
    ]  # fmt: skip


def test_a_search_keeps_the_best_of_each_chain(database: duckdb.DuckDBPyConnection) -> None:
    # Settings 0 to 3 of two tasks of one shape; on the train task, setting 2 is the best one.
    tables = [
        surface({"s": ("32 x 8", "ReLU", [1.0, 2.0, 4.0, 8.0])}, "test"),
        surface({"t": ("32 x 8", "square", [1.0, 2.0, 4.0, 3.0])}, "train"),
    ]
    database.register("surface", pa.concat_tables(tables))
    names = [row["setting"] for row in tables[0].to_pylist()]
    attempts = [
        {"seed": 0, "arm": arm, "task_id": "s", "draw": draw, "round": number}
        | {"shown": [names[0], names[1]], "setting": names[place]}
        for arm, draw, places in (
            ("right", 1, (2, 3)),
            ("right", 2, (1, 0)),
            ("no_scores", 1, (0, 2)),
        )
        for number, place in enumerate(places, 1)
    ]
    database.register("attempts", pa.Table.from_pylist(attempts))
    rounds = figure(database, "rounds")
    assert [(row["arm"], row["round"]) for row in rounds] == [
        (arm, number) for arm in ("right", "no_scores") for number in range(3)
    ]
    # Chains of `right` are at 2 and 2, then 4 and 2, then 8 and 2; that of `no_scores` at 2, 2, 4.
    best = [row["best_so_far"] for row in rounds]
    assert best == [2.0, round(8**0.5, 4), 4.0, 2.0, 2.0, 4.0]
    assert [row["have_the_best"] for row in rounds] == [0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert [row["repeats"] for row in rounds] == [None, 0.5, 0.5, None, 1.0, 0.0]
    units = {row["arm"]: row["score"] for row in figure(database, "search_units")}
    assert units == {"right": pytest.approx(math.log(4)), "no_scores": pytest.approx(math.log(4))}
    # Setting 2 is predicted, and `right` has found setting 3.
    assert figure(database, "predicted") == [
        {"seed": 0, "tasks": 1, "predicted": 4.0, "found": 8.0, "best": 8.0}
        | {"faster": 1, "could_be_faster": 1}
    ]


def test_grid_names_what_is_missing(database: duckdb.DuckDBPyConnection) -> None:
    table = surface({"s": ("32 x 8", "ReLU", [1.0, None, 4.0])}, "test")
    database.register("surface", table)
    [row] = figure(database, "grid")
    assert (row["kernels"], row["wanted"], row["correct"], row["versions"]) == (3, 1584, 2, "10")
    # The setting without a correct kernel counts as the slowest one.
    assert (row["best"], row["worst"], row["geomean"]) == (4.0, 1.0, round(4 ** (1 / 3), 3))


def test_no_arm_is_read_before_the_grid_and_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(
        surface({"s": ("32 x 8", "ReLU", [1.0, 2.0])}, "test"), tmp_path / "surface.parquet"
    )
    pq.write_table(pa.table({"prompt_id": ["p"], "fastest": [1]}), tmp_path / "rows.parquet")
    place = {"task_id": "s", "arm": "none", "draw": 1}
    arm = {"prompt_id": "p", "family": "tuned_rows", "settings": [], "shown_scores": [1.0]}
    arm |= {"places": [place]}
    pq.write_table(pa.Table.from_pylist([arm]), tmp_path / "arms.parquet")
    assert not figures.print_figures(tmp_path, pilot=False)
    written = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert written == ["ceilings.csv", "gate.csv", "grid.csv"]
    printed = capsys.readouterr().out
    assert "the grid is not complete; there are 0 trainings and not 3" in printed
    # A training with a gate and without scores of all prompts.
    (tmp_path / "scores").mkdir()
    rows = [{"prompt_id": "p", "named": 1, "setting": "A=1", "probability": 1.0}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "scores" / "gate-0.parquet")
    assert not figures.print_figures(tmp_path, pilot=False)
    assert "there are 1 trainings and not 3; 1 prompts are not scored" in capsys.readouterr().out


PUBLISHED = Path(__file__).parents[2] / "docs/runs/scores"


@pytest.mark.slow
def test_published_rows_give_the_published_figures(tmp_path: Path) -> None:
    out = tmp_path / "scores"
    shutil.copytree(PUBLISHED, out, ignore=shutil.ignore_patterns("figures"))
    assert figures.print_figures(out, pilot=False)
    made = {file.name: file.read_text("utf-8") for file in (out / "figures").iterdir()}
    assert made == {
        file.name: file.read_text("utf-8") for file in (PUBLISHED / "figures").iterdir()
    }


@pytest.mark.slow
def test_thirds_are_compared_without_the_shapes_that_test_them(tmp_path: Path) -> None:
    out = tmp_path / "scores"
    shutil.copytree(PUBLISHED, out, ignore=shutil.ignore_patterns("figures", "search", "unseen"))
    for third in range(tasks.THIRDS):
        shutil.copytree(out / "scores", out / "unseen" / str(third))
    assert figures.print_figures(out, pilot=False)
    names = ("hypotheses", "unseen", "cells", "unseen_cells")
    made = [(out / "figures" / f"{name}.csv").read_text("utf-8") for name in names]
    # With the trainings of the experiment, the arms are those of the experiment.
    assert made[1].startswith(made[0])
    assert made[2] == made[3]
    # The constant setting is chosen without the shapes that test it, so it is slower.
    read = {row["arm"]: float(row["geomean"]) for row in read_csv(out, "unseen_speeds")}
    experiment = {row["arm"]: float(row["geomean"]) for row in read_csv(PUBLISHED, "arms")}
    ceilings = {row["arm"]: float(row["geomean"]) for row in read_csv(PUBLISHED, "ceilings")}
    assert read.pop("constant") < ceilings["no_scores"]
    assert read == {arm: experiment[arm] for arm in read}


def read_csv(out: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a figure."""
    text = (out / "figures" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.slow
def test_published_verdicts_give_the_published_prompts(tmp_path: Path) -> None:
    shutil.copytree(PUBLISHED / "results", tmp_path / "results")
    assert grid.load(tmp_path) == {"train": 801, "test": 1614}
    assert sort_rows(grid.read_surface(tmp_path)) == sort_rows(PUBLISHED / "surface.parquet")
    assert prompts.make_prompts(tmp_path) == {"rows": 5414, "arms": 7210}
    for name in ("rows.parquet", "arms.parquet"):
        assert pq.read_table(tmp_path / name).equals(pq.read_table(PUBLISHED / name))


def sort_rows(table: pa.Table | Path) -> list[dict[str, Any]]:
    """Return the rows of a surface, sorted by kernel."""
    table = pq.read_table(table) if isinstance(table, Path) else table
    return table.sort_by([("task_id", "ascending"), ("kernel_id", "ascending")]).to_pylist()


# --- pieces that are carried, and budgets ---


def test_pieces_come_together_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "rows.parquet", tmp_path / "pending.txt"]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number]) * 20_000)
    assert carry.pack(tmp_path / "carry", files, 25_000) == 3
    assert all(file.stat().st_size <= 25_000 for file in tmp_path.glob("carry/*/piece"))
    target = tmp_path / "there"
    write = Path.write_bytes

    def cut_off(path: Path, data: bytes) -> int:
        write(path, data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", cut_off)
    with pytest.raises(KeyboardInterrupt):
        carry.assemble(tmp_path / "carry/2", target)
    monkeypatch.setattr(Path, "write_bytes", write)
    found = [carry.assemble(tmp_path / "carry" / name, target) for name in ("3", "1", "1", "2")]
    assert found == [False, False, False, True]
    for file in files:
        assert (target / file.name).read_bytes() == file.read_bytes()
    (tmp_path / "carry/1/piece").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        carry.assemble(tmp_path / "carry/1", target)


def test_a_budget_says_the_cost_first(capsys: pytest.CaptureFixture[str]) -> None:
    budget.Budget(100).announce("kernels", 90, 2.0)
    said = capsys.readouterr().out
    assert re.fullmatch(r"kernels: 90 left, expected 180 s of \d+ s; about [34]\d fit\n", said)
