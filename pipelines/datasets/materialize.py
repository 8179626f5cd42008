"""From a selection to a dataset folder: rendered in batches, hashed, and written as Parquet."""

from __future__ import annotations

import hashlib
import json
from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import store
from pipelines.contract.rows import Message, Request, Row, Selection
from pipelines.datasets import card
from pipelines.datasets.folder import ROW_GROUP_ROWS, Shards, put, scratch
from pipelines.datasets.tokens import Counter
from pipelines.rendering.templates import template_hash
from pipelines.selection.rules import guarded, sql_hash
from pipelines.selection.texts import with_texts
from store.commandline.progress import Progress, unseen
from store.errors import DatasetError, EmptyDataset
from store.ids import messages_json

if TYPE_CHECKING:
    import pyarrow as pa

PROVENANCE = ("purpose", "lake_id", "snapshot_id", "seed", "template_hash")
"""Columns that say where a row comes from; the content hash leaves them out."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One dataset to make: a pipeline with its options over a pinned lake."""

    lake: store.Lake
    pipeline: str
    """Name of the member, such as contrastive-batch."""
    module: ModuleType
    config: Any
    request: Request
    name: str
    counter: Counter
    max_tokens: int | None = None

    @property
    def split(self) -> str:
        """Split that every row is in: train, or test for evaluation."""
        return "test" if self.request.purpose == "eval" else "train"

    def recipe(self) -> dict[str, Any]:
        """Return everything that decides the rows, besides the lake and its snapshot."""
        file = Path(str(self.module.__file__))
        return {
            "pipeline": self.pipeline,
            "config": asdict(self.config),
            "request": asdict(self.request),
            "max_tokens": self.max_tokens,
            "tokens": self.counter.name,
            "template_hash": template_hash(self.module.TEMPLATE),
            "sql_hash": sql_hash(file.stem),
            "views_hash": card.views_hash(),
            "code_hash": hashlib.sha256(file.read_bytes()).hexdigest(),
        }


