"""The record of what `store check` has found whole, so that the next check does not read it again.

The record is a cache of this host. It states the lake, the snapshot and the rules, and is not used
for others. A file is trusted as long as its stamp (size, times, inode) stays what it was, and until
another command finds it damaged: damage of the disk leaves the stamp as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import store
from store.errors import FlywheelError
from store.faults import replace_file
from store.lake import checksums
from store.lake.checksums import DataFile
from store.lake.data_files import Stamp
from store.lake.location import METADATA, Location
from store.schema.catalog import Catalog

if TYPE_CHECKING:
    import duckdb

_NAME = "checked.json"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found whole."""

    snapshot: int
    """All rows up to this snapshot keep the rules."""
    files: dict[str, Stamp]
    """Data files that are those that were committed: path from the data folder to stamp."""


NOTHING = Checked(snapshot=-1, files={})


def read_checked(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog
) -> Checked:
    """Return the record for the attached lake, or `NOTHING` if it does not apply any more.

    It does not apply to another lake, to a lake that was restored from a backup or moved, to other
    rules, or if a snapshot since then has expired.
    """
    try:
        found = json.loads(_locate(location).read_text("utf-8"))
        files = {str(path): tuple(stamp) for path, stamp in dict(found["files"]).items()}
        checked = Checked(snapshot=int(found["snapshot"]), files=files)
        same = found["state"] == _describe_state(connection, location, catalog, checked.snapshot)
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING
    row = connection.execute(
        "SELECT count(*), coalesce(max(snapshot_id), $since) - $since "
        "FROM ducklake_snapshots('lake') WHERE snapshot_id > $since",
        {"since": checked.snapshot},
    ).fetchone()
    return checked if same and row is not None and row[0] == row[1] else NOTHING


def write_checked(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog, checked: Checked
) -> None:
    """Store the record for the attached lake, if this host's folder of the lake is writable."""
    record = {
        "state": _describe_state(connection, location, catalog, checked.snapshot),
        "snapshot": checked.snapshot,
        "files": dict(sorted(checked.files.items())),
    }
    _write(_locate(location), record)


def require_whole(location: Location, files: Iterable[DataFile], what: str) -> None:
    """Raise FlywheelError if files of a lake are damaged; the message says what was not done."""
    damaged = checksums.find_damage(files)
    distrust(location, [one.file.path for one in damaged])
    checksums.require_whole(damaged, what)


def distrust(location: Location, paths: Collection[str]) -> None:
    """Make the next check read files that were found damaged, whatever their stamps."""
    if not paths:
        return
    target = _locate(location)
    try:
        record = json.loads(target.read_text("utf-8"))
        for path in paths:
            record["files"].pop(path, None)
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # `read_checked` cannot use it either.
        with suppress(OSError):
            target.unlink()
        return
    _write(target, record)


def _write(target: Path, record: object) -> None:
    with suppress(FlywheelError), replace_file(target) as partial:
        partial.write_text(json.dumps(record), "utf-8")


def _locate(location: Location) -> Path:
    return location.root / _NAME


def _describe_state(
    connection: duckdb.DuckDBPyConnection, location: Location, catalog: Catalog, snapshot: int
) -> list[str]:
    """Return what tells a lake, its snapshot and the rules from others."""
    row = connection.execute(
        location.qualify(
            f"SELECT snapshot_time::VARCHAR FROM {METADATA}.ducklake_snapshot WHERE snapshot_id = ?"
        ),
        [snapshot],
    ).fetchone()
    stated = {name: catalog.rules(table) for name, table in catalog.tables.items()}
    rules = hashlib.sha256(repr((catalog.tables, catalog.enums, stated)).encode()).hexdigest()
    return [location.url, str(row[0]) if row else "", rules, store.__version__]
