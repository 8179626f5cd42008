"""Datasets to train on: found by folder or name and checked against the lake, or made now."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from pipelines import (
    Job,
    Request,
    has_messages,
    hash_rows,
    make_counter,
    prompt_id,
    record_dataset,
    write_dataset,
)
from store import faults, read_sql
from store.commandline import members
from store.errors import DatasetError, UnknownName
from trainers.models import loading
from trainers.runs import processes

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

    from trainers.models.loading import Identity
    from trainers.runs.job import Training
    from trainers.runs.recording import Run

_BATCH_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset folder and its row in the lake."""

    dataset_id: str
    name: str
    snapshot_id: int
    folder: Path

    @property
    def files(self) -> list[Path]:
        """Return its Parquet files in order."""
        return sorted((self.folder / "data").rglob("*.parquet"))

    def table(self, names: list[str]) -> pa.Table:
        """Return some columns as an Arrow table."""
        import pyarrow.parquet as pq

        return pq.read_table(self.files, columns=names)

    def columns(self, names: list[str], cache: Path) -> datasets.Dataset:
        """Return some columns for a TRL trainer; `cache` receives Arrow copies of them."""
        import datasets

        rows = datasets.Dataset.from_parquet(
            [str(file) for file in self.files], columns=names, cache_dir=str(cache)
        )
        assert isinstance(rows, datasets.Dataset)
        return rows


def find_dataset(lake_url: str | None, wanted: str, dataset_type: str | None = None) -> Dataset:
    """Return a dataset of the lake, after checking its folder against its row.

    It is named by its folder, or by NAME, NAME@TAG or NAME@SNAPSHOT; the newest match counts.
    `dataset_type` is what the trainer needs, such as prompt-completion; None takes any.

    Raises:
        UnknownName: no such dataset in this lake.
        DatasetError: its folder is gone or changed, it is for evaluation, or of another type.
    """
    import pyarrow as pa

    with store.open(lake_url) as lake:
        if not Path(wanted).is_dir():
            row = find_recorded(lake, wanted)
            folder = Path(row["path"] or "")
        else:
            folder = Path(wanted)
            if not (folder / "recipe.json").exists():
                raise DatasetError(
                    f"{wanted} is no dataset of `pipelines run`: it has no recipe.json",
                    "Make it with `pipelines run`: training records the snapshot of its rows.",
                )
            try:
                identity = str(json.loads((folder / "recipe.json").read_bytes())["dataset_id"])
            except (ValueError, LookupError, TypeError) as error:
                raise DatasetError(
                    f"{folder}/recipe.json cannot be read: {type(error).__name__}: {error}",
                    "Make the dataset again with `pipelines run`, or copy it again.",
                ) from error
            known = {row["dataset_id"]: row for row in _list_recorded(lake)}
            if identity not in known:
                raise UnknownName(
                    f"{wanted} is no dataset of the lake at {lake.url}",
                    "Name its lake with --lake.",
                )
            row = known[identity]
    if row["path"] is None or not (folder / "recipe.json").exists():
        raise DatasetError(
            f"the folder of dataset {row['name']} is gone: {row['path']}", describe_remake(row)
        )
    if row["purpose"] != "train":
        raise DatasetError(
            f"dataset {row['name']} is for evaluation: its tasks are of the test split",
            "Make one to train on: `pipelines run` with --purpose train.",
        )
    if dataset_type is not None and row["dataset_type"] != dataset_type:
        raise DatasetError(
            f"dataset {row['name']} is {row['dataset_type']}; {dataset_type} is needed",
            "`pipelines list` says what each pipeline makes.",
        )
    dataset = Dataset(
        dataset_id=row["dataset_id"],
        name=row["name"],
        snapshot_id=row["snapshot_id"],
        folder=folder.resolve(),
    )
    try:
        content_hash = compute_content_hash(dataset.files)
    except (pa.ArrowException, OSError) as error:
        faults.raise_unless_damage(error, folder)
        content_hash = None
    if content_hash != row["content_hash"]:
        raise DatasetError(
            f"the files in {folder} are not those that the lake recorded", describe_remake(row)
        )
    return dataset


