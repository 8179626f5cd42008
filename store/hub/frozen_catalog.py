"""The read-only, reproducible catalog of a published lake: DuckLake over its Parquet shards.

A folder with these shards and this one file opens as a lake (`store.open`, `store query --lake`).
DuckLake creates the catalog. Parts that would differ each time (times, random ids, the number of
snapshots) are then rewritten, so that the same shards give the same bytes.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from store.lake import attachment, location
from store.schema.catalog import Catalog

CATALOG = "catalog.sqlite"
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
    import duckdb

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
    statements = [
        str(row[0])
        for row in made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    ]
    made.close()
    # Number tables by name and files by path, because DuckLake's order is not fixed.
    tables = sorted(content["ducklake_table"], key=lambda row: str(row["table_name"]))
    table_ids = {row["table_id"]: number for number, row in enumerate(tables, start=1)}
    names = {row["table_id"]: str(row["table_name"]) for row in tables}
    files = sorted(
        content["ducklake_data_file"], key=lambda row: (names[row["table_id"]], str(row["path"]))
    )
    ids = {
        "table_id": table_ids,
        "data_file_id": {row["data_file_id"]: number for number, row in enumerate(files)},
        # The columns of files by name; each belongs to the first file that uses it.
        "mapping_id": {
            mapping: number
            for number, mapping in enumerate(dict.fromkeys(row["mapping_id"] for row in files))
        },
    }
    for table, rows in content.items():
        for row in rows:
            for column in row:
                if column == "begin_snapshot":
                    row[column] = snapshot
                elif column in ids:
                    row[column] = ids[column].get(row[column], row[column])
            if "table_uuid" in row:
                row["table_uuid"] = _derive_uuid(lake_id, str(row["table_name"]))
            if "schema_uuid" in row:
                row["schema_uuid"] = _derive_uuid(lake_id, "")
        content[table] = sorted(rows, key=lambda row: repr(list(row.values())))
    # Replace the catalog that DuckLake created by one that SQLite never writes to.
    fresh = sqlite3.connect(":memory:")
    for statement in statements:
        fresh.execute(statement)
    for table, rows in content.items():
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            fresh.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in rows]
            )
    fresh.commit()
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    fresh.execute("VACUUM INTO ?", [str(partial)])
    fresh.close()
    with open(partial, "r+b") as handle:
        handle.seek(_WRITE_VERSION)
        handle.write(bytes([_NO_WRITE_VERSION]))
    for journal in target.parent.glob(f"{CATALOG}-*"):
        journal.unlink()
    partial.replace(target)
    return target


def _derive_uuid(lake_id: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{lake_id}/{name}"))
