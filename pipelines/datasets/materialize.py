"""From a selection to a dataset folder: rendered in batches, hashed, and written as Parquet."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import store
from pipelines.contract import Kernel, Message, Row, Selection, Task
from pipelines.datasets import card
from pipelines.datasets.job import Dataset, Job
from pipelines.rendering.messages import template_hash
from pipelines.selection.queries import query, sql
from pipelines.selection.rules import apply_rules
from store import faults
from store.commandline import outputs
from store.commandline.echo import Progress, ignore_progress
from store.errors import DatasetError, EmptyDataset, UnknownName
from store.ids import prompt_id

if TYPE_CHECKING:
    import pyarrow as pa


_CONTRACT = "pipelines/README.md has the contract."
COLUMNS = {
    "prompt-only": ({"prompt"},),
    "prompt-completion": ({"prompt", "completion"},),
    "preference": ({"prompt", "chosen", "rejected"}, {"chosen", "rejected"}),
    "unpaired-preference": ({"prompt", "completion"},),
}
"""Columns of messages that render() may return, by the type of the dataset."""
SLAB_ROWS = 20_000
"""Rows whose texts are in memory at a time: one scan of the kernels' ids each."""


def fetch_texts(
    lake: store.Lake, rows: pa.Table, batch_rows: int
) -> Iterator[tuple[pa.Table, list[Row]]]:
    """Yield rows in batches, together with the rows for the renderer."""
    for start in range(0, rows.num_rows, SLAB_ROWS):
        slab = rows.slice(start, SLAB_ROWS)
        ids = slab.select(["task_id", "kernel_ids"])
        tasks = {
            row["task_id"]: Task(**row)
            for row in query(lake, sql("shared", "task_texts"), slab=ids).to_pylist()
        }
        kernels: dict[str, Kernel] = {}
        for row in query(lake, sql("shared", "kernel_texts"), slab=ids).to_pylist():
            files = tuple((part["path"], part["code"]) for part in row.pop("other_files") or ())
            kernels[row["kernel_id"]] = Kernel(**row, other_files=files)
        for inner in range(0, slab.num_rows, batch_rows):
            batch = slab.slice(inner, batch_rows)
            try:
                made = [
                    Row(
                        task=tasks[columns["task_id"]],
                        kernels=tuple(kernels[kernel_id] for kernel_id in columns["kernel_ids"]),
                        columns=columns,
                    )
                    for columns in batch.to_pylist()
                ]
            except KeyError as error:
                raise DatasetError(
                    f"select() names {error}, which is no task or kernel at snapshot "
                    f"{lake.snapshot}",
                    _CONTRACT,
                ) from error
            yield batch, made


log = logging.getLogger(__name__)

PROVENANCE = ("purpose", "lake_id", "snapshot_id", "seed", "template_hash")
"""Columns that say where a row comes from; the content hash leaves them out."""
ROW_GROUP_ROWS = 1_000
SHARD_ROWS = 20_000


