"""Contrastive training: what it refuses, how a step is divided, and two processes that agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")


import store
import trainers
from store.errors import FlywheelError, UnknownName
from trainers import contrastive
from trainers.contrastive import Config
from trainers.runs.job import Job
from trainers.training import judging

ROOT = Path(trainers.__file__).parent.parent


def settings(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """Return what GRPOConfig would be made of."""
    job = Job(name="contrastive", lake_url=None, out=tmp_path / "run")
    return contrastive.make_settings(job, Config(**options))


def test_a_step_is_divided_into_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(tmp_path, prompts_per_step=6, group_size=8, batch=4)
    assert made["gradient_accumulation_steps"] == 12
    assert made["num_generations"] == 8
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert settings(tmp_path, prompts_per_step=6)["gradient_accumulation_steps"] == 4
    with pytest.raises(FlywheelError, match="multiple"):
        settings(tmp_path, prompts_per_step=4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"trl": ("num_generations=4",)}, "--group-size"),
        ({"trl": ("scale_rewards=none",)}, "rests on it"),
        ({"trl": ("use_vllm=true",)}, "--vllm"),
        ({"trl": ("save_steps=9",)}, "--save-steps"),
        ({"group_size": 1}, "2 or more"),
        ({"max_completion": 4096}, "room"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(FlywheelError, match=match):
        settings(tmp_path, **options)


def test_a_reward_reads_a_clock_that_the_judge_times() -> None:
    words = ("clock=latency",)
    with pytest.raises(FlywheelError, match="protocol training times by the clock that ranks"):
        contrastive.configure_reward(Config(reward=words))
    _, terms = contrastive.configure_reward(Config(reward=words, judge=("protocol=full",)))
    assert terms.clock == "latency"


def test_vllm_is_refused_at_once_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    job = Job(name="contrastive", lake_url=None, out=tmp_path / "run")
    with pytest.raises(FlywheelError, match="needs the package vllm"):
        contrastive.run(job, Config(model="tiny", vllm="colocate"))
    assert not job.out.exists()


def test_options_of_rule_and_judge_are_checked() -> None:
    rule, terms = contrastive.configure_reward(Config(reward=("clip=1.0", "discarded=failure")))
    assert (rule.name, terms.clip, terms.discarded) == ("cuda-l1", 1.0, "failure")
    judge = judging.parse_options(("baselines=eager,compile", "robustness=false"))
    assert (judge.baselines, judge.robustness) == (("eager", "compile"), False)
    assert judging.parse_options(()).baselines == ("eager",)
    with pytest.raises(UnknownName, match="clipp"):
        contrastive.configure_reward(Config(reward=("clipp=1",)))
    with pytest.raises(UnknownName, match="calles"):
        judging.parse_options(("calles=1",))
    with pytest.raises(FlywheelError, match="KEY=VALUE"):
        judging.parse_options(("calls",))


def test_a_cluster_among_the_options_judges() -> None:
    words = ("ray:HOST:6379", "calls=3")
    assert judging.choose_places("auto", words) == "ray:HOST:6379"
    assert judging.parse_options(words).calls == 3
    with pytest.raises(FlywheelError, match="two clusters"):
        judging.choose_places("auto", (*words, "ray:auto"))


def test_judges_take_the_gpus_that_nobody_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert judging.choose_places("auto", ()) == "cuda:2,cuda:3"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert judging.choose_places("auto", ()) == "cuda:0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert judging.choose_places("auto", ()) == "cpu"
    assert judging.choose_places("cuda:1", ()) == "cuda:1"


def test_the_tasks_of_all_steps_are_known_at_the_start() -> None:
    tasks = [f"task {n}" for n in range(5)]
    made = list(contrastive.list_steps(tasks, Config(steps=4, prompts_per_step=4))["task_id"])
    assert len(made) == 16
    assert sorted(made[:5]) == sorted(made[5:10]) == sorted(made[10:15]) == tasks
    assert made[:5] != made[5:10]
    assert made == list(
        contrastive.list_steps(tasks, Config(steps=4, prompts_per_step=4))["task_id"]
    )
    other = contrastive.list_steps(tasks, Config(steps=4, prompts_per_step=4, seed=1))["task_id"]
    assert made != list(other)
    assert (
        list(contrastive.list_steps(["a"], Config(steps=1, prompts_per_step=3))["task_id"])
        == ["a"] * 3
    )


@pytest.mark.slow
def test_two_processes_train_as_one_run(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    line += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    line += ["-m", "trainers", "run", "contrastive", "--preset", "tiny", "--out", "run"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("FLYWHEEL_LAKE", None)  # the default lake is made, and no other
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "contrastive: 2 steps on 2 processes" in done.stdout
    with store.open(str(tmp_path / "lake")) as lake:
        steps = lake.sql(
            "SELECT run_steps.step, count(*) AS attempts, count(DISTINCT group_id) AS groups, "
            "count(DISTINCT snapshot_id) AS snapshots, min(sample_index) AS first, "
            "max(sample_index) AS last FROM run_steps JOIN generations "
            "USING (generation_id, run_id, group_id) WHERE source = 'trainers' "
            "GROUP BY ALL ORDER BY run_steps.step"
        ).rows()
        assert steps == [
            {"step": step, "attempts": 8, "groups": 2, "snapshots": 1, "first": 0, "last": 3}
            for step in (0, 1)
        ]
        runs = lake.sql("SELECT count(*) AS n FROM runs WHERE kind = 'training'").rows()
        assert runs == [{"n": 1}]
        assert lake.sql("SELECT count(*) AS n FROM rewards").rows() == [{"n": 16}]
