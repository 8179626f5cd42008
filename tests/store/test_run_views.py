"""Views over runs (curves, records, costs, the proof of the loop): numbers worked out by hand."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from store.lake.location import Location
from store.upkeep import maintenance

TASK, LAPTOP, RUN = b.task(), b.device("laptop"), b.run("contrastive", "training")
SIZES = b.workload(TASK)
POLICY = b.policy("learner", stage="contrastive")
ROLLOUT, IMPORT, ROUND = b.run("r", "rollout"), b.run("i", "import"), b.policy("rounds", round=3)
SEED, FAST, WRONG, FASTER, UNJUDGED = (
    b.kernel(name) for name in ("seed", "fast", "wrong", "faster", "unjudged")
)
NAMES = {
    row["kernel_id"]: name
    for name, row in {
        "seed": SEED, "fast": FAST, "wrong": WRONG, "faster": FASTER, "unjudged": UNJUDGED
    }.items()
}  # fmt: skip


def attempt(kernel: b.Row | None, group: str, minute: float, **more: Any) -> b.Row:
    """Return an attempt of the run; 100 tokens asked, 50 answered."""
    return b.generation(
        POLICY, TASK, kernel, minute=minute, run_id=RUN["run_id"], group_id=group,
        prompt_tokens=100, completion_tokens=50, cost_usd=0.25, **more,
    )  # fmt: skip


def make_verdict(kernel: b.Row, minute: float, speedup: float | None) -> dict[str, list[b.Row]]:
    """Return a verdict that took 4 s; with a speedup, a session of 7 blocks against eager."""
    status = "incorrect" if speedup is None else "correct"
    wall_s, parts_s = (4.0, "no JSON") if speedup is None else (4.5, '{"waiting": 0.5}')
    made = b.evaluation(
        kernel, TASK, SIZES, LAPTOP, status, minute=minute, wall_s=wall_s, parts_s=parts_s
    )
    timed = [] if speedup is None else b.session(made, [1.0] * 7, eager=[speedup] * 7)
    return {"evaluations": [made], "timings": timed}


def reward(attempt: b.Row, step: int, raw: float, **more: Any) -> b.Row:
    """Return a reward whose smoothed value is half of the raw one."""
    return {
        "run_id": RUN["run_id"], "generation_id": attempt["generation_id"], "rule": "success",
        "rule_version": 1, "step": step, "raw": raw, "smoothed": raw / 2, "advantage": 0.0,
    } | more  # fmt: skip


@pytest.fixture(scope="module")
def lake(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return two steps of a run over one task, committed as they would come.

    Before: seed 2x. Step 0, shown seed: fast 3x, wrong, no kernel. Step 1, shown fast and seed:
    fast again, faster 4x, one that waits. Then seed is measured anew at 1x.
    """
    url = str(tmp_path_factory.mktemp("runs") / "lake")
    shutil.copytree(empty_lake, url)
    with store.writer(url, author="tests") as writer:
        world = {
            "tasks": [TASK], "workloads": [SIZES], "devices": [LAPTOP], "policies": [POLICY],
            "runs": [RUN], "kernels": [SEED, FAST, WRONG, FASTER, UNJUDGED],
            "task_labels": [b.label(TASK)],
        }  # fmt: skip
        before = writer.append(world | make_verdict(SEED, 0, 2.0), "before the run")
        with store.open(url) as opened:
            here = {"lake_id": opened.lake_id}

        shown = here | {"snapshot_id": before, "exemplars": [(SEED, 2.0)]}
        first = [
            attempt(FAST, "g0", 1, **shown),
            attempt(WRONG, "g0", 2, **shown),
            attempt(None, "g0", 3, **shown),
        ]
        writer.append({"generations": first}, "step 0 sampled")
        writer.append(make_verdict(FAST, 4, 3.0), "step 0 judged")
        writer.append(make_verdict(WRONG, 5, None), "step 0 judged")
        rewards = [reward(first[0], 0, 1.0), reward(first[1], 0, 0.0), reward(first[2], 0, 0.0)]
        after = writer.append({"rewards": rewards}, "step 0 rewarded")

        shown = here | {"snapshot_id": after, "exemplars": [(FAST, 3.0), (SEED, 2.0)]}
        second = [
            attempt(FAST, "g1", 11, **shown),
            attempt(FASTER, "g1", 12, **shown),
            attempt(UNJUDGED, "g2", 13, **here, snapshot_id=after, exemplars=[(SEED, 2.5)]),
        ]
        writer.append({"generations": second}, "step 1 sampled")
        writer.append(make_verdict(FASTER, 14, 4.0), "step 1 judged")
        rewards = [reward(second[0], 1, 1.0), reward(second[1], 1, 1.0)]
        metrics = [
            {"run_id": RUN["run_id"], "name": name, "step": 2, "value": value}
            for name, value in [("entropy", 0.5), ("loss", 9.0)]
        ]
        writer.append({"rewards": rewards, "metrics": metrics}, "step 1 rewarded")
        writer.append(make_verdict(SEED, 20, 1.0), "seed measured anew")

        # Not shown as measured: a kernel from the future, and prompts of another lake.
        others = [
            attempt(None, "future", 21, **here, snapshot_id=before, exemplars=[(FASTER, 4.0)]),
            attempt(None, "other", 22, lake_id="x", snapshot_id=after, exemplars=[(FAST, 3.0)]),
            attempt(
                None, "same step", 23, **here, snapshot_id=after + 9, exemplars=[(FASTER, 4.0)]
            ),
        ]
        late = [reward(one, 1, 0.0, rule="by hand") for one in others]
        writer.append({"generations": others, "rewards": late}, "prompts that prove nothing")
        elsewhere = [
            b.generation(ROUND, TASK, run_id=run["run_id"], minute=minute)
            for minute, run in [(30, ROLLOUT), (31, IMPORT)]
        ]
        tables = {"policies": [ROUND], "runs": [ROLLOUT, IMPORT], "generations": elsewhere}
        writer.append(tables, "other runs")
    with store.open(url) as opened:
        yield opened


