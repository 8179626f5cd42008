"""Datasets as streams of rows, without files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import pipelines
import store
from pipelines import contrastive_batch, rl_prompts
from pipelines.datasets.job import Job
from store.errors import EmptyDataset, UnknownName


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("module", [contrastive_batch, rl_prompts])
def test_a_stream_has_the_rows_of_the_files_each_time_that_it_is_read(
    lake: store.Lake, make_job: Callable[..., Job], tmp_path: Path, module: object
) -> None:
    job = make_job(lake, module)
    import datasets

    pipelines.write_dataset(job, tmp_path / "out")
    written = datasets.load_dataset(
        str(tmp_path / "out"), split=job.split, cache_dir=str(tmp_path / "cache")
    )
    rows = pipelines.stream(job.pipeline, lake)
    assert rows.features == written.features
    assert list(rows) == list(rows) == list(written)


def test_options_are_those_of_the_command(lake: store.Lake) -> None:
    rows = list(pipelines.stream("contrastive-batch", lake, strategy="none", limit=1, seed=3))
    assert [row["strategy"] for row in rows] == ["none"]
    assert rows[0]["seed"] == 3
    with pytest.raises(UnknownName, match="devise"):
        pipelines.stream("contrastive-batch", lake, devise="H200")
    with pytest.raises(UnknownName, match="contrastive"):
        pipelines.stream("contrastive", lake)
    with pytest.raises(EmptyDataset):
        pipelines.stream("contrastive-batch", lake, max_tokens=1)


@pytest.mark.slow
def test_a_worker_of_a_loader_opens_the_lake_at_the_same_snapshot(lake: store.Lake) -> None:
    rows: Any = pipelines.stream("rl-prompts", lake)
    loaded = DataLoader(rows, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [row["prompt_id"] for row in loaded] == [row["prompt_id"] for row in rows]
