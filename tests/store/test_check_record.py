"""`store check` reads what it has found whole only once, and still finds what came later."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import builders as b
import commands
import pytest

import store
from store.lake import checksums
from store.lake.attachment import attach, connect
from store.lake.location import Location
from store.upkeep import integrity, maintenance

MANY = 30


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


def _flip(location: Location, table: str) -> None:
    """Change a byte of the oldest file that the newest snapshot reads."""
    read = [one for one in checksums.list_files(location) if one.until is None]
    oldest = min((one for one in read if one.table == table), key=lambda one: one.since)
    file = Path(location.files.url) / oldest.path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x40
    file.write_bytes(data)


def _find(location: Location, *, full: bool = False) -> list[tuple[str, str]]:
    return sorted((one.table, one.rule) for one in integrity.check(location, full=full))


def test_damage_to_a_checked_file_is_found_by_a_full_check(location: Location) -> None:
    _flip(location, "kernels")
    assert _find(location) == []
    assert _find(location, full=True) == [("kernels", "its files are as they were committed")]
    # A check that found a problem changes nothing about what is known to be whole.
    assert _find(location) == []
    words = ["store", "check", "--lake", location.url]
    done = [
        commands.run([*words, *options], cwd=location.root).returncode
        for options in ([], ["--full"])
    ]
    assert done == [0, 3]


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
