"""Bundles of an import are committed in groups: whole, once, and without the refused ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from import_sources import TASK, count, import_source, kernel, query

import store
from store import ids
from store.errors import ImportFailed, RowsRejected
from store.importers import kernels
from store.importers.reading import pieces
from store.writing.bundle import Bundle

TASKS = 7
KILLED = """
import os, pathlib, signal, sys
import store
from store.importers import kernels
from store.importers.reading import pieces
from store.writing.writer import Writer

lake, source, place = sys.argv[1:]
pieces.GROUP_BUNDLES = 2
append_all, stored = Writer.append_all, []


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def append(writer, bundles, **options):
    stored.append(len(bundles))
    if place == "spooled" and len(stored) == 2:
        append_all(writer, bundles, wait=False)
        die()
    return append_all(writer, bundles, **options)


Writer.append_all = append
with store.writer(lake, author="tests") as writer:
    progress = die if place == "committed" else None
    pieces.run_import(writer, kernels, pathlib.Path(source), kernels.Config(), progress)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "mine"
    for number in range(TASKS):
        task, candidate = root / f"tasks/t{number}.py", root / f"kernels/t{number}/a.py"
        task.parent.mkdir(parents=True, exist_ok=True)
        candidate.parent.mkdir(parents=True)
        task.write_text(TASK.format(doc=f"Task {number}.", body="torch.relu(x)"))
        candidate.write_text(kernel(number))
    return root


def count_snapshots(lake: Path) -> int:
    with store.open(str(lake)) as opened:
        return opened.snapshot


@pytest.mark.slow
def test_bundles_are_committed_in_groups(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    store.writer(str(lake), author="tests").close()
    before = count_snapshots(lake)
    monkeypatch.setattr(pieces, "GROUP_BUNDLES", 3)
    summary = import_source(lake, kernels, folder)
    assert (summary.files, summary.skipped, summary.rows["kernels"]) == (TASKS, 0, TASKS)
    assert count_snapshots(lake) - before == 3
    again = import_source(lake, kernels, folder)
    assert (again.files, again.skipped, again.rows) == (0, TASKS, {})


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("place", ["spooled", "committed"])
def test_an_import_that_is_killed_resumes_without_a_row_twice(
    place: str, folder: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    command = [sys.executable, "-c", KILLED, str(lake), str(folder), place]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert 0 < count(lake, "kernels") < TASKS
    import_source(lake, kernels, folder)
    for table in ("tasks", "kernels", "generations", "runs", "run_ends", "ingest_log"):
        assert count(lake, table) == TASKS, table
    assert query(lake, "SELECT count(DISTINCT kernel_id) FROM generations") == [(TASKS,)]


def make_importer(*bundles: Bundle, error: Exception | None = None) -> ModuleType:
    def read(*_: Any) -> Iterator[Bundle]:
        yield from bundles
        if error is not None:
            raise error

    return cast("ModuleType", SimpleNamespace(read=read, Config=lambda: None))


def make_bundle(number: int, kernel_id: str | None = None) -> Bundle:
    code = kernel(number)
    row = {
        "kernel_id": kernel_id or ids.kernel_id({"kernel.py": code}, "kernel.py"),
        "code": code,
        "path": "kernel.py",
        "entry_point": "ModelNew",
        "source": "tests",
    }
    return Bundle(bundle_id=f"b{number}", message=f"kernel {number}", tables={"kernels": [row]})


def test_a_bad_bundle_is_refused_and_the_others_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, told = tmp_path / "lake", dict[str, bool]()
    importer = make_importer(make_bundle(1), make_bundle(2, "0" * 64), make_bundle(3))
    with store.writer(str(lake), author="tests") as writer:
        with pytest.raises(RowsRejected, match="kernel_id is the hash"):
            pieces.run_import(writer, importer, None, None, told.__setitem__)
        assert told == {"kernel 1": True, "kernel 3": True}
        assert "refused kernel 2: " in caplog.text
        told.clear()
        with pytest.raises(RowsRejected, match="kernel_id is the hash"):
            pieces.run_import(writer, importer, None, None, told.__setitem__)
        assert told == {"kernel 1": False, "kernel 3": False}
    assert count(lake, "kernels") == 2
    with store.open(str(lake)) as opened:
        assert not list((opened.location.spool / "rejected").glob("*"))


@pytest.mark.slow
def test_bundles_before_a_malformed_file_are_stored(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    importer = make_importer(make_bundle(1), make_bundle(2), error=ImportFailed("line 7: no"))
    with (
        store.writer(str(lake), author="tests") as writer,
        pytest.raises(ImportFailed, match="line 7"),
    ):
        pieces.run_import(writer, importer, None, None)
    assert count(lake, "kernels") == 2
