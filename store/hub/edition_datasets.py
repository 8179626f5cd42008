"""Datasets of an edition: their rows, with licenses and quarantine state of their kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.escape import quote_name
from store.errors import FlywheelError, UnknownName
from store.hub import shards
from store.hub.edition import BATCH_ROWS, Edition
from store.hub.redact import find_secret_rows
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")


def write_dataset(
    lake: Lake,
    now: Lake,
    wanted: str,
    made: Edition,
    left_out: Mapping[str, pa.Table],
    holding: list[str],
) -> None:
    """Write one dataset into an edition and record its lineage there.

    Args:
        lake: Reader pinned to the snapshot that is published.
        now: Reader of the newest snapshot.
        wanted: NAME or NAME@TAG.
        made: The edition.
        left_out: Table to the keys of rows that stay behind.
        holding: Receives the rows that contain a secret.

    Raises:
        UnknownName: no such dataset.
        FlywheelError: its folder differs from the lake's record.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    record = _find_record(lake, now, wanted)
    name = str(record["name"])
    if name in lake.catalog.tables or name in made.datasets or not _SAFE_NAME.fullmatch(name):
        raise FlywheelError(
            f"dataset {quote_name(name)} cannot be a config of the repository",
            "Make it under another name: pipelines run … --name NAME.",
        )
    folder = Path(str(record["path"]))
    files = sorted(folder.glob("data/*/*.parquet"))
    rows = now.run(
        "SELECT row_index, task_id, kernel_ids, prompt_id FROM dataset_rows "
        "WHERE dataset_id = $1 ORDER BY row_index",
        [record["dataset_id"]],
    ).arrow()
    split = _check_folder(folder, files, record, rows)
    # Of each row: its licenses, whether a kernel is quarantined, and whether to keep it.
    lake.register("_rows_of_dataset", rows)
    for table, key in (("tasks", "task_id"), ("kernels", "kernel_id")):
        nothing = pa.table({key: pa.array([], pa.string())})
        lake.register(f"_left_out_{table}", left_out.get(table, nothing))
    facts = lake.run(read_sql(__file__, "dataset_facts")).arrow()
    schema = pq.read_schema(files[0]).remove_metadata()
    schema = schema.append(pa.field("licenses", pa.list_(pa.string())))
    schema = schema.append(pa.field("quarantined", pa.bool_()))

    def batches() -> Iterator[pa.RecordBatch]:
        place = 0
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
                whole = pa.Table.from_batches([batch])
                holding.extend(f"{name} row {place + at}" for at in find_secret_rows(whole))
                own = facts.slice(place, batch.num_rows)
                place += batch.num_rows
                for column in ("licenses", "quarantined"):
                    whole = whole.append_column(column, own.column(column))
                yield from whole.filter(own.column("kept")).cast(schema).to_batches()

    parts = shards.write_shards(made.folder, f"data/{name}/{split}", schema, batches())
    kept = sum(one.rows for one in parts)
    if kept < rows.num_rows:
        made.left_out[name] = rows.num_rows - kept
    made.schemas[name] = schema
    lineage = ("dataset_id", "pipeline", "dataset_type", "purpose", "lake_id", "snapshot_id")
    made.datasets[name] = {one: record[one] for one in (*lineage, "seed", "content_hash")} | {
        "split": split,
        "rows": kept,
        "files": [asdict(one) for one in parts],
    }


def _find_record(lake: Lake, now: Lake, wanted: str) -> dict[str, Any]:
    """Return the newest row of `datasets` for NAME or NAME@TAG up to the published snapshot."""
    name, _, tag = wanted.partition("@")
    snapshot: int | None = None
    if tag:
        with Lake(lake.location, tag) as tagged:
            snapshot = tagged.snapshot
    rows = now.run(
        "SELECT * FROM datasets WHERE name = $1 AND lake_id = $2 "
        "ORDER BY created_at DESC, dataset_id",
        [name, lake.lake_id],
    ).rows()
    if not rows:
        names = [row["name"] for row in now.run("SELECT DISTINCT name FROM datasets").rows()]
        raise UnknownName.among("dataset", name, names)
    fitting = [row for row in rows if snapshot is None or row["snapshot_id"] == snapshot]
    if not fitting:
        have = ", ".join(sorted({str(row["snapshot_id"]) for row in rows}))
        raise UnknownName(f'no dataset "{name}" of {tag} (snapshot {snapshot})', f"Of: {have}")
    early = [row for row in fitting if row["snapshot_id"] <= lake.snapshot]
    if not early:
        raise FlywheelError(
            f"dataset {name} was made of snapshot {fitting[0]['snapshot_id']}, which is newer than "
            f"{lake.snapshot}",
            "Publish a newer snapshot, or name an older version of the dataset: NAME@TAG.",
        )
    return early[0]


def _check_folder(
    folder: Path, files: list[Path], record: Mapping[str, Any], rows: pa.Table
) -> str:
    """Return the split of a dataset's files; raise if they differ from the lake's record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    again = "Make it again with `pipelines run`, at the same snapshot and with the same options."
    try:
        stated = json.loads((folder / "recipe.json").read_text("utf-8"))["dataset_id"]
        texts = pa.concat_tables([pq.read_table(file, columns=["prompt_id"]) for file in files])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise FlywheelError(f"no dataset can be read at {folder}: {error}", again) from error
    recorded = rows.column("prompt_id")
    same = texts.column("prompt_id").combine_chunks().equals(recorded.combine_chunks())
    if stated != record["dataset_id"] or not same:
        raise FlywheelError(f"{folder} is not the dataset that the lake recorded", again)
    splits = {file.name.partition("-")[0] for file in files}
    if len(splits) != 1:
        raise FlywheelError(f"{folder} has several splits: {', '.join(sorted(splits))}", again)
    return splits.pop()
