"""Views over tasks, policies, techniques, claims and findings give numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest
from panels import ask

import store

GPU, LAPTOP = b.device("H200", kind="cuda"), b.device("laptop")


def rows(lake: store.Lake, query: str) -> list[dict[str, Any]]:
    return lake.sql(query).rows()


def ids_of(kernels: list[b.Row]) -> list[str]:
    return [kernel["kernel_id"] for kernel in kernels]


class Story:
    """Rows gathered table by table, with all that a measurement refers to."""

    def __init__(self, *include: str) -> None:
        self.tables: dict[str, list[b.Row]] = {}
        self.include = include

    def add(self, table: str, *made: b.Row) -> None:
        kept = self.tables.setdefault(table, [])
        kept.extend(row for row in made if row not in kept)

    def measure(
        self,
        task: b.Row,
        kernel: b.Row,
        device: b.Row,
        speedup: float | None,
        status: str = "correct",
        axes: str = "{}",
    ) -> None:
        """Judge a kernel; with a speedup, time it in 6 equal blocks against eager."""
        sizes = b.workload(task, "default" if axes == "{}" else axes, axes)
        made = b.evaluation(kernel, task, sizes, device, status)
        self.add("tasks", task)
        self.add("workloads", sizes)
        self.add("kernels", kernel)
        self.add("devices", device)
        self.add("evaluations", made)
        if speedup is not None:
            self.add("timings", *b.session(made, [1.0] * 6, eager=[speedup] * 6))

    def lake(self, folder: str) -> Iterator[store.Lake]:
        with store.writer(folder, author="tests") as writer:
            writer.append(self.tables, "rows of a test")
        with store.open(folder, include=self.include) as lake:
            yield lake


# ---- leaderboard, fast_p, stage_table ------------------------------------------------------------


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return four tasks and three policies, measured on one device, with weak tasks included.

    Speedups over eager, level 1: A, B, C; level 2: D. B is degenerate.
    base         A 0.5, B 1.0, C incorrect, D an attempt without a kernel
    sft          A correct and never timed
    contrastive  A 2 (and 1.5), B 8, C 4, D a kernel that nobody has judged
    """
    story = Story("weak_tasks")
    tasks = {name: b.task(name) for name in "ABCD"}
    base, sft, contrastive, person = (
        b.policy("base", stage="base"),
        b.policy("sft", stage="sft", round=1),
        b.policy("contrastive", stage="contrastive", round=3),
        b.policy("bystander", kind="person"),
    )
    story.add("policies", base, sft, contrastive, person)
    story.add("tasks", *tasks.values())
    for problem, (name, task) in enumerate(tasks.items(), start=1):
        options = {"problem_id": problem, "degenerate": name == "B", "suite": "board"}
        story.add("task_labels", b.label(task, name, level=2 if name == "D" else 1, **options))

    def attempt(policy: b.Row, name: str, speedup: float | None, status: str | None) -> None:
        kernel = b.kernel(f"{policy['name']} {name} {speedup}")
        story.add("kernels", kernel)
        story.add("generations", b.generation(policy, tasks[name], kernel))
        if status is not None:
            story.measure(tasks[name], kernel, GPU, speedup, status)

    attempt(base, "A", 0.5, "correct")
    attempt(base, "B", 1.0, "correct")
    attempt(base, "C", None, "incorrect")
    story.add("generations", b.generation(base, tasks["D"], parse_error="no code"))
    attempt(sft, "A", None, "correct")
    attempt(contrastive, "A", 2.0, "correct")
    attempt(contrastive, "A", 1.5, "correct")
    attempt(contrastive, "B", 8.0, "correct")
    attempt(contrastive, "C", 4.0, "correct")
    attempt(contrastive, "D", None, None)
    attempt(person, "A", None, None)  # judged nowhere: no row
    yield from story.lake(str(tmp_path_factory.mktemp("board") / "lake"))


def board_row(lake: store.Lake, policy: str, level: int | None = None) -> dict[str, Any]:
    [row] = rows(
        lake,
        f"FROM leaderboard WHERE policy = '{policy}' "
        f"AND level IS NOT DISTINCT FROM {level or 'NULL'}",
    )
    return row


