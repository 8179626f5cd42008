"""What a lake refuses can be tried again, and a lake without its catalog can be put back."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import commands
import pytest

import store
from store.errors import FlywheelError
from store.faults import RESTORE_LAKE
from store.lake.location import FolderLocation
from store.upkeep import integrity, maintenance
from store.writing.spool import locate_folder

TASK, KERNEL, DEVICE = builders.task(), builders.kernel(), builders.device()
SIZES = builders.workload(TASK)
JUDGED = builders.evaluation(KERNEL, TASK, SIZES, DEVICE)
BASE = {"tasks": [TASK], "kernels": [KERNEL], "workloads": [SIZES], "devices": [DEVICE]}


def person(name: str) -> dict[str, Any]:
    return {"policy_id": name, "name": name, "kind": "person"}


def count(url: str, table: str) -> int:
    with store.open(url) as lake:
        row = lake.run(f"SELECT count(*) AS n FROM {table}").one()
    assert row is not None
    return int(row["n"])


@pytest.fixture
def rejected(lake_url: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `store rejected` on the lake."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["store", "rejected", *words, "--lake", lake_url], cwd=tmp_path)

    return run


@pytest.mark.slow
def test_rejected_bundles_are_listed_stored_after_a_fix_and_deleted(
    writer: store.Writer, lake_url: str, rejected: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert json.loads(rejected("--format", "json").stdout) == []
    writer.append({"evaluations": [JUDGED]}, "a verdict \x1b[31m", bundle_id="early", wait=False)
    writer.append({"standings": [builders.standing(builders.finding(KERNEL))]}, "no", wait=False)
    writer.flush()
    (problem,) = integrity.check(writer.location)
    assert (problem.table, problem.count) == ("spool", 2)
    assert "`store rejected`" in (problem.advice or "")
    rows = json.loads(rejected("--format", "json").stdout)
    assert [row["author"] for row in rows] == ["tests", "tests"]
    assert "device_id is a device_id of devices" in rows[0]["reason"]
    assert "\x1b" not in rejected().stdout
    # Without a fix nothing changes.
    again = rejected("--retry", "all")
    assert (again.returncode, again.stdout[:17]) == (3, "0 bundles stored ")
    assert len(json.loads(rejected("--format", "json").stdout)) == 2
    writer.append(BASE, "what the verdict refers to")
    retried = rejected("--retry", "all")
    assert (retried.returncode, retried.stdout[:17]) == (3, "1 bundles stored ")
    assert "`store rejected` says why" in retried.stderr
    assert count(lake_url, "evaluations") == 1
    assert writer.has_bundle("early")
    (left,) = json.loads(rejected("--format", "json").stdout)
    assert left["message"] == "no"
    assert rejected("--discard", "nothing").returncode == 1
    assert rejected("--discard", left["name"]).returncode == 0
    assert list(locate_folder(writer.location.spool).iterdir()) == []
    assert integrity.check(writer.location) == []


def test_a_rejected_bundle_that_cannot_be_read_stays(
    writer: store.Writer, rejected: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    writer.append({"evaluations": [JUDGED]}, "a verdict", wait=False)
    writer.flush()
    (kept,) = locate_folder(writer.location.spool).glob("*.bundle")
    damaged = kept.read_bytes()[:-1]
    kept.write_bytes(damaged)
    writer.append(BASE, "what it refers to")
    ended = rejected("--retry", kept.stem)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    assert kept.read_bytes() == damaged
    (row,) = json.loads(rejected("--format", "json").stdout)
    assert (row["author"], row["message"]) == (None, None)
    assert "is damaged, so it cannot be stored" in row["reason"]


@pytest.mark.slow
def test_a_backup_with_later_snapshots_is_not_replaced(tmp_path: Path) -> None:
    lake, older, copy = tmp_path / "lake", tmp_path / "older", tmp_path / "copy"
    store.writer(str(lake), author="tests").close()
    shutil.copytree(lake, older)
    with store.writer(str(lake), author="tests") as writer:
        writer.append({"policies": [person("later")]}, "a person")
    maintenance.backup(FolderLocation(lake), copy)
    with pytest.raises(FlywheelError, match="restored from an older one"):
        maintenance.backup(FolderLocation(older), copy)
    assert count(str(copy), "policies") == 1


def test_a_stopped_backup_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "copy" / "data").mkdir(parents=True)
    (tmp_path / "copy" / "catalog.partial").touch()
    (tmp_path / "copy" / "data" / "a.parquet").touch()
    with pytest.raises(FlywheelError, match="incomplete") as refused:
        store.open(str(tmp_path / "copy"))
    assert "store backup" in str(refused.value.hint)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:10_000])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "missing": Path.unlink,
    "cut": cut,
    "random": lambda file: file.write_bytes(bytes(range(256)) * 100),
    "another database": lambda file: shutil.copyfile(file.with_name("keys.sqlite"), file),
}


@pytest.mark.slow
@pytest.mark.folder
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", DAMAGES)
def test_a_lake_without_its_catalog_is_restored_from_a_backup(
    writer: store.Writer, lake_url: str, tmp_path: Path, name: str
) -> None:
    location = writer.location
    assert isinstance(location, FolderLocation)
    many = [builders.kernel(f"many {n}") for n in range(300)]
    writer.append({"kernels": many}, "a file", bundle_id="many")
    maintenance.backup(location, tmp_path / "saved")
    writer.append({"policies": [person("late")]}, "after the backup", bundle_id="late")
    location.read_salt()
    location.open_leases().close()
    assert integrity.check(location) == []
    writer.close()
    for left in ("catalog.partial-journal", "service.lock", "service.sqlite-wal", "catalog.new"):
        (location.root / left).touch()  # no file of a lake keeps it from being restored
    DAMAGES[name](location.catalog)
    before = {file for file in location.root.rglob("*.parquet")}
    assert before

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["store", *words, "--lake", lake_url], cwd=tmp_path)

    failed = run("query", "SELECT 1")
    assert failed.returncode == 1
    assert RESTORE_LAKE in " ".join(failed.stderr.split())
    with store.open(str(tmp_path / "saved")) as saved:  # as the sentence says, where it is
        assert saved.run("SELECT count(*) AS n FROM kernels").rows() == [{"n": 300}]
    assert run("restore", "nowhere").returncode == 1
    restored = run("restore", "saved")
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith("0 files copied, 1 already there")
    assert before <= {file for file in location.root.rglob("*.parquet")}
    assert integrity.check(location) == []
    with store.writer(lake_url, author="tests") as again:
        # What is kept beside the lake does not know the rows that are lost as stored.
        again.append({"policies": [person("late")]}, "once more", bundle_id="late")
    assert (count(lake_url, "policies"), count(lake_url, "kernels")) == (1, 300)
    assert integrity.check(location) == []
    refused = run("restore", "saved")
    assert refused.returncode == 1
    assert "move the folder away first" in refused.stderr
    assert count(lake_url, "policies") == 1


@pytest.mark.slow
@pytest.mark.folder
def test_a_backup_is_restored_into_no_folder_of_somebody_else(
    writer: store.Writer, tmp_path: Path
) -> None:
    maintenance.backup(writer.location, tmp_path / "saved")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(FlywheelError, match=r"other files, such as notes\.txt"):
        maintenance.restore(FolderLocation(mine), tmp_path / "saved")
    assert [file.name for file in mine.iterdir()] == ["notes.txt"]
