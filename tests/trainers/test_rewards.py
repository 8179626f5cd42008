"""Rewards from stored rows: every rule by hand, and what holds of smoothing and groups for all."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders as b
import commands
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import store
from store.commandline.members import Common
from store.errors import FlywheelError, RowsRejected, UnknownName
from trainers.cli.app import rescore
from trainers.rewarding import scoring
from trainers.rewards import cuda_l1, log_speedup, milestone, success

TASK, LAPTOP, BOARD = b.task(), b.device("laptop"), b.device("board", kind="cuda")
SIZES, SMALL = b.workload(TASK), b.workload(TASK, "small", '{"N": 2}')
POLICY, RUN = b.policy("learner"), b.run("contrastive", "training")

# Samples of eager and compile in 7 blocks where the kernel takes 1 ms, and how it was judged.
KERNELS: dict[str, tuple[list[float], list[float], str]] = {
    "fastest": ([1.5] * 7, [1.25] * 7, "correct"),
    "over eager": ([2.0] * 7, [1.0] * 7, "correct"),
    "within the margin": ([1.03125] * 7, [2.0] * 7, "correct"),
    "slow": ([0.5] * 7, [0.5] * 7, "correct"),
    # Bucket means 1 and six times 1.2: variance 0.0057, above the limit.
    "erratic": ([1.0, *[1.2] * 6], [1.0] * 7, "correct"),
    "noisy": ([4.0] * 7, [4.0] * 7, "correct"),
    "untimed": ([], [], "correct"),
    "wrong": ([3.0] * 7, [3.0] * 7, "incorrect"),
    "cheat": ([9.0] * 7, [9.0] * 7, "correct"),
    "wrong elsewhere": ([2.0] * 7, [2.0] * 7, "correct"),
    "wrong at another size": ([2.0] * 7, [2.0] * 7, "correct"),
    "crashes elsewhere": ([2.0] * 7, [2.0] * 7, "correct"),
    "not judged": ([], [], ""),
    "our fault": ([], [], "evaluator_error"),
}
NAMES = [*KERNELS, "no kernel"]
NONE = None
# no kernel, wrong, cheat, wrong elsewhere, wrong at another size.
FAILED = {name: True for name in (
    "no kernel", "wrong", "cheat", "wrong elsewhere", "wrong at another size",
)}  # fmt: skip
RAW: dict[str, dict[str, float | None]] = {
    "cuda-l1": dict.fromkeys(FAILED, 0.0) | {
        "fastest": 1.5, "over eager": 2.0, "within the margin": 1.03, "slow": 0.5,
        "erratic": NONE, "noisy": NONE, "untimed": NONE, "crashes elsewhere": 2.0,
    },
    "log-speedup": dict.fromkeys(FAILED, -1.5) | {
        "fastest": math.log(1.5), "over eager": math.log(2), "within the margin": math.log(1.03125),
        "slow": -math.log(2), "erratic": math.log(1.2), "noisy": NONE, "untimed": NONE,
        "crashes elsewhere": math.log(2),
    },
    "success": dict.fromkeys(FAILED, 0.0) | {
        "fastest": 1, "over eager": 1, "within the margin": 1, "slow": 1, "erratic": 1,
        "noisy": 1, "untimed": 1, "crashes elsewhere": 1,
    },
    "milestone": dict.fromkeys(FAILED, -1.0) | {
        "fastest": 3, "over eager": 2, "within the margin": 1, "slow": 1, "erratic": 2,
        "noisy": 1, "untimed": 1, "crashes elsewhere": 3,
    },
}  # fmt: skip


def attempt(name: str, minute: int = 0, **more: Any) -> b.Row:
    """Return an attempt of the run that wrote the kernel of this name."""
    kernel = b.kernel(name) if name in KERNELS else None
    return b.generation(POLICY, TASK, kernel, minute=minute, run_id=RUN["run_id"], **more)


def world() -> dict[str, list[b.Row]]:
    """Return every kernel as it was judged and timed on the laptop."""
    evaluations: list[b.Row] = []
    timings: list[b.Row] = []
    for name, (eager, compiled, status) in KERNELS.items():
        if not status:
            continue
        judged = b.evaluation(b.kernel(name), TASK, SIZES, LAPTOP, status)
        evaluations.append(judged)
        if eager:
            noisy = name == "noisy"
            timings += b.session(judged, [1.0] * 7, disturbed=noisy, eager=eager, compile=compiled)
    for name, sizes, device, status in [
        ("wrong elsewhere", SIZES, BOARD, "incorrect"),
        ("wrong at another size", SMALL, LAPTOP, "incorrect"),
        # A kernel for another kind of device may not even start here.
        ("crashes elsewhere", SIZES, BOARD, "crash"),
    ]:
        evaluations.append(b.evaluation(b.kernel(name), TASK, sizes, device, status, minute=1))
    found = b.finding(b.kernel("cheat"))
    return {
        "tasks": [TASK], "workloads": [SIZES, SMALL], "devices": [LAPTOP, BOARD],
        "policies": [POLICY], "runs": [RUN], "kernels": [b.kernel(name) for name in KERNELS],
        "evaluations": evaluations, "timings": timings, "findings": [found],
        "standings": [b.standing(found)],
    }  # fmt: skip


@pytest.fixture(scope="module")
def judged_lake(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with an attempt for every name, all of one group."""
    url = str(tmp_path_factory.mktemp("judged") / "lake")
    shutil.copytree(empty_lake, url)
    attempts = [attempt(name, group_id="g") for name in NAMES]
    with store.writer(url, author="tests") as writer:
        writer.append(world() | {"generations": attempts}, "judged kernels")
    with store.open(url) as opened:
        yield opened


