"""Rows that an evaluator measured in another lake: a folder of Parquet files, one for each table.

Tasks and kernels are identified by their content, so verdicts and timings join any lake that has
the same texts. Rows are left out and counted if their kernel, task or workload is not in this lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import ids
from store.errors import ImportFailed
from store.foreign import parquet
from store.foreign.times import clamp_times
from store.importers.reading import detection, sources
from store.schema import catalog
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import pyarrow as pa

    import store

NAME = "measured"
TABLES = ("devices", "runs", "evaluations", "timings", "findings", "analyses", "task_audits")
_SIGNS = {
    "evaluations": {"evaluation_id", "evaluator_version", "kernel_id"},
    "task_audits": {"task_id", "auditor_version", "passes"},
}
_REFERENCES = {"kernel_id": "kernels", "task_id": "tasks", "workload_id": "workloads"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """There are no options."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path has rows of another lake."""
    for table, wanted in _SIGNS.items():
        file = path / f"{table}.parquet"
        if file.is_file() and wanted <= detection.read_columns(file):
            return f"{file.name} with the columns of a lake's {table}"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield one bundle of all tables of the folder.

    Raises:
        ImportFailed: the path is not a folder, a file is not Parquet or not a table of the
            catalog, or no row belongs to a kernel of the lake.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.glob("*.parquet")) if path is not None and path.is_dir() else []
    if not files:
        raise ImportFailed(
            f"{path} is no folder of Parquet files",
            f"Each file is named after its table: {', '.join(TABLES)}.",
        )
    parquet.check_files([file for file in files if file.stem in TABLES])
    known, now = catalog.load(), datetime.now(UTC)
    tables: dict[str, pa.Table] = {}
    left_out: list[str] = []
    for file in files:
        if file.stem not in TABLES:
            continue
        try:
            rows = clamp_times(known.table(file.stem), pq.read_table(file), now)
        except pa.ArrowException as error:
            raise ImportFailed(f"{file.name} cannot be read: {error}", "Copy it again.") from error
        tables[file.stem] = kept = _select_known(rows, lake)
        if kept.num_rows < rows.num_rows:
            left_out.append(f"{rows.num_rows - kept.num_rows} {file.stem}")
    if not any(tables.get(name) for name in ("evaluations", "task_audits")):
        raise ImportFailed(
            f"nothing in {path} belongs to a kernel or task of this lake",
            "Import the kernels first, such as: store import cuda-l1 DIR",
        )
    counts = ", ".join(f"{rows.num_rows} {name}" for name, rows in tables.items())
    without = f"; not here: {', '.join(left_out)}" if left_out else ""
    # What is kept depends on the lake: more of it may be known at a later import.
    content = sources.digest((file.name, file.read_bytes()) for file in files)
    yield Bundle(
        bundle_id=ids.content_id("measured", NAME, content, counts),
        message=f"{NAME}: {counts}{without}",
        tables={name: rows for name, rows in tables.items() if rows.num_rows},
    )


def _select_known(rows: pa.Table, lake: store.Lake) -> pa.Table:
    """Return the rows whose kernel, task, workload and evaluation the lake has or would have."""
    lake.register("_measured", rows)
    conditions = [
        f"{column} IN (SELECT {column} FROM {table})"
        for column, table in _REFERENCES.items()
        if column in rows.column_names
    ]
    where = " AND ".join(conditions) or "true"
    found: Any = lake.run(f"FROM _measured WHERE {where}").arrow()
    return found.cast(rows.schema)
