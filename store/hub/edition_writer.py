"""Write an edition of a lake into a folder: choose tables and rows, redact them, list them.

The same lake, snapshot and options give the same bytes, so that publishing again finds everything
in place, and an edition with more rows shares its older files with the one before: tables are
Parquet files in order of arrival. A folder with these files and the catalog opens as a lake
(`store.open`, `store query --lake`). DuckLake creates the catalog. Parts that would differ each
time (times, random ids, the number of snapshots) are then rewritten.
"""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from store import __version__, ids
from store.commandline.echo import count_nouns
from store.commandline.escape import quote_name
from store.errors import FlywheelError, RowsRejected, UnknownName
from store.hub import licenses
from store.hub.redact import Redactor, find_secret_holders, find_secret_rows, is_scrubbed
from store.ids import hash_file
from store.lake import attachment, checksums, location
from store.lake.location import EDITION_MANIFEST, METADATA
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.schema import catalog, row_checks
from store.schema.catalog import Catalog, Table
from store.upkeep.maintenance import require_whole
from store.writing.bundle import conform

MANIFEST = EDITION_MANIFEST
CATALOG = "catalog.sqlite"
TOP = ("README.md", "figure.png", MANIFEST, CATALOG)
"""Files of an edition beside data/."""
FORMAT = 1
SPLIT = "train"
"""Split of the rows of a table; the Hub requires one."""
BATCH_ROWS = 10_000