def score_rule(
    lake: store.Lake, rule: str, config: Any = None, names: Any = NAMES
) -> scoring.Scored:
    wanted = [attempt(name)["generation_id"] for name in names]
    known = scoring.load_rule(rule)
    terms = config or known.config()
    groups = ["g"] * len(wanted)
    return scoring.score_step(lake, known, terms, RUN["run_id"], 0, wanted, groups)


# ---- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RAW)
def test_what_every_attempt_is_worth(judged_lake: store.Lake, rule: str) -> None:
    found = score_rule(judged_lake, rule)
    raw = dict(zip(NAMES, found.raw, strict=True))
    assert raw == pytest.approx(RAW[rule] | {"not judged": NONE, "our fault": NONE})
    # An attempt without a reward has no row; every row carries what it was made of.
    assert len(found.rows) == found.counts["rewarded"] == sum(v is not NONE for v in found.raw)
    row = found.rows[0]
    assert (row["rule"], row["rule_version"], row["step"]) == (rule, 4, 0)
    assert (row["lake_id"], row["snapshot_id"]) == (judged_lake.lake_id, judged_lake.snapshot)
    assert json.loads(row["config"])["baseline"] == "eager"


def test_a_reward_names_the_evaluation_that_decides(judged_lake: store.Lake) -> None:
    found = score_rule(judged_lake, "success")
    names = {attempt(name)["generation_id"]: name for name in NAMES}
    rows = {names[row["generation_id"]]: row["evaluation_id"] for row in found.rows}
    elsewhere = {"wrong elsewhere": (SIZES, BOARD), "wrong at another size": (SMALL, LAPTOP)}
    for name, evaluation_id in rows.items():
        if name == "no kernel":
            assert evaluation_id is None
            continue
        sizes, device = elsewhere.get(name, (SIZES, LAPTOP))
        status = "incorrect" if name in elsewhere else KERNELS[name][2]
        minute = int(name in elsewhere)
        judged = b.evaluation(b.kernel(name), TASK, sizes, device, status, minute=minute)
        assert evaluation_id == judged["evaluation_id"], name
    # The evaluation is one of the kernel that the attempt wrote, and says what the reward says.
    judged_lake.register("given", pa.Table.from_pylist(found.rows))
    [row] = judged_lake.run(
        "SELECT count(*) AS n, bool_and(e.kernel_id = g.kernel_id) AS own, "
        "bool_and((e.status = 'correct') = (given.raw = 1)) FILTER (q.kernel_id IS NULL) AS agree "
        "FROM given JOIN generations AS g USING (generation_id) "
        "JOIN evaluations AS e ON e.evaluation_id = given.evaluation_id "
        "LEFT JOIN withheld AS q ON q.kernel_id = g.kernel_id"
    ).rows()
    assert row == {"n": len(rows) - 1, "own": True, "agree": True}