def test_leaderboard_gives_the_columns_of_the_published_tables(board: store.Lake) -> None:
    row = board_row(board, "contrastive")
    assert (row["suite"], row["suite_revision"], row["device"], row["baseline"]) == (
        "board", "v0", "H200", "eager",
    )  # fmt: skip
    # One best kernel a task: 2, 8, 4. Mean 14/3; linear quartiles; geomean cbrt(64).
    assert row["mean"] == pytest.approx(14 / 3)
    assert (row["max"], row["p75"], row["p50"], row["p25"]) == (8, 6, 4, 3)
    assert row["geomean"] == pytest.approx(4)
    # D waits for its verdict: it is neither solved nor missing.
    assert (row["n"], row["success"], row["faster"]) == (3, 3, 3)
    assert (row["tasks"], row["pending"]) == (3, 1)
    # Under 6 tasks the interval of the median is the range.
    assert (row["p50_low"], row["p50_high"]) == (2, 8)
    assert row["mean_missing_as_1"] == pytest.approx(14 / 3)
    assert row["mean_without_degenerate"] == pytest.approx(3)  # (2 + 4) / 2
    assert (row["mean_with_degenerate"], row["weak"]) == (row["mean"], 0)


def test_weak_tasks_are_left_out_of_tables_and_counted(board: store.Lake) -> None:
    with store.open(board.url) as lake:
        row = board_row(lake, "contrastive")
        # B, the fastest, is weak: 2 and 4 are left.
        assert (row["n"], row["success"], row["tasks"], row["weak"]) == (2, 2, 2, 1)
        assert (row["mean"], row["max"], row["p50"]) == (3, 4, 3)
        assert row["geomean"] == pytest.approx(8**0.5)
        assert row["mean_with_degenerate"] == pytest.approx(14 / 3)
        assert row["mean_without_degenerate"] == 3
        assert (row["p50_low"], row["p50_high"]) == (2, 4)
        [share] = rows(
            lake,
            "FROM fast_p WHERE policy = 'contrastive' AND level IS NULL AND p = 3",
        )
        assert (share["count"], share["n"]) == (1, 2)
        assert "B" not in {row["task"] for row in rows(lake, "FROM best_kernels")}
        assert lake.count_left_out("FROM best_kernels") == {"nonequivalent": 0, "weak_tasks": 1}
        assert lake.count_left_out("FROM kernels") == {}
        assert lake.count_left_out("FROM weak_tasks") == {}
    assert "B" in {row["task"] for row in rows(board, "FROM best_kernels")}
    assert board.count_left_out("FROM best_kernels") == {"nonequivalent": 0}


@pytest.fixture
def another_url(tmp_path: Path) -> str:
    """Return the URL of a lake whose fastest kernels are other functions, by column or by flag."""
    story = Story()
    task = b.task("same")
    story.add("task_labels", b.label(task, "same"))
    sizes = b.workload(task)
    elsewhere = b.device("elsewhere")
    for name, speedup, columns in ANOTHER:
        kernel = b.kernel(name)
        story.add("generations", b.generation(b.policy(name), task, kernel))
        story.add("policies", b.policy(name))
        story.measure(task, kernel, GPU, None)
        story.tables["evaluations"].pop()
        made = b.evaluation(kernel, task, sizes, GPU, **columns)
        story.add("evaluations", made)
        story.add("timings", *b.session(made, [1.0] * 6, eager=[speedup] * 6))
    # One evaluation elsewhere is enough, and a newer version takes one back.
    story.add("devices", elsewhere)
    for name, version, flags in [
        ("renamed elsewhere", 1, ["parameters_renamed"]),
        ("taken back", 1, ["fails_signed"]),
        ("taken back", 2, []),
    ]:
        story.add(
            "evaluations",
            b.evaluation(b.kernel(name), task, sizes, elsewhere, version=version, flags=flags),
        )
    for _ in story.lake(str(tmp_path / "lake")):
        pass
    return str(tmp_path / "lake")