@dataclass(kw_only=True)
class Dataset:
    """What was made, or would have been."""

    job: Job
    rows: int = 0
    tokens: int = 0
    num_bytes: int = 0
    dataset_type: str = ""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    licences: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Licences of the texts: of ("task" or "kernel", id)."""
    example: dict[str, list[Message]] | None = None
    content_hash: str = ""
    lineage: list[pa.Table] = field(default_factory=list["pa.Table"])

    @property
    def dataset_id(self) -> str:
        """Return the sha256 over name, recipe, lake, snapshot and content."""
        job = self.job
        return store.ids.content_id(
            "dataset",
            job.name,
            json.dumps(job.recipe(), sort_keys=True),
            job.lake.lake_id,
            str(job.lake.snapshot),
            self.content_hash,
        )

    @property
    def folder_name(self) -> str:
        """Return the name of the version folder: snapshot and the start of the id."""
        return f"{self.job.lake.snapshot}-{self.dataset_id[:8]}"


def selected(job: Job) -> Selection:
    """Return the rows that the pipeline picks, cut to the limit and held against the rules.

    Raises:
        EmptyDataset: nothing is left.
        LeakageFound: a training row asks for a task of the test split.
    """
    selection = job.module.select(job.lake, job.config, job.request)
    missing = {"task_id", "kernel_ids"} - set(selection.rows.column_names)
    if missing:
        raise DatasetError(
            f"{job.pipeline}: select() gives no column {', '.join(sorted(missing))}",
            "pipelines/README.md has the contract.",
        )
    selection = replace(selection, rows=_conformed(selection.rows))
    selection = guarded(job.lake, selection, job.request)
    rows = selection.rows
    if job.request.limit is not None:
        rows = rows.slice(0, job.request.limit)
    if rows.num_rows == 0:
        why = ", ".join(f"{reason} {count}" for reason, count in selection.dropped.items())
        raise EmptyDataset(f"{job.pipeline} finds no row at snapshot {job.lake.snapshot}", why)
    return replace(selection, rows=rows)


def rendered(
    job: Job, dataset: Dataset, selection: Selection, progress: Progress = unseen
) -> Iterator[pa.Table]:
    """Yield the dataset in batches of final columns, and fill in `dataset` on the way.

    Rows that repeat an earlier row's text, or are longer than the limit, are left out.
    """
    seen: set[bytes] = set()
    content = hashlib.sha256()
    dropped: Tally[str] = Tally()
    done = 0
    constants = {
        "purpose": job.request.purpose,
        "lake_id": job.lake.lake_id,
        "snapshot_id": job.lake.snapshot,
        "seed": job.request.seed,
        "template_hash": template_hash(job.module.TEMPLATE),
    }
    for batch, rows in with_texts(job.lake, selection.rows, ROW_GROUP_ROWS):
        texts = [job.module.render(row) for row in rows]
        digests = [_digests(one) for one in texts]
        tokens = job.counter.count([_text(one) for one in texts])
        kept: list[int] = []
        for index, digest in enumerate(digests):
            whole = hashlib.sha256("".join(digest).encode()).digest()
            if job.max_tokens is not None and tokens[index] > job.max_tokens:
                dropped["row: over length"] += 1
            elif whole in seen:
                dropped["row: duplicate"] += 1
            else:
                seen.add(whole)
                kept.append(index)
        done += len(rows)
        progress(done, selection.rows.num_rows, "rows")
        if not kept:
            continue
        table = _final(
            batch.take(kept),
            [texts[index] for index in kept],
            [digests[index] for index in kept],
            [tokens[index] for index in kept],
            [rows[index] for index in kept],
            constants,
        )
        _hash_content(content, table, [digests[index] for index in kept])
        for index in kept:
            row = rows[index]
            dataset.licences["task", row.task.task_id] = row.task.license
            for kernel in row.kernels:
                dataset.licences["kernel", kernel.kernel_id] = kernel.license
        if dataset.example is None:
            dataset.example = texts[kept[0]]
        dataset.rows += table.num_rows
        dataset.tokens += sum(tokens[index] for index in kept)
        dataset.num_bytes += table.nbytes
        dataset.lineage.append(
            batch.take(kept)
            .select(["task_id", "kernel_ids"])
            .append_column("prompt_id", table["prompt_id"])
        )
        yield table
    dataset.content_hash = content.hexdigest()
    dataset.dataset_type = selection.dataset_type or job.module.DATASET_TYPE
    dataset.dropped = dict(Tally(selection.dropped) + Tally(dict(sorted(dropped.items()))))
    dataset.notes = selection.notes
    if dataset.rows == 0:
        why = ", ".join(f"{reason} {count}" for reason, count in dataset.dropped.items())
        raise EmptyDataset(f"{job.pipeline}: every row was left out", why)


def preview(job: Job, progress: Progress = unseen) -> Dataset:
    """Make the dataset without writing anything; its counts are those of a real run."""
    dataset = Dataset(job=job)
    for _ in rendered(job, dataset, selected(job), progress):
        pass
    return dataset


def write(job: Job, out: Path | None, progress: Progress = unseen) -> tuple[Dataset, Path]:
    """Write the dataset folder and return it; nothing is left behind where it fails.

    Without `out` the folder is ./datasets/<name>/<snapshot>-<start of the id>. A folder that
    holds the same files is left as it is.

    Raises:
        DatasetError: `out` holds something else.
    """
    selection = selected(job)
    dataset = Dataset(job=job)
    base = out.parent if out is not None else Path("datasets") / job.name
    with scratch(base) as folder:
        shards = Shards(folder / "data" / card.CONFIG_NAME, job.split)
        for table in rendered(job, dataset, selection, progress):
            shards.write(table)
        files = shards.finish()
        card.write(folder, dataset, shards.schema, files)
        target = out if out is not None else base / dataset.folder_name
        put(folder, target)
    return dataset, target


def _conformed(rows: pa.Table) -> pa.Table:
    """Return rows with kernel_ids as lists of text, also where no row has a kernel."""
    import pyarrow as pa

    place = rows.column_names.index("kernel_ids")
    kernels = rows["kernel_ids"].cast(pa.list_(pa.string()))
    return rows.set_column(place, "kernel_ids", kernels).combine_chunks()


def _final(
    batch: pa.Table,
    texts: list[dict[str, list[Message]]],
    digests: list[list[str]],
    tokens: list[int],
    rows: list[Row],
    constants: dict[str, Any],
) -> pa.Table:
    """Return a batch in its final columns: messages, task, the pipeline's own, provenance."""
    import pyarrow as pa

    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns: dict[str, Any] = {
        name: pa.array([one[name] for one in texts], pa.list_(turn)) for name in texts[0]
    }
    columns["task_id"] = batch["task_id"]
    columns["task"] = pa.array([row.task.name for row in rows], pa.string())
    for name in batch.column_names:
        if name not in ("task_id", "kernel_ids") and not name.startswith("_"):
            columns[name] = batch[name]
    columns["prompt_id"] = pa.array([digest[0] for digest in digests], pa.string())
    columns["tokens"] = pa.array(tokens, pa.int64())
    for name, value in constants.items():
        columns[name] = pa.repeat(pa.scalar(value), len(texts))
    return pa.table(columns)


def _digests(texts: dict[str, list[Message]]) -> list[str]:
    """Return the sha256 of each message column; the first is the prompt's id."""
    return [hashlib.sha256(messages_json(turns).encode()).hexdigest() for turns in texts.values()]


def _text(texts: dict[str, list[Message]]) -> str:
    return "".join(turn["content"] for turns in texts.values() for turn in turns)


def _hash_content(content: Any, table: pa.Table, digests: list[list[str]]) -> None:
    """Feed the rows of a batch to the content hash; texts are stood for by their digests."""
    import pyarrow.types as types

    plain = [
        field.name
        for field in table.schema
        if field.name not in PROVENANCE
        and not (types.is_list(field.type) and types.is_struct(field.type.value_type))
    ]
    for row, digest in zip(table.select(plain).to_pylist(), digests, strict=True):
        content.update(json.dumps([digest, row], sort_keys=True).encode())
