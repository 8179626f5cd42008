"""Puts the tables of pieces of one experiment into one lake, from which the figures are read.

python -m trainers.experiments.exemplar_arms.merge LAKE TABLES [TABLES …]

TABLES is the folder `result/tables` of a piece: the same preset with other seeds (--first-seed),
perhaps on another machine. Rows that an earlier piece has already brought are skipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import store

_LEFT_OUT = ("lakes", "ingest_log", "catalogs", "file_checksums")
"""Tables about the other lake itself."""


def select_new_rows(lake: store.Lake, name: str, rows: pa.Table) -> pa.Table:
    """Return the rows of a table whose key the lake does not have."""
    key = list(lake.catalog.tables[name].key)
    columns = ", ".join(f'"{column}"' for column in key)
    stored = lake.sql(f"SELECT {columns} FROM {name}").arrow()
    keys = rows.select(key).append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    new = keys.join(stored.cast(rows.select(key).schema), keys=key, join_type="left anti")
    return rows.take(new["place"].combine_chunks().sort())


def main() -> None:
    """Append the new rows of each piece, and print how many attempts it has brought."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lake")
    parser.add_argument("tables", type=Path, nargs="+")
    given = parser.parse_args()
    for folder in given.tables:
        files = [file for file in sorted(folder.glob("*.parquet")) if file.stem not in _LEFT_OUT]
        if not files:
            sys.exit(f"{folder} has no tables of a run: give its folder result/tables")
        with store.writer(given.lake, author="trainers exemplar_arms") as writer:
            with writer.reader() as lake:
                tables = {
                    file.stem: select_new_rows(lake, file.stem, pq.read_table(file))
                    for file in files
                }
            writer.append(tables, message=f"merge {folder}")
        sys.stdout.write(f"{folder}: {tables['generations'].num_rows} new attempts\n")


if __name__ == "__main__":
    main()
