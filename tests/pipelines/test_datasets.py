"""Dataset folders: they open as they are, repeat byte by byte, and are recorded in the lake."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from pipeline_lakes import Known

import store
from pipelines import (
    contrastive_batch,
    preference_pairs,
    prompt_id,
    rl_prompts,
    self_supervised,
    sft,
)
from pipelines.contract import Request
from pipelines.datasets import card, materialize
from store.errors import DatasetError, EmptyDataset, ExportRefused

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALL = [contrastive_batch, preference_pairs, rl_prompts, self_supervised, sft]


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("module", ALL, ids=lambda module: module.__name__)
def test_a_folder_opens_with_datasets_as_it_is(
    lake, make_job, tmp_path: Path, monkeypatch, module
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    made, folder = materialize.write_dataset(make_job(lake, module), tmp_path / "out")
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    train = loaded["train"]
    assert len(train) == made.rows
    first = train[0]
    assert [turn["role"] for turn in first["prompt"]] == ["user"]
    assert first["prompt_id"] == prompt_id(first["prompt"])
    assert first["snapshot_id"] == lake.snapshot
    head = yaml.safe_load((folder / "README.md").read_text("utf-8").split("---\n")[1])
    [info] = head["dataset_info"]
    assert info["features"] == train.features._to_yaml_list()
    assert info["splits"][0]["num_examples"] == made.rows


@pytest.mark.slow
def test_message_columns_have_the_shapes_that_trl_reads(lake, make_job) -> None:
    shapes = {
        "prompt-only": ["prompt"],
        "prompt-completion": ["prompt", "completion"],
        "preference": ["prompt", "chosen", "rejected"],
    }
    for module in ALL:
        made = materialize.preview_dataset(make_job(lake, module))
        assert made.example is not None
        assert list(made.example) == shapes[made.dataset_type]
        for column, turns in made.example.items():
            role = "user" if column == "prompt" else "assistant"
            assert [turn["role"] for turn in turns] == [role]


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("module", ALL, ids=lambda module: module.__name__)
def test_the_same_recipe_gives_the_same_bytes(lake, make_job, tmp_path: Path, module) -> None:
    for name in ("first", "second"):
        materialize.write_dataset(make_job(lake, module), tmp_path / name)
    assert hashes(tmp_path / "first") == hashes(tmp_path / "second")


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_bytes(
    rows_and_ids, lake_of, make_job, tmp_path: Path
) -> None:
    lake = lake_of(rows_and_ids[0])
    materialize.write_dataset(make_job(lake), tmp_path / "here")
    subprocess.run(
        [sys.executable, "-m", "pipelines", "run", "contrastive-batch", "--lake", lake.url,
         "--out", str(tmp_path / "there")],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    assert hashes(tmp_path / "here") == hashes(tmp_path / "there")


@pytest.mark.slow
def test_the_seed_changes_the_dataset(lake, make_job, tmp_path: Path) -> None:
    ids = {
        materialize.preview_dataset(
            make_job(lake, per_task=5, request=Request(seed=seed))
        ).dataset_id
        for seed in (0, 1)
    }
    assert len(ids) == 2


@pytest.mark.slow
def test_content_hash_leaves_provenance_out(rows_and_ids, lake_of, make_job) -> None:
    made, _ = rows_and_ids
    lake = lake_of(made)
    before = materialize.preview_dataset(make_job(lake))
    with store.writer(lake.url, author="tests") as writer:
        writer.append(
            {"policies": [{"policy_id": "other", "name": "other", "kind": "person"}]}, "unrelated"
        )
    with store.open(lake.url) as later:
        after = materialize.preview_dataset(make_job(later))
    assert later.snapshot > lake.snapshot
    assert after.content_hash == before.content_hash
    assert after.dataset_id != before.dataset_id


def test_files_have_small_row_groups_and_a_page_index(
    lake, make_job, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(materialize, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr("pipelines.datasets.materialize.SHARD_ROWS", 8)
    made, folder = materialize.write_dataset(make_job(lake, per_task=9), tmp_path / "out")
    files = sorted((folder / "data" / "default").iterdir())
    count = len(files)
    assert count > 1
    assert [file.name for file in files] == [
        f"train-{number:05d}-of-{count:05d}.parquet" for number in range(count)
    ]
    assert sum(pq.read_metadata(file).num_rows for file in files) == made.rows
    for file in files:
        metadata = pq.read_metadata(file)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            assert group.num_rows <= 4
            assert group.column(0).compression == "ZSTD"
            assert group.column(0).has_column_index
            assert group.column(0).has_offset_index


def test_a_dataset_is_recorded_with_its_lineage(
    rows_and_ids, lake_of, make_job, tmp_path: Path
) -> None:
    made, known = rows_and_ids
    lake = lake_of(made)
    dataset, folder = materialize.write_dataset(make_job(lake, per_task=3), tmp_path / "out")
    snapshot = materialize.record_dataset(dataset, folder, NOW)
    assert snapshot == lake.snapshot + 1
    with store.open(lake.url) as later:
        [stored] = later.sql("FROM datasets").rows()
        assert stored["dataset_id"] == dataset.dataset_id
        assert stored["snapshot_id"] == lake.snapshot
        assert stored["lake_id"] == lake.lake_id
        assert stored["rows"] == dataset.rows
        assert json.loads(stored["recipe"])["config"]["per_task"] == 3
        [run] = later.sql("FROM runs WHERE kind <> 'audit'").rows()
        assert (run["kind"], run["name"]) == ("pipeline", "contrastive-batch")
        assert run["version"] == store.describe_version()
        table = pq.read_table(folder / "data").sort_by("prompt_id")
        rows = later.sql("FROM dataset_rows ORDER BY prompt_id").arrow()
        assert rows["prompt_id"].to_pylist() == table["prompt_id"].to_pylist()
        assert rows["kernel_ids"].to_pylist() == table["exemplar_kernel_ids"].to_pylist()
        held = later.sql(
            "SELECT DISTINCT dataset_id FROM dataset_rows WHERE list_contains(kernel_ids, $1)",
            [known.kernels["tanh.a"]],
        ).rows()
        assert held == [{"dataset_id": dataset.dataset_id}]


@pytest.mark.slow
def test_the_same_dataset_twice_is_harmless(
    rows_and_ids, lake_of, make_job, tmp_path: Path
) -> None:
    lake = lake_of(rows_and_ids[0])
    for expected in (True, False):
        dataset, folder = materialize.write_dataset(make_job(lake), tmp_path / "out")
        assert (materialize.record_dataset(dataset, folder, NOW) is not None) == expected
    with store.open(lake.url) as later:
        counts = later.sql(
            "SELECT (SELECT count(*) FROM datasets) AS datasets, "
            "(SELECT count(*) FROM runs WHERE kind <> 'audit') AS runs, "
            "(SELECT count(*) FROM dataset_rows) AS rows"
        ).one()
    assert counts == {"datasets": 1, "runs": 1, "rows": dataset.rows}


def test_a_folder_with_other_files_is_not_touched(lake, make_job, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(ExportRefused, match="exists already"):
        materialize.write_dataset(make_job(lake), out)
    assert [file.name for file in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_nothing_is_left_of_a_run_that_fails(lake, make_job, tmp_path: Path) -> None:
    with pytest.raises(EmptyDataset, match="over length 3"):
        materialize.write_dataset(make_job(lake, max_tokens=5), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_rows_over_length_are_left_out_and_counted(lake, make_job, rows_of) -> None:
    lengths = sorted(row["tokens"] for row in rows_of(make_job(lake)))
    dataset = materialize.preview_dataset(make_job(lake, max_tokens=lengths[1]))
    assert dataset.rows == 2
    assert dataset.dropped["row: over length"] == 1
    assert dataset.tokens == sum(lengths[:2])


def test_the_card_names_lineage_and_licenses(lake, make_job, tmp_path: Path) -> None:
    dataset, folder = materialize.write_dataset(make_job(lake), tmp_path / "out")
    text = (folder / "README.md").read_text("utf-8")
    for fact in (lake.lake_id, dataset.dataset_id, dataset.content_hash, "| kernels | MIT | 5 |"):
        assert fact in text
    assert json.loads((folder / "recipe.json").read_text("utf-8")) == card.collect_facts(dataset)
    assert str(tmp_path) not in text


def test_views_and_sql_belong_to_the_recipe(lake, make_job) -> None:
    recipe = make_job(lake).recipe()
    assert {"views_hash", "sql_hash", "template_hash", "code_hash"} <= set(recipe)


@pytest.mark.slow
def test_code_and_words_that_pipelines_share_belong_to_the_recipe(
    lake, make_job, tmp_path: Path
) -> None:
    def read_hash() -> str:
        program = "from pipelines.datasets.job import shared_hash; print(shared_hash())"
        line = [sys.executable, "-c", program]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    for name in ("pipelines", "store"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copyfile(ROOT / "catalog.yaml", tmp_path / "catalog.yaml")
    seen = [make_job(lake).recipe()["shared_hash"]]
    assert read_hash() == seen[0]
    for name, text, other in (
        ("pipelines/rendering/messages.py", '"""', '"""Other words. '),
        ("pipelines/selection/scores.py", '"""', '"""Other draws. '),
        ("store/code/constants.py", '"""', '"""Other names. '),
        ("catalog.yaml", "words: PyTorch eager", "words: plain PyTorch"),
    ):
        file = tmp_path / name
        before = file.read_text("utf-8")
        file.write_text(before.replace(text, other, 1), "utf-8")
        seen.append(read_hash())
    assert len(set(seen)) == 5


def test_a_tokenizer_file_counts_tokens(lake, make_job, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from dataclasses import replace

    from pipelines.datasets.job import make_counter

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    job = replace(make_job(lake), counter=make_counter(tmp_path))
    dataset = materialize.preview_dataset(job)
    assert dataset.example is not None
    text = dataset.example["prompt"][0]["content"]
    assert job.counter.count([text]) == [len(text.split())]
    assert job.recipe()["tokens"].startswith("sha256:")
    with pytest.raises(DatasetError, match="no tokenizer at"):
        make_counter(tmp_path / "nothing.json")


def test_purpose_eval_marks_rows_and_split(
    lake, make_job, known_ids: Known, tmp_path: Path
) -> None:
    job = make_job(lake, request=Request(purpose="eval"))
    _, folder = materialize.write_dataset(job, tmp_path / "out")
    [file] = (folder / "data" / "default").iterdir()
    assert file.name == "test-00000-of-00001.parquet"
    table = pq.read_table(file)
    assert table["purpose"].to_pylist() == ["eval"]
    assert table["task_id"].to_pylist() == [known_ids.held_out]
