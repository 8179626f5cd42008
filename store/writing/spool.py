"""The spool: files to which writers append bundles durably, and which the committer reads.

Bundles wait here whose writer does not wait for their commit, or while another writer commits.
Each writer has a file of its own. A record contains the bundles of one append. The committer seals
a file by renaming it, so that its writer continues in a new one, and removes it after the commit.
Bundles that are refused then stay in the folder `rejected/`, each with a report of the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import threading
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from store import faults
from store.errors import FlywheelError, LakeUnreachable, RowsRejected, summarize_error
from store.lake.host import rename_durably, sync, take_lock, write_durably
from store.schema.catalog import Catalog
from store.writing.bundle import Bundle, fit_schema, serialize

NOTHING_STORED = "Nothing is stored."
OPEN = ".open"
SEALED = ".bundle"
GROUP_BUNDLES = 1024
GROUP_BYTES = 256 << 20
CRC_BYTES = 4
"""Bytes of the checksum at the end of a record."""
_TURN = "turn"
_CRC = b', "crc": '
"""Precedes the checksum of a header, its last field."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in the spool a record is."""

    file: Path
    """Its file, without the suffix."""
    number: int

    @property
    def is_waiting(self) -> bool:
        """Whether its file is in the spool."""
        # In the order in which they exist.
        return any(self.file.with_suffix(suffix).exists() for suffix in (OPEN, SEALED))


@dataclass(frozen=True, kw_only=True)
class Record:
    """Bundles that one append stores."""

    place: Place | None
    """Where it was read from; None if it has not been in the spool."""
    data: bytes
    bundles: list[Bundle]
    damage: str | None = None
    """Why it cannot be read; then it has no bundles."""


class Spool:
    """Appends records to this writer's file in the spool."""

    def __init__(self, folder: Path, author: str = "a program") -> None:
        self._folder = folder
        self._author = author
        self._file: Path | None = None
        self._handle: BinaryIO | None = None
        self._records = 0
        self._one_thread = threading.Lock()

    def close(self) -> None:
        """Close the file, which stays for the committer."""
        if self._handle is not None:
            self._handle.close()
            self._handle = self._file = None

    def write(self, bundles: Sequence[Bundle]) -> Place:
        """Append a record of bundles; when this returns, it is on disk.

        Raises LakeUnreachable, with nothing stored, if it cannot be written.
        """
        with self._one_thread, self._lock_file() as (file, handle):
            data = encode(bundles, file.stem)
            end = handle.seek(0, os.SEEK_END)
            with faults.at(file, LakeUnreachable, NOTHING_STORED):
                try:
                    rest = memoryview(data)
                    while rest:
                        # On a full disk, a write stores a part, and the next one fails.
                        rest = rest[handle.write(rest) :]
                    os.fdatasync(handle.fileno())
                except BaseException:
                    with contextlib.suppress(OSError):
                        handle.truncate(end)
                    self.close()
                    raise
            place = Place(file=file.with_suffix(""), number=self._records)
            self._records += 1
        return place

    @contextmanager
    def turn(self, *, wait: bool = True) -> Generator[bool]:
        """Hold this host's turn to commit the spool, which ends with its process.

        The lake's lock comes after it. Yields whether the turn is taken: unless told to wait, not
        while another writer has it.
        """
        with faults.at(self._folder, LakeUnreachable, NOTHING_STORED):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = open(self._folder / _TURN, "ab")  # noqa: SIM115
        with handle:
            yield take_lock(handle.fileno(), self._folder / _TURN, self._author, wait=wait)

    @contextmanager
    def _lock_file(self) -> Generator[tuple[Path, BinaryIO]]:
        while True:
            if self._file is None or self._handle is None:
                # The names sort in order of arrival.
                self._file = self._folder / f"{time.time_ns():020d}-{os.getpid()}{OPEN}"
                with faults.at(self._folder, LakeUnreachable, NOTHING_STORED):
                    self._folder.mkdir(parents=True, exist_ok=True)
                    self._handle = open(self._file, "xb", buffering=0)  # noqa: SIM115
                    sync(self._folder)
                self._records = 0
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


