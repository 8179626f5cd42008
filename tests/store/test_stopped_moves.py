"""A move that is stopped at any step is continued by running it again, or given up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import builders
import commands
import pytest

import store
from store.errors import FlywheelError
from store.lake.location import FolderLocation
from store.upkeep import integrity

pytestmark = pytest.mark.folder
QUERY = "SELECT count(*) AS n FROM kernels"


def _make(folder: Path) -> Path:
    with store.writer(str(folder), author="tests") as writer:
        for number in range(3):
            rows = [builders.kernel(f"k{number}.{n}") for n in range(30)]
            writer.append({"kernels": rows}, "kernels")
        writer.append({"kernels": [builders.kernel("inlined")]}, "inlined")
    return folder


def _count(lake: Path) -> int:
    with store.open(str(lake)) as opened:
        row = opened.sql(QUERY).one()
    assert row is not None
    return int(row["n"])


def _stop_at(step: int, command: list[str], folder: Path) -> bool:
    """Run a command that is killed at its nth change of files; return whether it was."""
    env = {**os.environ, commands.KILL_AT: str(step)}
    return commands.run(command, cwd=folder, env=env).returncode < 0


@pytest.mark.slow
def test_a_move_that_is_killed_at_any_step_is_continued(tmp_path: Path) -> None:
    made = _make(tmp_path / "made")
    step = 0
    while True:
        step += 1
        old, new = tmp_path / f"old{step}", tmp_path / f"new{step}"
        shutil.copytree(made, old)
        move = ["store", "move", str(old), str(new)]
        if not _stop_at(step, move, tmp_path):
            break
        done = commands.run(move, cwd=tmp_path)
        assert done.returncode == 0, (step, done.stderr)
        assert _count(new) == 91
        with pytest.raises(FlywheelError, match="was moved to"):
            store.open(str(old))
        if step % 8 == 0:
            assert integrity.check(FolderLocation(new)) == []
    assert step > 12


@pytest.mark.slow
def test_a_move_that_is_killed_at_any_step_can_be_given_up(tmp_path: Path) -> None:
    made = _make(tmp_path / "made")
    step = -2
    while True:
        step += 3
        old, new = tmp_path / f"old{step}", tmp_path / f"new{step}"
        shutil.copytree(made, old)
        if not _stop_at(step, ["store", "move", str(old), str(new)], tmp_path):
            break
        shutil.rmtree(new, ignore_errors=True)
        if (old / "move.json").exists():  # the last step but one was done
            with pytest.raises(FlywheelError, match=re.escape(f"delete {old / 'move.json'}")):
                store.open(str(old))
            (old / "move.json").unlink()
        assert _count(old) == 91
    assert step > 12


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [4, 12, 40, 150, 500])
def test_a_move_that_a_full_disk_stops_goes_on_where_there_is_room(
    small_disk: Path, tmp_path: Path, kilobytes: int
) -> None:
    old, new = _make(tmp_path / "old"), small_disk / "new"
    move = ["store", "move", str(old), str(new)]
    _resize(small_disk, kilobytes)
    for _ in range(2):
        done = commands.run(move, cwd=tmp_path)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "is not empty" not in done.stderr
        assert len(done.stderr.strip().splitlines()) > 1
        assert _count(old) == 91
    _resize(small_disk, 65_536)
    done = commands.run(move, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert _count(new) == 91


def _resize(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


@pytest.mark.slow
def test_a_move_goes_into_no_folder_of_something_else(tmp_path: Path) -> None:
    old = _make(tmp_path / "old")
    for name in ("notes.txt", "data/table.parquet", "keys.sqlite"):
        used = tmp_path / name.replace("/", "-")
        (used / name).parent.mkdir(parents=True)
        (used / name).write_text("mine")
        done = commands.run(["store", "move", str(old), str(used)], cwd=tmp_path)
        assert "is not empty" in done.stderr
        assert [file.name for file in used.rglob("*") if file.is_file()] == [Path(name).name]
    assert _count(old) == 91
