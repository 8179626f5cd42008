"""Turns to commit a spool: a commit waits for the writers of the last ones, but not for long."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Thread

import pytest

from store.writing import commit_turns
from store.writing.commit_turns import CommitTurns
from store.writing.spool import Place, list_files

OTHER = "999999999"


def _spool_record(folder: Path, writer: str) -> Place:
    file = folder / f"{len(list_files(folder)):020d}-{writer}.open"
    file.write_bytes(b"a record")
    return Place(file=file.with_suffix(""), number=0)


def _note(folder: Path, writers: list[str]) -> None:
    turns = CommitTurns(folder)
    with turns.take():
        turns.note_commit(1, writers)


def test_a_commit_waits_for_a_writer_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_turns, "_LONGEST_WAIT_S", 60.0)
    monkeypatch.setattr(commit_turns, "_WAITED_SHARE", 1e9)
    _note(tmp_path, [str(os.getpid()), OTHER])
    own = _spool_record(tmp_path, str(os.getpid()))

    def spool_when_the_turn_is_taken() -> None:
        with open(tmp_path / "turn", "ab") as handle:
            try:
                while True:
                    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    fcntl.flock(handle, fcntl.LOCK_UN)
            except BlockingIOError:
                _spool_record(tmp_path, OTHER)

    other = Thread(target=spool_when_the_turn_is_taken)
    other.start()
    with CommitTurns(tmp_path).take(own) as snapshot:
        files = list_files(tmp_path)
    other.join()
    assert snapshot is None
    assert [file.stem.rpartition("-")[2] for file in files] == [str(os.getpid()), OTHER]


def test_a_writer_that_stays_away_delays_two_commits_at_most(tmp_path: Path) -> None:
    _note(tmp_path, [OTHER])
    own = _spool_record(tmp_path, str(os.getpid()))
    turns = CommitTurns(tmp_path)
    for number in (2, 3):
        with turns.take(own) as snapshot:
            assert snapshot is None
            turns.note_commit(number, [str(os.getpid())])
    note = (tmp_path / "snapshot").read_text()
    assert OTHER not in note


@pytest.mark.parametrize("note", ["12", "", '{"snapshot": 12}', "[]"])
def test_a_note_of_another_version_or_a_torn_one_is_no_note(tmp_path: Path, note: str) -> None:
    (tmp_path / "snapshot").write_text(note)
    gone = Place(file=tmp_path / "00000000000000000001-1", number=0)
    with CommitTurns(tmp_path).take(gone) as snapshot:
        assert snapshot is None


def test_a_record_that_another_writer_has_committed_takes_no_turn(tmp_path: Path) -> None:
    _note(tmp_path, [OTHER])
    gone = Place(file=tmp_path / f"00000000000000000001-{OTHER}", number=0)
    with CommitTurns(tmp_path).take(), CommitTurns(tmp_path).take(gone) as snapshot:
        assert snapshot == 1