def list_files(folder: Path) -> list[Path]:
    """Return the files that wait in a spool, in order of arrival."""
    return sorted(file for suffix in (OPEN, SEALED) for file in folder.glob(f"*{suffix}"))


def count_bundles(catalog: Catalog, folder: Path) -> int:
    """Return the number of bundles that wait in a spool."""
    records = (record for file in list_files(folder) for record in _read_file(catalog, file))
    return sum(max(1, len(record.bundles)) for record in records)


def forward(folder: Path, target: Path) -> int:
    """Move the files that wait in a spool to the spool of another lake; return how many."""
    with Spool(folder).turn():
        files = _seal_all(folder)
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            partial = (target / file.name).with_suffix(".partial")
            shutil.copyfile(file, partial)
            rename_durably(partial, target / file.name)
            file.unlink()  # a copy that a crash leaves is harmless: bundles are stored once
    return len(files)


def _seal_all(folder: Path) -> list[Path]:
    """Seal the files of a spool in this host's turn; return the sealed ones in order of arrival.

    Writers continue in files that are not among them.
    """
    for file in folder.glob(f"*{OPEN}"):
        with open(file, "rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)  # until no record is being written to it
            file.rename(file.with_suffix(SEALED))
    return sorted(folder.glob(f"*{SEALED}"))


def read_groups(
    catalog: Catalog, folder: Path, own: Sequence[Bundle] = ()
) -> Iterator[tuple[list[Record], list[Path]]]:
    """Seal the files of a spool and yield their records in groups; call it in this host's turn.

    Each group is for one transaction, and comes with the files that have no records after it.
    The caller's own bundles come last. The caller removes the finished files of a group when it
    has committed the group.
    """
    records: list[Record] = []
    finished: list[Path] = []
    bundles = size = 0
    for file in [*_seal_all(folder), None]:
        if file is not None:
            coming = _read_file(catalog, file)
        else:
            coming = iter([Record(place=None, data=b"", bundles=list(own))] if own else [])
        for record in coming:
            full = bundles + len(record.bundles) > GROUP_BUNDLES
            if records and (full or size + len(record.data) > GROUP_BYTES):
                yield records, finished
                records, finished, bundles, size = [], [], 0, 0
            records.append(record)
            bundles += len(record.bundles)
            size += len(record.data)
        if file is not None:
            finished.append(file)
    if records or finished:
        yield records, finished


def _read_file(catalog: Catalog, file: Path) -> Iterator[Record]:
    """Yield the records of a file, except the last one if its writer was killed while writing it.

    A damaged record is one of its own, if its header states its length or a header follows it.
    """
    with open(file, "rb") as handle:
        for number in count():
            place = Place(file=file.with_suffix(""), number=number)
            start = handle.tell()
            data = head = handle.readline()
            is_sure = False
            try:
                header, is_sure = _read_header(head)
                length = len(head) + sum(header["tables"].values()) + CRC_BYTES
                data += handle.read(length - len(head))
                if len(data) < length:
                    return
                record = Record(place=place, data=data, bundles=decode(catalog, data))
            except FlywheelError as error:
                record = Record(place=place, data=data, bundles=[], damage=str(error))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                handle.seek(start)
                rest = handle.read()
                # A crash of the system may leave zeros for what was not acknowledged yet.
                if not rest.strip(b"\0"):
                    return
                # A torn header; one that is whole has lost its end of line, and binary follows it.
                is_cut = not head.endswith(b"\n") and head.isascii()
                if is_cut and not re.search(_CRC + rb"\d+}", head):
                    return
                if not is_sure:
                    data = rest[: _find_header(rest, file.stem)]
                handle.seek(start + len(data))
                damage = f"not a whole bundle: {error}"
                record = Record(place=place, data=data, bundles=[], damage=damage)
            yield record


def _read_header(line: bytes) -> tuple[dict[str, Any], bool]:
    """Return the header of a record, and whether its own checksum says that it is whole."""
    content, separator, crc = line.rpartition(_CRC)
    if separator and int(crc.removesuffix(b"}\n")) != zlib.crc32(content):
        raise ValueError("the checksum of its header differs")
    return json.loads(line), bool(separator)


def _find_header(data: bytes, name: str) -> int | None:
    """Return where the next whole header of a file's records begins in the rest of the file."""
    # Texts in rows cannot pass for a header: who writes them does not know the name of the file.
    start, place = json.dumps({"spool": name}).encode()[:-1] + b", ", 0
    while (place := data.find(start, place + 1)) >= 0:
        try:
            if _read_header(data[place : data.index(b"\n", place) + 1])[1]:
                return place
        except ValueError:
            continue
    return None


def encode(bundles: Sequence[Bundle], name: str) -> bytes:
    """Return bundles as bytes: a line of JSON, one Arrow stream for each table, and a checksum.

    The line states the file's name, the bundles, how many rows of each table they have, the length
    of each stream in bytes, and the CRC-32 of the line before this field. A stream contains the
    rows of all bundles. The last four bytes are the CRC-32 of all before them.
    """
    rows: dict[str, list[pa.Table]] = {}
    for one in bundles:
        for table, part in one.tables.items():
            rows.setdefault(table, []).append(part)
    parts = {
        table: serialize(pa.concat_tables(some).combine_chunks()) for table, some in rows.items()
    }
    header = {
        "spool": name,
        "bundles": [
            {
                "bundle_id": one.bundle_id,
                "message": one.message,
                "author": one.author,
                "rows": {table: part.num_rows for table, part in one.tables.items()},
            }
            for one in bundles
        ],
        "tables": {table: len(part) for table, part in parts.items()},
    }
    content = json.dumps(header).encode()[:-1]
    line = b"%b%b%d}\n" % (content, _CRC, zlib.crc32(content))
    whole = b"".join([line, *parts.values()])
    return whole + zlib.crc32(whole).to_bytes(CRC_BYTES)


def decode(catalog: Catalog, data: bytes) -> list[Bundle]:
    """Read bundles back and verify their checksum.

    Raises FlywheelError if they name tables or columns that the catalog lacks, ValueError if they
    are incomplete.
    """
    if zlib.crc32(data[:-CRC_BYTES]).to_bytes(CRC_BYTES) != data[-CRC_BYTES:]:
        raise ValueError("the checksum differs")
    try:
        place = data.index(b"\n") + 1
        header = json.loads(data[:place])
        tables: dict[str, pa.Table] = {}
        for name, length in header["tables"].items():
            rows = pa.ipc.open_stream(data[place : place + length]).read_all()
            # Rows that were checked when they were spooled get the columns added since then.
            tables[name] = fit_schema(catalog.table(name), rows)
            place += length
        taken = dict.fromkeys(tables, 0)
        bundles: list[Bundle] = []
        for stated in header["bundles"]:
            own: dict[str, pa.Table] = {}
            for name, count_rows in stated["rows"].items():
                own[name] = tables[name].slice(taken[name], count_rows)
                taken[name] += count_rows
                if own[name].num_rows != count_rows:
                    raise ValueError(f"rows of {name} are missing")
            words = {word: str(stated[word]) for word in ("bundle_id", "message", "author")}
            bundles.append(Bundle(tables=own, **words))
    except FlywheelError:
        raise
    except Exception as error:  # damaged bytes end in exceptions of every kind
        raise ValueError(repr(error)) from error
    return bundles


log = logging.getLogger(__name__)
NEXT_STEP = (
    "`store rejected` lists such bundles; --retry stores them after a fix, --discard deletes them."
)
_FOLDER = "rejected"
_MODE = 0o666
"""As files of the spool: a writer takes back what another user's commit rejected."""


def locate_folder(spool: Path) -> Path:
    """Return the folder of a spool's rejected bundles."""
    return spool / _FOLDER


@dataclass(frozen=True, kw_only=True)
class RejectedBundle:
    """A bundle that was refused when it was committed."""

    name: str
    """Name of its files, without the suffix."""
    kept_at: datetime
    author: str | None
    """Who wrote it; None where it cannot be read."""
    message: str | None
    reason: str


def list_rejected(catalog: Catalog, spool: Path) -> list[RejectedBundle]:
    """Return the rejected bundles of a spool in the order in which they were spooled."""
    kept: list[RejectedBundle] = []
    for report in sorted(locate_folder(spool).glob("*.json")):
        try:
            reason = str(json.loads(report.read_text("utf-8"))["reason"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{report.name} cannot be read: {summarize_error(error)}"
        bundle = _read_bundle(catalog, report)
        if bundle is None:
            file = report.with_suffix(SEALED)
            what = "is damaged" if file.exists() else "is missing"
            reason = f"{file.name} {what}, so it cannot be stored; before: {reason}"
        kept.append(
            RejectedBundle(
                name=report.stem,
                kept_at=datetime.fromtimestamp(report.stat().st_mtime, UTC),
                author=None if bundle is None else bundle.author,
                message=None if bundle is None else bundle.message,
                reason=reason,
            )
        )
    return kept


def discard(spool: Path, name: str) -> None:
    """Delete a rejected bundle."""
    report = locate_folder(spool) / f"{name}.json"
    report.with_suffix(SEALED).unlink(missing_ok=True)
    report.unlink()


def put_back(catalog: Catalog, spool: Path, name: str) -> Place | None:
    """Move a rejected bundle into the spool, for the next commit; return its place there.

    One that cannot be read stays where it is, and the place is None.
    """
    report = locate_folder(spool) / f"{name}.json"
    if _read_bundle(catalog, report) is None:
        return None
    place = Place(file=spool / f"{time.time_ns():020d}-{os.getpid()}", number=0)
    report.with_suffix(SEALED).rename(place.file.with_suffix(SEALED))
    sync(spool)
    report.unlink()
    return place


def is_kept(place: Place) -> bool:
    """Whether the only bundle of a record has been rejected."""
    return locate_file(place).exists()


def _read_bundle(catalog: Catalog, report: Path) -> Bundle | None:
    try:
        (bundle,) = decode(catalog, report.with_suffix(SEALED).read_bytes())
    except (OSError, ValueError, FlywheelError):
        return None
    return bundle


def keep_record(record: Record) -> None:
    """Keep the bytes of a damaged record, and warn of it."""
    assert record.place is not None
    file = locate_file(record.place)
    log.warning(
        "a record of the spool is damaged and is kept as %s: %s\n%s",
        file,
        record.damage,
        "Its rows are not stored: run again what wrote them. `store rejected` lists such records.",
    )
    _keep(file, record.data, {"reason": record.damage})


def keep_bundle(record: Record, position: int, error: FlywheelError) -> None:
    """Keep one bundle of a record, and the rule that it breaks."""
    report: dict[str, Any] = {"reason": str(error)}
    if isinstance(error, RowsRejected):
        report["rows"] = [error.table, error.rule, error.count, error.examples]
    assert record.place is not None
    one, file = record.bundles[position], locate_file(record.place, position)
    log.warning("%r is not stored and is kept as %s: %s\n%s", one.message, file, error, NEXT_STEP)
    _keep(file, encode([one], file.stem), report)


def take_back(place: Place, bundles: int) -> list[FlywheelError]:
    """Return why another writer rejected bundles of a record, and delete what it kept of them.

    The caller still has the rows, so that only silent rejections are kept.
    """
    errors: list[FlywheelError] = []
    for position in range(bundles):
        report = locate_file(place, position).with_suffix(".json")
        if report.exists():
            stated = json.loads(report.read_text())
            rows = stated.get("rows")
            errors.append(RowsRejected(*rows) if rows else FlywheelError(stated["reason"]))
            discard(place.file.parent, report.stem)
    return errors


def locate_file(place: Place, position: int = 0) -> Path:
    """Return the file of a rejected bundle of a record."""
    name = f"{place.file.name}-{place.number:06d}-{position:04d}{SEALED}"
    return locate_folder(place.file.parent) / name


def _keep(file: Path, data: bytes, report: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    sync(file.parent.parent)  # the name of the folder
    # Write the report first: a bundle that leaves the spool without one counts as stored.
    write_durably(file.with_suffix(".json"), json.dumps(report).encode(), mode=_MODE)
    write_durably(file, data, mode=_MODE)
