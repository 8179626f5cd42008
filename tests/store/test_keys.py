"""The index of keys: it says what a scan says, and survives its own loss."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import builders
import duckdb
import pyarrow as pa
import pytest

import store
from store.errors import RowsRejected
from store.lake.attachment import attach, connect
from store.lake.location import Location
from store.schema import catalog
from store.upkeep import maintenance
from store.writing.key_index import KeyIndex


def _rows(count: int, start: int = 0) -> dict[str, list[builders.Row]]:
    """Return kernels with one evaluation each, whose ids are UUIDv7."""
    task, device = builders.task(), builders.device("laptop")
    sizes = builders.workload(task)
    kernels = [builders.kernel(f"k{number}") for number in range(start, start + count)]
    return {
        "tasks": [task],
        "devices": [device],
        "workloads": [sizes],
        "kernels": kernels,
        "kernel_features": [builders.features(kernel) for kernel in kernels],
        "evaluations": [
            builders.evaluation(kernel, task, sizes, device) | {"evaluation_id": store.ids.uuid7()}
            for kernel in kernels
        ],
    }


@contextmanager
def _index(location: Location) -> Generator[tuple[KeyIndex, duckdb.DuckDBPyConnection]]:
    connection = connect(to=location)
    attach(connection, location, writable=True)
    keys = KeyIndex(location, catalog.load())
    try:
        with location.lock():
            keys.follow(connection)
            yield keys, connection
    finally:
        keys.close()
        connection.close()


def _assert_as_scanned(location: Location) -> None:
    """Ask the index about every stored key and about as many that are not stored."""
    with store.open(location.url) as lake:
        stored: dict[str, set[str]] = {}
        for table in lake.catalog.tables.values():
            names = ", ".join(f'"{name}"' for name in table.key)
            rows = lake.run(f"SELECT {names} FROM {table.name}").arrow().to_pylist()
            stored[table.name] = {"\0".join(map(str, row.values())) for row in rows}
    assert stored["kernels"]
    assert stored["evaluations"]
    with _index(location) as (keys, connection):
        for table in catalog.load().tables.values():
            others = {f"{key}0" for key in stored[table.name]} | {store.ids.uuid7()}
            asked = pa.array(stored[table.name] | others, pa.string())
            found = keys.find_stored(connection, table, asked)
            assert set(found.to_pylist()) == stored[table.name], table.name


@pytest.mark.slow
def test_appends_and_loads_are_seen_alike(
    writer: store.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.writing.key_index.BATCH_ROWS", 7)
    writer.append(_rows(3), "three")
    _assert_as_scanned(writer.location)
    writer.load(_rows(30, start=3), "thirty", bundle_id="thirty")
    _assert_as_scanned(writer.location)
    writer.append(_rows(2, start=33), "two")
    _assert_as_scanned(writer.location)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("damage", ["delete", "truncate", "overwrite"])
def test_a_lost_or_damaged_index_is_made_anew(writer: store.Writer, damage: str) -> None:
    rows = _rows(3)
    writer.append(rows, "three")
    writer.close()
    for part in writer.location.root.glob("keys.sqlite*"):
        if damage == "delete":
            part.unlink()
        elif damage == "truncate":
            part.write_bytes(part.read_bytes()[:5000])
        else:
            part.write_bytes(b"no database" * 1000)
    with store.writer(writer.location.url, author="tests") as other:
        with pytest.raises(RowsRejected, match="identifies one row"):
            other.append({"evaluations": rows["evaluations"]}, "again")
        other.append(_rows(2, start=3), "two")
    _assert_as_scanned(writer.location)


@pytest.mark.slow
def test_an_index_deleted_under_a_writer_is_made_anew(writer: store.Writer) -> None:
    rows = _rows(3)
    writer.append(rows, "three")
    for part in writer.location.root.glob("keys.sqlite*"):
        part.unlink()
    with pytest.raises(RowsRejected, match="identifies one row"):
        writer.append({"evaluations": rows["evaluations"]}, "again")
    _assert_as_scanned(writer.location)


@pytest.mark.slow
def test_an_index_left_behind_catches_up(writer: store.Writer, tmp_path: Path) -> None:
    root = writer.location.root
    writer.append(_rows(3), "three")
    kept = tmp_path / "kept"
    kept.mkdir()
    with sqlite3.connect(root / "keys.sqlite") as index:
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(root / "keys.sqlite", kept)
    writer.append(_rows(3, start=3), "more")
    writer.close()
    for part in root.glob("keys.sqlite*"):
        part.unlink()
    shutil.copy(kept / "keys.sqlite", root)
    _assert_as_scanned(writer.location)


@pytest.mark.slow
def test_a_killed_writer_leaves_an_index_that_catches_up(writer: store.Writer) -> None:
    # The process dies between the commit of its rows and the index taking them over.
    script = """
