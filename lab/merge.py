"""Puts the tables of runs of an experiment into one lake, from which the figures are read.

python -m lab.merge LAKE TABLES [TABLES …] [--device NAME]

TABLES is the folder `result/tables` of a run, or `tables` of a folder in docs/runs. Several runs of
one experiment, with seeds of their own and perhaps on different machines, make one lake. Rows that
the lake has already are skipped. With `--device H200`, verdicts of other GPUs are left out; use it
for a run whose kernels were judged again on another GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import store
from store.errors import FlywheelError

_LEFT_OUT = ("lakes", "ingest_log", "catalogs", "file_checksums")
"""Tables about the lake that the run wrote."""


def read_tables(folder: Path, device: str | None = None) -> dict[str, pa.Table]:
    """Read the tables of a run, except those about its lake.

    Args:
        folder: the tables of the run.
        device: leave out verdicts of devices with another name, and the rows that belong to them;
            None keeps all.

    Raises:
        FlywheelError: the folder has no tables of a run, or no device with this name.
    """
    files = {file.stem: file for file in sorted(folder.glob("*.parquet"))}
    if not {"evaluations", "generations", "devices"} <= files.keys():
        raise FlywheelError(
            f"{folder} has no tables of a run",
            "Give its folder result/tables, or tables of a folder in docs/runs. "
            "docs/runs/README.md says how to bring back tables that are not in the tree.",
        )
    tables = {name: pq.read_table(file) for name, file in files.items() if name not in _LEFT_OUT}
    if device is None:
        return tables
    devices = tables["devices"].filter(pc.field("name") == device)
    if not devices.num_rows:
        names = ", ".join(sorted(map(str, tables["devices"]["name"].unique())))
        raise FlywheelError(f"{folder} has no device {device!r}", f"It has {names}.")
    here = pc.field("device_id").isin(devices["device_id"])
    verdicts = tables["evaluations"].filter(here)
    kept = pc.field("evaluation_id").isin(verdicts["evaluation_id"])
    kept |= pc.field("evaluation_id").is_null()  # a finding about a prompt has no verdict
    return {
        table: rows.filter(kept) if "evaluation_id" in rows.column_names else rows
        for table, rows in tables.items()
    }


def select_new_rows(lake: store.Lake, name: str, rows: pa.Table) -> pa.Table:
    """Return the rows of a table whose key the lake does not have, in their order."""
    key = list(lake.catalog.table(name).key)
    columns = ", ".join(f'"{column}"' for column in key)
    stored = lake.sql(f"SELECT {columns} FROM {name}").arrow()
    keys = rows.select(key).append_column("place", pa.array(np.arange(rows.num_rows)))
    new = keys.join(stored.cast(rows.select(key).schema), keys=key, join_type="left anti")
    return rows.take(new["place"].combine_chunks().sort())


def merge(url: str, folder: Path, device: str | None = None) -> dict[str, int]:
    """Append the rows of a run that a lake does not have; return how many each table gets.

    Args:
        url: URL or folder of the lake.
        folder: the tables of the run.
        device: leave out verdicts of devices with another name; None keeps all.

    Raises:
        FlywheelError: the folder has no tables of a run or no such device, the lake has verdicts of
            another device, or rows break a rule of the lake.
    """
    tables = read_tables(folder, device)
    with store.writer(url, author="trainers experiments") as writer:
        with writer.reader() as lake:
            if device is not None:
                _check_devices(lake, device)
            tables = {name: select_new_rows(lake, name, rows) for name, rows in tables.items()}
        if any(rows.num_rows for rows in tables.values()):
            writer.append(tables, message=f"merge {folder}")
    return {name: rows.num_rows for name, rows in tables.items()}


def _check_devices(lake: store.Lake, device: str) -> None:
    query = "SELECT DISTINCT devices.name FROM evaluations INNER JOIN devices USING (device_id)"
    others = {row["name"] for row in lake.sql(query).rows()} - {device}
    if others:
        raise FlywheelError(
            f"the lake has verdicts of {', '.join(sorted(others))}", "Give the path of a new lake."
        )


def main() -> None:
    """Merge each run, and print how many attempts and verdicts it has brought."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("lake", help="its folder or URL; it is made if it does not exist")
    parser.add_argument("tables", type=Path, nargs="+", help="folders of Parquet files")
    parser.add_argument("--device", metavar="NAME", help="keep only verdicts of this GPU, as H200")
    given = parser.parse_args()
    try:
        for folder in given.tables:
            new = merge(given.lake, folder, given.device)
            counts = f"{new['generations']} new attempts, {new['evaluations']} new verdicts"
            sys.stdout.write(f"{folder}: {counts}\n")
    except FlywheelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