def test_counts_of_a_step(judged_lake: store.Lake) -> None:
    assert score_rule(judged_lake, "cuda-l1").counts == {
        "attempts": 15, "rewarded": 10, "correct": 8, "failures": 5, "withheld": 1,
        "nonequivalent": 0,
        "discarded": 3, "unjudged": 2, "groups": 1, "zero_variance_groups": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_another_function_earns_nothing_unless_it_is_asked_for(lake_url: str) -> None:
    names = ["fastest", "over eager"]
    rows = world() | {"generations": [attempt(name, group_id="g") for name in names]}
    rows["evaluations"].append(
        b.evaluation(
            b.kernel("fastest"), TASK, SIZES, BOARD, minute=9, flags=["parameters_renamed"]
        )
    )
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows of a test")
    with store.open(lake_url) as lake:
        found = score_rule(lake, "success", None, names)
        assert (found.raw, found.counts["nonequivalent"]) == ([0.0, 1.0], 1)
        config = success.Config(include_nonequivalent=True)
        assert score_rule(lake, "success", config, names).raw == [1.0, 1.0]


@pytest.mark.slow
def test_pulled_verdicts_of_another_device_take_no_reward_from_kernels_judged_here(
    lake_url: str,
) -> None:
    names = ["fastest", "over eager"]
    rows = world() | {"generations": [attempt(name, group_id="g") for name in names]}
    rows["evaluations"] += [
        b.evaluation(b.kernel(name), TASK, SIZES, BOARD, "incorrect", minute=9, origin=origin)
        for name, origin in (("fastest", "lab/kernels"), ("over eager", None))
    ]
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows of a test")
    with store.open(lake_url) as lake:
        assert score_rule(lake, "success", None, names).raw == [1.0, 0.0]


@pytest.mark.slow
def test_a_doubt_holds_a_surprising_win_back_until_somebody_decides(lake_url: str) -> None:
    names = ["cheat", "slow", "fastest"]
    rows = world() | {"generations": [attempt(name, group_id="g") for name in names]}
    doubts = [b.finding(b.kernel(name), confidence=0.6) for name in ("cheat", "slow")]
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows | {"findings": doubts, "standings": []}, "doubted kernels")
    with store.open(lake_url) as lake:
        for doubt, raw in ((None, 9.0), (0.7, 9.0), (0.6, NONE)):
            scored = score_rule(lake, "cuda-l1", cuda_l1.Config(doubt=doubt), names)
            # The slow one has the same finding, and is no surprise.
            assert scored.raw == [raw, 0.5, 1.5]
        assert (scored.counts["correct"], scored.counts["discarded"]) == (3, 1)
    with store.writer(lake_url, author="tests") as writer:
        dismissed = b.standing(doubts[0], decision="dismissed")
        writer.append({"standings": [dismissed]}, "a decision")
    with store.open(lake_url) as lake:
        assert score_rule(lake, "cuda-l1", cuda_l1.Config(doubt=0.6), names).raw[0] == 9.0


@pytest.mark.slow
def test_a_discarded_measurement_can_count_as_a_failure(judged_lake: store.Lake) -> None:
    names = ["erratic", "noisy", "untimed", "not judged", "fastest"]
    config = cuda_l1.Config(discarded="failure", failure=-0.25)
    assert score_rule(judged_lake, "cuda-l1", config, names).raw == [-0.25, -0.25, -0.25, NONE, 1.5]