ANOTHER: list[tuple[str, float, dict[str, Any]]] = [
    ("said so", 90.0, {"equivalent": False, "flags": ["another_function"]}),
    ("renamed", 80.0, {"flags": ["parameters_renamed"]}),
    ("no relu", 70.0, {"flags": ["fails_random_signs", "fails_signed"]}),
    ("no statistics", 60.0, {"flags": ["near_roofline", "state_differs"]}),
    ("no bias", 50.0, {"flags": ["fails_perturbed_parameters"]}),
    ("renamed elsewhere", 40.0, {}),
    # The same function: fragile, or found to round alone by a judge that says so.
    ("rounds", 9.0, {"equivalent": True, "flags": ["fails_signed"]}),
    ("fragile", 8.0, {"flags": ["fails_noncontiguous", "fails_scaled", "nondeterministic"]}),
    ("taken back", 7.0, {"flags": []}),
    ("without flags", 6.0, {"flags": None}),
]


def test_another_function_is_not_ranked_unless_it_is_asked_for(another_url: str) -> None:
    names = {b.kernel(name)["kernel_id"]: name for name, _, _ in ANOTHER}
    same = {"rounds", "fragile", "taken back", "without flags"}
    with store.open(another_url) as lake:
        [best] = rows(lake, "FROM best_kernels")
        assert names[best["kernel_id"]] == "rounds"
        ranked = rows(lake, "SELECT kernel_id FROM kernel_speedups WHERE ranked")
        assert {names[row["kernel_id"]] for row in ranked} == same
        assert {names[row["kernel_id"]] for row in rows(lake, "FROM scored_speedups")} == same
        assert {names[row["kernel_id"]] for row in rows(lake, "FROM history")} <= same
        solved = rows(lake, "FROM leaderboard WHERE level IS NULL AND success > 0 AND n > 0")
        assert {row["policy"] for row in solved} == same | {"any"}
        assert lake.count_left_out("FROM leaderboard") == {"nonequivalent": 6, "weak_tasks": 0}
    with store.open(another_url, include=("nonequivalent",)) as lake:
        [best] = rows(lake, "FROM best_kernels")
        assert names[best["kernel_id"]] == "said so"
        assert lake.count_left_out("FROM best_kernels") == {"weak_tasks": 0}


@pytest.mark.slow
def test_a_ranked_kernel_is_shown_with_the_checks_that_it_fails(another_url: str) -> None:
    names = {b.kernel(name)["kernel_id"]: name for name, _, _ in ANOTHER}
    with store.open(another_url) as lake:
        found = {names[row["kernel_id"]]: row["flags"] for row in rows(lake, "FROM fragile")}
        # A newer version of the evaluator has taken the flag of "taken back" away.
        assert found == {
            "no relu": ["fails_random_signs", "fails_signed"],
            "no bias": ["fails_perturbed_parameters"],
            "rounds": ["fails_signed"],
            "fragile": ["fails_noncontiguous", "fails_scaled"],
        }
        [best] = rows(lake, "FROM best_kernels")
        assert (names[best["kernel_id"]], best["fragile"]) == ("rounds", ["fails_signed"])
        assert [row["fragile"] for row in ask(lake, "report/best")] == ["fails_signed"]


def test_leaderboard_reads_missing_values_in_both_ways(board: store.Lake) -> None:
    row = board_row(board, "base")
    # Measured 0.5 and 1; C failed and D has no kernel: (0.5 + 1 + 1 + 1) / 4.
    assert (row["mean"], row["mean_missing_as_1"]) == (0.75, 0.875)
    assert row["geomean"] == pytest.approx(0.5**0.5)
    assert row["geomean_missing_as_1"] == pytest.approx(0.5**0.25)
    assert (row["n"], row["success"], row["faster"]) == (2, 2, 0)
    assert (row["tasks"], row["pending"]) == (4, 0)


def test_leaderboard_has_rows_by_level_and_for_everybody(board: store.Lake) -> None:
    assert (board_row(board, "base", 1)["tasks"], board_row(board, "base", 1)["n"]) == (3, 2)
    second = board_row(board, "base", 2)
    assert (second["tasks"], second["n"], second["mean"], second["mean_missing_as_1"]) == (
        1, 0, None, 1,
    )  # fmt: skip
    everybody = board_row(board, "any")
    assert (everybody["policy_id"], everybody["n"], everybody["p50"]) == (None, 3, 4)
    # A kernel for D waits, so D is pending for everybody although base failed to write one.
    assert (everybody["success"], everybody["tasks"], everybody["pending"]) == (3, 3, 1)
    # Correct, not timed: solved without a speedup.
    untimed = board_row(board, "sft")
    assert (untimed["success"], untimed["n"], untimed["mean"], untimed["tasks"]) == (1, 0, None, 1)
    assert rows(board, "FROM leaderboard WHERE policy = 'bystander'") == []


