"""Views give numbers worked out by hand: verdicts, speedups and rankings of kernels."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from evaluators.timing.intervals import MISSED, read_fallback_spreads
from evaluators.timing.surprising_wins import compute_speedups
from store.lake.sql_files import (
    describe_column,
    list_views,
    read_description,
    read_view,
)
from store.schema.catalog import VIEWS

SPREAD = read_fallback_spreads()["throughput"]
RANK = r"greatest\(1, floor\(.+?\)\)::BIGINT"


def rows(lake: store.Lake, query: str) -> list[dict[str, Any]]:
    return lake.sql(query).rows()


def lake_of(folder: Path, tables: dict[str, list[b.Row]]) -> Iterator[store.Lake]:
    with store.writer(str(folder / "lake"), author="tests") as writer:
        writer.append(tables, "rows of a test")
    with store.open(str(folder / "lake")) as lake:
        yield lake


def sessions(judged: b.Row, ratios: list[float], **options: Any) -> list[b.Row]:
    """Return a session against eager in which the kernel takes 1 ms and eager `ratios` ms."""
    return b.session(judged, [1.0] * len(ratios), eager=ratios, **options)


def assert_interval(session: dict[str, Any], low: float, high: float) -> None:
    """Compare an interval with the one of the samples alone and the spread of sessions."""
    middle = session["speedup"]
    below, above = (math.hypot(math.log(end / middle), 1.96 * SPREAD) for end in (low, high))
    ends = middle * math.exp(-below), middle * math.exp(above)
    assert (session["speedup_low"], session["speedup_high"]) == pytest.approx(ends)


# ---- verdicts and speedups -----------------------------------------------------------------------

TASK, LAPTOP = b.task(), b.device("laptop")
SIZES = b.workload(TASK)
NAMES = ["flaky", "twice", "mended", "unlucky", "unjudged", "doubted", "timed"]
KERNELS = {name: b.kernel(name) for name in NAMES}


def make_evaluation(name: str, status: str = "correct", **options: Any) -> b.Row:
    return b.evaluation(KERNELS[name], TASK, SIZES, LAPTOP, status, **options)


def make_controlled(judged: b.Row, ratios: list[float], control: list[float]) -> list[b.Row]:
    """Return a session with a control, a minute after the others of its evaluation."""
    kernel, *others = sessions(judged, ratios, minute=30)
    return [kernel | {"control_ratios": control}, *others]


@pytest.fixture(scope="module")
def judgements(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return one task with kernels judged in confusing ways and sessions of every shape."""
    flaky = [
        make_evaluation("flaky"),
        make_evaluation("flaky", "incorrect", minute=1),
        make_evaluation("flaky", minute=2),
    ]
    twice = [make_evaluation("twice", "timeout"), make_evaluation("twice", "crash", minute=1)]
    mended = [
        make_evaluation("mended", "incorrect"),
        make_evaluation("mended", version=2, minute=1),
    ]
    unlucky = [
        make_evaluation("unlucky"),
        make_evaluation("unlucky", "evaluator_error", version=2, minute=1),
    ]
    doubted = [
        make_evaluation("doubted"),
        make_evaluation("doubted", "rejected", evaluator="strict", minute=1),
    ]
    timed = [make_evaluation("timed", minute=minute) for minute in range(6)]
    yield from lake_of(
        tmp_path_factory.mktemp("judgements"),
        {
            "tasks": [TASK],
            "workloads": [SIZES],
            "devices": [LAPTOP],
            "kernels": list(KERNELS.values()),
            "evaluations": [
                *flaky,
                *twice,
                *mended,
                *unlucky,
                *doubted,
                *timed,
                make_evaluation("unjudged", "evaluator_error"),
            ],
            "timings": [
                *sessions(mended[0], [9.0]),  # of version 1, superseded
                *sessions(mended[1], [2.0]),
                *sessions(unlucky[0], [3.0]),
                *sessions(unlucky[1], [9.0]),  # the judge itself failed
                *sessions(doubted[0], [5.0]),
                *b.session(timed[0], [1.0, 2.0, 4.0], eager=[2.0, 2.0, 12.0], compile=[1.0] * 3),
                *sessions(timed[1], [16.0, 1.0, 8.0, 2.0]),
                *sessions(timed[2], [float(ratio) for ratio in range(20, 0, -1)]),
                *make_controlled(timed[2], [4.0] * 20, [0.5] * 10 + [0.8] * 10),
                *b.session(
                    timed[3],
                    [1.0, 2.0, 4.0, 8.0],
                    eager=[3.0, 8.0, 5.0, 7.0],
                    blocks={"kernel": [0, 1, 2, 5], "eager": [5, 2, 0, 7]},
                ),
                *sessions(timed[4], [2.0], clock="latency", disturbed=True),
                *b.session(timed[5], [1.0], eager=[1.0], blocks={"kernel": [0], "eager": [1]}),
            ],
        },
    )


