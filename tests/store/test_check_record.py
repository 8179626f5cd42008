"""`store check` reads what it has found whole only once, and still finds what came later."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import builders as b
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store.errors import FlywheelError
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.lake import checksums
from store.lake.attachment import attach, connect
from store.lake.location import Location
from store.upkeep import integrity, maintenance

MANY = 30
DAMAGED = [("kernels", "its files are as they were committed")]


@pytest.fixture
def location(writer: store.Writer) -> Location:
    """Return a lake with rows in files and in the catalog, which was checked."""
    _append(writer, "first")
    assert integrity.check(writer.location, full=False) == []
    return writer.location


def _append(writer: store.Writer, name: str) -> None:
    task, device, policy = b.task(), b.device(), b.policy()
    sizes = b.workload(task)
    kernels = [b.kernel(f"{name}{number}") for number in range(MANY)]
    judged = [b.evaluation(kernel, task, sizes, device) for kernel in kernels]
    tables = {
        "tasks": [task], "devices": [device], "workloads": [sizes], "policies": [policy],
        "kernels": kernels, "evaluations": judged,
        "generations": [b.generation(policy, task, kernel) for kernel in kernels],
        "timings": [arm for one in judged for arm in b.session(one, [1.0, 2.0])],
    }  # fmt: skip
    writer.append(tables, name)


def _run_past_store(location: Location, statement: str) -> None:
    connection = connect(to=location)
    attach(connection, location, writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute(statement)
    connection.close()


def _find_oldest(location: Location, table: str) -> checksums.DataFile:
    """Return the oldest file of a table that the newest snapshot reads."""
    read = [one for one in checksums.list_files(location) if one.until is None]
    return min((one for one in read if one.table == table), key=lambda one: one.since)


def _locate(location: Location, table: str) -> Path:
    return Path(location.files.url) / _find_oldest(location, table).path


def _flip(location: Location, table: str) -> None:
    """Change a byte of that file, as another program does."""
    file = _locate(location, table)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x40
    file.write_bytes(data)


def _rot(location: Location, table: str) -> None:
    """Change a byte of that file, as a disk does: the file system knows nothing of it."""
    _flip(location, table)
    one = _find_oldest(location, table)
    record = location.root / "checked.json"
    known = json.loads(record.read_text())
    known["files"][one.path] = one.files.stamp(one.path)
    record.write_text(json.dumps(known))


def _find(location: Location, *, full: bool = False) -> list[tuple[str, str]]:
    return sorted((one.table, one.rule) for one in integrity.check(location, full=full))


@pytest.mark.slow
@pytest.mark.folder
def test_a_checked_file_that_somebody_wrote_is_read_again(location: Location) -> None:
    file = _locate(location, "kernels")
    before = file.stat()
    _flip(location, "kernels")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _find(location) == DAMAGED
    assert _find(location) == DAMAGED
    _flip(location, "kernels")
    assert _find(location) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_file_put_in_place_of_a_checked_one_is_read_again(
    location: Location, tmp_path: Path
) -> None:
    file = _locate(location, "kernels")
    other = tmp_path / file.name
    shutil.copy2(file, other)
    _flip(location, "kernels")
    assert _find(location) == DAMAGED
    os.replace(other, file)
    assert _find(location) == []


@pytest.mark.slow
@pytest.mark.folder
def test_rows_of_a_file_without_a_checksum_are_tested_again_once_somebody_wrote_it(
    location: Location,
) -> None:
    _run_past_store(location, "DELETE FROM lake.file_checksums")
    assert _find(location) == []
    file = _locate(location, "kernels")
    size = file.stat().st_size
    rows = pq.read_table(file)
    texts = pa.array([f"{text}#" for text in rows["code"].to_pylist()])
    pq.write_table(rows.set_column(rows.column_names.index("code"), "code", texts), file)
    connection = sqlite3.connect(location.root / "catalog.sqlite")
    with connection:
        connection.execute(
            "UPDATE ducklake_data_file SET file_size_bytes = ?, footer_size = NULL "
            "WHERE file_size_bytes = ?",
            [file.stat().st_size, size],
        )
    connection.close()
    ((table, rule),) = _find(location)
    assert table == "kernels"
    assert "is the hash of" in rule


@pytest.mark.slow
@pytest.mark.folder
def test_damage_without_a_trace_is_found_by_a_full_check_and_by_every_check_after_it(
    location: Location,
) -> None:
    _rot(location, "kernels")
    assert _find(location) == []
    assert _find(location, full=True) == DAMAGED
    assert _find(location) == DAMAGED


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.folder
@pytest.mark.parametrize(
    "command",
    [
        maintenance.compact,
        lambda location: maintenance.backup(location, location.root.parent / "backup"),
        lambda location: publish(location.url, "ann/kernels", Options(tag="v1"), dry_run=True),
    ],
    ids=["compact", "backup", "publish"],
)
def test_damage_that_another_command_finds_is_named_by_the_next_check(
    location: Location, command: Callable[[Location], object]
) -> None:
    _rot(location, "kernels")
    assert _find(location) == []
    with pytest.raises(FlywheelError, match="sha256"):
        command(location)
    assert _find(location) == DAMAGED


@pytest.mark.slow
@pytest.mark.folder
def test_the_answer_of_a_check_says_what_it_did_not_read(location: Location) -> None:
    words = ["store", "check", "--lake", location.url]

    def check(*options: str) -> tuple[int, str]:
        done = commands.run([*words, *options], cwd=location.root)
        return done.returncode, done.stdout

    files = len(checksums.list_files(location))
    code, said = check()
    assert (code, f"{files} of {files} data files were not read again" in said) == (0, True)
    assert "`store check --full` reads all" in said
    _locate(location, "kernels").touch()
    code, said = check()
    assert (code, f"{files - 1} of {files} data files were not read again" in said) == (0, True)
    whole = "clean: every id, key, reference, check, count and file holds\n"
    assert check("--full") == (0, whole)
    _flip(location, "kernels")
    assert check()[0] == 3
    code, said = check("--full")
    assert (code, "its files are as they were committed" in said) == (3, True)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("damage", ["cut short", "missing"])
def test_a_checked_file_that_is_cut_short_or_missing_is_found(
    location: Location, damage: str
) -> None:
    file = min((Path(location.files.url) / "main" / "kernels").glob("*.parquet"))
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    (problem,) = integrity.check(location, full=False)
    assert damage in problem.examples[0]


@pytest.mark.slow
def test_damage_to_a_later_file_is_found(location: Location, writer: store.Writer) -> None:
    before = set((Path(location.files.url) / "main" / "kernels").glob("*.parquet"))
    _append(writer, "second")
    assert _find(location) == []
    _append(writer, "third")
    (later,) = sorted(
        set((Path(location.files.url) / "main" / "kernels").glob("*.parquet")) - before
    )[1:]
    data = bytearray(later.read_bytes())
    data[len(data) // 2] ^= 0x40
    later.write_bytes(data)
    assert ("kernels", "its files are as they were committed") in _find(location)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("statement", "table", "rule"),
    [
        ("INSERT INTO lake.evaluations FROM lake.evaluations LIMIT 1", "evaluations", "identifies"),
        ("INSERT INTO lake.generations FROM lake.generations LIMIT 1", "generations", "identifies"),
        (
            "INSERT INTO lake.generations SELECT * REPLACE ('g' AS generation_id, "
            "'nobody' AS policy_id) FROM lake.generations LIMIT 1",
            "generations",
            "policy_id is a policy_id of policies",
        ),
        (
            "INSERT INTO lake.evaluations SELECT * REPLACE ('e' AS evaluation_id, "
            "'odd' AS status) FROM lake.evaluations LIMIT 1",
            "evaluations",
            "status",
        ),
        (
            "INSERT INTO lake.kernels SELECT * REPLACE (repeat('a', 64) AS kernel_id) "
            "FROM lake.kernels LIMIT 1",
            "kernels",
            "is the hash of",
        ),
    ],
)
def test_later_rows_that_break_a_rule_are_found(
    location: Location, statement: str, table: str, rule: str
) -> None:
    _run_past_store(location, statement)
    found = _find(location)
    assert any(one == table and rule in text for one, text in found), found
    assert (table, "rows are those of committed bundles") in found
    assert _find(location, full=True) == found


@pytest.mark.slow
def test_compaction_and_expiry_leave_a_lake_that_is_checked(
    location: Location, writer: store.Writer
) -> None:
    _append(writer, "second")
    maintenance.compact(location)
    assert _find(location) == []
    _append(writer, "third")
    # The snapshot of the record expires, so that all rows are read.
    maintenance.expire(location, timedelta(0))
    _append(writer, "fourth")
    assert _find(location) == []
    _append(writer, "fifth")
    maintenance.expire(location, timedelta(0))
    _flip(location, "kernels")
    assert ("kernels", "its files are as they were committed") in _find(location)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("moved", marks=pytest.mark.folder),
        pytest.param("restored", marks=pytest.mark.folder),
        "damaged record",
        "other rules",
    ],
)
def test_a_record_of_another_lake_or_of_other_rules_is_not_used(
    location: Location, writer: store.Writer, tmp_path: Path, change: str
) -> None:
    record = location.root / "checked.json"
    if change == "moved":
        writer.close()
        shutil.copytree(location.root, tmp_path / "moved")
        location = Location.of(str(tmp_path / "moved"))
    elif change == "restored":
        backup = tmp_path / "backup"
        maintenance.backup(location, backup)
        assert not (backup / record.name).exists()
        location = Location.of(str(backup))
        shutil.copy(record, backup)
    elif change == "damaged record":
        record.write_bytes(b'{"snapshot": 1, "files": 3\xff')
    else:
        known = json.loads(record.read_text())
        known["state"][2] = "other"
        record.write_text(json.dumps(known))
    _flip(location, "kernels")
    assert _find(location) == [("kernels", "its files are as they were committed")]
