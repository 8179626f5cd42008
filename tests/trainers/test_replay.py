"""Steps of GRPO computed again from their stored tokens, beside what the run logged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import commands
import pytest

pytest.importorskip("trl", reason="TRL is not installed")

from new_lakes import copy_starter_lake

import store
from store.errors import FlywheelError, UnknownName
from trainers import contrastive
from trainers.models import loading
from trainers.rewarding import scoring
from trainers.runs.job import Job

pytestmark = pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing:FutureWarning")
RULE = '''"""Rewards that differ although no attempt has code: the first digits of its id."""

from dataclasses import dataclass

import numpy as np

from trainers.rewarding.scoring import Terms

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Its options."""


def raw(rows, config):
    return np.array([int(one[:4], 16) / 65536 for one in rows["generation_id"].to_pylist()])
'''
STEPS = 3
OPTIONS: dict[str, Any] = contrastive.PRESETS["tiny"] | {
    "overfit": False,
    "tasks": ("diag_matmul",),
    "arm": "none",
    "save_steps": 2,
    "prompts_per_step": 1,
    "batch": 2,
    "max_completion": 8,
    "mask_truncated": False,
    "reward_rule": "spread",
}
"""Two micro-batches a step, and a checkpoint after the second step."""


@dataclass(frozen=True)
class TrainedRun:
    """A run in a folder of its own."""

    folder: Path
    run_id: str
    steps: int

    @property
    def job(self) -> Job:
        """A job over its lake."""
        lake = str(self.folder / "lake")
        return Job(name="contrastive", lake_url=lake, out=self.folder / "again", quiet=True)

    def replay(self, step: int, **options: Any) -> contrastive.Replayed:
        """Replay a step with changed options."""
        changes = options.pop("changes", {})
        return contrastive.replay(self.job, self.run_id, step, changes, **options)


def train(folder: Path, steps: int) -> TrainedRun:
    """Train a random model whose attempts have no code, so that nothing is judged."""
    rules = folder / "flywheel" / "rewards"
    rules.mkdir(parents=True)
    (rules / "spread.py").write_text(RULE)
    with contextlib.chdir(folder):
        lake = copy_starter_lake(folder / "lake")
        job = Job(name="contrastive", lake_url=lake, out=folder / "run", quiet=True)
        contrastive.run(job, contrastive.Config(**OPTIONS | {"steps": steps}))
    with store.open(lake) as opened:
        [row] = opened.sql("SELECT DISTINCT run_id FROM rollout_tokens").rows()
    return TrainedRun(folder, row["run_id"], steps)


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Return a run of one step."""
    return train(tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Return a run of three steps."""
    return train(tmp_path_factory.mktemp("three"), STEPS)


@pytest.fixture
def trained_run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TrainedRun]:
    """Return a run, by default that of three steps, in its folder."""
    run: TrainedRun = request.getfixturevalue(getattr(request, "param", "three_steps"))
    monkeypatch.chdir(run.folder)
    scoring.load_rule.cache_clear()
    yield run
    scoring.load_rule.cache_clear()


@pytest.mark.parametrize(
    "trained_run",
    ["one_step", pytest.param("three_steps", marks=pytest.mark.slow)],
    indirect=True,
)
@pytest.mark.slow
def test_each_attempt_keeps_the_tokens_that_it_was_trained_on(trained_run: TrainedRun) -> None:
    with store.open(str(trained_run.folder / "lake")) as lake:
        rows = lake.sql(
            "SELECT rollout_tokens.*, generations.completion, rewards.advantage AS of_reward "
            "FROM rollout_tokens JOIN generations USING (generation_id) "
            "JOIN rewards USING (generation_id)"
        ).rows()
        metrics = lake.sql("SELECT count(*) AS n FROM metrics WHERE name = 'store/tokens_s'").rows()
    places = sorted((row["step"], row["micro_batch"]) for row in rows)
    steps = range(trained_run.steps)
    assert places == sorted([(step, part) for step in steps for part in (0, 0, 1, 1)])
    assert metrics == [{"n": len(steps)}]
    for row in rows:
        assert (row["rank"], row["policy_step"]) == (0, row["step"])
        assert len(row["completion_ids"]) == len(row["ref_logprobs"]) <= 8
        assert max(row["ref_logprobs"]) <= 0
        assert row["loss_mask"] is row["old_logprobs"] is row["sampler_logprobs"] is None
        assert row["advantage"] == pytest.approx(row["of_reward"], abs=1e-5)
        assert row["token_ends"] is None or row["token_ends"][-1] == len(row["completion"])


@pytest.mark.parametrize(
    ("trained_run", "step"),
    [
        ("one_step", 0),
        *(pytest.param("three_steps", n, marks=pytest.mark.slow) for n in range(STEPS)),
    ],
    indirect=["trained_run"],
)
@pytest.mark.slow
def test_every_step_is_equal_bit_for_bit(trained_run: TrainedRun, step: int) -> None:
    replayed = trained_run.replay(step)
    figures = {row["figure"]: row for row in replayed.figures}
    assert {row["difference"] for row in replayed.figures} == {0.0}
    assert {"loss", "grad_norm", "kl", "reward", "clip_ratio/low_mean"} < figures.keys()
    assert {"reward by attempt", "advantage by attempt", "ref_logprobs by attempt"} < figures.keys()
    assert figures["grad_norm"]["replayed"] > 0
    # The checkpoint is one of two steps, so the second step is reached from the first model.
    begun = trained_run.folder / "run" / ("checkpoint-2" if step == 2 else "model/tiny-0")
    assert replayed.notes == [f"began with {begun}"]


@pytest.mark.slow
def test_the_command_prints_figures_and_compares_them(trained_run: TrainedRun) -> None:
    line = ["trainers", "replay", trained_run.run_id[:20], "--step", "0", "--lake", "lake"]
    done = commands.run(line, cwd=trained_run.folder)
    assert done.returncode == 0, done.stderr
    assert "grad_norm" in done.stdout
    assert "figures are equal bit for bit" in done.stderr


@pytest.mark.slow
def test_other_options_say_what_the_step_would_have_been(trained_run: TrainedRun) -> None:
    changed = trained_run.replay(1, changes={"beta": 0.5, "trl": ("loss_type=dapo",)})
    figures = {row["figure"]: row for row in changed.figures}
    assert figures["reward"]["difference"] == 0
    assert figures["loss"]["replayed"] != figures["loss"]["logged"]
    assert 'loss_type "grpo" in the run, "dapo" here' in changed.notes


@pytest.mark.slow
def test_the_micro_batches_are_the_parts_of_a_step(trained_run: TrainedRun) -> None:
    losses = [
        next(row for row in replayed.figures if row["figure"] == "loss")
        for replayed in (trained_run.replay(2, micro_batch=part) for part in (0, 1))
    ]
    whole = next(row for row in trained_run.replay(2).figures if row["figure"] == "loss")
    assert [row["logged"] for row in losses] == [None, None]
    assert sum(row["replayed"] for row in losses) == pytest.approx(whole["logged"], abs=1e-6)
    with pytest.raises(UnknownName, match="no micro-batch 2\nThere are 0 to 1"):
        trained_run.replay(2, micro_batch=2)


@pytest.mark.slow
def test_training_on_recorded_steps_gives_the_same_model(trained_run: TrainedRun) -> None:
    replayed = trained_run.replay(0, train=True)
    assert {row["step"] for row in replayed.figures} == set(range(STEPS))
    assert {row["difference"] for row in replayed.figures} == {0.0}
    assert (trained_run.job.out / "checkpoint-2").is_dir()
    again, final = trained_run.job.out / "final", trained_run.folder / "run" / "final"
    assert loading.hash_weights(again) == loading.hash_weights(final)


@pytest.mark.slow
def test_what_cannot_be_replayed_is_named(trained_run: TrainedRun) -> None:
    with pytest.raises(UnknownName, match="no tokens of step 3\nIt has steps 0 to 2"):
        trained_run.replay(STEPS)
    nobody = replace(trained_run, run_id="nobody")
    with pytest.raises(FlywheelError, match="the lake has no tokens of run nobody"):
        nobody.replay(0)
    with store.run("theirs", lake=trained_run.job.lake_url) as run:
        run.log_rollouts([{"completion": "x", "completion_ids": [1], "step": 0, "policy_step": 0}])
    theirs = replace(trained_run, run_id=run.run_id)
    with pytest.raises(FlywheelError, match="is not one of `trainers run contrastive`"):
        theirs.replay(0)
    checkpoint = trained_run.folder / "run" / "checkpoint-2"
    with pytest.raises(FlywheelError, match="is the policy after 2 updates; step 1 began after 1"):
        trained_run.replay(1, model=checkpoint)
    with pytest.raises(FlywheelError, match=r"holds no \.safetensors file"):
        trained_run.replay(1, model=trained_run.folder / "lake")


@pytest.mark.slow
def test_weights_that_are_gone_are_named_and_found_where_they_are(trained_run: TrainedRun) -> None:
    folder = trained_run.folder / "run"
    moved = folder.rename(trained_run.folder / "moved")
    try:
        with pytest.raises(FlywheelError, match=f"is gone: {folder / 'model' / 'tiny-0'}"):
            trained_run.replay(2)
        assert {row["difference"] for row in trained_run.replay(2, model=moved).figures} == {0.0}
        # Weights alone are enough for loss and gradients.
        alone = trained_run.folder / "alone"
        alone.mkdir()
        for file in (moved / "model" / "tiny-0").iterdir():
            (alone / file.name).symlink_to(file)
        assert {row["difference"] for row in trained_run.replay(0, model=alone).figures} == {0.0}
    finally:
        moved.rename(folder)


@pytest.mark.slow
def test_another_tokenizer_and_missing_verdicts_are_refused(trained_run: TrainedRun) -> None:
    file = trained_run.folder / "run" / "model" / "tiny-0" / "tokenizer.json"
    text = file.read_text("utf-8")
    file.write_text(text.replace('"<|pad|>"', '"<|fill|>"'))
    try:
        with pytest.raises(FlywheelError, match="was recorded with tokenizer"):
            trained_run.replay(0)
    finally:
        file.write_text(text)
    rule = trained_run.folder / "flywheel" / "rewards" / "spread.py"
    rule.write_text(RULE.replace("VERSION = 1", "VERSION = 2"))
    scoring.load_rule.cache_clear()
    try:
        with pytest.raises(FlywheelError, match="lacks the verdicts of 4 of 4 attempts of step 0"):
            trained_run.replay(0)
    finally:
        rule.write_text(RULE)
        scoring.load_rule.cache_clear()
