"""Commands that make a lake print where, and make none among files of somebody else."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path

import commands
import pytest

import store
from store.errors import LakeUnreachable

pytestmark = pytest.mark.folder
MAKERS = {
    "init": ["store", "init", "--lake", "TARGET"],
    "move": ["store", "move", "SOURCE", "TARGET"],
    "import": ["store", "import", "starter", "--lake", "TARGET"],
    "backup": ["store", "backup", "TARGET", "--lake", "SOURCE"],
}


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "FLYWHEEL_LAKE"}
    return commands.run(words, cwd=folder, env=environment | variables)


def name_places(words: list[str], source: Path, target: Path) -> list[str]:
    places = {"SOURCE": str(source), "TARGET": str(target)}
    return [places.get(word, word) for word in words]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_maker_says_so_first_and_refuses_a_folder_with_other_files(
    empty_lake: Path, tmp_path: Path, maker: str
) -> None:
    source = shutil.copytree(empty_lake, tmp_path / "source")
    target = tmp_path / "my files"
    (target / "data").mkdir(parents=True)
    (target / "data" / "notes.csv").write_text("mine")
    words = name_places(MAKERS[maker], source, target)
    refused = run(words, tmp_path)
    assert refused.returncode == 1
    assert str(target) in refused.stderr
    assert "ame a new" in refused.stderr
    assert [str(file.relative_to(target)) for file in target.rglob("*")] == [
        "data",
        "data/notes.csv",
    ]
    (target / "data" / "notes.csv").unlink()
    made = run(words, tmp_path)
    assert made.returncode == 0, made.stderr
    assert f"a new lake at {target}" in made.stderr.splitlines()[0]
    again = run(["store", "query", "SELECT count(*) FROM lakes", "--lake", str(target)], tmp_path)
    assert again.returncode == 0
    assert "new lake" not in again.stderr


def test_the_python_interface_logs_it_and_refuses_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "lake.txt").write_text("mine")
    with pytest.raises(LakeUnreachable, match=r"other files, such as lake\.txt"):
        store.writer(str(tmp_path / "mine"), author="tests")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["lake.txt"]
    target = tmp_path / "there" / "lake"
    target.mkdir(parents=True)
    (target / "lock").touch()  # what a killed maker leaves is no file of somebody else
    with caplog.at_level(logging.INFO, logger="store"):
        store.writer(str(target), author="tests").close()
    assert caplog.messages[0] == f"made a new lake at {target}"


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("is_option", [True, False])
def test_a_mistyped_lake_is_not_made_by_commands_that_need_one(
    tmp_path: Path, is_option: bool
) -> None:
    for words in (
        ["trainers", "run", "contrastive", "--preset", "tiny"],
        ["evaluators", "audit"],
    ):
        if is_option:
            ended = run([*words, "--lake", "typo"], tmp_path)
        else:
            ended = run(words, tmp_path, FLYWHEEL_LAKE="typo")
        assert ended.returncode == 1
        assert f"no lake at {tmp_path / 'typo'}" in ended.stderr
        assert list(tmp_path.iterdir()) == []
