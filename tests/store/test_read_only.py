"""A lake that this user cannot write to answers everything that does not write."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import builders
import commands
import lake_commands
import pytest

import store
from store.lake.location import FolderLocation
from store.upkeep import integrity, maintenance

pytestmark = pytest.mark.folder
OTHER_USER = 65_534


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a folder with a lake of another user, and what the words of commands stand for."""
    if os.getuid():
        pytest.skip("only root can mount, and give files to another user")
    folder = tmp_path_factory.mktemp("read-only")
    names = lake_commands.make_lake(folder / "lake")
    _give_away(folder / "lake")
    return folder, names


@pytest.fixture(scope="module", params=["another user's", "a mount"])
def read_only(
    request: pytest.FixtureRequest, places: tuple[Path, dict[str, str]]
) -> Iterator[tuple[Path, bool]]:
    """Return a lake that cannot be written to, and whether that is so without root's rights."""
    folder, _ = places
    if request.param == "another user's":
        yield folder / "lake", True
        return
    mounted = folder / "mounted"
    mounted.mkdir()
    for command in (
        ["mount", "--bind", str(folder / "lake"), str(mounted)],
        ["mount", "-o", "remount,bind,ro", str(mounted)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield mounted, False
    subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("command", [*lake_commands.READS, *lake_commands.WRITES])
def test_a_lake_that_cannot_be_written_to_answers_what_does_not_write(
    read_only: tuple[Path, bool],
    places: tuple[Path, dict[str, str]],
    command: str,
    tmp_path: Path,
) -> None:
    lake, unprivileged = read_only
    folder, names = places
    before = _list_files(folder / "lake")
    words = lake_commands.list_words(command, {**names, "LAKE": str(lake)})
    env = {**os.environ, "FLYWHEEL_LAKE": str(lake), "HF_HUB_OFFLINE": "1", "TMPDIR": str(tmp_path)}
    done = commands.run(words, cwd=tmp_path, env=env, unprivileged=unprivileged)
    is_refused = command in lake_commands.WRITES
    if command in ("store publish", "store receipt") and unprivileged:
        is_refused = True  # only the owner can read the salt
        assert "salt" in done.stderr
    assert done.returncode == is_refused, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "This is a bug" not in done.stderr
    assert _list_files(folder / "lake") == before
    if command == "store backup":
        assert integrity.check(FolderLocation(tmp_path / "copy")) == []


@pytest.mark.slow
def test_a_reader_sees_what_a_live_writer_of_another_user_commits(
    places: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    live = tmp_path / "live"
    shutil.copytree(places[0] / "lake", live)
    _give_away(live)
    command = ["store", "query", "SELECT count(*) AS n FROM kernels", "--format", "csv"]
    words = [*command, "--lake", str(live)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}

    def count() -> int:
        done = commands.run(words, cwd=tmp_path, env=env, unprivileged=True)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1])

    first = count()
    with store.writer(str(live), author="tests") as writer:
        writer.append({"kernels": [builders.kernel("later")]}, "later")
        assert (live / "catalog.sqlite-shm").exists()
        assert count() == first + 1
        # As a crash of the host leaves a lake: with a journal, and nobody who has it open.
        crashed = tmp_path / "crashed"
        shutil.copytree(live, crashed, ignore=shutil.ignore_patterns("*-shm"))
        _give_away(crashed)
    assert count() == first + 1
    words[-1] = str(crashed)
    assert count() == first + 1
    assert maintenance.list_leftovers(FolderLocation(live)) == []


def _give_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)


def _list_files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }
