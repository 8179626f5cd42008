"""Compaction, expiry, the check of every rule, and backups keep every row and say what is wrong.

The pitfalls of DuckLake that this software meets, by the numbers of its storage notes:

| # | pitfall | here |
|---|---|---|
| 1 | a time inside an inlined STRUCT cannot be read back | no such type: test_catalog |
| 2 | deleting orphans takes files of commits in flight | only on demand: test_leftovers_… |
| 3 | MERGE INTO is no upsert | keys under the lock: test_append, test_crash |
| 4 | SQLite is locked | WAL, waiting, one lock: test_crash, test_a_foreign_… |
| 5 | a DuckDB catalog attaches once | SQLite: test_two_readers_… |
| 6 | ids and statistics race between writers | one lock: test_crash |
| 7, 8 | old snapshots and races after DELETE and UPDATE | test_no_statement_deletes_… |
| 9 | merging files that were added by name | rows come by INSERT: test_no_statement_deletes_… |
| 10 | merging takes memory | bounded calls: test_merging_is_bounded |
| 11 | concurrent DDL | one commit under the lock: test_catalog |
| 12 | one process, many threads | a connection for each reader: test_two_readers_… |
| 13 | flushing after DROP COLUMN | columns never go: test_catalog |
| 14 | no ENUM, PRIMARY KEY, CHECK, fixed arrays | checked by the store: test_append, test_catalog |
| 15 | bucket partitions write many small files | none: test_a_load_writes_one_file_a_table |
| 16 | inlined rows are invisible to other readers of the files | test_compaction_puts_rows_… |
| 17 | exports with too few retries | nothing is exported to Delta or Iceberg |
| 18 | a query misses rows that move to a file meanwhile | test_compaction_waits_for_… |
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import builders
import commands
import duckdb
import polars as pl
import pytest

import store
from store.errors import CommitConflict, FlywheelError, SnapshotNotFound
from store.lake import location as locations
from store.lake.attachment import attach, connect
from store.lake.location import FolderLocation, Location
from store.upkeep import history, integrity, maintenance
from store.writing import writer as append

STORE = Path(store.__file__).parent


def _fill(writer: store.Writer, bundles: int = 4) -> list[int]:
    """Append bundles of every kind of row; return the snapshot of each."""
    snapshots: list[int] = []
    for number in range(bundles):
        task, kernel = builders.task(f"t{number}"), builders.kernel(f"k{number}")
        device, sizes = builders.device(), builders.workload(task)
        judged = builders.evaluation(kernel, task, sizes, device)
        rows = {
            "tasks": [task],
            "kernels": [kernel],
            "devices": [device],
            "workloads": [sizes],
            "evaluations": [judged],
            "timings": builders.session(judged, [1.0, 2.0], eager=[2.0, 4.0]),
        }
        snapshots.append(writer.append(rows, f"bundle {number}"))
    return snapshots


def _contents(location: Location, at: int | str | None) -> dict[str, list[dict[str, Any]]]:
    names = ("tasks", "kernels", "evaluations", "timings", "devices", "tags")
    # One query, since preparing it takes longer than reading these rows.
    columns = ", ".join(f"(SELECT list(row ORDER BY row) FROM {name} AS row)" for name in names)
    with store.open(location.url, at) as opened:
        [contents] = opened.run(f"SELECT {columns}").rows()
    return dict(zip(names, contents.values(), strict=True))


@contextmanager
def _open_raw(location: Location) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the lake as a program would that goes past the store."""
    connection = connect(to=location)
    attach(connection, location, writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    try:
        yield connection
    finally:
        connection.close()


def _rules(location: Location) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for problem in integrity.check(location):
        assert problem.count > 0
        assert 0 < len(problem.examples) <= 3
        found.setdefault(problem.table, []).append(problem.rule)
    return found


@pytest.mark.slow
@pytest.mark.folder
def test_compaction_waits_for_queries_before_it_moves_rows(
    writer: store.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "WAIT_S", 0.1)
    _fill(writer)
    with writer.reader() as lake:
        stream = lake.run("FROM kernels").reader()
        assert maintenance.compact(writer.location).files_after == 0
        assert stream.read_all().num_rows == 4
        assert maintenance.compact(writer.location).files_after > 0
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_a_reader_opened_before_compaction_reads_all_rows_after_it(writer: store.Writer) -> None:
    _fill(writer)
    with writer.reader() as before, writer.reader() as opened:
        kernels = before.sql("FROM kernels ORDER BY ALL").rows()
        assert maintenance.compact(writer.location).files_after > 0
        assert opened.sql("FROM kernels ORDER BY ALL").rows() == kernels


@pytest.mark.slow
def test_compaction_puts_rows_into_files_and_changes_no_snapshot(writer: store.Writer) -> None:
    snapshots = _fill(writer, 2)
    history.add_tag(writer, "v1", snapshots[0], None)
    before = {at: _contents(writer.location, at) for at in [*snapshots, "v1"]}
    done = maintenance.compact(writer.location)
    assert done.files_before == 0
    assert done.files_after > 0
    assert done.bytes_after > 0
    assert {at: _contents(writer.location, at) for at in [*snapshots, "v1"]} == before
    files = pl.read_parquet(Path(writer.location.files.url) / "main" / "kernels" / "*.parquet")
    assert files.height == len(snapshots)
    with writer.reader() as opened:
        assert opened.run("FROM ducklake_snapshots('lake') WHERE author IS NULL").rows() == [
            opened.run("FROM ducklake_snapshots('lake') WHERE snapshot_id = 0").one()
        ]
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_compaction_merges_small_files(writer: store.Writer) -> None:
    rows = [[builders.kernel(f"{part}-{n}") for n in range(20)] for part in range(6)]
    snapshots = [writer.append({"kernels": part}, "kernels") for part in rows]
    before = {at: _contents(writer.location, at) for at in snapshots}
    done = maintenance.compact(writer.location)
    assert done.files_after < done.files_before
    assert {at: _contents(writer.location, at) for at in snapshots} == before
    again = maintenance.compact(writer.location)
    assert again.files_after == done.files_after
    writer.append({"kernels": [builders.kernel("later")]}, "one more")
    assert integrity.check(writer.location) == []


def test_expiry_spares_what_is_newest_tagged_or_cited(writer: store.Writer) -> None:
    with writer.reader() as opened:
        own = opened.lake_id
    snapshots = _fill(writer, 7)
    tagged, moved, by_run, by_dataset, by_generation, foreign, plain = snapshots
    history.add_tag(writer, "v1", moved, None)
    history.add_tag(writer, "v1", tagged, None)
    history.add_tag(writer, "gone", plain, None)
    history.remove_tag(writer, "gone", None)
    policy = builders.policy()
    runs = [
        builders.run("reads", lake_id=own, snapshot_id=by_run),
        builders.run("elsewhere", lake_id="another lake", snapshot_id=foreign),
    ]
    task = builders.task("t0")
    cited = builders.generation(policy, task, lake_id=own, snapshot_id=by_generation)
    writer.append(
        {
            "policies": [policy],
            "runs": runs,
            "datasets": [builders.dataset(runs[0], lake_id=own, snapshot_id=by_dataset)],
            "generations": [cited],
        },
        "citations",
    )
    kept = [tagged, by_run, by_dataset, by_generation]
    before = _contents(writer.location, by_run)
    maintenance.compact(writer.location)
    planned = maintenance.expire(writer.location, timedelta(0), dry_run=True)
    assert _contents(writer.location, plain)["kernels"]
    done = maintenance.expire(writer.location, timedelta(0))
    assert done.expired == planned.expired
    assert {moved, foreign, plain} <= set(done.expired)
    assert done.spared[tagged] == ["tag v1"]
    assert done.spared[by_run] == ["run of reads"]
    assert done.spared[by_dataset] == ["dataset contrastive-batch"]
    assert done.spared[by_generation] == ["generations"]
    assert _contents(writer.location, by_run) == before
    for spared in kept:
        writer.reader(spared).close()
    for gone in (moved, foreign, plain):
        with pytest.raises(SnapshotNotFound):
            writer.reader(gone)
    assert maintenance.expire(writer.location, timedelta(days=1)).expired == []
    # The writer that was open all the while goes on.
    writer.append({"kernels": [builders.kernel("later")]}, "one more")
    assert integrity.check(writer.location) == []


def test_check_finds_rows_that_went_past_the_store(writer: store.Writer) -> None:
    _fill(writer)
    assert integrity.check(writer.location) == []
    with _open_raw(writer.location) as raw:
        raw.execute("INSERT INTO lake.evaluations FROM lake.evaluations LIMIT 1")
    assert _rules(writer.location) == {
        "evaluations": [
            "(evaluation_id) identifies one row",
            "rows are those of committed bundles",
        ]
    }
    with _open_raw(writer.location) as raw:
        raw.execute(
            "INSERT INTO lake.task_labels BY NAME SELECT 's' AS suite, 'v0' AS suite_revision, "
            "'n' AS name, 'no such task' AS task_id, 'f' AS family, 't' AS source, "
            "now() AS created_at"
        )
        raw.execute(
            "INSERT INTO lake.dataset_rows BY NAME SELECT 'd' AS dataset_id, 0 AS row_index, "
            "'sideways' AS split, ['no such kernel'] AS kernel_ids"
        )
        raw.execute("INSERT INTO lake.metrics BY NAME SELECT 'm' AS name, 'NaN'::DOUBLE AS value")
    found = _rules(writer.location)
    assert found["task_labels"] == [
        "task_id is a task_id of tasks",
        "rows are those of committed bundles",
    ]
    assert found["dataset_rows"][:3] == [
        "split is one of train, test",
        "dataset_id is a dataset_id of datasets",
        "kernel_ids is a kernel_id of kernels",
    ]
    assert found["metrics"][0] == "run_id is required"


@pytest.mark.slow
def test_check_finds_a_torn_bundle(writer: store.Writer) -> None:
    _fill(writer)
    with _open_raw(writer.location) as raw:
        # Every table, also those in which a repeated key is dropped.
        raw.execute("DELETE FROM lake.kernels WHERE code LIKE '%k3%'")
        raw.execute("DELETE FROM lake.timings WHERE arm = 'eager'")
    found = _rules(writer.location)
    assert "rows are those of committed bundles" in found["timings"]
    assert "rows are those of committed bundles" in found["kernels"]
    assert found["evaluations"] == ["kernel_id is a kernel_id of kernels"]


@pytest.mark.slow
def test_check_finds_a_missing_file(writer: store.Writer) -> None:
    _fill(writer)
    maintenance.compact(writer.location)
    file = next((Path(writer.location.files.url) / "main").glob("kernels/*.parquet"))
    file.unlink()
    assert _rules(writer.location)["kernels"] == ["its files are as they were committed"]


def test_check_finds_what_was_rejected_in_silence(writer: store.Writer) -> None:
    row = builders.label(builders.task("never stored"))
    writer.append({"task_labels": [row]}, "dangling", wait=False)
    writer.flush()
    (problem,) = integrity.check(writer.location)
    assert problem.table == "spool"
    assert "task_id is a task_id of tasks" in problem.examples[0]


@pytest.mark.slow
def test_leftovers_of_killed_commits_are_a_note_and_compaction_leaves_them(
    writer: store.Writer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "store")
    _fill(writer, 1)
    maintenance.compact(writer.location)
    folder = Path(writer.location.files.url) / "main" / "kernels"
    file = next(folder.glob("*.parquet"))
    leftover, old, foreign = (
        folder / f"ducklake-{name}.parquet"
        for name in (
            "01a223d6-4674-76d3-a714-fd07b73e4b0d",
            "01a0075c-4674-76d3-a714-fd07b73e4b0d",
            "mine",
        )
    )
    for copy in (leftover, old, foreign):
        shutil.copy(file, copy)
    long_ago = time.time() - timedelta(days=3).total_seconds()
    for copy in (old, foreign):
        os.utime(copy, (long_ago, long_ago))
    caplog.clear()
    assert integrity.check(writer.location) == []
    assert "data files that this catalog does not know: 2" in caplog.text
    maintenance.compact(writer.location)
    maintenance.expire(writer.location, timedelta(0))
    assert all(one.exists() for one in (file, leftover, old, foreign))
    # Every commit of rows is expired: only a later one shows that this catalog is no older copy.
    writer.append({"tasks": [builders.task("later")]}, "later")
    command = ["store", "compact", "--remove-orphans", "--lake", writer.location.url]
    refused = commands.run(command, cwd=folder)
    assert refused.returncode == 1
    assert old.name in refused.stderr
    assert "1 files would be deleted, and there is no terminal to ask on" in refused.stderr
    assert old.exists()
    done = commands.run([*command, "--yes"], cwd=folder)
    assert "deleted 1 data files" in done.stdout
    assert not old.exists()
    assert all(one.exists() for one in (file, leftover, foreign))
    assert integrity.check(writer.location) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_catalog_that_schedules_other_files_for_deletion_is_refused(
    writer: store.Writer, tmp_path: Path
) -> None:
    _fill(writer, 1)
    writer.close()
    mine = tmp_path / "mine.parquet"
    mine.touch()
    assert isinstance(writer.location, FolderLocation)
    with closing(sqlite3.connect(writer.location.catalog)) as catalog, catalog:
        catalog.execute(
            "INSERT INTO ducklake_files_scheduled_for_deletion "
            "VALUES (1, ?, 0, '2026-01-01 00:00:00+00')",
            [str(mine)],
        )
    with pytest.raises(FlywheelError, match="is not named like a data file of a lake"):
        maintenance.compact(writer.location)
    assert mine.exists()


@pytest.mark.slow
def test_waiting_bundles_are_a_note(writer: store.Writer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "store")
    writer.append({"kernels": [builders.kernel("waits")]}, "waits", wait=False)
    assert integrity.check(writer.location) == []
    assert re.search(r"bundles that wait in .*: 1;", caplog.text)


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_opens_as_the_same_lake(writer: store.Writer, tmp_path: Path) -> None:
    first = _fill(writer)[-1]
    writer.append({"kernels": [builders.kernel(f"many {n}") for n in range(30)]}, "a file")
    maintenance.compact(writer.location)
    copy = FolderLocation(tmp_path / "copy")
    copied, kept = maintenance.backup(writer.location, copy.root)
    assert copied > 0
    assert kept == 0
    with writer.reader() as own:
        newest, lake_id = own.snapshot, own.lake_id
    for at in (first, newest):
        assert _contents(copy, at) == _contents(writer.location, at)
    with store.open(str(copy.root)) as opened:
        assert (opened.snapshot, opened.lake_id) == (newest, lake_id)
    # The copy stands alone: it is read, checked and written to without the original.
    writer.append({"kernels": [builders.kernel(f"more {n}") for n in range(30)]}, "a file")
    assert maintenance.backup(writer.location, copy.root)[0] == 1
    assert _contents(copy, None) == _contents(writer.location, None)
    assert maintenance.backup(writer.location, copy.root)[0] == 0
    writer.close()
    shutil.move(writer.location.root, tmp_path / "away")
    with store.writer(str(copy.root), author="tests") as other:
        other.append({"kernels": [builders.kernel("on the copy")]}, "goes on")
    assert integrity.check(copy) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_spares_other_lakes_and_itself(writer: store.Writer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    store.writer(str(other), author="tests").close()
    with pytest.raises(FlywheelError, match="holds another lake"):
        maintenance.backup(writer.location, other)
    for inside in (writer.location.root, Path(writer.location.files.url) / "copy"):
        with pytest.raises(FlywheelError, match="is inside the lake itself"):
            maintenance.backup(writer.location, inside)
    assert integrity.check(FolderLocation(other)) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_goes_into_no_folder_of_something_else(
    writer: store.Writer, tmp_path: Path
) -> None:
    writer.append({"kernels": [builders.kernel(f"many {n}") for n in range(300)]}, "a file")
    maintenance.compact(writer.location)
    papers, data, empty = (tmp_path / name for name in ("papers", "data", "empty"))
    for folder in (papers / "data", data / "data", empty):
        folder.mkdir(parents=True)
    (papers / "notes.txt").write_text("mine")
    (data / "data" / "notes.txt").write_text("mine")
    for used in (papers, data):
        before = sorted(used.rglob("*"))
        with pytest.raises(FlywheelError, match="is not empty, and no backup of this lake"):
            maintenance.backup(writer.location, used)
        assert sorted(used.rglob("*")) == before
    with pytest.raises(FlywheelError, match="is not a folder"):
        maintenance.backup(writer.location, papers / "notes.txt")
    files, _ = maintenance.backup(writer.location, empty)
    # As an interruption before the catalog was copied leaves it.
    (empty / "catalog.sqlite").rename(empty / "catalog.partial")
    assert maintenance.backup(writer.location, empty) == (0, files)
    assert _contents(FolderLocation(empty), None) == _contents(writer.location, None)


@pytest.mark.folder
@pytest.mark.slow
def test_a_moved_lake_is_read_and_written_where_it_lies(
    writer: store.Writer, tmp_path: Path
) -> None:
    snapshot = _fill(writer)[-1]
    maintenance.compact(writer.location)
    before = _contents(writer.location, snapshot)
    writer.close()
    moved = FolderLocation(tmp_path / "it's moved, ö")
    shutil.move(writer.location.root, moved.root)
    assert _contents(moved, snapshot) == before
    with store.writer(str(moved.root), author="tests") as other:
        rows = [builders.kernel(f"many {n}") for n in range(30)]
        other.append({"kernels": rows}, "a file")
    assert not writer.location.root.exists()
    assert integrity.check(moved) == []


def test_two_readers_and_a_writer_share_a_process(writer: store.Writer) -> None:
    first, second = _fill(writer, 2)
    answers: dict[int, int] = {}

    def read(at: int) -> None:
        with writer.reader(at) as opened:
            for _ in range(5):
                row = opened.sql("SELECT count(*) AS n FROM kernels").one()
                assert row is not None
                answers[at] = row["n"]

    threads = [threading.Thread(target=read, args=(at,)) for at in (first, second)]
    for thread in threads:
        thread.start()
    writer.append({"kernels": [builders.kernel("meanwhile")]}, "meanwhile")
    for thread in threads:
        thread.join()
    assert answers == {first: 1, second: 2}


HOLD = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1])
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
if float(sys.argv[2]):
    time.sleep(float(sys.argv[2]))