def test_a_failure_wins_over_passes_of_the_same_version(judgements: store.Lake) -> None:
    flaky = rows(
        judgements,
        f"FROM verdicts WHERE kernel_id = '{KERNELS['flaky']['kernel_id']}'",
    )
    assert flaky == [
        {
            "kernel_id": KERNELS["flaky"]["kernel_id"],
            "task_id": TASK["task_id"],
            "workload_id": SIZES["workload_id"],
            "device_id": LAPTOP["device_id"],
            "evaluator": "starter",
            "precision": "torch_default",
            "evaluator_version": 1,
            "status": "incorrect",
            "reason": "unspecified",
            "correct": False,
            "evaluation_id": make_evaluation("flaky", "incorrect", minute=1)["evaluation_id"],
            "evaluations": 3,
            "last_judged_at": b.at(2),
            "elsewhere": False,
            "device": "laptop",
        }
    ]


def test_the_newest_version_and_its_newest_failure_decide(judgements: store.Lake) -> None:
    found = {
        (row["kernel_id"], row["evaluator"]): (row["evaluator_version"], row["status"])
        for row in rows(judgements, "FROM verdicts")
    }
    expected = {
        ("flaky", "starter"): (1, "incorrect"),
        ("twice", "starter"): (1, "crash"),
        ("mended", "starter"): (2, "correct"),
        # Version 2 could not judge: version 1 still stands. "unjudged" has no verdict at all.
        ("unlucky", "starter"): (1, "correct"),
        ("doubted", "starter"): (1, "correct"),
        ("doubted", "strict"): (1, "rejected"),
        ("timed", "starter"): (1, "correct"),
    }
    assert found == {
        (KERNELS[name]["kernel_id"], evaluator): verdict
        for (name, evaluator), verdict in expected.items()
    }


def test_one_failing_evaluator_is_enough_for_the_outcome(judgements: store.Lake) -> None:
    [outcome] = rows(
        judgements, f"FROM outcomes WHERE kernel_id = '{KERNELS['doubted']['kernel_id']}'"
    )
    assert (outcome["correct"], outcome["status"], outcome["evaluator"], outcome["evaluators"]) == (
        False, "rejected", "strict", 2,
    )  # fmt: skip
    [session] = rows(
        judgements, f"FROM speedups WHERE kernel_id = '{KERNELS['doubted']['kernel_id']}'"
    )
    assert (session["status"], session["correct"]) == ("correct", False)


def test_sessions_of_superseded_versions_and_failed_judges_do_not_appear(
    judgements: store.Lake,
) -> None:
    ratios = {
        name: [
            row["speedup"]
            for row in rows(
                judgements, f"FROM speedups WHERE kernel_id = '{KERNELS[name]['kernel_id']}'"
            )
        ]
        for name in ("mended", "unlucky")
    }
    assert ratios == {"mended": [2.0], "unlucky": [3.0]}


def timed_sessions(lake: store.Lake, minute: int) -> dict[str, dict[str, Any]]:
    """Return the speedups of one session of kernel "timed" by baseline."""
    evaluation_id = make_evaluation("timed", minute=minute)["evaluation_id"]
    found = rows(lake, f"FROM speedups WHERE evaluation_id = '{evaluation_id}'")
    return {row["baseline"]: row for row in found}


def test_speedup_is_the_median_of_ratios_paired_by_block(judgements: store.Lake) -> None:
    both = timed_sessions(judgements, 0)
    eager = both["eager"]
    # eager / kernel = 2/1, 2/2, 12/4 = 2, 1, 3: median 2. Medians of the arms: 2 ms and 2 ms.
    assert (eager["n"], eager["speedup"], eager["kernel_ms"], eager["baseline_ms"]) == (9, 2, 2, 2)
    # Of 9 pairs, rank 1 from both ends: smallest and largest ratio.
    assert_interval(eager, 1, 3)
    assert (eager["device"], eager["clock"], eager["disturbed"], eager["correct"]) == (
        "laptop", "throughput", False, True,
    )  # fmt: skip
    # compile / kernel = 1, 1/2, 1/4.
    assert both["compile"]["speedup"] == 0.5


