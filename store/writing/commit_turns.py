"""Turns of a host's writers to commit its spool, and what a commit notes for the next one."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from store import faults
from store.errors import LakeUnreachable
from store.lake.host.lock_holder import NOTE_AFTER_S, describe_holder, write_holder
from store.writing.spool import NOTHING_STORED, Place, list_files, name_writer, seal_all, sync

log = logging.getLogger(__name__)
_TURN = "turn"
_NOTE = "snapshot"
_POLL_S = 0.005
_WAITED_SHARE = 0.5
_LONGEST_WAIT_S = 0.2
"""A commit waits for other writers no longer than this, or than a share of the last commit."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """What the last commit leaves for the next one."""

    snapshot: int
    """A snapshot that contains all records which have left the spool."""
    writers: list[str]
    before: list[str]
    """The writers of the commit before."""
    seconds: float
    """How long it took."""


class CommitTurns:
    """The turns to commit one spool, which its writers take one after another."""

    def __init__(self, folder: Path, author: str = "a program") -> None:
        self._folder = folder
        self._author = author
        self._began_s = 0.0
        """When this process took its last turn."""

    @contextmanager
    def take(self, until: Place | None = None) -> Generator[int | None]:
        """Hold this host's turn to commit the spool, and yield None. The lake's lock comes after.

        If another writer commits the record `until` first, yield a snapshot that contains it,
        without holding anything. The turn ends with its process, even if that is killed.
        """
        file = self._folder / _TURN
        with faults.at(self._folder, LakeUnreachable, NOTHING_STORED):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = open(file, "ab")  # noqa: SIM115
        note_at = time.monotonic() + NOTE_AFTER_S
        with handle:
            while (snapshot := self._find_snapshot(until)) is None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > note_at:
                        log.info("waiting for %s", describe_holder(file))
                        note_at = math.inf
                    time.sleep(_POLL_S)
                    continue
                write_holder(handle.fileno(), self._author)
                snapshot = self._find_snapshot(until)
                break
            if snapshot is None and until is not None:
                self._wait_for_others()
            self._began_s = time.monotonic()
            yield snapshot

    def _wait_for_others(self) -> None:
        """Wait a moment for the writers of the last two commits, for one commit of them all.

        Without it, the writers of a commit and those that spool during it would take turns, in
        groups half as large.
        """
        note = self._read_note()
        if note is None:
            return
        missing = {*note.writers, *note.before}
        until = time.monotonic() + min(_WAITED_SHARE * note.seconds, _LONGEST_WAIT_S)
        while time.monotonic() < until:
            filled = (file for file in list_files(self._folder) if file.stat().st_size)
            missing -= {name_writer(file) for file in filled}
            if not missing:
                return
            time.sleep(_POLL_S)

    def note_commit(self, snapshot: int, writers: list[str]) -> None:
        """Note a commit before its records leave the spool."""
        last = self._read_note()
        before = [] if last is None else last.writers
        seconds = time.monotonic() - self._began_s
        note = Note(snapshot=snapshot, writers=writers, before=before, seconds=seconds)
        file = self._folder / _NOTE
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(note)))
        partial.replace(file)

    def forget_commits(self) -> None:
        """Forget the last commit before records leave the spool that are not committed."""
        (self._folder / _NOTE).unlink(missing_ok=True)

    def _read_note(self) -> Note | None:
        try:
            return Note(**json.loads((self._folder / _NOTE).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # or that of another version, or one that a crash of the host left

    def _find_snapshot(self, place: Place | None) -> int | None:
        """Return a snapshot that contains a record, or None where it waits or that is unknown."""
        if place is None or place.is_waiting:
            return None
        note = self._read_note()
        return None if note is None else note.snapshot


def forward(folder: Path, target: Path) -> int:
    """Move the files that wait in a spool to the spool of another lake; return how many."""
    turns = CommitTurns(folder)
    with turns.take():
        turns.forget_commits()
        files = seal_all(folder)
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            partial = (target / file.name).with_suffix(".partial")
            shutil.copyfile(file, partial)
            sync(partial)
            partial.replace(target / file.name)
            sync(target)
            file.unlink()  # a copy that a crash leaves is harmless: bundles are stored once
    return len(files)