def test_constants_are_options(judged_lake: store.Lake) -> None:
    names = ["fastest", "over eager", "slow", "wrong"]
    compiled = cuda_l1.Config(baseline="compile")
    assert score_rule(judged_lake, "cuda-l1", compiled, names).raw == [1.25, 1.0, 0.5, 0.0]
    steps = milestone.Config(failure=-2, correct=0, faster=5, fastest=7, margin=0.6)
    assert score_rule(judged_lake, "milestone", steps, names).raw == [0, 5, 0, -2]
    bounds = log_speedup.Config(clip=0.5, failure=-9)
    assert score_rule(judged_lake, "log-speedup", bounds, names).smoothed == pytest.approx(
        [math.log(1.5), 0.5, -0.5, -0.5]
    )
    assert score_rule(judged_lake, "success", success.Config(correct=4, failure=1), names).raw == [
        4, 4, 4, 1,
    ]  # fmt: skip


def test_verdicts_of_one_device_count(judged_lake: store.Lake) -> None:
    names = ["crashes elsewhere", "fastest", "no kernel"]
    there = success.Config(device="board")
    # It crashed on the board, where the others were never judged.
    assert score_rule(judged_lake, "success", there, names).raw == [0, NONE, 0]
    nowhere = success.Config(device="nowhere")
    assert score_rule(judged_lake, "success", nowhere, names).raw == [NONE, NONE, 0]


@pytest.mark.slow
def test_a_clock_can_be_chosen(lake_url: str) -> None:
    """A kernel that was not timed by it has no figure, as after the protocol training."""
    judged = [
        b.evaluation(b.kernel("fastest"), TASK, SIZES, LAPTOP),
        b.evaluation(b.kernel("slow"), TASK, SIZES, LAPTOP, protocol="training"),
    ]
    timings = [
        row
        for verdict, clock, speedup in (
            (judged[0], "throughput", 4.0), (judged[0], "latency", 2.0),
            (judged[1], "throughput", 3.0),
        )
        for row in b.session(verdict, [1.0] * 7, clock=clock, eager=[speedup] * 7)
    ]  # fmt: skip
    made = [attempt("fastest"), attempt("slow")]
    tables = world() | {"evaluations": judged, "timings": timings, "generations": made}
    with store.writer(lake_url, author="tests") as writer:
        writer.append(tables, "two clocks")
    names = [row["generation_id"] for row in made]
    with store.open(lake_url) as lake:
        for clock, expected in (
            (None, [math.log(4), math.log(3)]),
            ("latency", [math.log(2), None]),
            ("gpu", [None, None]),
        ):
            config = log_speedup.Config(clock=clock)
            rule = scoring.load_rule("log-speedup")
            scored = scoring.score_step(lake, rule, config, RUN["run_id"], 0, names, ["g", "g"])
            assert scored.raw == pytest.approx(expected)


def test_rewards_come_in_the_order_asked(judged_lake: store.Lake) -> None:
    names = ["slow", "fastest", "slow", "no kernel"]
    assert score_rule(judged_lake, "cuda-l1", None, names).raw == [0.5, 1.5, 0.5, 0.0]
    assert score_rule(judged_lake, "cuda-l1", None, []).raw == []


def test_an_attempt_that_is_not_stored_is_refused(judged_lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match="holds no generation 'unheard'"):
        scoring.score_step(judged_lake, RULE, SHORT, RUN["run_id"], 0, ["unheard"], ["g"])
    with pytest.raises(UnknownName, match='no reward rule "cuda"'):
        score_rule(judged_lake, "cuda")