Quarantined: TypeAlias = Literal["mark", "leave-out"]
Unlicensed: TypeAlias = Literal["stop", "leave-out"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an edition."""

    tag: str
    """Name of the edition."""
    tables: tuple[str, ...] | None = None
    """Tables; None is all but `UNASKED`, or with datasets the tables that the datasets refer to."""
    datasets: tuple[str, ...] = ()
    """Datasets made by pipelines, as NAME or NAME@TAG."""
    license: str | None = None
    """License granted for texts that this lake's own runs wrote and that state none."""
    quarantined: Quarantined = "mark"
    """Whether quarantined kernels are marked, or left out with the rows that refer to them."""
    unlicensed: Unlicensed = "stop"
    """Whether texts without a license stop the command, or are left out in the same way."""


@dataclass(kw_only=True)
class Edition:
    """An edition in a folder, ready to be uploaded."""

    folder: Path
    repo: str
    tag: str
    lake_id: str
    snapshot: int
    moment: datetime
    """When the snapshot was taken."""
    tables: dict[str, list[Shard]] = field(default_factory=dict[str, "list[Shard]"])
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    """Name to lineage and files of a dataset."""
    later: dict[str, int] = field(default_factory=dict[str, int])
    """Table to the number of its rows that record the datasets and are newer than the snapshot."""
    schemas: dict[str, pa.Schema] = field(default_factory=dict[str, "pa.Schema"])
    """Config to the schema of its files."""
    licenses: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """Table, license, rows."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Table to the number of rows that stay behind."""
    quarantined: int = 0
    """Kernels in quarantine."""
    leaves_quarantined: bool = False
    """Whether these stay behind."""
    notices: list[str] = field(default_factory=list[str])
    """What to tell the user: decisions, and what was left out or changed."""

    def files(self) -> dict[str, Path]:
        """Return every file by its path in the repository, sorted."""
        found = [file for file in self.folder.iterdir() if file.name in TOP]
        found += self.folder.glob("data/**/*.parquet")
        return {file.relative_to(self.folder).as_posix(): file for file in sorted(found)}

    def split(self, config: str) -> str:
        """Return the split that a config's rows are in."""
        return str(self.datasets[config]["split"]) if config in self.datasets else SPLIT

    def shards(self, config: str) -> list[Shard]:
        """Return the files of a table or dataset."""
        if config in self.tables:
            return self.tables[config]
        return [Shard(**one) for one in self.datasets[config]["files"]]


LOCAL = ("ingest_log", "file_checksums")
"""Tables that mean nothing outside their lake."""
LATER = ("runs", "run_ends", "datasets", "dataset_rows")
"""Tables that get rows when a dataset is made, after the snapshot that it is made of."""
ALWAYS = ("lakes", "tags")
"""Tables without which a lake cannot be opened."""
UNASKED = ("rollout_tokens",)
"""Large tables that are published only if they are named."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")


def write_edition(
    lake: Lake, now: Lake, folder: Path, repo: str, options: Options, salt: bytes
) -> Edition:
    """Write an edition into an empty folder.

    Args:
        lake: Reader pinned to the snapshot that is published.
        now: Reader of the newest snapshot, in which datasets of that snapshot are recorded.

    Raises:
        RowsRejected: a text may not be redistributed, or contains a token or key; an id is not the
            hash of its row.
        UnknownName: no such table or dataset.
        FlywheelError: a data file is damaged, or the folder of a dataset differs from the lake's
            record.
    """
    moment = lake.run(
        lake.location.qualify(
            f"SELECT snapshot_time AS moment FROM {METADATA}.ducklake_snapshot "
            f"WHERE snapshot_id = {lake.snapshot}"
        )
    ).rows()[0]["moment"]
    made = Edition(
        folder=folder,
        repo=repo,
        tag=options.tag,
        lake_id=lake.lake_id,
        snapshot=lake.snapshot,
        moment=datetime.fromisoformat(moment) if isinstance(moment, str) else moment,
    )
    # The requested tables and those they refer to, in the catalog's order.
    known = [name for name in lake.catalog.tables if name not in LOCAL]
    asked = options.tables
    if asked is None:
        every = tuple(name for name in known if name not in UNASKED)
        asked = ("datasets", "dataset_rows") if options.datasets else every
    for name in asked:
        if name not in known:
            raise UnknownName.among("table to publish", name, known)
    wanted, more = set(asked), set(asked)
    while more:
        more = {
            target.name
            for name in more
            for _, target in lake.catalog.references(lake.catalog.table(name))
        } - wanted
        wanted |= more
    added = [name for name in known if name in wanted - set(asked)]
    if added:
        made.notices.append(f"also published, since rows refer to them: {', '.join(added)}")
    chosen = [name for name in known if name in wanted | set(ALWAYS)]
    # Also files of unpublished tables, because licenses and quarantine are read from them.
    files = checksums.list_files(lake.location)
    read = [file for file in files if file.is_read_at(lake.snapshot)]
    require_whole(lake.location, read, "Nothing was published.")
    found = licenses.survey(lake, options.license)
    seeds: dict[str, pa.Table] = {}
    if options.unlicensed == "stop":
        published = pc.is_in(found.wrong.column("table"), pa.array(chosen, pa.string()))
        licenses.refuse(found.wrong.filter(published))
    else:
        for name in sorted({str(row["table"]) for row in found.wrong.to_pylist()}):
            rows = found.wrong.filter(pc.equal(found.wrong.column("table"), pa.scalar(name)))
            seeds[name] = rows.select(["id"]).rename_columns(list(lake.catalog.table(name).key))
    quarantined = lake.run("SELECT kernel_id FROM quarantined ORDER BY kernel_id").arrow()
    made.quarantined = quarantined.num_rows
    made.leaves_quarantined = options.quarantined == "leave-out"
    if made.leaves_quarantined:
        seeds["kernels"] = _merge_keys([seeds.get("kernels"), quarantined])
    redactor = Redactor(salt, lake.catalog)
    if "rollout_tokens" in chosen:
        seeds["rollout_tokens"] = _find_telling_tokens(lake, redactor)
    left_out = _find_left_out(lake, chosen, seeds)
    lake.register("_filled", found.filled)
    lake.register("_quarantined", quarantined)
    records = {wanted: _find_record(lake, now, wanted) for wanted in options.datasets}
    # A dataset is recorded after the snapshot that it was made of. Its rows, and those of its run,
    # follow those of the snapshot in the edition, without the rows that show what is left out.
    for name in LATER if records else ():
        if name not in chosen:
            continue
        key = "run_id" if name.startswith("run") else "dataset_id"
        wanted_ids = [record[key] for record in records.values()]
        rows = now.run(f"FROM {name} WHERE list_contains($1, {key})", [wanted_ids]).arrow()
        lake.register("_of_datasets", rows)
        keys = " AND ".join(
            f'a."{column}" = b."{column}"' for column in lake.catalog.table(name).key
        )
        shown: list[str] = []
        if name == "dataset_rows" and "tasks" in left_out:
            shown.append("NOT task_id IN (SELECT task_id FROM _left_out_tasks)")
        if name == "dataset_rows" and "kernels" in left_out:
            kernel_ids = _build_key_list(lake.catalog.table("kernels"))
            shown.append(f"NOT list_has_any(kernel_ids, {kernel_ids})")
        where = f" WHERE {' AND '.join(shown)}" if shown else ""
        kept = lake.run(f"FROM _of_datasets AS a ANTI JOIN {name} AS b ON {keys}{where}").arrow()
        if kept.num_rows:
            lake.register(f"_later_{name}", kept)
            made.later[name] = kept.num_rows
    holding: list[str] = []
    # Tables of the snapshot with their columns, without later ones.
    stored = lake.run(
        "SELECT table_name, list(column_name) AS columns FROM duckdb_columns() "
        "WHERE database_name = 'lake' GROUP BY table_name"
    ).rows()
    there = {str(row["table_name"]): set(row["columns"]) for row in stored}
    for name in chosen:
        table = lake.catalog.table(name)
        columns = there.get(name, set[str]())
        _write_table(lake, table, columns, made, redactor, left_out, holding)
    for record in records.values():
        _write_dataset(lake, now, record, made, left_out, holding)
    if holding:
        rule = "published texts contain no token or key"
        said = (
            "Leave their tables out by --tables; kernels may be left out alone, by `evaluators "
            "quarantine` and --quarantined leave-out."
        )
        raise RowsRejected("publish", rule, len(holding), [*holding[: licenses.SHOWN], said])
    made.licenses = [one for one in found.counts if one[0] in chosen]
    if made.left_out:
        gone = ", ".join(f"{count} of {name}" for name, count in made.left_out.items())
        made.notices.append(f"left out: {gone}")
    if made.quarantined:
        made.notices.append(f"in quarantine: {count_nouns(made.quarantined, 'kernel')}")
    for what, counts in (
        ("names hashed", redactor.hashed),
        ("texts cut", redactor.scrubbed),
        ("texts that name a home folder, published as they are", redactor.unchanged),
    ):
        values = ", ".join(f"{place} {count}" for place, count in sorted(counts.items()) if count)
        if values:
            made.notices.append(f"{what}: {values}")
    write_catalog(
        folder,
        lake.catalog,
        {name: [one.path for one in files] for name, files in made.tables.items()},
        lake_id=made.lake_id,
        snapshot=made.snapshot,
        moment=made.moment,
    )
    _write_manifest(made, options)
    return made


def _merge_keys(parts: list[pa.Table | None]) -> pa.Table:
    whole = pa.concat_tables([one for one in parts if one is not None])
    return whole.group_by(whole.column_names, use_threads=False).aggregate([])


def _find_left_out(
    lake: Lake, chosen: list[str], seeds: dict[str, pa.Table]
) -> dict[str, pa.Table]:
    """Return the keys of all rows to leave out: the given ones, and rows that refer to them.

    A prompt that shows such a kernel is left out, too.
    """
    kernel_ids = _build_key_list(lake.catalog.table("kernels"))
    found = {name: rows for name, rows in seeds.items() if rows.num_rows}
    grown = set(found)
    while grown:
        for name in grown:
            lake.register(f"_left_out_{name}", found[name])
        now, grown = grown, set[str]()
        for name in chosen:
            table = lake.catalog.table(name)
            key = ", ".join(f'"{column}"' for column in table.key)
            conditions = [
                f'list_has_any("{column.name}", {_build_key_list(target)})'
                if column.type.endswith("[]")
                else f'"{column.name}" IN (SELECT "{target.key[0]}" FROM _left_out_{target.name})'
                for column, target in lake.catalog.references(table)
                if target.name in now
            ]
            if name == "prompts" and now & {"kernels", "generations"} and "kernels" in found:
                conditions.append(
                    "prompt_id IN (SELECT prompt_id FROM generations WHERE "
                    f"list_has_any(exemplar_kernel_ids, {kernel_ids}) "
                    "UNION ALL SELECT prompt_id FROM findings "
                    "WHERE kernel_id IN (SELECT kernel_id FROM _left_out_kernels))"
                )
            if not conditions:
                continue
            more = lake.run(
                f"SELECT DISTINCT {key} FROM {name} WHERE {' OR '.join(conditions)}"
            ).arrow()
            before = found.get(name)
            whole = _merge_keys([before, more])
            if whole.num_rows > (before.num_rows if before is not None else 0):
                found[name] = whole
                grown.add(name)
    return found


def _find_telling_tokens(lake: Lake, redactor: Redactor) -> pa.Table:
    """Return the keys of tokens that would show what is removed from the text of their session."""
    telling: set[Any] = set()
    for name in ("session_steps", "tool_calls"):
        table = lake.catalog.table(name)
        query = (
            f"FROM {name} WHERE session_id IN (SELECT trajectory_id FROM generations "
            "SEMI JOIN rollout_tokens USING (generation_id))"
        )
        for batch in lake.run(query).reader(BATCH_ROWS):
            rows = pa.Table.from_batches([batch])
            for column in filter(partial(is_scrubbed, table), redactor.list_columns(table)):
                before = rows.column(column.name)
                after = redactor.redact_column(table, column, before)
                telling.update(
                    rows.filter(pc.not_equal(before, after)).column("session_id").to_pylist()
                )
    return lake.run(
        "SELECT generation_id FROM rollout_tokens SEMI JOIN generations AS g ON "
        "g.generation_id = rollout_tokens.generation_id AND list_contains($1, g.trajectory_id)",
        [sorted(telling)],
    ).arrow()


def _build_key_list(target: Table) -> str:
    return f'coalesce((SELECT list("{target.key[0]}") FROM _left_out_{target.name}), [])'


def _write_table(
    lake: Lake,
    table: Table,
    there: set[str],
    made: Edition,
    redactor: Redactor,
    left_out: Mapping[str, pa.Table],
    holding: list[str],
) -> None:
    gone = left_out.get(table.name)
    if gone is not None:
        made.left_out[table.name] = gone.num_rows
    schema = redactor.build_schema(table)
    if table.name == "kernels":
        schema = schema.append(pa.field("quarantined", pa.bool_()))

    def batches() -> Iterator[pa.RecordBatch]:
        if table.name == "tags":
            # The one tag that exists in the frozen lake: that of the edition.
            tag = {
                "tag_id": ids.content_id("tag", made.lake_id, str(made.snapshot), made.tag),
                "name": made.tag,
                "snapshot_id": made.snapshot,
                "created_at": made.moment,
            }
            rows = redactor.redact_rows(table, conform(table, [tag]))
            yield from rows.to_batches()
            return
        query = _build_query(
            table, there, left_out=gone is not None, later=table.name in made.later
        )
        for batch in lake.run(query).reader(BATCH_ROWS):
            whole = pa.Table.from_batches([batch])
            row_checks.check_ids(table, whole)
            holding.extend(find_secret_holders(table, whole))
            rows = redactor.redact_rows(
                table, whole.select(list(table.columns)).cast(table.open_schema)
            )
            if table.name == "kernels":
                rows = rows.append_column("quarantined", whole.column("quarantined"))
            yield from rows.to_batches()

    prefix = f"data/{table.name}/{SPLIT}"
    made.tables[table.name] = write_shards(made.folder, prefix, schema, batches())
    made.schemas[table.name] = schema


def _build_query(table: Table, there: set[str], *, left_out: bool, later: bool) -> str:
    """Return SQL for a table's rows in order of arrival; `there` has its columns at that time.

    With `later`, the rows of `_later_NAME` follow (`write_edition`).
    """
    if not there and not later:
        columns = [f'NULL::{c.type} AS "{c.name}"' for c in table.columns.values()]
        extra = ", NULL::BOOLEAN AS quarantined" if table.name == "kernels" else ""
        return f"SELECT {', '.join(columns)}{extra} WHERE false"
    columns = [
        column.build_sql(there, "t.")
        for column in table.columns.values()
        if column.name != "license"
    ]
    joins = ""
    if left_out:
        key = " AND ".join(f't."{name}" = o."{name}"' for name in table.key)
        joins += f" ANTI JOIN _left_out_{table.name} AS o ON {key}"
    if table.name in ("tasks", "kernels", "generations"):
        # rather than NULL, which would mean "unknown"
        joins += (
            f" LEFT JOIN _filled AS f ON f.\"table\" = '{table.name}' AND f.id = t.{table.key[0]}"
        )
        columns.append("coalesce(t.license, f.license) AS license")
    elif "license" in table.columns:
        columns.append("t.license" if "license" in there else "NULL::VARCHAR AS license")
    if table.name == "kernels":
        joins += " LEFT JOIN _quarantined AS q ON q.kernel_id = t.kernel_id"
        columns.append("q.kernel_id IS NOT NULL AS quarantined")
    # Runs of `store publish` name other copies of the rows, and would change every edition.
    where = {
        "runs": " WHERE kind <> 'publish'",
        "run_ends": " WHERE run_id NOT IN (SELECT run_id FROM runs WHERE kind = 'publish')",
    }.get(table.name, "")
    stored = f"SELECT *, false AS _later, rowid AS _row FROM lake.main.{table.name}{where}"
    if later:
        stored += (
            " UNION ALL BY NAME SELECT *, true AS _later, row_number() OVER () AS _row "
            f"FROM _later_{table.name}"
        )
    return f"SELECT {', '.join(columns)} FROM ({stored}) AS t{joins} ORDER BY t._later, t._row"


def _write_dataset(
    lake: Lake,
    now: Lake,
    record: Mapping[str, Any],
    made: Edition,
    left_out: Mapping[str, pa.Table],
    holding: list[str],
) -> None:
    """Write the dataset of a row of `datasets`, and record its lineage in the edition.

    `holding` receives the rows that contain a secret. Raises FlywheelError if the folder of the
    dataset differs from the lake's record.
    """
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

    parts = write_shards(made.folder, f"data/{name}/{split}", schema, batches())
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
    """Return the newest row of `datasets` for NAME or NAME@TAG up to the published snapshot.

    A dataset of a tag was made of its snapshot; if none was, one that the snapshot has recorded.
    """
    name, _, tag = wanted.partition("@")
    snapshot: int | None = None
    recorded: set[str] = set()
    if tag:
        with Lake(lake.location, tag) as tagged:
            snapshot = tagged.snapshot
            recorded = {row["dataset_id"] for row in tagged.run("FROM datasets").rows()}
    rows = now.run(
        "SELECT * FROM datasets WHERE name = $1 AND lake_id = $2 "
        "ORDER BY created_at DESC, dataset_id",
        [name, lake.lake_id],
    ).rows()
    if not rows:
        names = [row["name"] for row in now.run("SELECT DISTINCT name FROM datasets").rows()]
        raise UnknownName.among("dataset", name, names)
    fitting = [row for row in rows if snapshot is None or row["snapshot_id"] == snapshot]
    fitting = fitting or [row for row in rows if row["dataset_id"] in recorded]
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


def _write_manifest(made: Edition, options: Options) -> None:
    text = json.dumps(
        {
            "format": FORMAT,
            "made_by": f"kernel-flywheel {__version__}",
            "lake_id": made.lake_id,
            "snapshot_id": made.snapshot,
            "snapshot_time": made.moment.isoformat(),
            "tag": made.tag,
            "schema": catalog.load().schema,
            "quarantined": options.quarantined,
            "licenses": [list(one) for one in made.licenses],
            "left_out": made.left_out,
            "tables": {name: [asdict(one) for one in files] for name, files in made.tables.items()},
            "datasets": made.datasets,
            **({"recorded_later": made.later} if made.later else {}),
        },
        indent=1,
        sort_keys=True,
    )
    (made.folder / MANIFEST).write_text(text + "\n", "utf-8")


BLOCK_ROWS = 256
GROUP_BYTES = 2 << 20
"""Approximate size of a row group before compression: what the Hub's viewer reads for one page."""
SHARD_BYTES = 2 << 20
"""A file ends with the row group that reaches this size, before compression, or …"""
SHARE = 16
"""… or 1/SHARE of all earlier bytes, so that a later edition changes only a small part."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One Parquet file, identified by its content."""

    path: str
    """Path in the repository."""
    sha256: str
    bytes: int
    raw_bytes: int
    """Size of its values before compression."""
    rows: int


def write_shards(
    folder: Path, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> list[Shard]:
    """Write rows as `<prefix>-00000.parquet` and so on below a folder; return the files.

    The end of a file depends only on the rows before it, and names do not contain the number of
    files. Rows added at the end therefore leave every file except the last one unchanged. Without
    rows there is no file, because `datasets` cannot read an empty one.
    """
    made: list[Shard] = []
    groups = _cut_groups(schema, batches)
    group, total = next(groups, None), 0
    while group is not None:
        path = f"{prefix}-{len(made):05d}.parquet"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        limit = max(SHARD_BYTES, total // SHARE)
        rows = raw = 0
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            write_page_index=True,
            use_content_defined_chunking=True,
        ) as writer:
            while group is not None and raw < limit:
                whole, size = group
                writer.write_table(whole, row_group_size=whole.num_rows)
                rows += whole.num_rows
                raw += size
                group = next(groups, None)
        total += raw
        made.append(
            Shard(
                path=path,
                sha256=hash_file(file),
                bytes=file.stat().st_size,
                raw_bytes=raw,
                rows=rows,
            )
        )
    return made


def _cut_groups(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.Table, int]]:
    """Yield row groups of about GROUP_BYTES, each with its size.

    A group consists of blocks of BLOCK_ROWS rows, wherever batches end; the last one has the rest.
    """
    waiting, blocks, size = schema.empty_table(), list[pa.Table](), 0
    for batch in batches:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows >= BLOCK_ROWS:
            block, waiting = waiting.slice(0, BLOCK_ROWS), waiting.slice(BLOCK_ROWS)
            blocks.append(block)
            size += sum(map(_count_bytes, block.columns))
            if size >= GROUP_BYTES:
                yield pa.concat_tables(blocks).combine_chunks(), size
                blocks, size = [], 0
    if blocks or waiting.num_rows:
        size += sum(map(_count_bytes, waiting.columns))
        yield pa.concat_tables([*blocks, waiting]).combine_chunks(), size


def _count_bytes(values: Any) -> int:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 4 * len(values) + _count_bytes(pc.list_flatten(values))
    if pa.types.is_struct(kind):
        return sum(_count_bytes(pc.struct_field(values, [at])) for at in range(kind.num_fields))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return 4 * len(values) + int(pc.sum(pc.binary_length(values)).as_py() or 0)
    return len(values) * (kind.bit_width + 7) // 8


_WRITE_VERSION = 18
"""Offset of the write version in an SQLite file (sqlite.org/fileformat2.html, section 1.3)."""
_NO_WRITE_VERSION = 3
"""SQLite opens a file with an unknown write version as read-only."""


def write_catalog(
    folder: Path,
    catalog: Catalog,
    files: Mapping[str, Sequence[str]],
    *,
    lake_id: str,
    snapshot: int,
    moment: datetime,
) -> Path:
    """Write catalog.sqlite into a folder and return it.

    Args:
        files: Table to the paths of its shards, relative to the folder: `data/<table>/…`.
    """
    target = folder / CATALOG
    target.unlink(missing_ok=True)
    # Let DuckLake create the tables and register the files.
    connection = attachment.connect()
    try:
        attachment.attach(connection, location.FolderLocation(folder), writable=True, create=True)
        connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        connection.execute("BEGIN")
        for table in catalog.tables.values():
            connection.execute(table.ddl(f"lake.{table.name}"))
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        for name, paths in files.items():
            for path in paths:
                literal = str(folder / path).replace("'", "''")
                connection.execute(
                    f"CALL ducklake_add_data_files('lake', '{name}', '{literal}', "
                    "allow_missing => true, ignore_extra_columns => true)"
                )
        connection.execute("COMMIT")
    except duckdb.Error as error:
        raise FlywheelError(f"the frozen lake cannot be made: {error}") from error
    finally:
        connection.close()
    # Rewrite a catalog as one snapshot, with relative paths and ids that follow from the lake.
    made = sqlite3.connect(target)
    (newest,) = made.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
    made.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id < ?", [newest])
    made.execute(
        "UPDATE ducklake_snapshot SET snapshot_id = ?, snapshot_time = ?",
        [snapshot, moment.strftime("%Y-%m-%d %H:%M:%S.%f+00")],
    )
    made.execute("DELETE FROM ducklake_snapshot_changes")
    made.execute(
        "INSERT INTO ducklake_snapshot_changes "
        "VALUES (?, 'created_schema:\"main\"', 'store publish', 'published', NULL)",
        [snapshot],
    )
    # data/ is the lake's own folder; the files of a table are in data/<table>/.
    made.execute("UPDATE ducklake_metadata SET value = 'data/' WHERE key = 'data_path'")
    made.execute("UPDATE ducklake_schema SET path = ''")
    made.execute(
        "UPDATE ducklake_data_file SET path_is_relative = 1, "
        "path = replace(path, rtrim(path, replace(path, '/', '')), '')"
    )
    made.row_factory = sqlite3.Row
    listed = [row[0] for row in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    content: dict[str, list[dict[str, Any]]] = {
        name: [dict(row) for row in made.execute(f'SELECT * FROM "{name}"')]
        for name in sorted(listed)
    }
    # Number tables by name and files by path, because DuckLake's order is not fixed.
    tables = sorted(content["ducklake_table"], key=lambda row: str(row["table_name"]))
    table_ids = {row["table_id"]: number for number, row in enumerate(tables, start=1)}
    names = {row["table_id"]: str(row["table_name"]) for row in tables}
    numbered = sorted(
        content["ducklake_data_file"], key=lambda row: (names[row["table_id"]], str(row["path"]))
    )
    ids = {
        "table_id": table_ids,
        "data_file_id": {row["data_file_id"]: number for number, row in enumerate(numbered)},
        # The columns of files by name; each belongs to the first file that uses it.
        "mapping_id": {
            mapping: number
            for number, mapping in enumerate(dict.fromkeys(row["mapping_id"] for row in numbered))
        },
    }
    for table, rows in content.items():
        if not rows:
            continue
        for row in rows:
            fixed = {column: number.get(row.get(column)) for column, number in ids.items()}
            fixed |= {"begin_snapshot": snapshot, "schema_uuid": _derive_uuid(lake_id, "")}
            fixed["table_uuid"] = _derive_uuid(lake_id, str(row.get("table_name")))
            row |= {
                column: value
                for column, value in fixed.items()
                if column in row and value is not None
            }
        made.execute(f'DELETE FROM "{table}"')
        marks = ", ".join("?" * len(rows[0]))
        ordered = sorted(((*row.values(),) for row in rows), key=repr)
        made.executemany(f'INSERT INTO "{table}" VALUES ({marks})', ordered)
    made.commit()
    # Replace the catalog that DuckLake created by one that SQLite never writes to.
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    made.execute("VACUUM INTO ?", [str(partial)])
    made.close()
    with open(partial, "r+b") as handle:
        handle.seek(_WRITE_VERSION)
        handle.write(bytes([_NO_WRITE_VERSION]))
    for journal in target.parent.glob(f"{CATALOG}-*"):
        journal.unlink()
    partial.replace(target)
    return target


def _derive_uuid(lake_id: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{lake_id}/{name}"))
