"""Files that are not what was committed are found and named, whatever happened to them."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store.errors import FlywheelError
from store.lake import checksums
from store.lake.attachment import attach, connect
from store.lake.checksums import RESTORE
from store.lake.data_files import FolderFiles
from store.lake.location import FolderLocation, Location
from store.schema import catalog
from store.upkeep import integrity, maintenance

FILES_RULE = "its files are as they were committed"
MANY = 60
"""Rows of a table that are no longer inlined."""


def _fill(writer: store.Writer) -> None:
    """Append rows that go to files, and some that stay in the catalog."""
    task, device = builders.task(), builders.device()
    sizes = builders.workload(task)
    kernels = [builders.kernel(f"k{number}") for number in range(MANY)]
    judged = [
        builders.evaluation(kernel, task, sizes, device, minute=minute)
        for minute, kernel in enumerate(kernels)
    ]
    rows = {
        "tasks": [task], "devices": [device], "workloads": [sizes], "kernels": kernels,
        "evaluations": judged,
        "timings": [arm for one in judged for arm in builders.session(one, [1.0, 2.0])],
    }  # fmt: skip
    writer.append(rows, "rows")


def _file(location: Location, table: str) -> Path:
    (file,) = (Path(location.files.url) / "main" / table).glob("*.parquet")
    return file


def _flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 0x40
    file.write_bytes(data)


def _replace(file: Path) -> None:
    """Put a text in place of another one of the same length, in a whole Parquet file."""
    rows = pq.read_table(file)
    column = "code" if "code" in rows.column_names else "evaluator"
    values = [str(text).replace("k", "q") for text in rows.column(column).to_pylist()]
    place = rows.column_names.index(column)
    pq.write_table(rows.set_column(place, column, pa.array(values)), file)


def _find(location: Location) -> list[integrity.Problem]:
    return integrity.check(location)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped byte in the middle": (
        lambda file: _flip(file, file.stat().st_size // 2), "another sha256"
    ),
    "a flipped byte at the start": (lambda file: _flip(file, 0), "another sha256"),
    "a flipped byte in the footer": (lambda file: _flip(file, -20), "another sha256"),
    "a flipped byte at the end": (lambda file: _flip(file, -1), "another sha256"),
    "a file cut short": (
        lambda file: file.write_bytes(file.read_bytes()[:-100]), "is cut short: it has"
    ),
    "an empty file": (lambda file: file.write_bytes(b""), "it has 0 bytes"),
    "a missing file": (lambda file: file.unlink(), "is missing"),
    "a replaced file": (_replace, "were committed"),
    "a folder in its place": (lambda file: (file.unlink(), file.mkdir()), "bytes"),
}  # fmt: skip


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unrecorded"])
def test_damage_is_named_with_its_table_snapshot_and_remedy(
    what: str, recorded: bool, writer: store.Writer
) -> None:
    _fill(writer)
    snapshot = writer.flush()
    if not recorded:
        _forget(writer.location)
    damage, said = DAMAGES[what]
    file = _file(writer.location, "evaluations")
    damage(file)
    problems = _find(writer.location)
    if not recorded and what.startswith("a flipped byte") and not problems:
        return  # nothing can show it where it decodes, and there was no traceback
    (problem,) = [one for one in problems if one.rule == FILES_RULE]
    assert (problem.table, problem.count) == ("evaluations", 1)
    (example,) = problem.examples
    assert example.startswith(f"main/evaluations/{file.name} (snapshot {snapshot} and later): ")
    assert said in example or not recorded
    assert problem.advice == RESTORE
    # Other tables are whole, and what refers to the damaged one is not taken for dangling.
    assert {one.table for one in problems} == {"evaluations"}


@pytest.mark.slow
def test_every_byte_of_a_file_counts(writer: store.Writer) -> None:
    _fill(writer)
    files = checksums.list_files(writer.location)
    assert {one.table for one in files} == {"kernels", "evaluations", "timings"}
    assert checksums.compare_files(files).damaged == []
    (one,) = [one for one in files if one.table == "timings"]
    file = Path(writer.location.files.url) / one.path
    whole = file.read_bytes()
    for place in range(0, len(whole), 37):
        _flip(file, place)
        (damage,) = checksums.compare_files([one]).damaged
        assert "another sha256" in damage.what
        file.write_bytes(whole)
    assert checksums.compare_files([one]).damaged == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_changed_text_is_found_even_without_a_checksum(writer: store.Writer) -> None:
    _fill(writer)
    _forget(writer.location)
    file = _file(writer.location, "kernels")
    size = file.stat().st_size
    _replace(file)
    _set_size(writer.location, file)
    assert file.stat().st_size != size
    (problem,) = _find(writer.location)
    assert (problem.table, problem.count) == ("kernels", MANY)
    assert problem.rule.startswith("kernel_id is the hash of")


@pytest.mark.slow
@pytest.mark.folder
def test_damage_is_that_of_its_table_and_not_of_one_that_refers_to_it(
    writer: store.Writer,
) -> None:
    policy, task = builders.policy(), builders.task()
    runs = [builders.run(config=f"[{number}]", run_id=f"r{number}") for number in range(MANY)]
    attempts = [
        builders.generation(policy, task, run_id=one["run_id"], parse_error="none", minute=minute)
        for minute, one in enumerate(runs)
    ]
    rows = {"policies": [policy], "tasks": [task], "runs": runs, "generations": attempts}
    writer.append(rows, "attempts of many runs")
    _forget(writer.location)
    file = _file(writer.location, "runs")
    group = pq.read_metadata(file).row_group(0)
    (chunk,) = [
        column
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema == "config"
    ]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(file.read_bytes())
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(data)
    assert {one.table for one in _find(writer.location)} == {"runs"}


@pytest.mark.slow
def test_a_lake_of_before_says_that_nothing_was_recorded_until_it_is_compacted(
    writer: store.Writer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "store")
    _fill(writer)
    _forget(writer.location)
    assert _find(writer.location) == []
    assert "no checksum recorded for 3 of 3 data files" in caplog.text
    maintenance.compact(writer.location)
    caplog.clear()
    assert _find(writer.location) == []
    assert "no checksum" not in caplog.text
    assert all(one.sha256 for one in checksums.list_files(writer.location))


@pytest.mark.slow
def test_a_lake_without_the_table_is_checked_and_compacted(
    writer: store.Writer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "store")
    _fill(writer)
    _run_past_store(writer.location, "DROP TABLE lake.file_checksums")
    early = json.loads(catalog.load().definition)
    del early["tables"]["file_checksums"]
    definition = json.dumps(early).replace("'", "''")
    _run_past_store(writer.location, f"UPDATE lake.catalogs SET definition = '{definition}'")
    assert _find(writer.location) == []
    assert "no checksum recorded for 3 of 3 data files" in caplog.text
    maintenance.compact(writer.location)
    assert "`store init` makes it" in caplog.text
    # Opening it for writing makes the table, and from then on files have their checksum.
    writer.close()
    with store.writer(writer.location.url, author="tests") as again:
        kernels = [builders.kernel(f"more {number}") for number in range(MANY)]
        again.append({"kernels": kernels}, "more")
    unrecorded = [one for one in checksums.list_files(writer.location) if one.sha256 is None]
    assert len(unrecorded) == len(checksums.list_files(writer.location)) - 1
    assert _find(writer.location) == []


@pytest.mark.slow
def test_files_of_loads_compactions_and_expiry_have_their_checksum(writer: store.Writer) -> None:
    for part in range(3):
        rows = [builders.kernel(f"{part} {number}") for number in range(MANY)]
        writer.append({"kernels": rows}, "a file")
    writer.load({"policies": [builders.policy()]}, "a few", bundle_id="few")
    writer.append({"tasks": [builders.task()]}, "inlined")
    for step in (
        lambda: None,
        lambda: maintenance.compact(writer.location),
        lambda: maintenance.compact(writer.location),
        lambda: maintenance.expire(writer.location, maintenance.ORPHAN_AGE * 0),
    ):
        step()
        files = checksums.list_files(writer.location)
        assert files
        assert all(one.sha256 for one in files)
        assert _find(writer.location) == []
    with writer.reader() as opened:
        row = opened.sql("SELECT count(*) - count(DISTINCT path) AS n FROM file_checksums").one()
        assert row == {"n": 0}
    # They stay in the catalog: a file of checksums would itself want one.
    assert not list(Path(writer.location.files.url).glob("main/file_checksums/*"))


@pytest.mark.slow
def test_a_file_that_a_killed_commit_left_has_one_checksum(writer: store.Writer) -> None:
    _fill(writer)
    left = _file(writer.location, "kernels")
    # Named by a time to come, so that every commit takes it for a new one.
    shutil.copy(left, left.with_name("ducklake-ffffffff-ffff-7000-8000-000000000000.parquet"))
    for part in range(2):
        rows = [builders.kernel(f"{part} {number}") for number in range(MANY)]
        writer.append({"kernels": rows}, "a file")
    assert _find(writer.location) == []


@pytest.mark.slow
def test_damaged_files_are_not_merged_or_published_as_good_ones(writer: store.Writer) -> None:
    _fill(writer)
    _flip(_file(writer.location, "timings"), 300)
    with pytest.raises(FlywheelError, match=r"timings: main/timings/.*another sha256") as told:
        maintenance.compact(writer.location)
    assert "Nothing was compacted" in str(told.value)
    assert len(checksums.list_files(writer.location)) == 3


def test_a_query_that_meets_damage_says_how_to_find_all_of_it(writer: store.Writer) -> None:
    _fill(writer)
    file = _file(writer.location, "kernels")
    file.write_bytes(file.read_bytes()[:-100])
    with (
        store.open(writer.location.url) as lake,
        pytest.raises(FlywheelError, match=rf"(?s){file.name}.*\n.*store check --full"),
    ):
        lake.sql("SELECT sum(length(code)) FROM kernels").rows()


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_has_the_checksums_and_takes_no_damaged_file(
    writer: store.Writer, tmp_path: Path
) -> None:
    _fill(writer)
    copy = FolderLocation(tmp_path / "copy")
    maintenance.backup(writer.location, copy.root)
    assert all(one.sha256 for one in checksums.list_files(copy))
    assert _find(copy) == []
    file = _file(writer.location, "kernels")
    _flip(file, 100)
    with pytest.raises(FlywheelError, match="another sha256"):
        maintenance.backup(writer.location, tmp_path / "new")
    assert not (tmp_path / "new" / "catalog.sqlite").exists()
    assert [one.table for one in _find(writer.location)] == ["kernels"]
    # What the report says to do helps.
    shutil.copy(copy.data / "main" / "kernels" / file.name, file)
    assert _find(writer.location) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_takes_no_wrong_copy(
    writer: store.Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(writer)
    place = FolderLocation(tmp_path / "copy")
    copy = FolderFiles.copy_from

    def copy_wrongly(files: FolderFiles, other: FolderFiles, path: str) -> None:
        copy(files, other, path)
        if "/kernels/" in path:
            _flip(files.folder / path, 100)

    with monkeypatch.context() as patch:
        patch.setattr(FolderFiles, "copy_from", copy_wrongly)
        with pytest.raises(FlywheelError, match=r"a copy differs from its file.*another sha256"):
            maintenance.backup(writer.location, place.root)
    assert not place.catalog.exists()
    maintenance.backup(writer.location, place.root)
    assert _find(place) == _find(writer.location) == []


@pytest.mark.slow
def test_damage_in_what_old_snapshots_read_is_found_too(writer: store.Writer) -> None:
    _fill(writer)
    first = writer.flush()
    file = _file(writer.location, "kernels")
    _run_past_store(writer.location, "DROP TABLE lake.kernels")
    _flip(file, 50)
    (one,) = [one for one in checksums.list_files(writer.location) if one.table == "kernels"]
    # The commit that drops the table follows the one that wrote it.
    assert one.snapshots == f"snapshot {first}"
    assert not one.is_read_at(first + 1)
    assert [damage.file.path for damage in checksums.compare_files([one]).damaged] == [one.path]


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: 3 * 4096])


def _scribble(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096 : 8 * 4096] = bytes(7 * 4096)
    file.write_bytes(data)


@pytest.mark.repeats(run=1)
@pytest.mark.folder
@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _scribble,
        lambda file: file.write_bytes(b"not a database " * 500),
        lambda file: file.write_bytes(b""),
    ],
    ids=["cut short", "pages lost", "something else", "empty"],
)
def test_a_damaged_catalog_is_one_clear_line(
    damage: Callable[[Path], object], lake_url: str, tmp_path: Path
) -> None:
    with store.writer(lake_url, author="tests") as writer:
        _fill(writer)
        location = writer.location
    # As another process would find it: the journal is written into the file first.
    sqlite3.connect(location.catalog).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for journal in location.root.glob("catalog.sqlite-*"):
        journal.unlink()
    damage(location.catalog)
    (problem,) = _find(location)
    assert (problem.table, problem.rule) == ("catalog", "the catalog database is whole")
    assert problem.examples[0].startswith(f"{location.catalog}: ")
    assert "store backup" in problem.advice
    words = ["store", "check", "--lake", lake_url, "--format", "json"]
    ended = commands.run(words, cwd=location.root)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stdout)[0]["table"] == "catalog"


@pytest.mark.slow
def test_the_command_reports_damage_and_ends_with_3(writer: store.Writer) -> None:
    _fill(writer)
    file = _file(writer.location, "kernels")
    _flip(file, 200)
    words = ["store", "check", "--lake", writer.location.url, "--format", "json"]
    ended = commands.run(words, cwd=writer.location.root)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    (row,) = json.loads(ended.stdout)
    assert row["table"] == "kernels"
    assert file.name in row["examples"][0]
    assert row["advice"] == RESTORE


@pytest.mark.slow
def test_other_damage_is_reported_as_well(writer: store.Writer) -> None:
    _fill(writer)
    rejected = writer.location.spool / "rejected"
    rejected.mkdir(parents=True)
    (rejected / "1.json").write_bytes(b"\xff{")
    (problem,) = _find(writer.location)
    assert problem.table == "spool"
    assert "1.json cannot be read" in problem.examples[0]


def _run_past_store(location: Location, statement: str) -> None:
    connection = connect(to=location)
    attach(connection, location, writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute(statement)
    connection.close()


def _forget(location: Location) -> None:
    """Make a lake as an earlier version left it: with files whose checksum nobody took."""
    _run_past_store(location, "DELETE FROM lake.file_checksums")


def _set_size(location: Location, file: Path) -> None:
    """Let DuckLake know a file by its new size, as who forges one would."""
    connection = sqlite3.connect(location.catalog)
    given: list[Any] = [file.stat().st_size, file.name]
    with connection:
        connection.execute(
            "UPDATE ducklake_data_file SET file_size_bytes = ?, footer_size = NULL WHERE path = ?",
            given,
        )
    connection.close()
