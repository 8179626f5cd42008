"""What an import leaves out: rows that cannot be read, by place and reason, and unread files.

An import sets a record; readers of files note in it what they read and refuse. Outside of an
import, what cannot be read is an error.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from store.errors import ImportFailed

log = logging.getLogger(__name__)

MOST_NAMED = 20
"""Rows left out that are named one by one."""
_MOST_SUFFIXES = 8
_MOST_REMEMBERED = 100_000
_LONGEST_MESSAGE = 500


@dataclass
class LeftOut:
    """The record of one import."""

    kept: int = 0
    """Rows that were read."""
    rows: int = 0
    """Rows left out."""
    first: list[ImportFailed] = field(default_factory=list[ImportFailed])
    """The errors of the first rows that cannot be read."""
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Rows left out for a reason that has no place, by reason."""
    _seen: set[str] = field(default_factory=set[str])
    """Messages, because some files are read twice."""
    files_read: set[str] = field(default_factory=set[str])
    """Real paths."""
    file_reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why a file is not read, by its real path."""

    def refuse(self, error: ImportFailed) -> None:
        """Note a row that cannot be read, once."""
        if error.message in self._seen:
            return
        if len(self._seen) < _MOST_REMEMBERED:
            self._seen.add(error.message)
        self.rows += 1
        if len(self.first) < MOST_NAMED:
            self.first.append(error)

    def count(self, reason: str) -> None:
        """Note a row that is left out for a reason that many rows share."""
        self.rows += 1
        self.reasons[reason] += 1

    def note_file(self, file: Path) -> None:
        """Note a file that is read."""
        self.files_read.add(os.path.realpath(file))

    def note_unread(self, file: Path, reason: str) -> None:
        """Note a file that an importer knows and does not read, with the reason."""
        self.file_reasons[os.path.realpath(file)] = reason

    def list_unread(self, root: Path) -> dict[str, list[str]]:
        """Return the files below a path that were not read, by reason or suffix."""
        unread: dict[str, list[str]] = {}
        for folder, folders, names in os.walk(root):
            if "catalog.sqlite" in names:  # a lake, such as the one that the import writes
                folders.clear()
                continue
            folders[:] = sorted(name for name in folders if name != ".git")
            for name in folders:
                path = os.path.join(folder, name)
                # What a link inside of the root names is read where it is.
                if os.path.islink(path) and not Path(path).resolve().is_relative_to(root.resolve()):
                    unread.setdefault("link to a folder", []).append(os.path.relpath(path, root))
            for name in sorted(names):
                path = os.path.join(folder, name)
                real = os.path.realpath(path)
                if real not in self.files_read:
                    kind = self.file_reasons.get(real) or os.path.splitext(name)[1] or "no suffix"
                    unread.setdefault(kind, []).append(os.path.relpath(path, root))
        return unread

    def report(self, importer: str, unread: dict[str, list[str]]) -> None:
        """Log which rows and files were left out, and why."""
        for error in self.first:
            message = " ".join(error.message.split())[:_LONGEST_MESSAGE]
            where, _, why = message.partition(": ")
            if not why or " is " in where:
                log.warning("left out: %s", message)
            else:
                log.warning("%s is left out: %s", where, why)
        for reason, number in self.reasons.items():
            log.warning("%d rows are left out: %s", number, reason)
        if self.rows:
            log.warning("%d of %d rows are left out", self.rows, self.rows + self.kept)
        reasons = {*self.file_reasons.values()}
        for reason in sorted(reasons & unread.keys()):
            files = unread[reason]
            log.warning("%d files are not read (%s), such as %s", len(files), reason, files[0])
        kinds = sorted(unread.keys() - reasons, key=lambda kind: -len(unread[kind]))
        if kinds:
            listed = ", ".join(
                f"{len(unread[kind])} {kind} ({unread[kind][0]})" for kind in kinds[:_MOST_SUFFIXES]
            )
            more = f", {len(kinds) - _MOST_SUFFIXES} more" if len(kinds) > _MOST_SUFFIXES else ""
            log.warning("%s has no use for these files: %s%s", importer, listed, more)


class _NoRecord(LeftOut):
    """Stands in for the record outside of an import, where nothing may be left out."""

    def refuse(self, error: ImportFailed) -> None:
        raise error


_RECORD: ContextVar[LeftOut | None] = ContextVar("left_out", default=None)


@contextmanager
def recording(record: LeftOut) -> Generator[LeftOut]:
    """Note what the block reads and leaves out in a record."""
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def get_record() -> LeftOut:
    """Return the record of the import; outside of one, `refuse` of the record raises the error."""
    return _RECORD.get() or _NoRecord()


@contextmanager
def errors() -> Generator[None]:
    """Leave out what the block cannot read, from the place of its error on."""
    try:
        yield
    except ImportFailed as error:
        get_record().refuse(error)
