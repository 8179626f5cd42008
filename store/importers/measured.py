"""Rows that an evaluator measured in another lake: a folder of Parquet files, one for each table.

Tasks and kernels are identified by their content, so verdicts and timings join any lake that has
the same texts. Rows are left out and counted if their kernel or task is not in this lake, or their
workload is neither in this lake nor in the folder.

The rows count like those of `store pull`. Their column `origin` has the name of the folder, and
they never override what this lake measured itself. With --own they count as measured by this lake:
use it only for rows that your own judges wrote, such as on another machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import store
from store import ids
from store.errors import ImportFailed
from store.foreign import parquet
from store.foreign.parquet import clamp_times
from store.hub.pull import IncomingTable, Preparation, compare, describe_joining
from store.hub.redact import Redactor
from store.importers.reading import sources
from store.schema import catalog
from store.schema.catalog import Table
from store.writing import bundle
from store.writing.bundle import Bundle

log = logging.getLogger(__name__)

NAME = "measured"
TABLES = (
    *("devices", "runs", "run_ends", "workloads", "evaluations", "timings", "findings"),
    *("analyses", "task_audits", "session_spreads"),
)
_SIGNS = {
    "evaluations": {"evaluation_id", "evaluator_version", "kernel_id"},
    "task_audits": {"task_id", "auditor_version", "passes"},
}
_KNOWN = {
    "kernel_id": "SELECT kernel_id FROM kernels",
    "task_id": "SELECT task_id FROM tasks",
    "workload_id": "SELECT workload_id FROM workloads UNION ALL SELECT workload_id FROM _shapes",
}


@dataclass(frozen=True, kw_only=True)
class Config:
    own: bool = False
    """Count the rows as measured by this lake, because your own judges wrote them."""


def recognize(path: Path) -> str | None:
    for table, wanted in _SIGNS.items():
        file = path / f"{table}.parquet"
        if file.is_file() and wanted <= sources.read_columns(file):
            return f"{file.name} with the columns of a lake's {table}"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield one bundle of all tables of the folder, without the rows that the lake has already."""
    files = sorted(path.glob("*.parquet")) if path is not None and path.is_dir() else []
    files = [file for file in files if file.stem in TABLES]
    if path is None or not files:
        raise ImportFailed(
            f"{path} is no folder of Parquet files",
            f"Each file is named after its table: {', '.join(TABLES)}.",
        )
    parquet.check_files(files)
    origin = None if config.own else os.fsencode(path.resolve().name).decode(errors="replace")
    parts = _compare_files(files, origin, lake)
    kept = {part.table.name: sum(map(len, part.fresh)) for part in parts}
    if not any(kept.get(name) for name in _SIGNS):
        raise ImportFailed(
            f"nothing in {path} belongs to a kernel or task of this lake",
            "Import the kernels first, such as: store import cuda-l1 DIR",
        )
    if origin is not None:
        log.info(
            "The rows have the origin %s: they count only where this lake has measured nothing "
            "itself. With --own they count as its own.",
            origin,
        )
    counts = ", ".join(f"{count} {name}" for name, count in kept.items())
    # Rows whose kernel, task or workload is not in the lake.
    unknown: list[str] = []
    for part in parts:
        rows = sum(pq.read_metadata(file).num_rows for file in part.files)
        if rows > kept[part.table.name]:
            unknown.append(f"{rows - kept[part.table.name]} {part.table.name}")
    # What is kept depends on the lake: more of it may be known at a later import.
    content = sources.digest((file.name, file.read_bytes()) for file in files)
    whose = () if origin is None else (origin,)
    yield Bundle(
        bundle_id=ids.content_id("measured", NAME, content, counts, *whose),
        message=f"{NAME}: {counts}" + (f"; not here: {', '.join(unknown)}" if unknown else ""),
        tables={
            part.table.name: pa.concat_tables(
                bundle.conform(part.table, rows) for rows in part.new_rows()
            )
            for part in parts
            if any(mask.any() for mask in part.fresh)
        },
    )


def _compare_files(files: list[Path], origin: str | None, lake: store.Lake) -> list[IncomingTable]:
    """Compare the rows of each file with those of the lake by the rules of `store pull`."""
    known, now = catalog.load(), datetime.now(UTC)
    incoming = None if origin is None else Preparation(origin=origin, moment=now, lake=lake)

    # The shapes that a judge has drawn come with the folder.
    shapes = pa.table({"workload_id": pa.array([], pa.string())})
    for file in files:
        if file.stem == "workloads":
            shapes = pq.read_table(file, columns=["workload_id"]).cast(shapes.schema)
    lake.register("_shapes", shapes)

    def prepare(table: Table, number: int, rows: pa.Table) -> pa.Table:
        rows = _select_known(rows, lake)
        if incoming is None:
            return clamp_times(table, rows, now)
        return incoming.prepare(table, number, rows)

    redactor = Redactor(lake.location.read_salt(), known)
    parts: list[IncomingTable] = []
    for file in files:
        part = IncomingTable(table=known.table(file.stem), files=[file], prepare=prepare)
        try:
            compare(lake, redactor, part, are_own=incoming is None)
        except pa.ArrowException as error:
            raise ImportFailed(f"{file.name} cannot be read: {error}", "Copy it again.") from error
        for notice in describe_joining(part):
            log.warning("%s", notice)
        if part.conflicting:
            log.warning(
                "kept out of %s: %d whose key this lake has with other values in %s, such as %s",
                file.stem, part.conflicting, ", ".join(sorted(part.differing)), part.conflicts[0],
            )  # fmt: skip
        parts.append(part)
    return parts


def _select_known(rows: pa.Table, lake: store.Lake) -> pa.Table:
    references = [name for name in _KNOWN if name in rows.column_names]
    if not references:
        return rows
    places = pa.array(range(rows.num_rows), pa.int64())
    # Some writers have ids as binary columns, which DuckDB does not compare with text.
    keys = rows.select(references).cast(pa.schema([(name, pa.string()) for name in references]))
    lake.register("_measured", keys.append_column("_place", places))
    where = " AND ".join(f"{column} IN ({_KNOWN[column]})" for column in references)
    found = lake.run(f"SELECT _place FROM _measured WHERE {where} ORDER BY _place").arrow()
    return rows.take(found.column("_place"))
