"""Stage 1: datasets that are what the lake says, rows that fit, and a run that can be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import commands
import pyarrow.parquet as pq
import pytest
from pipeline_lakes import Rows, add_small_rows

import store
from store.errors import DatasetError, UnknownName
from trainers.datasets import records
from trainers.models import loading
from trainers.runs.job import Job, Training
from trainers.runs.recording import begin_run
from trainers.training import trl_trainers

STEPS = 6


@pytest.fixture(scope="session")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the small lake, to be copied and never written to."""
    rows = Rows()
    rows.device()
    rows.policy("writer", stage="base", round=0)
    add_small_rows(rows)
    folder = tmp_path_factory.mktemp("small") / "lake"
    with store.writer(str(folder), author="tests") as writer:
        writer.append(rows.tables, "tests")
    return folder


@pytest.fixture
def url(small_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of the small lake, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return str(shutil.copytree(small_lake, tmp_path / "lake"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny random model."""
    return loading.write_tiny_model(tmp_path_factory.mktemp("tiny") / "model", 0)


KILLED = """
import os, runpy, signal, sys

def kill(event, arguments):
    if event == "os.mkdir" and str(arguments[0]).endswith("checkpoint-6"):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
runpy.run_module("trainers", run_name="__main__", alter_sys=True)
"""
"""`python -m trainers` that is killed as it begins to write its last checkpoint."""


def trainers(*words: str, torchrun: int = 0, killed: bool = False) -> subprocess.Popen[str]:
    """Start `trainers run sft` in the working directory; one thread each."""
    launch = ["-c", KILLED] if killed else ["-m", "trainers"]
    if torchrun:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(torchrun), *launch]
    return subprocess.Popen(
        [sys.executable, *launch, "run", "sft", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return out, err


def make_words(url: str, out: str, *more: str) -> list[str]:
    settings = [f"max_steps={STEPS}", "per_device_train_batch_size=1"]
    passed = [word for one in settings for word in ("--trl", one)]
    return ["--preset", "tiny", "--lake", url, "--out", out, "--save-steps", "2", *passed, *more]


def rows(url: str, query: str) -> list[dict[str, object]]:
    with store.open(url) as lake:
        return lake.sql(query).rows()


@pytest.mark.slow
def test_a_dataset_is_found_by_folder_name_tag_and_snapshot(url: str) -> None:
    first = records.make_dataset(url, "sft")
    with store.writer(url, author="tests") as writer:
        row = {"tag_id": "t", "name": "v1", "snapshot_id": first.snapshot_id, "author": "tests"}
        writer.append({"tags": [row]}, "a tag")
    again = records.make_dataset(url, "sft", seed=1)
    assert again.dataset_id != first.dataset_id
    assert records.find_dataset(url, "sft") == again
    assert records.find_dataset(url, "sft@v1") == first
    assert records.find_dataset(url, f"sft@{first.snapshot_id}") == first
    assert records.find_dataset(url, str(first.folder)) == first
    with pytest.raises(UnknownName, match='no dataset "stf"'):
        records.find_dataset(url, "stf")
    with pytest.raises(UnknownName, match="no dataset sft of snapshot 1"):
        records.find_dataset(url, "sft@1")
    with pytest.raises(DatasetError, match="preference is needed"):
        records.find_dataset(url, "sft", "preference")


@pytest.mark.slow
def test_a_dataset_that_is_gone_or_changed_is_refused(url: str, tmp_path: Path) -> None:
    made = records.make_dataset(url, "sft")
    [file] = made.files
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    with pytest.raises(DatasetError, match="are not those that the lake recorded"):
        records.find_dataset(url, "sft")
    for damaged in (b"", file.read_bytes()[:500]):
        file.write_bytes(damaged)
        with pytest.raises(DatasetError, match="are not those that the lake recorded"):
            records.find_dataset(url, "sft")
    pq.write_table(table, file, compression="none")  # other bytes, the same rows
    assert records.find_dataset(url, "sft") == made
    shutil.move(made.folder, tmp_path / "moved")
    with pytest.raises(DatasetError, match=f"pipelines run sft --at {made.snapshot_id}"):
        records.find_dataset(url, "sft")
    assert records.find_dataset(url, str(tmp_path / "moved")).dataset_id == made.dataset_id
    (tmp_path / "own").mkdir()
    with pytest.raises(DatasetError, match=r"no recipe\.json"):
        records.find_dataset(url, str(tmp_path / "own"))
    for damaged in ('{"dataset_id": "', "[]", "{}"):
        (tmp_path / "own" / "recipe.json").write_text(damaged)
        with pytest.raises(DatasetError, match=r"own/recipe\.json cannot be read"):
            records.find_dataset(url, str(tmp_path / "own"))
    (tmp_path / "own" / "recipe.json").write_text(json.dumps({"dataset_id": "of elsewhere"}))
    with pytest.raises(UnknownName, match="no dataset of the lake"):
        records.find_dataset(url, str(tmp_path / "own"))


def test_tasks_of_the_test_split_are_never_trained_on(url: str, tmp_path: Path) -> None:
    words = ["pipelines", "run", "sft", "--purpose", "eval", "--lake", url]
    assert commands.run(words, cwd=tmp_path).returncode == 0
    with pytest.raises(DatasetError, match="is for evaluation"):
        records.find_dataset(url, "sft")


@pytest.mark.slow
def test_kernels_quarantined_since_are_told(
    url: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import builders

    def choose(name: str) -> records.Dataset:
        job = Job(name=name, lake_url=url, out=tmp_path / "runs" / name)
        config = Training(model=str(tiny_model), dataset="sft")
        with begin_run(job, config) as run:
            return records.choose_inputs(run, config, "prompt-completion", "sft")[2]

    made = records.make_dataset(url, "sft")
    held = made.table(["kernel_id"]).column(0)[0].as_py()
    assert choose("first") == made
    assert "quarantined" not in capsys.readouterr().err

    finding = builders.finding({"kernel_id": held})
    with store.writer(url, author="tests") as writer:
        tables = {"findings": [finding], "standings": [builders.standing(finding)]}
        writer.append(tables, "a cheat")
    for name in ("sft", "contrastive"):
        assert choose(name) == made
        assert f"1 kernels of dataset sft were quarantined since it was made: {held[:12]}" in (
            capsys.readouterr().err
        )


def test_the_tiny_model_is_the_same_for_a_seed_and_reads_any_text(
    tiny_model: Path, tmp_path
) -> None:
    again = loading.write_tiny_model(tmp_path / "again", 0)
    assert loading.compute_policy_id(again) == loading.compute_policy_id(tiny_model)
    assert loading.compute_policy_id(
        loading.write_tiny_model(tmp_path / "other", 1)
    ) != loading.compute_policy_id(tiny_model)
    tokenizer = loading.load_tokenizer(tiny_model)
    text = "for (int i = 0; i < n; ++i) 漢字 \x00 \ud7ff <|im_end|>\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.slow
def test_rows_over_length_are_counted_and_refused(
    url: str, tiny_model: Path, tmp_path: Path
) -> None:
    dataset = records.make_dataset(url, "sft")

    def measure(max_length: int, over_length: Any = "refuse") -> tuple[Any, trl_trainers.Lengths]:
        config = Training(max_length=max_length, over_length=over_length)
        return trl_trainers.measure_rows(config, dataset, tiny_model, tmp_path)

    rows, lengths = measure(10_000)
    tokenizer = loading.load_tokenizer(tiny_model)
    each = [
        len(tokenizer.apply_chat_template([*row["prompt"], *row["completion"]])["input_ids"])
        for row in rows
    ]
    assert (lengths.rows, lengths.tokens, lengths.longest, lengths.over) == (
        len(each), sum(each), max(each), 0,
    )  # fmt: skip
    limit = max(each) - 1
    _, short = measure(limit, "drop")
    assert short.kept == [index for index, length in enumerate(each) if length <= limit]
    told = f"{short.over} of {len(each)} rows are longer than {limit} tokens; the longest has"
    with pytest.raises(DatasetError, match=told):
        measure(limit)
    with pytest.raises(DatasetError):
        measure(5, "drop")


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(url: str, tmp_path: Path) -> None:
    process = trainers(*make_words(url, "run"), killed=True)
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    assert (tmp_path / "run" / "checkpoint-4" / "trainer_state.json").exists()
    (tmp_path / "run" / "checkpoint-6").mkdir(exist_ok=True)  # as if it had been begun

    out, err = finish(trainers(*make_words(url, "run", "--resume")))
    assert out.startswith(f"sft: {STEPS} steps on ")
    assert "tokens " in err
    [run] = rows(url, "FROM runs WHERE kind = 'training'")
    steps = rows(url, "SELECT step FROM metrics WHERE name = 'loss' ORDER BY step")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    [made] = rows(url, "FROM datasets")
    assert json.loads(run["config"])["resolved"]["dataset_id"] == made["dataset_id"]
    found = rows(url, "FROM policies WHERE stage = 'sft' ORDER BY round")
    assert [row["round"] for row in found] == [2, 4, 6]
    [base] = rows(url, "FROM policies WHERE name = 'tiny'")
    assert {row["parent_policy_id"] for row in found} == {base["policy_id"]}
    assert {row["dataset_id"] for row in found} == {made["dataset_id"]}
    final = tmp_path / "run" / "final"
    assert found[-1]["policy_id"] == loading.compute_policy_id(final)
    assert found[-1]["weights_sha256"] == loading.hash_weights(final)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))

    # Killed again, between the last checkpoint and the trained model: no step is taken twice.
    shutil.rmtree(final)
    out, _ = finish(trainers(*make_words(url, "run", "--resume")))
    assert out.startswith(f"sft: {STEPS} steps on ")
    assert loading.compute_policy_id(final) == found[-1]["policy_id"]
    steps = rows(url, "SELECT step FROM metrics WHERE name = 'loss' ORDER BY step")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_is_gone_on_with_or_merged_into_weights_that_train(
    tiny_model: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    whole: Any = loading.load_model(tiny_model)
    shapes = {name: weight.shape for name, weight in whole.named_parameters()}
    peft.get_peft_model(whole, loading.make_adapter_config(tiny_model, 2)).save_pretrained(tmp_path)
    trained = loading.load_model(tmp_path, lora=2).named_parameters()
    further = {name for name, weight in trained if weight.requires_grad}
    assert further
    assert all("lora_" in name for name in further)
    merged = dict(loading.load_model(tmp_path).named_parameters())
    assert {name: weight.shape for name, weight in merged.items()} == shapes
    assert all(weight.requires_grad for weight in merged.values())


@pytest.mark.slow
def test_lora_checkpoints_are_adapters_that_training_goes_on_with(url: str, tmp_path: Path) -> None:
    finish(trainers(*make_words(url, "one", "--lora", "4")))
    final = tmp_path / "one" / "final"
    assert (final / "adapter_model.safetensors").exists()
    finish(trainers(*make_words(url, "two", "--lora", "4", "--model", str(final))))
    parents = rows(url, "SELECT DISTINCT parent_policy_id FROM policies WHERE model LIKE 'two/%'")
    assert parents == [{"parent_policy_id": loading.compute_policy_id(final)}]
    other = trainers(*make_words(url, "three", "--lora", "8", "--model", str(final)))
    assert "adapter of rank 4, not 8" in other.communicate(timeout=600)[1]
    finish(trainers(*make_words(url, "four", "--model", str(final))))
    assert (tmp_path / "four" / "final" / "model.safetensors").exists()


@pytest.mark.slow
def test_two_processes_train_one_model_and_rank_0_alone_writes(url: str) -> None:
    out, _ = finish(trainers(*make_words(url, "run"), torchrun=2))
    assert out.count("sft: ") == 1
    assert f"{STEPS} steps on 2 processes" in out
    steps = rows(url, "SELECT step FROM metrics WHERE name = 'loss' ORDER BY step")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert len(rows(url, "FROM runs WHERE kind = 'training'")) == 1
    assert len(rows(url, "FROM datasets")) == 1


@pytest.mark.slow
def test_a_refusal_on_rank_0_ends_every_rank(url: str) -> None:
    process = trainers(*make_words(url, "run", "--max-length", "20"), torchrun=2)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "rows are longer than 20 tokens" in err