@pytest.mark.slow
def test_the_step_of_an_attempt_is_its_rewards_or_its_groups(lake: store.Lake) -> None:
    query = "SELECT group_id, step FROM run_steps WHERE run_id = $1 ORDER BY created_at"
    found = lake.sql(query, [RUN["run_id"]]).rows()
    steps = [(row["group_id"], row["step"]) for row in found]
    # Nothing of g2 was rewarded, and its policy is of no round.
    assert steps[:6] == [("g0", 0), ("g0", 0), ("g0", 0), ("g1", 1), ("g1", 1), ("g2", None)]


@pytest.mark.slow
def test_an_attempt_that_tells_its_step_needs_no_reward(lake: store.Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.url, tmp_path / "lake")
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        group = [attempt(None, "g3", 40, step=5), attempt(UNJUDGED, "g3", 41, step=5)]
        writer.append({"generations": group}, "a group without reward")
    with store.open(str(tmp_path / "lake")) as opened:
        steps = opened.sql("SELECT step FROM run_steps WHERE group_id = 'g3'").rows()
        [row] = opened.sql("FROM run_curves WHERE step = 5 AND rule = 'success'").rows()
    assert steps == [{"step": 5}, {"step": 5}]
    # The only kernel waits: that nothing has succeeded says nothing yet.
    assert (row["pending"], row["success"], row["success_share"]) == (1, 0, None)


def test_a_policy_of_a_round_gives_its_attempts_their_step(lake: store.Lake) -> None:
    [row] = lake.sql("FROM run_steps WHERE run_id <> $1", [RUN["run_id"]]).rows()
    assert (row["run_id"], row["step"]) == (ROLLOUT["run_id"], 3)
    # Sampled alone it is a group of its own; the attempt that an import brought has no step.
    assert row["group_id"] == row["generation_id"]