def test_the_control_is_one_draw_and_does_not_widen_the_interval(judgements: store.Lake) -> None:
    # All ratios are 4. The control's ratios are 0.5 and 0.8.
    [eager] = rows(judgements, "FROM speedups WHERE n = 20 AND speedup < 5")
    assert eager["speedup"] == 4
    assert_interval(eager, 4, 4)


def test_an_even_number_of_pairs_takes_the_geometric_mean_of_the_middle(
    judgements: store.Lake,
) -> None:
    # exp(median(ln)) of 1, 2, 8, 16 is sqrt(2 * 8) = 4; a plain median would be 5.
    assert timed_sessions(judgements, 1)["eager"]["speedup"] == pytest.approx(4)


def test_the_interval_is_made_of_order_statistics(judgements: store.Lake) -> None:
    # 20 ratios 1 … 20. P(Binomial(20, 1/2) <= 4) = 0.0059, <= 5 is 0.0207: rank 5 from both ends.
    [eager] = rows(judgements, "FROM speedups WHERE n = 20 AND speedup > 5")
    assert eager["n"] == 20
    assert_interval(eager, 5, 16)
    assert eager["speedup"] == pytest.approx((10 * 11) ** 0.5)


def test_arms_with_different_blocks_are_paired_where_both_have_one(
    judgements: store.Lake,
) -> None:
    # Blocks 0, 2, 5 are shared: eager 5, 8, 3 over kernel 1, 4, 8 = 5, 2, 0.375.
    eager = timed_sessions(judgements, 3)["eager"]
    assert (eager["n"], eager["speedup"]) == (3, 2)
    assert_interval(eager, 0.375, 5)
    assert timed_sessions(judgements, 5) == {}


def test_noise_and_clock_are_kept(judgements: store.Lake) -> None:
    eager = timed_sessions(judgements, 4)["eager"]
    assert (eager["clock"], eager["disturbed"]) == ("latency", True)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("views", "missed"), [(("session_speedups",), MISSED), (("leaderboard", "techniques"), 0.05)]
)
def test_ranks_of_the_interval_are_those_of_the_binomial_distribution(
    judgements: store.Lake, views: tuple[str, ...], missed: float
) -> None:
    # Every test process collects this file, and SciPy takes most of a second.
    from scipy.stats import binom

    formulas = {
        re.search(RANK, read_view(name)).group()  # type: ignore[union-attr]
        for name in views
    }
    [formula] = formulas
    found = judgements.run(f"SELECT n, {formula} AS r FROM range(1, 5001) AS t(n)").rows()
    # The largest r with 2 P(X <= r - 1) <= missed is the smallest x with P(X <= x) > missed / 2.
    expected = [max(1, int(binom.ppf(missed / 2, row["n"], 0.5))) for row in found]
    assert [row["r"] for row in found] == expected


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("blocks", [7, 20, 41, 160])
def test_the_view_and_the_judge_compute_one_interval(tmp_path: Path, blocks: int) -> None:
    draw = random.Random(blocks)
    evaluation = make_evaluation("timed")
    ratios = [2 * draw.lognormvariate(0, 0.1) for _ in range(blocks)]
    control = [draw.lognormvariate(0.01, 0.02) for _ in range(blocks)]
    timings = make_controlled(evaluation, ratios, control)
    tables = {
        "tasks": [TASK],
        "workloads": [SIZES],
        "devices": [LAPTOP],
        "kernels": [KERNELS["timed"]],
        "evaluations": [evaluation],
        "timings": timings,
    }
    for lake in lake_of(tmp_path, tables):
        [row] = rows(lake, "FROM speedups")
    low, middle, high = map(math.exp, compute_speedups(timings)["eager"])
    figures = (row["speedup_low"], row["speedup"], row["speedup_high"])
    assert figures == pytest.approx((low, middle, high), rel=1e-6)  # samples are single precision


# ---- rankings ------------------------------------------------------------------------------------


RANKED, WARM, TIED, RISING = (b.task(name) for name in ("ranked", "warm", "tied", "rising"))