def test_options_are_checked() -> None:
    rule = scoring.load_rule("cuda_l1")
    assert rule.name == "cuda-l1"
    assert scoring.configure_rule(
        rule, {"clip": None, "device": "H200", "discarded": "failure"}
    ) == (cuda_l1.Config(clip=None, device="H200", discarded="failure"))
    with pytest.raises(UnknownName, match="clp"):
        scoring.configure_rule(rule, {"clp": 2})
    for wrong in ({"clip": "high"}, {"discarded": "sometimes"}, {"window": 2.5}, {"clip": True}):
        with pytest.raises(FlywheelError, match="cuda-l1"):
            scoring.configure_rule(rule, wrong)


def test_a_rule_of_ones_own(
    judged_lake: store.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flywheel/rewards").mkdir(parents=True)
    (tmp_path / "flywheel/rewards/shy.py").write_text(
        '"""Half of what success gives."""\n'
        "from trainers.rewards import assign_rewards\n"
        "from trainers.rewards.success import Config\n"
        "VERSION = 7\n"
        "def raw(rows, config):\n"
        "    return assign_rewards(rows, config.correct / 2, config)\n"
    )
    monkeypatch.chdir(tmp_path)
    found = score_rule(judged_lake, "shy", None, ["fastest", "wrong"])
    assert (found.raw, found.rows[0]["rule_version"]) == ([0.5, 0], 7)


# ---- groups and smoothing ------------------------------------------------------------------------

VALUES = st.one_of(
    st.just(math.nan),
    st.floats(-1e3, 1e3).map(lambda value: round(value, 3)),
    st.sampled_from([0.0, 1.0, 1.5]),
)
ATTEMPTS = st.lists(st.tuples(VALUES, st.sampled_from("abc")), max_size=24)


@given(ATTEMPTS)
def test_a_group_has_mean_0_and_deviation_1_or_nothing(attempts: list[tuple[float, str]]) -> None:
    values = np.array([value for value, _ in attempts], dtype=float)
    groups = [group for _, group in attempts]
    advantage, flat = scoring.normalize_rewards(values, groups, 0.0)
    assert (np.isnan(advantage) == np.isnan(values)).all()
    flats = 0
    for group in set(groups):
        mine = np.array([one == group for one in groups]) & ~np.isnan(values)
        if not mine.any():
            continue
        if len(set(values[mine].tolist())) == 1:
            flats += 1
            assert (advantage[mine] == 0).all()
            continue
        assert advantage[mine].mean() == pytest.approx(0, abs=1e-6)
        assert advantage[mine].std(ddof=1) == pytest.approx(1)
        # The better attempt never has the smaller advantage.
        assert (np.diff(advantage[mine][np.argsort(values[mine])]) >= -1e-9).all()
    assert flat == flats


@given(ATTEMPTS, st.randoms(use_true_random=False))
def test_the_order_of_attempts_does_not_matter(
    attempts: list[tuple[float, str]], random: Any
) -> None:
    order = list(range(len(attempts)))
    random.shuffle(order)
    values = np.array([value for value, _ in attempts], dtype=float)
    groups = [group for _, group in attempts]
    advantage, flat = scoring.normalize_rewards(values, groups, 1e-4)
    shuffled, again = scoring.normalize_rewards(values[order], [groups[at] for at in order], 1e-4)
    np.testing.assert_array_equal(shuffled, advantage[order])
    assert flat == again


def test_advantages_are_those_of_trl() -> None:
    # (r - mean) / (std over n - 1 + 1e-4): mean 2, std 1.
    advantage, _ = scoring.normalize_rewards(np.array([1.0, 2.0, 3.0]), ["g"] * 3, 1e-4)
    assert advantage.tolist() == pytest.approx([-1 / 1.0001, 0, 1 / 1.0001])


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9),
    st.floats(-1e3, 1e3),
    st.floats(0, 1e3),
    st.floats(0, 5),
)
def test_smoothed_rewards_keep_their_bounds_and_order(
    raw: list[float], mean: float, std: float, clip: float
) -> None:
    terms = cuda_l1.Config(clip=clip)
    values = np.sort(np.array(raw))
    smoothed = scoring.smooth(values, np.full(len(raw), mean), np.full(len(raw), std), terms)
    assert (np.abs(smoothed) <= clip).all()
    assert (np.diff(smoothed) >= 0).all()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 9), st.floats(-1e3, 1e3)), max_size=30))
