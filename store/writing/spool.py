"""The spool: files to which writers append bundles durably, and which the committer reads.

Each writer has a file of its own. A record contains the bundles of one append. The committer seals
a file by renaming it, so that its writer continues in a new one, and removes it after the commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from store import faults
from store.errors import FlywheelError, LakeUnreachable
from store.schema.catalog import Catalog
from store.writing.bundle import Bundle
from store.writing.record_format import CRC_BYTES, decode, encode

NOTHING_STORED = "Nothing is stored."
OPEN = ".open"
"""Suffix of files that a writer appends to."""
SEALED = ".bundle"
"""Suffix of files that are complete."""
GROUP_BUNDLES = 1024
GROUP_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in the spool a record is."""

    file: Path
    """Its file, without the suffix."""
    number: int
    """Its position in the file."""

    @property
    def is_waiting(self) -> bool:
        """Whether its file is in the spool."""
        # In the order in which they exist.
        return any(self.file.with_suffix(suffix).exists() for suffix in (OPEN, SEALED))


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record that was read back."""

    place: Place
    data: bytes
    bundles: list[Bundle]
    damage: str | None = None
    """Why it cannot be read; then it has no bundles."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Records that are committed in one transaction."""

    records: list[Record]
    finished: list[Path]
    """Files that have no records after these."""

    @property
    def writers(self) -> list[str]:
        """The writers of the records."""
        return sorted({name_writer(record.place.file) for record in self.records})


class Spool:
    """Appends records to this writer's file in the spool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None
        self._handle: BinaryIO | None = None
        self._records = 0
        self._turn = threading.Lock()

    def close(self) -> None:
        """Close the file, which stays for the committer."""
        if self._handle is not None:
            self._handle.close()
            self._handle = self._file = None

    def write(self, bundles: Sequence[Bundle]) -> Place:
        """Append a record of bundles; when this returns, it is on disk.

        Raises LakeUnreachable, with nothing stored, if it cannot be written.
        """
        data = encode(bundles)
        with self._turn, self._lock_file() as (file, handle):
            end = handle.seek(0, os.SEEK_END)
            with faults.at(file, LakeUnreachable, NOTHING_STORED):
                try:
                    _write_whole(handle, data)
                    os.fdatasync(handle.fileno())
                except BaseException:
                    # A record after an incomplete one could not be found.
                    with contextlib.suppress(OSError):
                        handle.truncate(end)
                    self.close()
                    raise
            place = Place(file=file.with_suffix(""), number=self._records)
            self._records += 1
        return place

    @contextmanager
    def _lock_file(self) -> Generator[tuple[Path, BinaryIO]]:
        """Hold the lock of this writer's file, which keeps the committer from sealing it."""
        while True:
            if self._file is None or self._handle is None:
                self._open()
            assert self._file is not None
            assert self._handle is not None
            descriptor = os.dup(self._handle.fileno())
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._file.exists():
                    yield self._file, self._handle
                    return
                self.close()  # the committer has sealed it
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def _open(self) -> None:
        # The names sort in order of arrival.
        self._file = self._folder / f"{time.time_ns():020d}-{os.getpid()}{OPEN}"
        with faults.at(self._folder, LakeUnreachable, NOTHING_STORED):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._handle = open(self._file, "xb", buffering=0)  # noqa: SIM115
            sync(self._folder)
        self._records = 0


def _write_whole(handle: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        # On a full disk, a write stores a part, and the next one fails.
        rest = rest[handle.write(rest) :]


def sync(path: Path) -> None:
    """Force a file, or the names of a folder's files, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_files(folder: Path) -> list[Path]:
    """Return the files that wait in a spool, in order of arrival."""
    return sorted(file for suffix in (OPEN, SEALED) for file in folder.glob(f"*{suffix}"))


def name_writer(file: Path) -> str:
    """Return the number of the process that wrote a file of a spool."""
    return file.stem.rpartition("-")[2]


def count_bundles(catalog: Catalog, folder: Path) -> int:
    """Return the number of bundles that wait in a spool."""
    records = (record for file in list_files(folder) for record in _read_file(catalog, file))
    return sum(max(1, len(record.bundles)) for record in records)


def seal_all(folder: Path) -> list[Path]:
    """Seal the files of a spool in this host's turn; return the sealed ones in order of arrival.

    Writers continue in files that are not among them.
    """
    for file in folder.glob(f"*{OPEN}"):
        _seal(file)
    return sorted(folder.glob(f"*{SEALED}"))


def read_groups(catalog: Catalog, folder: Path) -> Iterator[Group]:
    """Seal the files of a spool and yield their records in groups; call it in this host's turn.

    The caller removes the finished files of a group when it has committed the group.
    """
    records: list[Record] = []
    finished: list[Path] = []
    bundles = size = 0
    for file in seal_all(folder):
        for record in _read_file(catalog, file):
            full = bundles + len(record.bundles) > GROUP_BUNDLES
            if records and (full or size + len(record.data) > GROUP_BYTES):
                yield Group(records=records, finished=finished)
                records, finished, bundles, size = [], [], 0, 0
            records.append(record)
            bundles += len(record.bundles)
            size += len(record.data)
        finished.append(file)
    if finished:
        yield Group(records=records, finished=finished)


def _seal(file: Path) -> None:
    """Rename a file as soon as no record is being written to it."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        file.rename(file.with_suffix(SEALED))
    finally:
        os.close(descriptor)


def _read_file(catalog: Catalog, file: Path) -> Iterator[Record]:
    """Yield the records of a file, except the last one if its writer was killed while writing it.

    Nothing can be found after a damaged record, so that the rest of the file is part of it.
    """
    with open(file, "rb") as handle:
        for number in count():
            place = Place(file=file.with_suffix(""), number=number)
            start = handle.tell()
            head = handle.readline()
            try:
                length = sum(json.loads(head)["tables"].values()) + CRC_BYTES
                data = head + handle.read(length)
                if len(data) < len(head) + length:
                    return
                bundles, damage = _decode_known(catalog, data)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                handle.seek(start)
                data, bundles = handle.read(), []
                # A crash of the system may leave zeros for what was not acknowledged yet.
                if not head.endswith(b"\n") or not data.strip(b"\0"):
                    return
                damage = f"not a whole bundle: {error}"
            yield Record(place=place, data=data, bundles=bundles, damage=damage)


def _decode_known(catalog: Catalog, data: bytes) -> tuple[list[Bundle], str | None]:
    """Return the bundles of a whole record, or why the catalog does not admit them."""
    try:
        return decode(catalog, data), None
    except FlywheelError as error:
        return [], str(error)
