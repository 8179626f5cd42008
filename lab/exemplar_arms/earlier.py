"""Takes over the verdicts of an earlier run, so that no kernel is judged twice.

python -m lab.exemplar_arms.earlier TABLES --lake LAKE [--where CONDITION]

TABLES is the folder `result/tables` of that run. Its attempts come along in namespaces of their
own, earlier/NAME, because prompts of every arm show kernels that no namespace has attempted. They
have no group, so a search does not count them as its own.

--where takes over verdicts on the teacher's kernels alone, and no attempts. A run that trains does
this first, because training rows leave out near copies of attempts at test tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import store
from lab.merge import read_tables
from store.errors import FlywheelError

_LEFT_OUT = ("datasets", "dataset_rows", "metrics")
"""Tables of steps that this run does anew."""


def set_apart(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return all rows, with attempts in namespaces that no arm has, and without groups.

    Attempts that the earlier run had taken over stay apart as they are.
    """
    generations = tables["generations"]
    names = [
        name and f"earlier/{name.removeprefix('earlier/')}"
        for name in generations["namespace"].to_pylist()
    ]
    place = generations.column_names.index("namespace")
    generations = generations.set_column(place, "namespace", pa.array(names, pa.string()))
    return {
        **tables,
        "generations": _clear_column(generations, "group_id"),
        "policies": _clear_column(tables["policies"], "dataset_id"),
    }


def choose_verdicts(
    tables: Mapping[str, pa.Table], kernel_ids: pa.ChunkedArray, task_ids: pa.ChunkedArray
) -> dict[str, pa.Table]:
    """Return the verdicts on some kernels for some tasks, and what they refer to.

    Other tasks stay out: without their labels they have no split, and tasks without a split train.
    """
    evaluations = _keep(_keep(tables["evaluations"], "kernel_id", kernel_ids), "task_id", task_ids)
    return {
        **{name: _keep(tables[name], "task_id", task_ids) for name in ("tasks", "workloads")},
        **{name: tables[name] for name in ("devices", "runs", "run_ends") if name in tables},
        "evaluations": evaluations,
        "timings": _keep(tables["timings"], "evaluation_id", evaluations["evaluation_id"]),
    }


def _keep(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.filter(pc.is_in(table[name], values))


def _clear_column(table: pa.Table, name: str) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.nulls(table.num_rows, pa.string()))


def main() -> None:
    """Append the tables of the run, and print how many verdicts it has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--lake", required=True)
    parser.add_argument(
        "--where", help="SQL condition on the teacher's kernels, which are in the lake"
    )
    given = parser.parse_args()
    try:
        tables = read_tables(given.tables)
    except FlywheelError as error:
        sys.exit(str(error))
    tables = {name: rows for name, rows in tables.items() if name not in _LEFT_OUT}
    with store.writer(given.lake, author="trainers exemplar_arms") as writer:
        with writer.reader() as lake:
            known = lake.sql("SELECT evaluation_id FROM evaluations").arrow()["evaluation_id"]
            if given.where:
                chosen = lake.sql(f"SELECT kernel_id FROM kernels WHERE {given.where}").arrow()
                tasks = lake.sql("SELECT task_id FROM tasks").arrow()
                tables = choose_verdicts(tables, chosen["kernel_id"], tasks["task_id"])
            else:
                tables = set_apart(tables)
        for name in ("evaluations", "timings"):
            new = pc.invert(pc.is_in(tables[name]["evaluation_id"], known))
            tables[name] = tables[name].filter(new)
        writer.append(tables, message="verdicts of an earlier run")
    sys.stdout.write(f"verdicts of an earlier run: {tables['evaluations'].num_rows}\n")


if __name__ == "__main__":
    main()