else:
    sys.stdin.read()
held.rollback()
print(held.execute("PRAGMA journal_mode").fetchone()[0])
"""


def _hold(location: Location, seconds: float = 0.0) -> subprocess.Popen[str]:
    """Lock the catalog as another program would; a lock of the same process does not count.

    For so many seconds, or until its input ends.
    """
    command = [sys.executable, "-c", HOLD, str(location.catalog), str(seconds)]
    pipe = subprocess.PIPE
    other = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


@pytest.mark.slow
@pytest.mark.folder
def test_a_foreign_lock_on_the_catalog_is_waited_for(writer: store.Writer) -> None:
    with _hold(writer.location, 1.5) as other:
        snapshot = writer.append({"kernels": [builders.kernel("waited")]}, "waited")
        assert other.communicate()[0] == "wal\n"
    with writer.reader(snapshot) as opened:
        assert opened.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 1}


@pytest.mark.slow
@pytest.mark.folder
def test_a_lock_that_stays_is_reported_and_the_bundle_kept(
    writer: store.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "LOCKED_S", 0.2)
    with _hold(writer.location) as other:
        with pytest.raises(CommitConflict, match="another program holds"):
            writer.append({"kernels": [builders.kernel("kept")]}, "kept")
        with pytest.raises(CommitConflict):
            writer.load({"kernels": [builders.kernel("load")]}, "load", bundle_id="load")
        other.communicate()
    writer.flush()
    with writer.reader() as opened:
        assert opened.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 1}
    assert integrity.check(writer.location) == []


def test_a_load_writes_one_file_a_table(writer: store.Writer) -> None:
    rows = [builders.kernel(f"n{n}") for n in range(300)]
    writer.load({"kernels": rows}, "kernels", bundle_id="kernels")
    assert len(list((Path(writer.location.files.url) / "main" / "kernels").glob("*.parquet"))) == 1


@pytest.mark.slow
def test_merging_is_bounded(writer: store.Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MERGED_AT_ONCE", 2)
    rows = [[builders.kernel(f"{part}-{n}") for n in range(20)] for part in range(5)]
    for part in rows:
        writer.append({"kernels": part}, "kernels")
    counts = [maintenance.compact(writer.location).files_after for _ in range(2)]
    assert counts[0] >= 2
    with writer.reader() as opened:
        assert opened.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 100}
    assert integrity.check(writer.location) == []


def test_no_statement_deletes_or_updates_rows_but_that_for_tokens() -> None:
    # Corrections are rows: the engine's statistics and conflict checks rely on it.
    changes = re.compile(r"DELETE FROM (?:lake\b|\{_TOKENS\})|UPDATE lake\b|MERGE INTO")
    found = {
        (file.relative_to(STORE).as_posix(), statement)
        for file in [*STORE.rglob("*.py"), *STORE.rglob("*.sql")]
        for statement in changes.findall(file.read_text("utf-8"))
    }
    assert found == {("upkeep/maintenance.py", "DELETE FROM {_TOKENS}")}
    # Published files are added only to the lake of an edition, which nobody writes to afterwards.
    adding = [file.name for file in STORE.rglob("*.py") if "add_data_files" in file.read_text()]
    assert adding == ["edition_writer.py"]