def test_fast_p_is_strict_and_fast_0_is_the_rate_of_correct_tasks(board: store.Lake) -> None:
    found = rows(board, "SELECT policy, p, count, n, share FROM fast_p WHERE level IS NULL")
    shares = {(row["policy"], row["p"]): (row["count"], row["n"], row["share"]) for row in found}
    # base: correct 2 of 4; above 0.5 only B (0.5 is not above 0.5); above 1 nothing.
    assert [shares["base", p] for p in (0, 0.5, 0.8, 1)] == [
        (2, 4, 0.5), (1, 4, 0.25), (1, 4, 0.25), (0, 4, 0),
    ]  # fmt: skip
    # contrastive: 2, 8, 4 of 3 decided tasks.
    assert [shares["contrastive", p][0] for p in (0, 1.5, 2, 3, 5, 10)] == [3, 3, 2, 2, 1, 0]
    assert shares["sft", 0] == (1, 1, 1)
    assert shares["sft", 0.5] == (0, 1, 0)
    assert {p for _, p in shares} == {0, 0.5, 0.8, 1, 1.01, 1.2, 1.5, 2, 3, 5, 10}


def test_stages_stand_side_by_side_in_order_of_training(board: store.Lake) -> None:
    found = rows(board, "SELECT stages, round, policy, n, p50 FROM stage_table WHERE level IS NULL")
    assert found == [
        {"stages": "base", "round": None, "policy": "base", "n": 2, "p50": 0.75},
        {"stages": "sft", "round": 1, "policy": "sft", "n": 0, "p50": None},
        {"stages": "contrastive", "round": 3, "policy": "contrastive", "n": 3, "p50": 4.0},
    ]


