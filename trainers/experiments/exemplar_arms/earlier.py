"""Takes over the verdicts of an earlier run, so that no kernel is judged twice.

python -m trainers.experiments.exemplar_arms.earlier TABLES --lake LAKE

TABLES is the folder `result/tables` of that run. Its attempts come along in namespaces of their
own, earlier/NAME, because prompts of every arm show kernels that no namespace has attempted. They
have no group, so a search does not count them as its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import store

_LEFT_OUT = (
    "lakes", "ingest_log", "catalogs", "file_checksums",  # of the other lake itself
    "datasets", "dataset_rows", "metrics",  # of its steps, which this run does anew
)  # fmt: skip


def set_apart(generations: pa.Table) -> pa.Table:
    """Return attempts in namespaces that no arm of a new run has, and without groups."""
    names = generations["namespace"].to_pylist()
    columns = {
        "namespace": pa.array([name and f"earlier/{name}" for name in names], pa.string()),
        "group_id": pa.nulls(generations.num_rows, pa.string()),
    }
    for name, values in columns.items():
        place = generations.column_names.index(name)
        generations = generations.set_column(place, generations.schema.field(place), values)
    return generations


def main() -> None:
    """Append the tables of the run, and print how many verdicts it has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--lake", required=True)
    given = parser.parse_args()
    tables = {
        file.stem: pq.read_table(file)
        for file in sorted(given.tables.glob("*.parquet"))
        if file.stem not in _LEFT_OUT
    }
    if "evaluations" not in tables or "generations" not in tables:
        sys.exit(f"{given.tables} has no tables of a run: give its folder result/tables")
    tables["generations"] = set_apart(tables["generations"])
    with store.writer(given.lake, author="trainers exemplar_arms") as writer:
        writer.append(tables, message="verdicts of an earlier run")
    sys.stdout.write(f"verdicts of an earlier run: {tables['evaluations'].num_rows}\n")


if __name__ == "__main__":
    main()