def curve(lake: store.Lake, rule: str, step: int | None) -> dict[str, Any]:
    at = "NULL" if step is None else str(step)
    query = f"FROM run_curves WHERE rule = '{rule}' AND step IS NOT DISTINCT FROM {at}"
    [row] = lake.sql(query).rows()
    return row


def test_a_learning_curve(lake: store.Lake) -> None:
    first = curve(lake, "success", 0)
    assert (first["run"], first["kind"], first["device"]) == ("contrastive", "training", "laptop")
    assert (first["attempts"], first["groups"], first["with_kernel"], first["pending"]) == (
        3, 1, 2, 0,
    )  # fmt: skip
    # One of three is correct. Raw rewards 1, 0, 0: mean 1/3, variance 2/9.
    assert (first["success"], first["success_share"]) == (1, pytest.approx(1 / 3))
    assert (first["rewarded"], first["zero_variance_groups"]) == (3, 0)
    assert first["reward_mean"] == pytest.approx(1 / 3)
    assert first["reward_std"] == pytest.approx((2 / 9) ** 0.5)
    assert first["smoothed_mean"] == pytest.approx(1 / 6)
    assert (first["unique_kernels"], first["new_kernels"]) == (2, 2)
    assert (first["timed"], first["speedup_p50"], first["faster"]) == (1, 3, 1)
    assert (first["prompt_tokens"], first["completion_tokens"]) == (300, 150)
    assert (first["cost_usd"], first["entropy"]) == (0.75, None)


def test_a_kernel_written_again_is_not_new(lake: store.Lake) -> None:
    second = curve(lake, "success", 1)
    # g1: fast again and faster; and the three attempts that another rule rewarded at step 1.
    assert (second["attempts"], second["with_kernel"]) == (5, 2)
    assert (second["unique_kernels"], second["new_kernels"]) == (2, 1)
    assert second["speedup_geomean"] == pytest.approx(12**0.5)
    assert (second["speedup_p50"], second["speedup_max"]) == (3.5, 4)
    assert (second["rewarded"], second["zero_variance_groups"]) == (2, 1)
    assert second["entropy"] == 0.5  # logged as that of step 2, when the second step was made


def test_an_attempt_without_step_waits_in_a_row_of_its_own(lake: store.Lake) -> None:
    waiting = curve(lake, "success", None)
    assert (waiting["attempts"], waiting["pending"], waiting["success_share"]) == (1, 1, None)
    assert (waiting["rewarded"], waiting["zero_variance_groups"]) == (None, None)


def test_the_best_kernels_of_a_run_over_its_steps(lake: store.Lake) -> None:
    found = lake.sql("FROM run_bests").rows()
    assert [
        (row["step"], NAMES[row["kernel_id"]], row["speedup"], row["previous_low"], row["record"])
        for row in found
    ] == [
        (0, "fast", 3, None, True),
        (1, "faster", 4, pytest.approx(3 * math.exp(-1.96 * 0.125)), True),
    ]
    assert {row["task"] for row in found} == {"level1/1"}


def test_what_an_improvement_costs(lake: store.Lake) -> None:
    row, rollout = lake.sql("FROM run_costs ORDER BY attempts DESC").rows()
    assert (row["device"], row["baseline"]) == ("laptop", "eager")
    assert (row["attempts"], row["kernels"], row["judged"]) == (9, 4, 3)
    # fast over seed, faster over fast; seed's own record is not of this run.
    assert (row["improvements"], row["improved_tasks"]) == (2, 1)
    # 9 attempts of 150 tokens and 0.25 USD; three kernels of the run were judged, 4 s each
    # without waiting for other judges.
    assert (row["prompt_tokens"], row["completion_tokens"]) == (900, 450)
    assert (row["tokens_per_improvement"], row["cost_usd_per_improvement"]) == (675, 1.125)
    assert (row["device_s"], row["device_s_per_improvement"]) == (12, 6)
    assert (rollout["run"], rollout["device"], rollout["improvements"]) == ("r", None, 0)