import os, sys
from store.writing.key_index import KeyIndex
import store, builders
KeyIndex.add = lambda *_: os._exit(9)
with store.writer(sys.argv[1], author="tests") as writer:
    writer.append({"kernels": [builders.kernel("last words")]}, "killed")
"""
    writer.append(_rows(1), "one")
    run = subprocess.run(
        [sys.executable, "-c", script, writer.location.url],
        env={"PYTHONPATH": str(Path(builders.__file__).parent), "PATH": ""},
        check=False,
    )
    assert run.returncode == 9
    before = writer.flush()
    assert store.open(writer.location.url).snapshot == before
    writer.append({"kernels": [builders.kernel("last words")]}, "the same")
    _assert_as_scanned(writer.location)
    with writer.reader() as lake:
        assert lake.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 2}


@pytest.mark.slow
@pytest.mark.folder
def test_a_lake_put_back_to_a_backup_is_read_anew(writer: store.Writer, tmp_path: Path) -> None:
    root = writer.location.root
    writer.append(_rows(1), "one")
    maintenance.backup(writer.location, tmp_path / "backup")
    lost = _rows(1, start=1)
    writer.append(lost, "lost")
    writer.close()
    for part in root.glob("catalog.sqlite*"):
        part.unlink()
    shutil.copy(tmp_path / "backup" / "catalog.sqlite", root)
    with store.writer(str(root), author="tests") as restored:
        # The same snapshot number as the index has, with other rows: loads pass the index by.
        restored.load({"policies": [builders.policy("new")]}, "other", bundle_id="other")
        snapshot = restored.append(lost, "lost, once more")
    with store.open(str(root), at=snapshot) as lake:
        assert lake.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 2}
    _assert_as_scanned(writer.location)


class _Failing:
    """A connection on which reading the later rows of a table fails."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, error: duckdb.Error) -> None:
        self._connection = connection
        self._error = error
        self.scans = 0

    def execute(self, query: str, *parameters: object) -> duckdb.DuckDBPyConnection:
        if "ducklake_table_insertions" in query:
            raise self._error
        self.scans += "FROM lake." in query
        return self._connection.execute(query, *parameters)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
        duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate"),
        duckdb.IOException("IO Error: Could not connect"),
    ],
)
def test_an_index_is_not_rebuilt_because_a_query_failed(
    writer: store.Writer, error: duckdb.Error
) -> None:
    writer.append(_rows(1), "one")
    writer.close()
    root = writer.location.root
    before = (root / "keys.sqlite").read_bytes()
    with store.writer(writer.location.url, author="tests") as other:
        other.load(_rows(1, start=1), "two", bundle_id="two")
    connection = connect(to=writer.location)
    attach(connection, writer.location, writable=True)
    failing, keys = _Failing(connection, error), KeyIndex(writer.location, catalog.load())
    with writer.location.lock(), pytest.raises(type(error)):
        keys.follow(cast("duckdb.DuckDBPyConnection", failing))
    keys.close()
    connection.close()
    assert failing.scans == 0
    assert (root / "keys.sqlite").read_bytes() == before
    _assert_as_scanned(writer.location)


@pytest.mark.slow
def test_compaction_and_expiry_do_not_confuse_it(writer: store.Writer) -> None:
    writer.append(_rows(1), "one")
    with _index(writer.location):
        pass
    for number in range(1, 5):
        writer.load(_rows(1, start=number), "more", bundle_id=str(number))
    maintenance.compact(writer.location)
    maintenance.expire(writer.location, timedelta(0))
    _assert_as_scanned(writer.location)


@pytest.mark.slow
def test_later_ids_need_no_look_and_earlier_ones_are_looked_up(writer: store.Writer) -> None:
    early, late = _rows(2), _rows(2, start=2)
    writer.load(late, "late", bundle_id="late")
    writer.append(early, "early")
    with pytest.raises(RowsRejected, match="identifies one row"):
        writer.append({"evaluations": late["evaluations"]}, "late again")
    finding = builders.finding(late["kernels"][0])
    judged = late["evaluations"][0]["evaluation_id"]
    writer.append({"findings": [finding | {"evaluation_id": judged}]}, "refers to a loaded row")
    _assert_as_scanned(writer.location)