def select_rows(job: Job) -> Selection:
    """Return the rows that the pipeline selects, checked against the rules and cut to the limit.

    Raises:
        EmptyDataset: nothing is left.
        LeakageFound: a training row asks for a task of the test split.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    selection: Any = job.module.select(job.lake, job.config, job.request)
    if not isinstance(selection, Selection) or not isinstance(
        cast("object", selection.rows), pa.Table
    ):
        raise DatasetError(
            f"{job.pipeline}: select() returns no Selection with an Arrow table", _CONTRACT
        )
    missing = {"task_id", "kernel_ids"} - set(selection.rows.column_names)
    if missing:
        raise DatasetError(
            f"{job.pipeline}: select() gives no column {', '.join(sorted(missing))}", _CONTRACT
        )
    kind = selection.dataset_type or job.module.DATASET_TYPE
    if kind not in COLUMNS:
        raise UnknownName.among("dataset type", kind, COLUMNS)
    if job.request.tasks is not None and selection.improvement_share is not None:
        raise DatasetError(
            "rows for some tasks cannot have an improvement share",
            "The share is that of the rows of all tasks; leave the share or the tasks out.",
        )
    # kernel_ids are lists of text, also where no row has a kernel.
    rows = selection.rows
    for name, kind in (("task_id", pa.string()), ("kernel_ids", pa.list_(pa.string()))):
        try:
            column = rows[name].cast(kind)
        except pa.ArrowException as error:
            raise DatasetError(
                f"{job.pipeline}: {name} of select() is no {kind}", _CONTRACT
            ) from error
        if column.null_count:
            raise DatasetError(f"{job.pipeline}: select() gives rows without {name}", _CONTRACT)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    selection = replace(selection, rows=rows.combine_chunks())
    selection = apply_rules(job.lake, selection, job.request)
    if job.request.tasks is not None:
        # A pipeline of the user may select rows of all tasks. It may not select test tasks.
        wanted = pa.array(job.request.tasks, pa.string())
        rows = selection.rows
        selection = replace(
            selection, rows=rows.filter(pc.is_in(rows["task_id"], value_set=wanted))
        )
    if selection.improvement_share is not None:
        selection = choose_mixture(job, selection, selection.improvement_share)
    rows = selection.rows
    if job.request.limit is not None:
        rows = rows.slice(0, job.request.limit)
    if rows.num_rows == 0:
        why = ", ".join(f"{reason} {count}" for reason, count in selection.dropped.items())
        raise EmptyDataset(f"{job.pipeline} finds no row at snapshot {job.lake.snapshot}", why)
    return replace(selection, rows=rows)


def render_rows(
    job: Job, dataset: Dataset, selection: Selection, progress: Progress = ignore_progress
) -> Iterator[pa.Table]:
    """Yield the dataset in batches of final columns, and fill in `dataset` on the way.

    Rows that repeat an earlier row's text, or are longer than the limit, are left out.
    """
    import pyarrow as pa

    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    content = hashlib.sha256()
    dropped: Counter[str] = Counter()
    done = 0
    provenance = {
        "purpose": job.request.purpose,
        "lake_id": job.lake.lake_id,
        "snapshot_id": job.lake.snapshot,
        "seed": job.request.seed,
        "template_hash": template_hash(job.module.TEMPLATE),
    }
    for rendered in _render_batches(job, selection, dropped):
        done += rendered.batch_rows
        progress(done, selection.rows.num_rows, "rows")
        if not rendered.rows:
            continue
        # Messages, task, the pipeline's own columns, provenance.
        texts = rendered.texts
        columns: dict[str, Any] = {
            name: pa.array([text[name] for text in texts], pa.list_(turn)) for name in texts[0]
        }
        columns["task_id"] = rendered.selected["task_id"]
        columns["task"] = pa.array([row.task.name for row in rendered.rows], pa.string())
        for name in rendered.selected.column_names:
            if name not in ("task_id", "kernel_ids") and not name.startswith("_"):
                columns[name] = rendered.selected[name]
        columns["prompt_id"] = pa.array([digest[0] for digest in rendered.digests], pa.string())
        columns["tokens"] = pa.array(rendered.tokens, pa.int64())
        for name, value in provenance.items():
            columns[name] = pa.repeat(pa.scalar(value), len(texts))
        table = pa.table(columns)

        hash_rows(content, table, rendered.digests)
        for row in rendered.rows:
            dataset.licenses["task", row.task.task_id] = row.task.license
            for kernel in row.kernels:
                dataset.licenses["kernel", kernel.kernel_id] = kernel.license
        if dataset.example is None:
            dataset.example = texts[0]
        dataset.rows += table.num_rows
        dataset.tokens += sum(rendered.tokens)
        dataset.num_bytes += table.nbytes
        dataset.lineage.append(
            rendered.selected.select(["task_id", "kernel_ids"]).append_column(
                "prompt_id", table["prompt_id"]
            )
        )
        yield table
    dataset.content_hash = content.hexdigest()
    dataset.dataset_type = selection.dataset_type or job.module.DATASET_TYPE
    dataset.dropped = dict(Counter(selection.dropped) + Counter(dict(sorted(dropped.items()))))
    dataset.notes = selection.notes
    if dataset.rows == 0:
        why = ", ".join(f"{reason} {count}" for reason, count in dataset.dropped.items())
        raise EmptyDataset(f"{job.pipeline}: every row was left out", why)


@dataclass(frozen=True, kw_only=True)
class _Rendered:
    """The rows of a batch that are new and short enough."""

    batch_rows: int
    """Rows of the batch, with those that are left out."""
    places: list[int]
    """Places of the rows in the selection."""
    selected: pa.Table
    rows: list[Row]
    texts: list[dict[str, list[Message]]]
    digests: list[list[str]]
    tokens: list[int]


def _render_batches(job: Job, selection: Selection, dropped: Counter[str]) -> Iterator[_Rendered]:
    """Render a batch of rows at a time; count rows that are too long or repeat a text."""
    import pyarrow as pa

    seen: set[bytes] = set()
    start = 0
    for batch, rows in fetch_texts(job.lake, selection.rows, ROW_GROUP_ROWS):
        texts = [_render_row(job, selection, row) for row in rows]
        digests = [[prompt_id(turns) for turns in text.values()] for text in texts]
        tokens = job.counter.count(
            [
                "".join(turn["content"] for turns in text.values() for turn in turns)
                for text in texts
            ]
        )
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
        yield _Rendered(
            batch_rows=len(rows),
            places=[start + index for index in kept],
            selected=batch.take(pa.array(kept, pa.int64())),
            rows=[rows[index] for index in kept],
            texts=[texts[index] for index in kept],
            digests=[digests[index] for index in kept],
            tokens=[tokens[index] for index in kept],
        )
        start += len(rows)


def _render_row(job: Job, selection: Selection, row: Row) -> dict[str, list[Message]]:
    """Return the messages of a row. Raises DatasetError if a trainer could not read them."""
    kind = selection.dataset_type or job.module.DATASET_TYPE
    text: Any = job.module.render(row)
    reason = None
    if not isinstance(text, dict) or set(text) not in COLUMNS[kind]:
        columns = " or ".join(", ".join(sorted(names)) for names in COLUMNS[kind])
        reason = f"returns no dict with {columns}, as {kind} needs"
    elif not all(map(_has_turns, text.values())):
        reason = 'returns messages that are no list of {"role": TEXT, "content": TEXT}'
    if reason is not None:
        raise DatasetError(f"{job.pipeline}: render() {reason}", _CONTRACT)
    return text


def _has_turns(turns: Any) -> bool:
    """Return whether these are messages that can be written; halves of surrogate pairs cannot."""
    try:
        return bool(turns) and all(
            set(turn) == {"role", "content"} and (turn["role"] + turn["content"]).encode()
            for turn in turns
        )
    except (TypeError, AttributeError, UnicodeEncodeError):
        return False


def preview_dataset(job: Job, progress: Progress = ignore_progress) -> Dataset:
    """Return the dataset with the counts of a real run, and write nothing."""
    dataset = Dataset(job=job)
    for _ in render_rows(job, dataset, select_rows(job), progress):
        pass
    return dataset


def write_dataset(
    job: Job, out: Path | None, progress: Progress = ignore_progress
) -> tuple[Dataset, Path]:
    """Write the dataset folder and return it; leave nothing behind if that fails.

    Without `out` the folder is ./datasets/<name>/<snapshot>-<start of the id>. A dataset that the
    same pipeline has written there is replaced, unless it has the same files.

    Raises ExportRefused: `out` has something else than a dataset of this pipeline.
    """
    command = f"pipelines run {job.pipeline}"
    if out is not None:
        outputs.require_replaceable(out, command)
    selection = select_rows(job)
    dataset = Dataset(job=job)
    base = out.parent if out is not None else Path("datasets") / job.name
    with outputs.open_partial(base) as folder, faults.at(out or base):
        shards = Shards(folder / "data" / card.CONFIG_NAME, job.split)
        for table in render_rows(job, dataset, selection, progress):
            shards.write(table)
        files = shards.finish()
        card.write(folder, dataset, shards.schema, files)
        target = out if out is not None else base / dataset.folder_name
        outputs.place_folder(folder, target, command)
    return dataset, target


def choose_mixture(job: Job, selection: Selection, share: float) -> Selection:
    """Return the rows of the dataset: `share` of them improvements, as far as there are enough.

    If there are too few improvements, all of them are taken with all other rows. A warning and the
    notes state the share that the dataset then has.
    """
    import pyarrow as pa

    # Rows that rendering would leave out do not count. They are rendered for this, and again when
    # they are written, so that only a batch of texts is in memory.
    dropped: Counter[str] = Counter()
    kept = [
        place for rendered in _render_batches(job, selection, dropped) for place in rendered.places
    ]
    rows = selection.rows.take(pa.array(kept, pa.int64()))
    gains = rows["gain"].is_valid().to_pylist() if "gain" in rows.column_names else []
    pairs = [index for index, is_pair in enumerate(gains) if is_pair]
    singles = sorted(set(range(rows.num_rows)) - set(pairs))
    wanted = round(len(singles) * share / (1 - share))
    limit = job.request.limit
    if limit is not None and len(singles) + wanted > limit:
        wanted = round(limit * share)
        singles = singles[: limit - min(wanted, len(pairs))]
    available = len(pairs)
    pairs = pairs[:wanted]
    total = len(singles) + len(pairs)
    found = f"{len(pairs)} of {total} rows ({len(pairs) / max(total, 1):.1%})"
    if available < wanted:
        lack = (
            f"--improvement-share {share} needs {wanted} improvements for {len(singles)} other "
            f"rows, and there are {available}"
        )
        log.warning("%s; the dataset has %s", lack, found)
        found = f"{found}; {lack}"
    places = [
        ((place + 0.5) / len(kind), number, index)
        for number, kind in enumerate((singles, pairs))
        for place, index in enumerate(kind)
    ]
    order = pa.array([index for _, _, index in sorted(places)], pa.int64())
    return replace(
        selection,
        rows=rows.take(order),
        dropped=selection.dropped | dict(sorted(dropped.items())),
        notes=selection.notes | {"improvements": found},
    )


def hash_rows(content: Any, table: pa.Table, digests: list[list[str]]) -> None:
    """Feed rows to a content hash.

    digests: For each row, `prompt_id` of each column of messages, in order.
    """
    plain = [
        field.name
        for field in table.schema
        if field.name not in PROVENANCE and not has_messages(field.type)
    ]
    for row, digest in zip(table.select(plain).to_pylist(), digests, strict=True):
        content.update(json.dumps([digest, row], sort_keys=True).encode())


def has_messages(kind: pa.DataType) -> bool:
    """Whether a column of this type holds messages."""
    import pyarrow.types as types

    return types.is_list(kind) and types.is_struct(kind.value_type)


class Shards:
    """Parquet files of one split, opened as rows arrive and named when their number is known."""

    schema: pa.Schema
    """Schema of the rows; known after the first batch."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self._writer: Any = None
        self._rows = 0
        self._parts: list[Path] = []
        folder.mkdir(parents=True)

    def write(self, table: pa.Table) -> None:
        """Append one batch as one row group."""
        import pyarrow.parquet as pq

        self.schema = table.schema
        if self._writer is not None and self._rows + table.num_rows > SHARD_ROWS:
            self._close()
        if self._writer is None:
            part = self.folder / f"{len(self._parts):05d}.partial"
            self._parts.append(part)
            self._writer = pq.ParquetWriter(
                part,
                self.schema,
                compression="zstd",
                write_page_index=True,
                use_content_defined_chunking=True,
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._rows += table.num_rows

    def finish(self) -> list[Path]:
        """Close the last file and return all under their final names."""
        self._close()
        files: list[Path] = []
        for number, part in enumerate(self._parts):
            name = f"{self.split}-{number:05d}-of-{len(self._parts):05d}.parquet"
            files.append(part.rename(self.folder / name))
        return files

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._rows = None, 0


def record_dataset(dataset: Dataset, folder: Path, started_at: datetime) -> int | None:
    """Append the run, the dataset and its rows to the lake; None if the lake has it."""
    import pyarrow as pa

    job, dataset_id = dataset.job, dataset.dataset_id
    recipe = json.dumps(job.recipe(), sort_keys=True)
    lineage = pa.concat_tables(dataset.lineage)
    rows = lineage.append_column(
        "dataset_id", pa.repeat(pa.scalar(dataset_id), lineage.num_rows)
    ).append_column("row_index", pa.array(range(lineage.num_rows), pa.int64()))
    rows = rows.append_column("split", pa.repeat(pa.scalar(job.split), lineage.num_rows))
    common = {"lake_id": job.lake.lake_id, "snapshot_id": job.lake.snapshot}
    run = store.make_run(
        kind="pipeline",
        name=job.pipeline,
        config=recipe,
        lake_id=job.lake.lake_id,
        snapshot_id=job.lake.snapshot,
        started_at=started_at,
    )
    described = common | {
        "dataset_id": dataset_id,
        "run_id": run["run_id"],
        "name": job.name,
        "pipeline": job.pipeline,
        "dataset_type": dataset.dataset_type,
        "purpose": job.request.purpose,
        "recipe": recipe,
        "seed": job.request.seed,
        "content_hash": dataset.content_hash,
        "rows": dataset.rows,
        "tokens": dataset.tokens,
        "path": str(folder.resolve()),
    }
    with store.writer(job.lake.url, author=f"pipelines {job.pipeline}") as writer:
        return writer.load(
            {
                "runs": [run],
                "run_ends": [store.make_end(run["run_id"])],
                "datasets": [described],
                "dataset_rows": rows,
            },
            f"dataset {job.name}: {dataset.rows} rows",
            bundle_id=store.ids.content_id("dataset", dataset_id),
        )
