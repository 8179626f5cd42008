"""New lakes of tests in folders are copies of one lake, which the first test process makes.

It takes half a second to make a lake, and most tests begin with one. Each copy has its own id, the
first snapshot of all, and the index of keys that its first append would make. A writer makes a new
lake itself if the folder exists, if its parent does not, or if the test has a catalog of its own.

Tests that read the starter suite copy one lake that has it; these copies have one id.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from store.ids import uuid7
from store.lake.attachment import attach, connect
from store.lake.location import MARKER, FolderLocation, Location
from store.schema import catalog
from store.writing.key_index import KeyIndex
from store.writing.writer import Writer

TEMPLATES = "FLYWHEEL_TESTS_TEMPLATES"
"""Variable of the environment with the folder of the lakes that all processes of a run copy."""

_SHIPPED = catalog.find_catalog()
"""Found before a test names a catalog of its own, which may be the first test of a process."""
_make = Writer.__init__


def copy_new_lakes() -> None:
    """Make writers of this process start new lakes from a copy.

    Call it before other test processes start, which then have their templates in the same folder.
    """
    Writer.__init__ = _start_from_copy
    _find_templates()


def _find_templates() -> Path:
    if TEMPLATES not in os.environ:
        os.environ[TEMPLATES] = tempfile.mkdtemp(prefix="flywheel-tests-")
        atexit.register(shutil.rmtree, os.environ[TEMPLATES], ignore_errors=True)
    return Path(os.environ[TEMPLATES])


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process of a run makes; no test writes to it."""
    folder = _find_templates() / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(".part")
            make(part)
            part.rename(folder)
    return folder


@cache
def make_template() -> Path:
    """Return the folder of the lake that is copied."""

    def make(folder: Path) -> None:
        location = FolderLocation(folder)
        writer = Writer.__new__(Writer)
        _make(writer, location, "tests")
        writer.close()
        with (
            closing(connect()) as connection,
            closing(KeyIndex(location, catalog.load())) as index,
        ):
            attach(connection, location)
            index.follow(connection)

    return make_once("empty", make)


@cache
def make_starter_template() -> Path:
    """Return the folder of a lake with the starter suite, to be copied."""
    from store.importers import starter
    from store.importers.reading.pieces import run_import

    def make(folder: Path) -> None:
        with Writer(FolderLocation(folder), "tests") as writer:
            run_import(writer, starter, None, starter.Config())

    return make_once("starter", make)


def copy_starter_lake(folder: Path | str) -> str:
    """Copy the lake with the starter suite; return the path of the copy."""
    return str(shutil.copytree(make_starter_template(), folder))


def _start_from_copy(self: Writer, location: Location, author: str) -> None:
    if (
        isinstance(location, FolderLocation)
        and not location.root.exists()
        and location.root.parent.is_dir()
        and catalog.load().definition == catalog.load(_SHIPPED).definition
    ):
        shutil.copytree(make_template(), location.root)
        give_id(location)
    _make(self, location, author)


def give_id(location: FolderLocation) -> None:
    """Give a lake that nobody has open an id of its own, in the one row that has it."""
    lake_id = uuid7()
    with closing(sqlite3.connect(location.key_index)) as index, index:
        index.execute("UPDATE _highest SET id = ? WHERE name = 'lakes'", [lake_id])
    with closing(sqlite3.connect(location.catalog)) as connection, connection:
        (table,) = connection.execute(
            "SELECT table_id FROM ducklake_table WHERE table_name = 'lakes'"
        ).fetchone()
        [(inlined,)] = connection.execute(
            "SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = ?", [table]
        ).fetchall()
        connection.execute("UPDATE ducklake_schema SET schema_uuid = ?", [lake_id])
        (location.data / MARKER).write_text(lake_id)
        done = connection.execute(f"UPDATE {inlined} SET lake_id = ?", [lake_id])
        assert done.rowcount == 1
        connection.execute(
            "UPDATE ducklake_table_column_stats SET min_value = ?, max_value = ? "
            "WHERE table_id = ? AND column_id = (SELECT column_id FROM ducklake_column "
            "WHERE table_id = ? AND column_name = 'lake_id')",
            [lake_id, lake_id, table, table],
        )