def find_recorded(lake: store.Lake, wanted: str) -> dict[str, Any]:
    """Return the newest row of `datasets` for NAME, NAME@TAG or NAME@SNAPSHOT.

    Raises UnknownName: no such dataset, or none of that snapshot.
    """
    rows = _list_recorded(lake)
    name, _, version = wanted.partition("@")
    of_name = [row for row in rows if row["name"] == name]
    if not rows:
        hint = "Make one first, such as `pipelines run sft`."
        raise UnknownName(f'no dataset or folder "{name}"', hint)
    if not of_name:
        raise UnknownName.among("dataset", name, {row["name"] for row in rows})
    if not version:
        return of_name[-1]
    with store.open(lake.url, version) as pinned:
        snapshot = pinned.snapshot
    of_version = [row for row in of_name if row["snapshot_id"] == snapshot]
    if not of_version:
        there = ", ".join(str(one) for one in sorted({row["snapshot_id"] for row in of_name}))
        raise UnknownName(
            f"no dataset {name} of snapshot {snapshot}",
            f"There are those of {there}; `pipelines run {name} --at {version}` makes it.",
        )
    return of_version[-1]


def describe_remake(row: dict[str, Any]) -> str:
    """Explain how to make a dataset again if its folder is missing or changed."""
    seed = f" --seed {row['seed']}" * bool(row["seed"])
    # The lake keeps the first folder of a dataset.
    out = "" if row["path"] is None else f" --out {shlex.quote(row['path'])}"
    return (
        f"Make it again: `pipelines run {row['pipeline']} --at {row['snapshot_id']}{seed}{out}`, "
        "with the options of its recipe. If it is in another folder now, give this folder."
    )


def make_dataset(
    lake_url: str | None,
    pipeline: str,
    *,
    at: str | int | None = None,
    seed: int = 0,
    name: str | None = None,
    **options: Any,
) -> Dataset:
    """Materialise a pipeline as `pipelines run` does, record it, and return it.

    Its name is by default the pipeline's; `options` are fields of the pipeline's Config. Raises
    EmptyDataset: the snapshot gives no row.
    """
    module = members.find_member("pipelines", pipeline).load()
    started_at = datetime.now(UTC)
    with store.open(lake_url, at) as lake:
        job = Job(
            lake=lake,
            pipeline=pipeline,
            module=module,
            config=module.Config(**options),
            request=Request(seed=seed),
            name=name or pipeline,
            counter=make_counter(None),
        )
        dataset, folder = write_dataset(job, None)
        record_dataset(dataset, folder, started_at)
        return Dataset(
            dataset_id=dataset.dataset_id,
            name=job.name,
            snapshot_id=lake.snapshot,
            folder=folder.resolve(),
        )


def choose_inputs(
    run: Run, config: Training, dataset_type: str, pipeline: str, **options: Any
) -> tuple[Path, Identity, Dataset]:
    """Return the folder and identity of the model that a run starts from, and the run's dataset.

    The dataset is that of the resumed run, the one that --dataset names, or a new one at the
    snapshot that the run reads. Kernels of it that have been quarantined since it was made are
    reported. Every rank calls this and gets the same.

    A new dataset is one of the pipeline; `options` are fields of the pipeline's Config.

    Raises:
        FlywheelError: there is no such model.
        UnknownName: no such dataset in this lake.
        DatasetError: its folder is gone or changed, it is for evaluation, or of another type.
        EmptyDataset: a new one would have no row.
    """

    def choose() -> tuple[Path, Identity, Dataset]:
        base = loading.find_model(str(config.model), run.job.out / "model", config.seed)
        url = run.job.lake_url
        named = run.resolved.get("dataset") or config.dataset
        if named is None:
            dataset = make_dataset(
                url, pipeline, at=run.pinned_snapshot, seed=config.seed, **options
            )
        else:
            dataset = find_dataset(url, named, dataset_type)
        with run.reader() as lake:
            rows = lake.run(read_sql(__file__, "quarantined_rows"), [dataset.dataset_id]).rows()
        if rows:
            run.job.say(
                f"{len(rows)} kernels of dataset {dataset.name} were quarantined since it was "
                f"made: {', '.join(row['kernel_id'][:12] for row in rows[:3])}"
            )
        return base, loading.identify_model(base), dataset

    return processes.run_on_main(choose)


def compute_content_hash(files: list[Path]) -> str:
    """Return the hash of a dataset's rows, as its pipeline computes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = hashlib.sha256()
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_BATCH_ROWS):
                table = pa.Table.from_batches([batch])
                names = [field.name for field in table.schema if has_messages(field.type)]
                columns = [table[name].to_pylist() for name in names]
                digests = [list(map(prompt_id, row)) for row in zip(*columns, strict=True)]
                hash_rows(content, table, digests)
    return content.hexdigest()


def _list_recorded(lake: store.Lake) -> list[dict[str, Any]]:
    return lake.run(read_sql(__file__, "datasets")).rows()
