"""Reads large sources in pieces: each piece is one bundle, and a malformed file leaves nothing.

A file is read twice. The first pass builds the rows of every piece and drops them, so that an error
at the end of the file is found before anything is stored. The second pass yields the pieces. Memory
holds one piece at a time. An interrupted import skips the pieces that are stored.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import faults
from store.errors import ImportFailed
from store.foreign import json_text
from store.foreign.fields import Fields, measure
from store.importers.reading import parquet, sources
from store.importers.reading.rows import BundleRows, decide_splits
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

log = logging.getLogger(__name__)

PIECE_RECORDS = 1_000
PIECE_BYTES = 16 << 20
"""A piece ends when it has this many records, or bytes in the file or in texts."""
MAX_DOCUMENT_BYTES = 64 << 20
"""Largest JSON file that is parsed as a whole."""
_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file, or several small ones that belong together."""

    name: str
    """Name in messages; part of the identity."""
    digest: str
    """Hash of the content."""
    size: int
    """Bytes."""
    open: Callable[[], Iterator[Fields]]
    """Reads the records from the start."""


Add = Callable[[BundleRows, str, Fields], None]
"""Adds the rows of one record. Takes the bundle's rows, the run's id and the record."""


def read_pieces(
    lake: store.Lake,
    files: Iterable[SourceFile],
    *,
    importer: str,
    version: int,
    config: Any,
    origin: BundleRows,
    start: Callable[[], Add],
) -> Iterator[Bundle]:
    """Yield the bundles of files in order.

    Args:
        lake: Pinned reader.
        files: What to read.
        importer: Name of the importer.
        version: Its version; part of the identity of every bundle.
        config: Its options; part of the identity as well.
        origin: Source, revision and license of all rows; its tables are not used.
        start: Returns a new function that adds records, called once per pass over a file.

    Raises:
        ImportFailed: a record is malformed; nothing of its file is stored.
    """
    for file in files:

        def identify(number: int, file: SourceFile = file) -> str:
            content = f"{file.name} {number} {file.digest}"
            return sources.bundle_id(importer, version, content, config)

        splits: list[dict[str, str]] = []
        if not sources.is_stored(lake, identify(0)):
            if file.size > 100 * _MB:
                log.info("checking %s (%d MB)", file.name, file.size // _MB)
            splits = _check(file, origin, start, lake)
        add = start()
        first = done = 0
        for number, records in enumerate(_split(file.open())):
            identity = identify(number)
            done += sum(record.size for record in records)
            share = f", {min(done / file.size, 1):.0%}" if file.size and done else ""
            last = first + len(records) - 1
            message = f"{importer} {file.name}: records {first} to {last}{share}"
            first = last + 1
            gathered = _begin(origin)
            for record in records:
                add(gathered, identity, record)
            if sources.is_stored(lake, identity):
                yield Bundle(bundle_id=identity, message=message)
                continue
            for split in splits if number == 0 else ():
                gathered.add("splits", (split["suite"], split["family"]), split)
            gathered.leave_out_stored(lake)
            yield gathered.make_bundle(
                identity, message, importer=importer, config=config, what=f"{file.name} {number}"
            )


def open_json_lines(file: Path, root: Path) -> SourceFile:
    """Return a JSON Lines file, which may be compressed (.jsonl.gz)."""
    check_regular(file, root)

    def records() -> Iterator[Fields]:
        for values, where, size in json_text.read_lines(file):
            yield Fields(values=values, where=where, size=size)

    return SourceFile(
        name=name_inside(file, root), digest=hash_file(file), size=file.stat().st_size, open=records
    )


def open_parquet(file: Path, root: Path, columns: dict[str, bool]) -> SourceFile:
    """Return a Parquet file whose size `parquet.find` has checked; True marks needed columns."""

    def records() -> Iterator[Fields]:
        number = 0
        for rows in parquet.read_batches(file, columns, PIECE_RECORDS):
            for row in rows:
                where = f"{file.name}, row {number}"
                yield Fields(values=row, where=where)
                number += 1

    return SourceFile(name=name_inside(file, root), digest=hash_file(file), size=0, open=records)


def open_documents(
    name: str, files: Sequence[Path], root: Path, parse: Callable[[Path], Iterable[Fields]]
) -> SourceFile:
    """Return small files that belong together, each parsed as a whole."""
    hashes: list[tuple[str, bytes]] = []
    size = 0
    for file in files:
        check_regular(file, root)
        size += file.stat().st_size
        hashes.append((name_inside(file, root), hash_file(file).encode()))

    def records() -> Iterator[Fields]:
        for file in files:
            yield from parse(file)

    return SourceFile(name=name, digest=sources.digest(hashes), size=size, open=records)


def parse_document(file: Path, root: Path) -> Fields:
    """Return the object of a JSON file of at most MAX_DOCUMENT_BYTES.

    Raises ImportFailed if the file is larger or holds anything else.
    """
    data = sources.read_bytes(file, root, MAX_DOCUMENT_BYTES)
    value = json_text.parse(sources.decode(data, file), str(file))
    if not isinstance(value, dict):
        raise ImportFailed(
            f"{file}: an object is expected, not {type(value).__name__}", json_text.NOTHING_STORED
        )
    return Fields(values=value, where=str(file), size=len(data))


def check_regular(file: Path, root: Path) -> None:
    """Raise ImportFailed unless a path is a regular file inside `root`."""
    folder = (root if root.is_dir() else root.parent).resolve()
    target = file.resolve()
    if not target.is_relative_to(folder):
        raise ImportFailed(
            f"{file} is a link to {target}, outside of {root}",
            "Copy the file into the folder if it belongs there.",
        )
    if not target.is_file():
        raise ImportFailed(f"{file} is not a regular file")


def hash_file(file: Path) -> str:
    """Return the sha256 of a file, read in parts."""
    with faults.at(file, ImportFailed), open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def name_inside(file: Path, root: Path) -> str:
    """Return the path of a file inside its source."""
    return file.relative_to(root).as_posix() if file != root else file.name


def _check(
    file: SourceFile, origin: BundleRows, start: Callable[[], Add], lake: store.Lake
) -> list[dict[str, str]]:
    """Build all rows of a file and drop them; return the splits of the families of its tasks.

    Splits are decided over the whole file, so they go into its first piece.
    """
    families: dict[str, dict[str, str]] = {}
    add = start()
    for records in _split(file.open()):
        gathered = _begin(origin)
        for record in records:
            add(gathered, "", record)
        for label in gathered.tables.get("task_labels", {}).values():
            families.setdefault(label["suite"], {})[label["task_id"]] = label["family"]
    return [
        row
        for suite, by_task in families.items()
        for row in decide_splits(suite, by_task.values(), lake)
    ]


def _begin(origin: BundleRows) -> BundleRows:
    return BundleRows(
        source=origin.source, source_revision=origin.source_revision, license=origin.license
    )


def _split(records: Iterable[Fields]) -> Iterator[list[Fields]]:
    piece: list[Fields] = []
    size = 0
    for record in records:
        piece.append(record)
        size += max(record.size, measure(record.values))
        if len(piece) >= PIECE_RECORDS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