def test_mean_and_deviation_over_steps_are_those_of_their_rewards(
    rewards: list[tuple[int, float]],
) -> None:
    terms = cuda_l1.Config()
    rows = sorted(rewards)
    steps = np.array([step for step, _ in rows], dtype=np.int64)
    raw = np.array([value for _, value in rows], dtype=float)
    for first, last in [(0, 0), (0, 4), (3, 7), (0, 10), (9, 30)]:
        inside = raw[(steps >= first) & (steps < last)]
        # All steps at once, as over history, and those of a window alone, as in training.
        mean, std = scoring.compute_moments(steps, raw, first, last, terms)
        alone = steps[(steps >= first) & (steps < last)]
        assert (mean, std) == scoring.compute_moments(alone, inside, first, last, terms)
        if len(inside):
            assert mean == pytest.approx(inside.mean(), abs=1e-9)
            assert std == pytest.approx(inside.std(), abs=1e-6)
        else:
            assert (mean, std) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("step", "steps"),
    [(0, (0, 0)), (1, (0, 1)), (99, (0, 99)), (100, (0, 100)), (199, (0, 100)), (350, (200, 300))],
)
def test_the_window_moves_with_each_refresh(step: int, steps: tuple[int, int]) -> None:
    assert scoring.find_window(step, cuda_l1.Config()) == steps
    assert scoring.find_window(step, success.Config()) == (0, 0)


# ---- a run ---------------------------------------------------------------------------------------

# Two groups of two attempts at each step; raw rewards by cuda-l1 below.
STEPS = [
    ["fastest", "wrong", "slow", "slow"],
    ["over eager", "fastest", "no kernel", "slow"],
    ["wrong", "wrong", "over eager", "not judged"],
    ["over eager", "slow", "fastest", "fastest"],
    ["slow", "over eager", "wrong", "fastest"],
]
SHORT = cuda_l1.Config(refresh_every=2, window=2)
RULE = scoring.load_rule("cuda-l1")


def sample_step(step: int) -> list[b.Row]:
    """Return the attempts of a step."""
    return [
        attempt(name, minute=10 * step + place, group_id=f"{step}-{place // 2}")
        for place, name in enumerate(STEPS[step])
    ]


def train_steps(url: str, steps: range) -> list[scoring.Scored]:
    """Score and store some steps of the run, one after another."""
    made: list[scoring.Scored] = []
    with store.writer(url, author="tests") as writer:
        for step in steps:
            rows = sample_step(step)
            groups = [row["group_id"] for row in rows]
            wanted = [row["generation_id"] for row in rows]
            with writer.reader() as lake:
                one = scoring.score_step(lake, RULE, SHORT, RUN["run_id"], step, wanted, groups)
            writer.append({"rewards": one.rows}, f"rewards of step {step}")
            made.append(one)
    return made


@pytest.fixture(scope="module")
def run(
    empty_lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, list[scoring.Scored]]:
    """Return the lake of a run of five steps, a copy of it after three, and what was scored."""
    folder = tmp_path_factory.mktemp("run")
    url, halfway = str(folder / "lake"), str(folder / "halfway")
    shutil.copytree(empty_lake, url)
    attempts = [row for step in range(len(STEPS)) for row in sample_step(step)]
    with store.writer(url, author="tests") as writer:
        writer.append(world() | {"generations": attempts}, "judged kernels")
    before = train_steps(url, range(3))
    shutil.copytree(url, halfway)
    return url, halfway, before + train_steps(url, range(3, 5))


