"""What a run leaves in the lake: its row, metrics, policies; and what resuming it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import store
from store.errors import FlywheelError
from trainers.models import loading
from trainers.runs import recording
from trainers.runs.job import Job, Training


@pytest.fixture
def job(lake_url: str, writer: store.Writer, tmp_path: Path) -> Callable[..., Job]:
    """Return a function that makes a job over an empty lake."""

    def make(**options: object) -> Job:
        given = {"name": "sft", "lake_url": lake_url, "out": tmp_path / "out", "quiet": True}
        return Job(**(given | options))  # pyright: ignore

    return make


def model_folder(folder: Path, value: float) -> Path:
    folder.mkdir(parents=True)
    save_file({"weight": np.full((2, 2), value, np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def rows(url: str, query: str) -> list[dict[str, object]]:
    with store.open(url) as lake:
        return lake.sql(query).rows()


def test_the_row_of_a_run_stands_in_the_lake_before_it_does_anything(job) -> None:
    with recording.begin_run(job(), Training(model="m", trl=("learning_rate=1",))) as run:
        run.start({"dataset_id": "d"})
        [row] = rows(run.job.lake_url, "FROM runs")
    told = json.loads(row["config"])
    assert (row["run_id"], row["kind"], row["name"]) == (run.run_id, "training", "sft")
    assert (row["lake_id"], row["snapshot_id"]) == (run.lake_id, run.pinned_snapshot)
    assert told["config"]["trl"] == ["learning_rate=1"]
    assert told["resolved"] == {"dataset_id": "d"}
    assert told["versions"]["trl"].startswith("1.16")


def test_metrics_are_numbers_and_those_of_a_resumed_run_are_not_doubled(job) -> None:
    with recording.begin_run(job(), Training()) as run:
        run.start({})
        run.add_metrics(1, {"loss": 2.0, "note": "text", "flag": True})
        run.add_metrics(1, {"loss": 9.0})
        run.add_metrics(2, {"loss": float("nan"), "grad_norm": float("inf")})
    with recording.begin_run(job(resume=True), Training()) as again:
        again.start({})
        again.add_metrics(2, {"loss": 0.0})
        again.add_metrics(3, {"loss": 0.5})
    assert again.run_id == run.run_id
    found = rows(run.job.lake_url, "SELECT name, step, value FROM metrics ORDER BY step")
    assert [(row["name"], row["step"]) for row in found] == [("loss", 1), ("loss", 2), ("loss", 3)]
    assert [row["value"] for row in found] == [2.0, 0.0, 0.5]
    assert len(rows(run.job.lake_url, "FROM runs")) == 1
    ends = rows(run.job.lake_url, "SELECT outcome FROM run_ends ORDER BY number")
    assert [row["outcome"] for row in ends] == ["finished", "resumed", "finished"]
    assert again.snapshot == store.open(run.job.lake_url).snapshot


@pytest.mark.slow
def test_metrics_that_wait_are_stored_when_a_run_fails(job) -> None:
    with pytest.raises(RuntimeError), recording.begin_run(job(), Training()) as run:  # noqa: PT012
        run.start({})
        run.add_metrics(1, {"loss": 1.0})
        raise RuntimeError
    assert len(rows(job().lake_url, "FROM metrics")) == 1
    [row] = rows(job().lake_url, "SELECT state, error FROM run_states")
    assert row == {"state": "failed", "error": "RuntimeError"}


def test_a_resumed_run_reads_the_snapshot_that_it_began_with(job, writer) -> None:
    with recording.begin_run(job(), Training()) as run:
        run.start({"dataset_id": "d"})
    writer.append({"policies": [{"policy_id": "x", "name": "x", "kind": "person"}]}, "later")
    again = recording.begin_run(job(resume=True), Training())
    assert again.pinned_snapshot == run.pinned_snapshot
    assert again.resolved == {"dataset_id": "d"}


@pytest.mark.slow
def test_what_cannot_be_begun_or_resumed_is_refused(job, tmp_path: Path) -> None:
    with pytest.raises(FlywheelError, match="no run to resume"):
        recording.begin_run(job(resume=True), Training())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(FlywheelError, match="something else already"):
        recording.begin_run(job(), Training())
    other = job(out=tmp_path / "run")
    with recording.begin_run(other, Training(seed=1)) as run:
        run.start({})
    with pytest.raises(FlywheelError, match="holds a run already"):
        recording.begin_run(other, Training(seed=1))
    resumed = job(out=tmp_path / "run", resume=True)
    with pytest.raises(FlywheelError, match="seed was 1"):
        recording.begin_run(resumed, Training(seed=2))
    whole = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(whole[:40])
    with pytest.raises(FlywheelError, match=r"run\.json cannot be read"):
        recording.begin_run(resumed, Training(seed=1))
    (tmp_path / "run" / "run.json").write_text(whole)
    elsewhere = str(tmp_path / "another")
    store.writer(elsewhere, author="tests").close()
    with pytest.raises(FlywheelError, match="over lake"):
        recording.begin_run(
            job(out=tmp_path / "run", resume=True, lake_url=elsewhere), Training(seed=1)
        )


def test_a_run_that_is_refused_before_its_start_leaves_its_folder_to_the_next(job) -> None:
    refused = job()

    def refuse() -> None:
        with recording.begin_run(refused, Training()):
            model_folder(refused.out / "model" / "tiny", 0)
            raise FlywheelError("no such dataset")

    with pytest.raises(FlywheelError, match="no such dataset"):
        refuse()
    with recording.begin_run(job(), Training()) as run:
        run.start({})


def test_a_checkpoint_is_a_policy_with_parent_stage_and_weights(job, tmp_path: Path) -> None:
    base, trained = model_folder(tmp_path / "base", 0), model_folder(tmp_path / "c" / "new", 1)
    with recording.begin_run(job(), Training()) as run:
        run.start({})
        parent = run.add_base(base, "org/small")
        made = run.add_policy(trained, stage="sft", parent=parent, round=4, step=4)
    found = rows(run.job.lake_url, "FROM policies ORDER BY round")
    assert [row["policy_id"] for row in found] == [parent, made]
    assert (found[0]["name"], found[0]["stage"], found[0]["run_id"]) == ("small", "base", None)
    row = found[1]
    assert (row["stage"], row["round"], row["parent_policy_id"]) == ("sft", 4, parent)
    assert (row["model"], row["run_id"]) == ("c/new", run.run_id)
    assert row["weights_sha256"] == loading.hash_weights(trained)
    assert json.loads(row["config"])["step"] == 4


@pytest.mark.slow
def test_the_same_weights_are_one_policy_and_never_their_own_parent(job, tmp_path: Path) -> None:
    one, copy = model_folder(tmp_path / "a", 0), model_folder(tmp_path / "b", 0)
    with recording.begin_run(job(), Training()) as run:
        run.start({})
        parent = run.add_base(one, "a")
        assert run.add_policy(copy, stage="sft", parent=parent) == parent
    [row] = rows(run.job.lake_url, "FROM policies")
    assert (row["stage"], row["parent_policy_id"]) == ("base", None)
    (copy / "tokenizer.json").write_text('{"other": 1}')
    assert loading.compute_policy_id(copy) != parent


def test_a_checkpoint_that_was_being_written_is_none(tmp_path: Path) -> None:
    for step in (10, 9, 20, 30):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-30" / "trainer_state.json").write_text('{"global_step": ')
    (tmp_path / "checkpoint-best").mkdir()
    for step in (10, 9):
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert [step for step, _ in recording.list_checkpoints(tmp_path)] == [9, 10]


def test_only_safetensors_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickled")
    with pytest.raises(FlywheelError, match=r"no \.safetensors"):
        loading.find_model(str(tmp_path), tmp_path)
    with pytest.raises(FlywheelError, match="no model at"):
        loading.find_model(str(tmp_path / "missing"), tmp_path)
