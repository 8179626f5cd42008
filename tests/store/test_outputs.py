"""Files and folders that commands write: whole, replaced by a rerun, never in place of others."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import builders
import commands
import pytest

import store
from store.commandline import outputs
from store.errors import ExportRefused

COMMAND = "store report"
WRITERS = {
    "query": ["store", "query", "--out", "out", "--format", "csv", "SELECT count(*) FROM tasks"],
    "pipelines": ["pipelines", "run", "rl-prompts", "--purpose", "eval", "--out", "out"],
    "report": ["store", "report", "--out", "out"],
    "export": ["store", "export", "jsonl", "out"],
}


def write(target: Path, text: str, command: str = COMMAND) -> None:
    with outputs.write_folder(target, command) as folder:
        (folder / "figures").mkdir()
        for name in ("page.txt", "figures/chart.txt"):
            (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    """Return the files of a folder with their texts."""
    return {
        str(file.relative_to(folder)): file.read_text("utf-8", errors="replace")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def die_while(work: Callable[[], object], seconds: float) -> None:
    """Do some work in another process, and kill it after a time."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, b"x")
            work()
        finally:
            os._exit(0)
    os.read(reading, 1)  # on a busy host, it takes a while to begin
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)


@pytest.fixture
def lake(lake_url: str, writer: store.Writer) -> str:
    """Return a lake with a task."""
    add_task(writer, 0)
    return lake_url


def add_task(writer: store.Writer, number: int) -> None:
    task = builders.task(f"task{number}")
    label = builders.label(task, f"level1/{number}", problem_id=number, family=f"family{number}")
    split = builders.split(f"family{number}", "test")
    writer.append({"tasks": [task], "task_labels": [label], "splits": [split]}, "a task")


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", WRITERS)
def test_a_command_replaces_what_it_wrote_and_nothing_else(
    lake: str, writer: store.Writer, tmp_path: Path, name: str
) -> None:
    words = [*WRITERS[name], "--lake", lake]
    out = tmp_path / "out"

    def run() -> str:
        ended = commands.run(words, cwd=tmp_path)
        assert "Traceback" not in ended.stderr
        assert ended.returncode in (0, 1)
        return ended.stderr if ended.returncode else ""

    def look() -> dict[str, str]:
        return read(out) if out.is_dir() else {"": out.read_text()}

    assert run() == ""
    first = look()
    add_task(writer, 1)
    assert run() == ""
    second = look()
    assert second.keys() == first.keys()
    assert second != first
    edited = out / "mine.txt" if out.is_dir() else out
    edited.write_text("mine")
    told = run()
    assert edited.name in told
    assert "nothing was written" in told
    assert edited.read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_other_folders_are_refused_before_the_work_with_a_next_step(tmp_path: Path) -> None:
    def refuse(target: Path, said: str, command: str = COMMAND) -> None:
        before = read(tmp_path)
        with (
            pytest.raises(ExportRefused, match=said) as refused,
            outputs.write_folder(target, command),
        ):
            pytest.fail("the work began")
        assert refused.value.hint is not None
        assert read(tmp_path) == before

    out = tmp_path / "out"
    out.mkdir()
    write(out, "one")  # an empty folder is nobody's
    refuse(out, "written by `store report`, and not by `store export jsonl`", "store export jsonl")
    (out / "page.txt").write_text("my note")
    refuse(out, r"page\.txt was changed after")
    (out / "page.txt").write_text("one")
    (out / "figures" / "mine.txt").write_text("mine")
    refuse(out, r"mine\.txt was added after")
    (out / "figures" / "mine.txt").unlink()
    (out / "figures" / "link").symlink_to(tmp_path)
    refuse(out, "link was added after")
    (out / "figures" / "link").unlink()
    (out / "page.txt").unlink()
    write(out, "two")
    (tmp_path / "file").write_text("mine")
    refuse(tmp_path / "file", "is not a folder")
    refuse(tmp_path / "file" / "inside", "is not a folder")
    (out / outputs.RECORD).write_text('{"command": 7')
    refuse(out, "exists already")
    refuse(Path("/proc"), "mount point")
    refuse(Path.cwd(), "current folder")


def test_what_is_behind_a_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    for text in ("one", "two"):
        write(tmp_path / "out", text)
        assert read(tmp_path / "disk" / "out")["page.txt"] == text
    assert (tmp_path / "out").is_symlink()


def test_a_file_system_that_cannot_exchange_names_has_the_new_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_RENAME_EXCHANGE", 1 << 20)  # the system refuses this flag alike
    for text in ("one", "two", "three"):
        write(tmp_path / "out", text)
        assert read(tmp_path / "out")["page.txt"] == text
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_equal_folder_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "out", "one")
    before = (tmp_path / "out").stat()
    write(tmp_path / "out", "one")
    assert (tmp_path / "out").stat().st_ino == before.st_ino


def test_a_file_of_somebody_else_is_refused_and_a_device_is_written_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("mine")
    for command in ("store query", COMMAND):
        with pytest.raises(ExportRefused), outputs.write_file(mine, command):
            pytest.fail("the work began")
    with outputs.write_file(tmp_path / "out.csv", "store query") as file:
        file.write_text("rows")
    with pytest.raises(ExportRefused), outputs.write_file(tmp_path / "out.csv", COMMAND):
        pytest.fail("another command began")
    with outputs.write_file(Path("/dev/null"), "store query") as file:
        file.write_text("rows")
    assert read(tmp_path) == {"mine.csv": "mine", "out.csv": "rows"}


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new_folder_and_the_next_run_cleans_up(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    write(out, "0")

    def rewrite() -> None:
        number = 0
        while True:
            number += 1
            write(out, f"{os.getpid()} {number} " + "x" * 100_000)

    left = 0
    for _ in range(40):
        die_while(rewrite, 0.005 + 0.02 * random.random())
        left += len([*tmp_path.glob(".flywheel-*.partial")])
        texts = read(out)
        record = json.loads(texts.pop(outputs.RECORD))
        assert set(record["files"]) == set(texts)
        assert len(set(texts.values())) == 1
    write(out, "last")
    assert left, "no kill came in time to show anything"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert read(out)["page.txt"] == "last"


def test_a_folder_that_another_process_is_writing_stays(tmp_path: Path) -> None:
    with outputs.write_folder(tmp_path / "one", COMMAND) as folder:
        (folder / "page.txt").write_text("not ready")
        write(tmp_path / "two", "ready")
        assert (folder / "page.txt").exists()
    assert read(tmp_path / "one")["page.txt"] == "not ready"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one", "two"]