def test_what_was_shown_was_measured_before(lake: store.Lake) -> None:
    found = lake.sql("FROM loop_proof").rows()
    shown = {(row["group_id"], NAMES[row["kernel_id"]]): row for row in found}
    holds = {key: row["holds"] for key, row in shown.items()}
    assert holds == {
        ("g0", "seed"): True,
        ("g1", "fast"): True,
        # 1x today, but 2x at the snapshot of the prompt.
        ("g1", "seed"): True,
        # Shown as 2.5x: measured was 2x.
        ("g2", "seed"): False,
        # Not measured yet at the prompt's snapshot.
        ("future", "faster"): False,
        # Measured, but written in the very step that showed it.
        ("same step", "faster"): False,
        # A snapshot of another lake says nothing here.
        ("other", "fast"): None,
    }
    proven = shown["g1", "fast"]
    assert (proven["step"], proven["exemplar_step"], proven["attempts"]) == (1, 0, 2)
    assert (proven["score"], proven["speedup"], proven["device"]) == (3, 3, "laptop")
    assert proven["measured_snapshot_id"] <= proven["snapshot_id"]
    assert shown["g0", "seed"]["exemplar_step"] is None
    assert shown["g2", "seed"]["speedup"] == 2
    assert shown["future", "faster"]["session_id"] is None


def test_a_score_that_pools_sessions_is_measured_too(lake: store.Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.url, tmp_path / "lake")
    by_then = {"lake_id": lake.lake_id, "snapshot_id": lake.snapshot}
    prompts = [
        attempt(None, f"pool {score}", minute, step=7, **by_then, exemplars=[(SEED, score)])
        for minute, score in ((50, 1.41), (51, 1.0), (52, 1.5))
    ]
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append({"generations": prompts}, "prompts with a kernel that has two sessions")
    with store.open(str(tmp_path / "lake")) as opened:
        rows = opened.sql("FROM loop_proof WHERE starts_with(group_id, 'pool')").rows()
    # Its sessions say 2x and then 1x; the geometric mean is 1.41x.
    assert {row["score"]: (row["speedup"], row["holds"]) for row in rows} == {
        1.41: (1.41, True), 1.0: (1.0, True), 1.5: (1.0, False)
    }  # fmt: skip


@pytest.fixture(scope="module")
def later_lake(lake: store.Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a copy in which the fastest kernel is quarantined, and all files are merged."""
    url = tmp_path_factory.mktemp("later") / "lake"
    shutil.copytree(lake.url, url)
    found = b.finding(FASTER)
    with store.writer(str(url), author="tests") as writer:
        writer.append({"findings": [found], "standings": [b.standing(found)]}, "a hack")
    maintenance.compact(Location.of(str(url)))
    with store.open(str(url)) as opened:
        yield opened


@pytest.mark.slow
def test_the_proof_stands_after_compaction(lake: store.Lake, later_lake: store.Lake) -> None:
    query = "SELECT group_id, place, holds, measured_snapshot_id FROM loop_proof"
    assert later_lake.sql(query).rows() == lake.sql(query).rows()


@pytest.mark.slow
def test_a_quarantined_kernel_leaves_curves_and_records(later_lake: store.Lake) -> None:
    second = curve(later_lake, "success", 1)
    assert (second["success"], second["quarantined"], second["speedup_max"]) == (1, 1, 3)
    bests = later_lake.sql("SELECT kernel_id FROM run_bests").rows()
    assert [NAMES[row["kernel_id"]] for row in bests] == ["fast"]
    [costs] = later_lake.sql("SELECT improvements FROM run_costs WHERE device IS NOT NULL").rows()
    assert costs["improvements"] == 1