@pytest.fixture(scope="module")
def rankings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake in which kernels compete for best_kernels by fair and unfair means."""
    tasks = [RANKED, WARM, TIED, RISING]
    small = b.workload(RANKED, "small", '{"N": 2}')
    names = ["steady", "wild", "loud", "wrong", "hack", "hot", "only", "one", "other"]
    kernels = {name: b.kernel(name) for name in names}
    earlier, later = b.policy("earlier"), b.policy("later")
    hack = b.finding(kernels["hack"])
    evaluations: list[b.Row] = []
    timings: list[b.Row] = []

    def measure(
        task: b.Row,
        name: str,
        ratios: list[float],
        status: str = "correct",
        workload: b.Row | None = None,
        minute: int = 0,
        **options: Any,
    ) -> None:
        where = workload or b.workload(task)
        made = b.evaluation(kernels[name], task, where, LAPTOP, status, minute=minute)
        evaluations.append(made)
        timings.extend(sessions(made, ratios, **options))

    measure(RANKED, "steady", [5.0] * 6, minute=1)
    measure(RANKED, "steady", [2.0] * 6, minute=8)
    measure(RANKED, "wild", [1.5, 4.0, 4.0, 4.0, 4.0, 4.0], minute=3)
    measure(RANKED, "loud", [10.0] * 6, disturbed=True, minute=4)
    measure(RANKED, "wrong", [10.0] * 6, "incorrect", minute=5)
    measure(RANKED, "hack", [9.0] * 6, minute=6)
    measure(RANKED, "hot", [8.0] * 6, clock="latency", minute=7)
    measure(RANKED, "hot", [3.0] * 6, workload=small, minute=9)
    measure(WARM, "only", [3.0] * 6, clock="throughput")
    measure(TIED, "one", [2.0])
    measure(TIED, "other", [2.0])
    for minute, ratio in enumerate([2.0, 1.5, 3.0, 3.0]):
        measure(RISING, "one", [ratio], minute=minute)
    yield from lake_of(
        tmp_path_factory.mktemp("rankings"),
        {
            "tasks": tasks,
            "task_labels": [b.label(RANKED, "level1/1"), b.label(WARM, "level1/2")],
            "workloads": [small, *map(b.workload, tasks)],
            "devices": [LAPTOP],
            "kernels": list(kernels.values()),
            "kernel_features": [
                b.features(kernels["steady"], ["old"]),
                b.features(kernels["steady"], ["fusion", "unroll"], version=2),
            ],
            "policies": [earlier, later],
            "generations": [
                b.generation(later, RANKED, kernels["steady"], minute=2),
                b.generation(earlier, RANKED, kernels["steady"], minute=1),
                b.generation(later, WARM, kernels["steady"], minute=0),
                b.generation(later, RANKED, kernels["wild"]),
            ],
            "evaluations": evaluations,
            "timings": timings,
            "findings": [hack],
            "standings": [b.standing(hack)],
        },
    )


def test_best_kernels_rank_by_the_lower_bound_of_their_pooled_sessions(
    rankings: store.Lake,
) -> None:
    [best] = rows(rankings, "FROM best_kernels WHERE task = 'level1/1' AND workload = 'default'")
    # wild has the better median, 4x, but its lower bound is 1.5; loud is disturbed, wrong fails,
    # hack is quarantined, hot was timed by another clock. steady has a session of
    # 5x and one of 2x.
    assert best["kernel_id"] == b.kernel("steady")["kernel_id"]
    factor = math.exp(1.96 * SPREAD / 2**0.5)
    assert [best[name] for name in ("speedup", "speedup_low", "speedup_high", "n")] == (
        pytest.approx([10**0.5, 10**0.5 / factor, 10**0.5 * factor, 24])
    )
    assert (best["kernel_ms"], best["baseline_ms"]) == pytest.approx((1, 10**0.5))
    assert (best["device"], best["baseline"], best["clock"]) == ("laptop", "eager", "throughput")
    assert best["policy"] == "earlier"
    assert best["techniques"] == ["fusion", "unroll"]


def test_best_kernels_fall_back_to_another_clock_where_the_first_was_not_used(
    rankings: store.Lake,
) -> None:
    [best] = rows(rankings, "FROM best_kernels WHERE task = 'level1/2'")
    assert (best["clock"], best["speedup"], best["policy"]) == ("throughput", 3, None)


def test_a_tie_goes_to_the_smaller_kernel_id(rankings: store.Lake) -> None:
    [best] = rows(rankings, f"FROM best_kernels WHERE task_id = '{TIED['task_id']}'")
    assert best["kernel_id"] == min(b.kernel(name)["kernel_id"] for name in ("one", "other"))
    assert best["task"] == TIED["task_id"][:12]  # nobody has named it


def test_the_workload_with_most_kernels_timed_scores_the_task(rankings: store.Lake) -> None:
    scored = rows(
        rankings,
        "SELECT task, workload FROM scored_workloads JOIN task_names USING (task_id) "
        "WHERE suite IS NOT NULL ORDER BY task",
    )
    assert scored == [
        {"task": "level1/1", "workload": "default"},
        {"task": "level1/2", "workload": "default"},
    ]
    # hot's 3x at the small size is ranked there, and in no table by task.
    hot = b.kernel("hot")["kernel_id"]
    assert rows(rankings, f"SELECT speedup FROM kernel_speedups WHERE kernel_id = '{hot}'") == [
        {"speedup": 3.0}
    ]
    assert rows(rankings, f"FROM scored_speedups WHERE kernel_id = '{hot}'") == []


def test_history_holds_each_session_that_raised_the_best_lower_bound(
    rankings: store.Lake,
) -> None:
    # By time: steady 5 (minute 1), wild 1.5, hack 9 (quarantined), steady 2 (minute 8).
    found = rows(
        rankings,
        "SELECT speedup, previous_low, policy, measured_at FROM history "
        "WHERE task = 'level1/1' AND workload = 'default'",
    )
    assert found == [
        {"speedup": 5.0, "previous_low": None, "policy": "earlier", "measured_at": b.at(1)}
    ]


def test_history_rises_over_time(rankings: store.Lake) -> None:
    # Sessions of 2, 1.5, 3 and 3: the second and fourth raise nothing.
    found = rows(
        rankings,
        "SELECT speedup, previous_low, measured_at FROM history "
        f"WHERE task_id = '{RISING['task_id']}'",
    )
    assert found == [
        {"speedup": 2.0, "previous_low": None, "measured_at": b.at(0)},
        {
            "speedup": 3.0,
            "previous_low": pytest.approx(2.0 * math.exp(-1.96 * SPREAD)),
            "measured_at": b.at(2),
        },
    ]


# ---- every view ----------------------------------------------------------------------------------


def test_views_of_an_empty_lake_are_empty(writer: store.Writer) -> None:
    with writer.reader() as lake:
        for name in ("leaderboard", "cross_gpu", "technique_pairs"):  # most others lie under these
            assert rows(lake, f"FROM {name}") == [], name


UNMEASURED = {"published_stages": 4, "fallback_spreads": 5}
"""Rows of views that say what this lake has not measured."""


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("at", [0, 1])
def test_every_view_works_at_snapshots_older_than_the_tables_and_rows(
    rankings: store.Lake, at: int
) -> None:
    # Snapshot 0 has no table yet, snapshot 1 has no row; the newest has both.
    with store.open(rankings.url, at) as old:
        assert old.snapshot == at
        for name in list_views():
            answer = old.sql(f"FROM {name}").arrow()
            newest = rankings.sql(f"FROM {name} LIMIT 0").arrow()
            assert answer.num_rows == UNMEASURED.get(name, 0), name
            assert answer.schema.equals(newest.schema), name
        for name in old.catalog.tables:
            assert old.sql(f"FROM {name}").arrow().num_rows == (
                1 if at and name in ("lakes", "catalogs") else 0
            ), name
        joined = old.sql("SELECT count(*) AS n FROM loop_proof JOIN timings USING (kernel_id)")
        assert joined.rows() == [{"n": 0}]


@pytest.mark.slow
def test_the_query_command_asks_every_view_at_snapshot_0(rankings: store.Lake) -> None:
    counts = " UNION ALL ".join(
        f"SELECT '{name}' AS view, count(*) AS n FROM {name}" for name in list_views()
    )
    command = [sys.executable, "-m", "store", "query", counts, "--at", "0", "--format", "json"]
    done = subprocess.run([*command, "--lake", rankings.url], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = {row["view"]: row["n"] for row in json.loads(done.stdout)}
    assert found == {name: UNMEASURED.get(name, 0) for name in list_views()}


def test_every_column_of_every_view_has_a_type(rankings: store.Lake) -> None:
    for name in list_views():
        described = rows(rankings, f"DESCRIBE {name}")
        assert [row["column_name"] for row in described if row["column_type"] == '"NULL"'] == []


def test_every_column_of_every_view_has_a_description(rankings: store.Lake) -> None:
    for name in list_views():
        columns = [row["column_name"] for row in rows(rankings, f"DESCRIBE {name}")]
        assert [one for one in columns if not describe_column(name, one)] == [], name
        _, _, header = read_view(name).partition("\n--\n")
        described = re.findall(r"^-- (\w+): ", header, re.MULTILINE)
        assert [one for one in described if one not in columns] == [], name


@pytest.mark.parametrize("name", sorted(file.stem for file in VIEWS.glob("*.sql")))
def test_every_view_says_what_a_row_is(name: str) -> None:
    first = read_view(name).splitlines()[0]
    assert first.startswith("-- One row "), first
    assert read_description(read_view(name)).endswith((".", "?"))
