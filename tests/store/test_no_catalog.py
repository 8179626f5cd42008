"""A file that is not a lake's catalog never becomes one, and nothing is deleted because of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import builders
import commands
import pytest

import store
from store.errors import LakeUnreachable
from store.lake.location import FolderLocation
from store.upkeep import integrity, maintenance

pytestmark = pytest.mark.folder
LONG_AGO_S = timedelta(days=30).total_seconds()
WRITERS = (
    ("store", "init"),
    ("store", "import", "starter"),
    ("store", "tag", "add", "v1"),
    ("store", "compact"),
    ("store", "expire", "--older-than-days", "0"),
    ("store", "pull", "someone/lake"),
)


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a lake whose files are a month old."""
    folder = tmp_path_factory.mktemp("old") / "lake"
    with store.writer(str(folder), author="tests") as writer:
        for number in range(3):
            kernels = [builders.kernel(f"k{number}.{n}") for n in range(30)]
            writer.append({"kernels": kernels}, "kernels")
    maintenance.compact(FolderLocation(folder))
    for file in folder.rglob("*.parquet"):
        long_ago = time.time() - LONG_AGO_S
        os.utime(file, (long_ago, long_ago))
    return folder


def _spoil(catalog: Path, kind: str) -> None:
    content = catalog.read_bytes()
    catalog.unlink()
    if kind == "empty":
        catalog.touch()
    elif kind == "cut":
        catalog.write_bytes(content[: len(content) // 3])
    elif kind == "random":
        catalog.write_bytes(os.urandom(20_000))
    elif kind == "of another program":
        with closing(sqlite3.connect(catalog)) as other, other:
            other.execute("CREATE TABLE notes (text)")
    elif kind == "a folder":
        catalog.mkdir()
    elif kind == "a pipe":
        os.mkfifo(catalog)
    elif kind == "a circle of links":
        catalog.symlink_to(catalog)
    else:
        catalog.symlink_to(catalog.with_name("nowhere"))


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "kind",
    [
        *("empty", "cut", "random", "of another program"),
        *("a folder", "a pipe", "a dangling link", "a circle of links"),
    ],
)
@pytest.mark.slow
def test_what_is_not_a_catalog_stays_and_so_do_all_data_files(
    old_lake: Path, tmp_path: Path, kind: str
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(old_lake, lake)
    _spoil(lake / "catalog.sqlite", kind)
    before = _list_content(lake)
    assert sum(name.endswith(".parquet") for name in before) > 2
    for words in (*WRITERS, ("store", "query", "SELECT 1"), ("store", "move", str(lake), "moved")):
        done = commands.run([*words], cwd=tmp_path, env={**os.environ, "FLYWHEEL_LAKE": str(lake)})
        assert done.returncode == 1, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert "This is a bug" not in done.stderr
        assert _list_content(lake) == before, words
    assert not (tmp_path / "nowhere").exists()


def _list_content(folder: Path) -> dict[str, bytes | str]:
    """Return the files of a lake that contain what people stored."""
    own = ("lock", "readers", "catalog.sqlite-wal", "catalog.sqlite-shm")
    return {
        str(file.relative_to(folder)): os.readlink(file) if file.is_symlink() else file.read_bytes()
        for file in folder.rglob("*")
        if file.name not in own and (file.is_symlink() or file.is_file())
    }


def test_a_lost_catalog_is_not_replaced_beside_its_journal(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "catalog.sqlite-wal").write_bytes(b"pages of the lost catalog")
    with pytest.raises(LakeUnreachable, match="lost its catalog"):
        store.writer(str(lake), author="tests")
    assert [file.name for file in lake.glob("catalog*")] == ["catalog.sqlite-wal"]


@pytest.mark.slow
def test_a_killed_creation_leaves_nothing_or_a_lake(tmp_path: Path) -> None:
    """Each kill comes a little later; the next command makes the lake, or finds a whole one."""
    command = ["store", "init", "--lake", str(tmp_path / "lake")]
    wait_s, killed_at_work = 0.05, 0
    while True:
        lake = FolderLocation(tmp_path / "lake")
        try:
            commands.run(command, cwd=tmp_path, timeout=wait_s)
            break
        except subprocess.TimeoutExpired:
            wait_s *= 1.15
            if lake.exists:
                assert integrity.check(lake) == []
                shutil.rmtree(lake.root)
            killed_at_work += lake.root.exists()
    assert killed_at_work > 2
    assert integrity.check(lake) == []
    assert not list(lake.root.glob("catalog.new*"))
