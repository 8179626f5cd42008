"""DuckDB connections that attach a lake, at a snapshot or to write it."""

from __future__ import annotations

import importlib
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb

from store import faults
from store.bounds import Bounds, read_bounds
from store.errors import LakeUnreachable, SnapshotNotFound, UnknownName
from store.lake.host import choose_scratch, write_durably
from store.lake.location import MARKER, METADATA, FolderLocation, Location
from store.lake.sql_files import read_view
from store.schema.sql_text import fetch_row, quote_values

WRITE_DATA_PATH = "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path' AND scope IS NULL"
"""SQL that records the place of the data files in a catalog."""
_VERSIONS = re.compile(r"catalog version is (\S+), but the extension requires version (\d[\d.]*\d)")


def connect(
    *,
    to: Location | None = None,
    bounds: Bounds | None = None,
    spill: Path | None = None,
    one_thread: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB with the extensions of a lake, loaded from their wheels by path.

    Nothing is downloaded and no home folder is needed.

    Args:
        to: The lake that it can attach; None is any lake in a folder.
        bounds: What it may use; None is what every process may use.
        spill: A folder for data that does not fit into memory; None is a private one that is
            removed with the connection.
        one_thread: Begin with one thread, until a call of `Bounds.use_threads`. Several threads
            double the processor's time of what takes milliseconds, such as DuckLake's look-ups.
    """
    # The wheels were verified at installation. Verifying 70 MB of signatures again would take a
    # third of a second per connection. After this, nothing unsigned can be loaded.
    config: dict[str, str | bool | int | float | list[str]] = {"allow_unsigned_extensions": True}
    connection = duckdb.connect(config=config | ({"threads": 1} if one_thread else {}))
    # Under `python -c` and in a notebook DuckDB prints a bar for slow queries into the output.
    connection.execute("SET enable_progress_bar = false")
    packages = FolderLocation.extensions if to is None else (*to.extensions, *to.files.extensions)
    for name in packages:
        connection.execute(f"LOAD {quote_values((_find_extension(name),))}")
    connection.execute("SET allow_unsigned_extensions = false")
    folder = spill or choose_scratch("spill")
    (bounds or read_bounds(folder)).apply(connection, folder)
    connection.execute("SET TimeZone = 'UTC'")
    # Rows with lists or structs come in small chunks, but each counts as a full one. They soon
    # reach the default of 1 MB, and then all cores except one wait for the reader.
    connection.execute("SET streaming_buffer_size = '64MB'")
    # DuckDB would compare all pairs of rows where it expects few, and its estimates are far off.
    connection.execute("SET asof_loop_join_threshold = 0")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    # DuckLake reads its catalog by connections of its own. They would search Python's variables for
    # tables, and an interrupt (Ctrl-C) that arrives in such a search is lost.
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET SESSION python_enable_replacements = true")
    # DuckLake's own retries would wait with growing pauses; the lock serializes writers instead.
    connection.execute("SET ducklake_max_retry_count = 10")
    connection.execute("SET ducklake_retry_wait_ms = 20")
    connection.execute("SET ducklake_retry_backoff = 1.0")
    if to is not None:
        to.files.authorize(connection)
    return connection


@cache
def _find_extension(package: str) -> str:
    folder = Path(str(importlib.import_module(package).__file__)).parent
    return str(next(folder.glob("extensions/*/*.duckdb_extension")))


def attach(
    connection: duckdb.DuckDBPyConnection,
    location: Location,
    *,
    name: str = "lake",
    snapshot: int | None = None,
    writable: bool = False,
    create: bool = False,
) -> None:
    """Attach the lake as `name`: pinned to a snapshot, read-only at its newest, or writable.

    Only `create` makes a catalog, at a place from `Location.make_catalog`. The data path is passed
    on every call, so that a lake may be moved or copied. Raises LakeUnreachable if the catalog
    cannot be read or is none, a folder has the data files of another lake, or the lake to write is
    a published edition.
    """
    if writable:
        location.require_writable()
    place, writing_options = location.build_attachment(writable=writable)
    catalog = quote_values((f"ducklake:{place}",))
    _, reading_options = location.build_attachment(writable=False)
    options = [f"DATA_PATH {quote_values((location.files.url,))}"]
    if not create:
        options += ["OVERRIDE_DATA_PATH true", "CREATE_IF_NOT_EXISTS false"]
    if snapshot is not None:
        options.append(f"SNAPSHOT_VERSION {snapshot}")
    read_only = ", ".join([*options, *reading_options, "READ_ONLY"])
    try:
        if writable and not create:
            # To open a file for writing changes it before DuckLake looks for its tables.
            connection.execute(f"ATTACH {catalog} AS {name} ({read_only})")
            connection.execute(f"DETACH {name}")
        chosen = ", ".join([*options, *writing_options]) if writable else read_only
        connection.execute(f"ATTACH {catalog} AS {name} ({chosen})")
    except (duckdb.Error, UnicodeDecodeError) as error:
        if "creating a new DuckLake is explicitly disabled" in str(error):
            raise LakeUnreachable(
                f"{location.catalog_name} is not the catalog of a lake",
                faults.NO_CATALOG,
            ) from error
        versions = _VERSIONS.search(str(error))
        if versions is not None:
            raise LakeUnreachable(
                f"{location.catalog_name} has version {versions[1]} of DuckLake's format, and this "
                f"installation reads {versions[2]}",
                "Install the version of kernel-flywheel that the other users of the lake have; "
                "nothing was changed.",
            ) from error
        raise faults.explain(error, location.catalog_name, LakeUnreachable) or LakeUnreachable(
            f"{location.catalog_name} cannot be opened as a lake: {error}",
            faults.FAULTS["damaged"][1],
        ) from error
    if create or not isinstance(location, FolderLocation):
        return  # on a server, `prepare` compares the catalog with the data files
    marked = location.read_marker()
    if marked is not None and marked != _read_identity(connection, name):
        raise LakeUnreachable(
            f"{location.catalog} is not the catalog of the data files in {location.data}: "
            f"{MARKER} there names another lake",
            "Nothing was changed. Put back the catalog of this lake from a backup. If you are sure "
            "that both are of one lake, delete that file.",
        )


def pin(
    connection: duckdb.DuckDBPyConnection, location: Location, at: str | int | None = None
) -> int:
    """Attach the lake at a snapshot, which `resolve_snapshot` finds; return its number."""
    snapshot = _read_newest(connection, location) if at is None else None
    if snapshot is None:
        attach(connection, location, name="newest")
        snapshot = resolve_snapshot(connection, at, name="newest")
        connection.execute("DETACH newest")
    attach(connection, location, snapshot=snapshot)
    return snapshot


def _read_newest(connection: duckdb.DuckDBPyConnection, location: Location) -> int | None:
    """Return the newest snapshot as the catalog's database has it, a third of an attachment's time.

    None if the database does not answer; an attachment says why.
    """
    place, _ = location.build_attachment(writable=False)
    query = location.qualify(f"SELECT max(snapshot_id) FROM {METADATA}.ducklake_snapshot")
    try:
        connection.execute(f"ATTACH {quote_values((place,))} AS {METADATA} (READ_ONLY)")
        try:
            (newest,) = fetch_row(connection, query)
        finally:
            connection.execute(f"DETACH {METADATA}")
    except (duckdb.Error, UnicodeDecodeError):
        return None
    return None if newest is None else int(newest)


def mark_files(connection: duckdb.DuckDBPyConnection, location: Location) -> None:
    """Mark the data files of an attached lake in a folder as its own; call it under the lock."""
    if not isinstance(location, FolderLocation) or location.read_marker() is not None:
        return
    rows = connection.execute(
        f"SELECT path FROM {METADATA}.ducklake_data_file WHERE path_is_relative"
    ).fetchall()
    there = {path.rpartition("/")[2] for path in location.files.list_sizes()}
    if rows and there and not any(path in there for (path,) in rows):
        raise LakeUnreachable(
            f"none of the data files in {location.data} is one that {location.catalog} names",
            "Nothing was changed. Put back the catalog of this lake from a backup.",
        )
    write_durably(location.data / MARKER, _read_identity(connection, "lake").encode(), mode=0o644)


def _read_identity(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    query = f"SELECT schema_uuid FROM __ducklake_metadata_{name}.ducklake_schema"
    return str(fetch_row(connection, f"{query} ORDER BY schema_id LIMIT 1")[0])


def record_data_path(connection: duckdb.DuckDBPyConnection, location: Location) -> None:
    """Record where the data files of an attached lake are, if its catalog names another place.

    A catalog that was copied or moved names the old place, and a program that attaches it without
    DATA_PATH would read the files there. Call it under the lock.
    """
    path = f"{location.files.url}/"
    recorded = connection.execute(
        location.qualify(
            f"SELECT value FROM {METADATA}.ducklake_metadata "
            "WHERE key = 'data_path' AND scope IS NULL"
        )
    ).fetchone()
    if recorded != (path,):
        table = location.qualify(f"{METADATA}.ducklake_metadata")
        connection.execute(WRITE_DATA_PATH.replace("ducklake_metadata", table), [path])


def list_filled_tables(connection: duckdb.DuckDBPyConnection, location: Location) -> set[str]:
    """Return the tables of the attached lake that rows have ever been inserted into."""
    rows = connection.execute(
        location.qualify(
            f"SELECT table_name FROM {METADATA}.ducklake_table "
            f"JOIN {METADATA}.ducklake_table_stats USING (table_id) WHERE next_row_id > 0"
        )
    ).fetchall()
    return {row[0] for row in rows}


def find_newest_snapshot(connection: duckdb.DuckDBPyConnection, name: str = "lake") -> int:
    """Return the id of the newest snapshot of an attached lake."""
    return int(fetch_row(connection, f"FROM ducklake_current_snapshot('{name}')")[0])


def is_expired(error: duckdb.Error) -> bool:
    """Return whether DuckLake failed because a snapshot that a query names has expired."""
    return "No snapshot found at version" in str(error)


def resolve_snapshot(
    connection: duckdb.DuckDBPyConnection, at: str | int | None, *, name: str = "lake"
) -> int:
    """Return the snapshot for a number, a tag, an ISO time or None (the newest).

    Raises SnapshotNotFound, naming the nearest tag.
    """
    newest = find_newest_snapshot(connection, name)
    if at is None:
        return newest
    text = str(at)
    if text.isascii() and text.isdigit():
        # Without a parameter, for which DuckDB's client would import pandas.
        listed = f"SELECT count(*) FROM ducklake_snapshots('{name}')"
        if not fetch_row(connection, f"{listed} WHERE snapshot_id = {int(text)}")[0]:
            raise SnapshotNotFound(
                f"no snapshot {text}; the newest is {newest}",
                "`store log` lists those that are there.",
            )
        return int(text)
    current = dict(
        connection.execute(
            f"WITH tags AS (FROM {name}.tags) "
            f"SELECT name, snapshot_id FROM ({read_view('current_tags')}\n)"
        ).fetchall()
    )
    if text in current:
        return int(current[text])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        unknown = UnknownName.among("tag", text, current)
        raise SnapshotNotFound(
            f'"{text}" is not a tag, snapshot number or ISO time', unknown.hint
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    query = f"SELECT max(snapshot_id) FROM ducklake_snapshots('{name}') WHERE snapshot_time <= ?"
    (snapshot,) = fetch_row(connection, query, [moment])
    if snapshot is None:
        raise SnapshotNotFound(f"no snapshot is as old as {text}", "`store log` lists times (UTC).")
    return int(snapshot)