# ---- devices, techniques, claims, analyses, findings ---------------------------------------------


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return kernels seen on two devices, with techniques, claims, analyses and findings."""
    story = Story("weak_tasks")
    tasks = {name: b.task(name) for name in ("first", "second", "bare")}
    story.add("tasks", *tasks.values())
    story.add(
        "task_labels",
        b.label(tasks["first"], "zeta", suite="other", family="held out"),
        b.label(tasks["first"], "level1/7", problem_id=7, degenerate=True),
        b.label(tasks["first"], "level1/7", problem_id=7, suite_revision="v0.1"),
        b.label(tasks["second"], "level1/8", problem_id=8),
    )
    story.add("splits", b.split(), b.split("held out", "test", suite="other"))
    story.add("devices", GPU)
    # "second" was weak by older rules only; nobody has labelled "bare".
    for name, version, passes in [
        ("second", 1, ["mean"]),
        ("second", 2, []),
        ("bare", 1, ["zeros"]),
    ]:
        setting = b.workload(tasks[name])
        story.add("workloads", setting)
        story.add("task_audits", b.task_audit(setting, GPU, passes, auditor_version=version))
    kernels = {name: b.kernel(name) for name in ("both", "graphs", "static", "none", "wrong")}
    story.add("kernels", *kernels.values())
    for name, device, speedup in [
        ("both", GPU, 4.0), ("graphs", GPU, 2.0), ("both", LAPTOP, 1.0), ("graphs", LAPTOP, None),
    ]:  # fmt: skip
        axes = "{}" if device is GPU else '{"N": 2}'
        story.measure(tasks["first"], kernels[name], device, speedup, axes=axes)
    story.measure(tasks["second"], kernels["static"], GPU, 1.0)
    story.measure(tasks["second"], kernels["none"], GPU, 1.0)
    story.measure(tasks["second"], kernels["none"], LAPTOP, 3.0)
    story.measure(tasks["second"], kernels["none"], LAPTOP, 2.0, axes='{"N": 2}')
    story.measure(tasks["second"], kernels["wrong"], GPU, None, "incorrect")
    story.add(
        "kernel_features",
        b.features(kernels["both"], ["cuda_graphs", "static_tensors"]),
        b.features(kernels["graphs"], ["withdrawn"]),
        b.features(kernels["graphs"], ["cuda_graphs"], version=2),
        b.features(kernels["static"], ["static_tensors"]),
        b.features(kernels["none"]),
    )
    story.add(
        "claims",
        b.claim(tasks["first"], kernels["both"], 4.3),
        b.claim(tasks["first"], kernels["both"], 120.0),
        b.claim(tasks["second"], kernels["wrong"], 2.0),
        b.claim(tasks["first"], kernels["graphs"], 2.0, baseline="compile"),
        b.claim(tasks["second"], None, 7.2),
        b.claim(None, None, 3.12, metric="mean_speedup"),
    )
    policy = b.policy("writer")
    story.add("policies", policy)
    shown = [(kernels["both"], 1.5), (kernels["graphs"], 3.0)]
    parent = b.generation(policy, tasks["first"], kernels["none"])
    attempt = b.generation(
        policy, tasks["first"], kernels["wrong"], exemplars=shown, parent=parent, minute=1
    )
    unmeasured = b.generation(
        policy, tasks["second"], exemplars=[*shown, (kernels["static"], 1.0)], minute=2
    )
    story.add("generations", parent, attempt, unmeasured)
    story.add(
        "analyses",
        b.analysis(attempt, kernels["both"]),
        b.analysis(attempt, kernels["graphs"], minute=1),
        b.analysis(unmeasured, kernels["graphs"], minute=2),
        b.analysis(attempt, minute=3),
    )
    found = {
        name: b.finding(kernels[kernel], kind)
        for name, kernel, kind in [
            ("cached", "both", "result_caching"), ("stream", "both", "side_stream"),
            ("cleared", "graphs", "lazy_output"), ("waiting", "none", "lazy_output"),
            ("harmless", "none", "side_stream"),
        ]
    }  # fmt: skip
    story.add("findings", *found.values())
    story.add(
        "standings",
        b.standing(found["cached"], author="ann", why="keyed on data_ptr"),
        b.standing(found["cleared"]),
        b.standing(found["cleared"], "dismissed", minute=1),
        b.standing(found["harmless"], "dismissed"),
    )
    pipeline = b.run("contrastive-batch", "pipeline")
    story.add("runs", pipeline)
    for name in ("one", "two"):
        dataset = b.dataset(pipeline, name, rows=2)
        story.add("datasets", dataset)
        for index in range(2):
            row = b.dataset_row(dataset, tasks["first"], [kernels["both"]], index)
            story.add("dataset_rows", row)
    yield from story.lake(str(tmp_path_factory.mktemp("audit") / "lake"))


def name_of(kernel_id: str) -> str:
    names = ("both", "graphs", "static", "none", "wrong")
    return next(name for name in names if b.kernel(name)["kernel_id"] == kernel_id)


@pytest.mark.slow
def test_a_task_has_one_name_and_the_strictest_split(audit: store.Lake) -> None:
    names = rows(
        audit,
        "SELECT suite, suite_revision, task AS name, degenerate, split "
        "FROM task_names ORDER BY task",
    )
    bare = b.task("bare")["task_id"][:12]
    expected = [
        {"suite": None, "suite_revision": None, "name": bare, "degenerate": True, "split": None},
        {"suite": "kernelbench", "suite_revision": "v0", "name": "level1/7", "degenerate": True,
         "split": "test"},
        {"suite": "kernelbench", "suite_revision": "v0", "name": "level1/8", "degenerate": False,
         "split": "train"},
    ]  # fmt: skip
    assert sorted(names, key=lambda row: row["name"]) == sorted(
        expected, key=lambda row: row["name"]
    )


def test_cross_gpu_pairs_devices_across_workloads(audit: store.Lake) -> None:
    found = {name_of(row["kernel_id"]): row for row in rows(audit, "FROM cross_gpu")}
    assert found.keys() == {"both", "none"}
    both = found["both"]
    assert (both["device_a"], both["workload_a"], both["speedup_a"]) == ("H200", "default", 4)
    assert (both["device_b"], both["workload_b"], both["speedup_b"]) == ("laptop", '{"N": 2}', 1)
    assert (both["ratio"], both["same_workload"], both["quarantined"]) == (0.25, False, True)
    # The laptop has 3x at the workload of the H200 and 2x at another: the equal ones are paired.
    assert (found["none"]["speedup_b"], found["none"]["same_workload"]) == (3, True)


def test_techniques_and_pairs_leave_out_quarantined_kernels(audit: store.Lake) -> None:
    found = rows(audit, "FROM techniques WHERE device = 'H200'")
    # "both" (4x) is quarantined; what stays is graphs 2x and static 1x.
    assert [(row["technique"], row["n"], row["geomean"]) for row in found] == [
        ("cuda_graphs", 1, 2), ("static_tensors", 1, 1),
    ]  # fmt: skip
    assert rows(audit, "FROM technique_pairs") == []


def test_claims_start_an_audit(audit: store.Lake) -> None:
    found = rows(
        audit, "SELECT task, speedup, released FROM claimed_speedups ORDER BY speedup, task"
    )
    assert found == [
        {"task": "level1/7", "speedup": 2.0, "released": True},
        {"task": "level1/8", "speedup": 2.0, "released": True},
        {"task": "level1/7", "speedup": 4.3, "released": True},
        {"task": "level1/8", "speedup": 7.2, "released": False},
        {"task": "level1/7", "speedup": 120.0, "released": True},
    ]


def test_claims_hold_within_ten_percent_of_a_correct_kernel(audit: store.Lake) -> None:
    found = rows(audit, "FROM claims_vs_measured WHERE device = 'H200' ORDER BY claimed, status")
    assert [(row["claimed"], row["measured"], row["status"], row["holds"]) for row in found] == [
        (2.0, None, "correct", None),  # never timed against compile
        (2.0, None, "incorrect", False),
        (4.3, 4.0, "correct", True),  # 4 / 4.3 = 0.93
        (120.0, 4.0, "correct", False),
    ]
    assert found[3]["ratio"] == pytest.approx(4 / 120)
    assert (found[3]["gpu"], found[3]["quarantined"]) == ("A100", True)
    # On the laptop the kernel reaches 1x: no claim about it holds there.
    laptop = rows(audit, "FROM claims_vs_measured WHERE device = 'laptop' AND measured IS NOT NULL")
    assert [row["holds"] for row in laptop] == [False, False]


def test_an_analysis_is_right_by_measurement_or_only_by_what_was_shown(audit: store.Lake) -> None:
    found = rows(audit, "FROM analysis_truth WHERE device IS DISTINCT FROM 'laptop'")
    assert [
        (name_of(row["named_kernel_id"]), row["exemplars"], row["shown_right"], row["named_right"])
        for row in found
    ] == [
        ("both", 2, False, True),  # measured 4x against 2x
        ("graphs", 2, True, False),  # shown as 3.0 against 1.5
        ("graphs", 3, True, None),  # exemplars of another task have no speedup at this one
    ]
    assert name_of(found[0]["fastest_kernel_id"]) == "both"
    assert (found[0]["fastest_speedup"], found[1]["named_speedup"]) == (4, 2)


def test_suspects_stand_by_their_latest_decisions(audit: store.Lake) -> None:
    found = rows(audit, "FROM suspects")
    assert [(name_of(row["kernel_id"]), row["standing"], row["quarantined"]) for row in found] == [
        ("both", "confirmed", True), ("none", "open", False), ("graphs", "dismissed", False),
    ]  # fmt: skip
    both, none, graphs = found
    assert (both["classes"], both["findings"]) == (["result_caching", "side_stream"], 2)
    assert (both["decided_by"], both["why"]) == ("ann", "keyed on data_ptr")
    assert (both["datasets"], both["speedup"], both["device"]) == (2, 4, "H200")
    assert both["measured_at"] == b.START
    assert (none["decided_by"], none["datasets"]) == (None, 0)
    assert graphs["why"] == "dismissed by hand"
    assert rows(audit, "SELECT kernel_id FROM quarantined") == [{"kernel_id": both["kernel_id"]}]


def test_lineage_leads_to_exemplars_and_parents(audit: store.Lake) -> None:
    found = rows(audit, "FROM lineage ORDER BY relation, score")
    assert [
        (name_of(row["child_kernel_id"]), name_of(row["parent_kernel_id"]), row["relation"],
         row["score"], row["policy"])
        for row in found
    ] == [
        ("wrong", "both", "exemplar", 1.5, "writer"),
        ("wrong", "graphs", "exemplar", 3.0, "writer"),
        ("wrong", "none", "parent", None, "writer"),
    ]  # fmt: skip


# ---- techniques ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gatekeeper_shows_in_the_lift_of_a_pair(lake_url: str) -> None:
    story = Story()
    for name, typical, techniques in [
        ("both", 4.0, ["graphs", "static"]),
        ("graphs", 2.0, ["graphs"]),
        ("static", 1.0, ["static"]),
        ("neither", 1.0, []),
    ]:
        for number, spread in enumerate([0.5, 1, 1, 1, 2] if techniques else [1] * 5):
            kernel = b.kernel(f"{name} {number}")
            story.measure(b.task(), kernel, GPU, typical * spread)
            story.add("kernel_features", b.features(kernel, techniques))
    for lake in story.lake(lake_url):
        graphs, static = rows(lake, "FROM techniques ORDER BY technique")
        # graphs: 1, 2, 2, 2, 2, 4, 4, 4, 4, 8; static: 0.5, 1, 1, 1, 2, 2, 4, 4, 4, 8.
        assert (graphs["n"], graphs["kernels"], graphs["tasks"]) == (10, 10, 1)
        assert graphs["geomean"] == pytest.approx(8**0.5)
        assert (graphs["p50"], graphs["p50_low"], graphs["p50_high"]) == (3, 2, 4)
        assert (graphs["share_faster"], static["share_faster"]) == (0.9, 0.6)
        assert static["geomean"] == pytest.approx(2)
        pairs = {row["technique"]: row for row in rows(lake, "FROM technique_pairs")}
        pair = pairs["static"]
        assert (pair["given"], pair["n_both"], pair["n_given_only"]) == ("graphs", 5, 5)
        assert (pair["n_technique_only"], pair["n_neither"]) == (5, 5)
        # static pays behind graphs (4 / 2) and not without (1 / 1).
        assert (pair["lift"], pair["lift_without"]) == (pytest.approx(2), pytest.approx(1))
        # graphs given static: 4 / 1; without static: 2 / 1.
        assert pairs["graphs"]["lift"] == pytest.approx(4)
        assert pairs["graphs"]["lift_without"] == pytest.approx(2)
        # Two of five logarithms are ln 2 away, so that a mean has the variance ln(2)^2 / 10;
        # Student's quantile at 4 degrees of freedom is 2.776. The kernels of neither are equal.
        for name, groups in (("lift", 2), ("lift_without", 1)):
            factor = math.exp(2.776 * math.sqrt(groups * math.log(2) ** 2 / 10))
            assert pair[f"{name}_low"] == pytest.approx(pair[name] / factor, rel=0.01)
            assert pair[f"{name}_high"] == pytest.approx(pair[name] * factor, rel=0.01)


@pytest.mark.slow
def test_a_pair_of_fewer_than_five_kernels_has_no_lift(lake_url: str) -> None:
    story = Story()
    sizes = {("graphs", "static"): 5, ("graphs",): 5, ("static",): 4, (): 9}
    for techniques, count in sizes.items():
        for number in range(count):
            kernel = b.kernel(f"{techniques} {number}")
            story.measure(b.task(), kernel, GPU, 2.0)
            story.add("kernel_features", b.features(kernel, techniques))
    for lake in story.lake(lake_url):
        [pair] = rows(lake, "FROM technique_pairs")  # static alone has four
        assert (pair["technique"], pair["given"]) == ("static", "graphs")
        lifts = [pair[f"lift{end}"] for end in ("", "_low", "_high")]
        assert lifts == [pytest.approx(1, abs=1e-6)] * 3
        assert {pair[f"lift_without{end}"] for end in ("", "_low", "_high")} == {None}