def test_smoothing_by_hand(run: tuple[str, str, list[scoring.Scored]]) -> None:
    _, _, made = run
    # Step 0 is held against 1 ± 1.
    assert made[0].raw == [1.5, 0, 0.5, 0.5]
    assert made[0].smoothed == [0.5, -1, -0.5, -0.5]
    # Step 1 against step 0: mean 0.625, variance (0.875² + 0.625² + 2 · 0.125²) / 4.
    std = ((0.875**2 + 0.625**2 + 2 * 0.125**2) / 4) ** 0.5
    assert made[1].raw == [2, 1.5, 0, 0.5]
    assert made[1].smoothed == pytest.approx([1.5, 1.5, -0.625 / std, -0.125 / std])
    # Refreshed at step 2: steps 0 and 1, also for step 3. Mean 6.5 / 8.
    first = np.array([1.5, 0, 0.5, 0.5, 2, 1.5, 0, 0.5])
    for step in (2, 3):
        wanted = [None if r is None else (r - 0.8125) / first.std() for r in made[step].raw]
        assert made[step].smoothed == pytest.approx(
            [None if r is None else max(-1.5, min(1.5, r)) for r in wanted]
        )
    # Refreshed at step 4: steps 2 and 3, of which one attempt has no reward.
    second = np.array([0, 0, 2, 2, 0.5, 1.5, 1.5])
    assert made[4].smoothed == pytest.approx(
        np.clip((np.array([0.5, 2, 0, 1.5]) - second.mean()) / second.std(), -1.5, 1.5).tolist()
    )


def test_groups_without_spread_are_counted_and_teach_nothing(
    run: tuple[str, str, list[scoring.Scored]],
) -> None:
    _, _, made = run
    assert [one.counts["zero_variance_groups"] for one in made] == [1, 1, 2, 1, 0]
    assert made[0].advantage[2:] == [0, 0]
    # Both are clipped to 1.5.
    assert made[1].advantage[:2] == [0, 0]
    # A group of one.
    assert made[2].advantage[2:] == [0, None]


def test_a_run_that_is_resumed_goes_on_with_the_same_rewards(
    run: tuple[str, str, list[scoring.Scored]],
) -> None:
    _, halfway, made = run
    [one] = train_steps(halfway, range(3, 4))
    assert (one.raw, one.smoothed, one.advantage) == (
        made[3].raw, made[3].smoothed, made[3].advantage,
    )  # fmt: skip


@pytest.mark.slow
def test_a_step_may_be_scored_in_batches_and_any_order(
    run: tuple[str, str, list[scoring.Scored]],
) -> None:
    url, _, made = run
    rows = sample_step(4)
    with store.open(url) as lake:
        for places in ([3, 2], [0, 1], [1, 3, 0, 2]):
            wanted = [rows[at]["generation_id"] for at in places]
            groups = [rows[at]["group_id"] for at in places]
            found = scoring.score_step(lake, RULE, SHORT, RUN["run_id"], 4, wanted, groups)
            assert found.smoothed == [made[4].smoothed[at] for at in places]
            assert found.advantage == [made[4].advantage[at] for at in places]


@pytest.mark.slow
def test_stored_rewards_are_the_same_again(run: tuple[str, str, list[scoring.Scored]]) -> None:
    url, _, made = run
    with store.open(url) as lake:
        found = scoring.verify_rewards(lake, RUN["run_id"], RULE)
        assert (found.rewards, found.different, found.other_lakes) == (19, [], 0)
        # The whole of history at once gives what step by step gave.
        whole = scoring.rescore_run(lake, RUN["run_id"], RULE, SHORT)
        by_generation = {row["generation_id"]: row for row in whole.rows}
        for stored in (row for one in made for row in one.rows):
            again = by_generation[stored["generation_id"]]
            for name in ("step", "raw", "smoothed", "advantage"):
                assert again[name] == pytest.approx(stored[name])


