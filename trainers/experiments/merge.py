"""Puts the tables of runs of an experiment into one lake, from which the figures are read.

python -m trainers.experiments.merge LAKE TABLES [TABLES …]

TABLES is the folder `result/tables` of a run, or `tables` of a folder in docs/runs. Several runs of
one experiment, with seeds of their own and perhaps on different machines, make one lake. Rows that
the lake has already are skipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import store
from store.errors import FlywheelError

_LEFT_OUT = ("lakes", "ingest_log", "catalogs", "file_checksums")
"""Tables about the lake that the run wrote."""


def read_tables(folder: Path) -> dict[str, pa.Table]:
    """Read the tables of a run, except those about its lake.

    Raises:
        FlywheelError: the folder has no tables of a run.
    """
    files = {file.stem: file for file in sorted(folder.glob("*.parquet"))}
    if not {"evaluations", "generations"} <= files.keys():
        raise FlywheelError(
            f"{folder} has no tables of a run",
            "Give its folder result/tables.",
        )
    return {name: pq.read_table(file) for name, file in files.items() if name not in _LEFT_OUT}


def select_new_rows(lake: store.Lake, name: str, rows: pa.Table) -> pa.Table:
    """Return the rows of a table whose key the lake does not have, in their order."""
    key = list(lake.catalog.table(name).key)
    columns = ", ".join(f'"{column}"' for column in key)
    stored = lake.sql(f"SELECT {columns} FROM {name}").arrow()
    keys = rows.select(key).append_column("place", pa.array(np.arange(rows.num_rows)))
    new = keys.join(stored.cast(rows.select(key).schema), keys=key, join_type="left anti")
    return rows.take(new["place"].combine_chunks().sort())


def merge(url: str, folder: Path) -> int:
    """Append the rows of a run that a lake does not have; return how many attempts are new.

    Raises:
        FlywheelError: the folder has no tables of a run, or its rows break a rule of the lake.
    """
    tables = read_tables(folder)
    with store.writer(url, author="trainers experiments") as writer:
        with writer.reader() as lake:
            tables = {name: select_new_rows(lake, name, rows) for name, rows in tables.items()}
        if any(rows.num_rows for rows in tables.values()):
            writer.append(tables, message=f"merge {folder}")
    return tables["generations"].num_rows


def main() -> None:
    """Merge each run, and print how many attempts it has brought."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("lake")
    parser.add_argument("tables", type=Path, nargs="+")
    given = parser.parse_args()
    try:
        for folder in given.tables:
            sys.stdout.write(f"{folder}: {merge(given.lake, folder)} new attempts\n")
    except FlywheelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