@pytest.mark.slow
def test_a_hack_found_later_changes_what_is_rescored_and_nothing_stored(
    run: tuple[str, str, list[scoring.Scored]], tmp_path: Path
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(run[0], url)
    found, swept = b.finding(b.kernel("fastest")), replace(RULE, name="swept")
    with store.writer(url, author="tests") as writer:
        writer.append({"findings": [found], "standings": [b.standing(found)]}, "a hack")
        with writer.reader() as lake:
            whole = scoring.rescore_run(lake, RUN["run_id"], swept, SHORT)
            kernels = [name for step in STEPS for name in step]
            assert {raw for name, raw in zip(kernels, whole.raw, strict=True)
                    if name == "fastest"} == {0.0}  # fmt: skip
            assert whole.counts["withheld"] == kernels.count("fastest")
        writer.append({"rewards": whole.rows}, "swept")
        # One version of a rule rewards an attempt once.
        with pytest.raises(RowsRejected):
            writer.append({"rewards": [whole.rows[0] | {"raw": 2.0}]}, "another reward")
        with writer.reader() as lake:
            stored = lake.sql("SELECT raw FROM rewards WHERE rule = 'cuda-l1' ORDER BY raw").rows()
            raw = [value for one in run[2] for value in one.raw if value is not None]
            assert [row["raw"] for row in stored] == sorted(raw)
            again = scoring.verify_rewards(lake, RUN["run_id"], swept)
            assert (again.rewards, again.different) == (19, [])
            # A rule that was changed without a new version shows.
            other = replace(swept, raw=lambda rows, config: swept.raw(rows, config) + 0.5)
            different = scoring.verify_rewards(lake, RUN["run_id"], other).different
    assert len(different) == 19
    assert different[0]["raw"] == different[0]["stored_raw"] + 0.5


@pytest.mark.slow
def test_a_kernel_that_no_dataset_may_hold_earns_nothing(
    run: tuple[str, str, list[scoring.Scored]], tmp_path: Path
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(run[0], url)
    suspicion = b.finding(b.kernel("over eager"), confidence=0.8)
    with store.writer(url, author="tests") as writer, writer.reader() as lake:
        before = scoring.rescore_run(lake, RUN["run_id"], RULE, SHORT)
        writer.append({"findings": [suspicion]}, "a strong suspicion that nobody has decided on")
        with writer.reader() as later:
            after = scoring.rescore_run(later, RUN["run_id"], RULE, SHORT)
    names = [name for step in STEPS for name in step]
    assert {raw for name, raw in zip(names, before.raw, strict=True) if name == "over eager"} == {
        2.0
    }
    assert {raw for name, raw in zip(names, after.raw, strict=True) if name == "over eager"} == {
        0.0
    }
    assert after.counts["withheld"] == before.counts["withheld"] + names.count("over eager")


@pytest.mark.slow
def test_the_command_rescores_verifies_and_refuses(
    run: tuple[str, str, list[scoring.Scored]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(run[0], url)
    common, short = Common(lake=url), RUN["run_id"][:12]
    words = [
        "trainers", "rescore", short, "--rule", "milestone",
        "--option", "failure=-2", "--format", "csv", "--lake", url,
    ]  # fmt: skip
    done = commands.run(words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Step 0: 3, -2, 1, 1.
    assert done.stdout.splitlines()[1].split(",")[:3] == ["0", "4", "0.75"]
    assert "rewards +19" in done.stderr
    rescore(short, rule="milestone", verify=True, common=common)
    assert "19 of 19 rewards of milestone are unchanged" in capsys.readouterr().out
    with pytest.raises(FlywheelError, match="has 19 rewards under milestone 4"):
        rescore(short, rule="milestone", common=common)
    rescore(short, rule="milestone", name="again", dry_run=True, common=common)
    assert "nothing stored" in capsys.readouterr().err
    with pytest.raises(UnknownName, match='no run with attempts "f00"'):
        rescore("f00", common=common)
    with store.open(url) as lake:
        rules = lake.sql("SELECT rule, count(*) AS n FROM rewards GROUP BY rule ORDER BY rule")
        assert rules.rows() == [{"rule": "cuda-l1", "n": 19}, {"rule": "milestone", "n": 19}]
