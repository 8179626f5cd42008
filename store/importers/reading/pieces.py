"""Runs importers, whose sources are read in pieces: each piece is a bundle, stored whole and once.

A file is read twice. The first pass builds the rows of every piece and drops them, so that an error
at the end of the file is found before anything is stored. The second pass yields the pieces. Memory
holds one piece at a time. An interrupted import skips the pieces that are stored.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import store
from store import faults
from store.commandline import echo
from store.commandline.escape import escape_terminal
from store.commandline.members import Common, Member
from store.dossier.pages import find_task
from store.errors import ImportFailed, RowsRejected
from store.foreign import text_files
from store.foreign.text_files import Fields, measure
from store.ids import content_id
from store.importers.reading import sources
from store.importers.reading.rows import BundleRows, config_json, decide_splits
from store.writing.bundle import Bundle

log = logging.getLogger(__name__)

PIECE_RECORDS = 1_000
PIECE_BYTES = 16 << 20
"""A piece ends when it has this many records, or bytes in the file or in texts."""
MAX_DOCUMENT_BYTES = 64 << 20
"""Largest JSON file that is parsed as a whole."""
_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Options of an importer: where its rows come from."""

    source_revision: str | None = None
    """Commit or revision of the source."""
    license: str | None = None
    """SPDX identifier of the license that the source was released under."""


@dataclass(frozen=True, kw_only=True)
class TaskOrigin(Origin):
    """Options of an importer of kernels for one task."""

    task: str | None = None
    """Task of the kernels: its name, or the first 6 characters of its id."""


@dataclass(frozen=True)
class Import:
    """What the bundles of one import share."""

    lake: store.Lake
    """Pinned reader."""
    name: str
    """Name of the importer."""
    config: Any
    """Its options; part of the identity of every bundle."""
    _: KW_ONLY
    version: int = 1
    """Version of the importer; part of the identity as well."""
    source: str = ""
    """Repository that the rows come from (default: the importer)."""
    source_revision: str | None = None
    """Its revision (default: that of the options)."""
    license: str | None = None
    """Its license (default: that of the options)."""
    namespace: str = ""
    """Name from which ids follow, if it is another one."""

    @cached_property
    def _stored(self) -> set[str]:
        """The bundles of this importer that the lake has. A run of a bundle has its id."""
        rows = self.lake.run(
            "SELECT bundle_id FROM ingest_log "
            "SEMI JOIN (FROM runs WHERE kind = 'import' AND name = $1) AS own "
            "ON ingest_log.bundle_id = own.run_id",
            [self.name],
        ).rows()
        return {str(row["bundle_id"]) for row in rows}

    @cached_property
    def task_id(self) -> str | None:
        """The task that the option --task names; raises UnknownName. None without the option."""
        named = getattr(self.config, "task", None)
        return None if named is None else find_task(self.lake, named)["task_id"]

    def identify(self, content: str) -> str:
        """Return the id of a bundle, which follows from its content and the options."""
        return content_id("import", self.name, str(self.version), content, config_json(self.config))

    def begin(self, identity: str = "") -> BundleRows:
        """Return a builder of the rows of a bundle; without an identity they are only checked."""
        config = self.config
        return BundleRows(
            source=self.source or self.name,
            source_revision=self.source_revision or getattr(config, "source_revision", None),
            license=self.license or getattr(config, "license", None),
            importer=self.name,
            namespace=self.namespace or self.name,
            run_id=identity,
        )

    def make_bundle(
        self,
        content: str,
        message: str,
        what: str,
        add: Callable[[BundleRows], str | None],
        identity: str | None = None,
    ) -> Bundle:
        """Return a bundle with the rows that `add` adds, or without rows if the lake has it.

        Evaluations and analyses that an earlier import has stored are left out.

        Args:
            content: What identifies the bundle, with the options and the version.
            message: A few words about its rows.
            what: Source of its run.
            add: Adds its rows; may return more words for the message.
            identity: Id of the bundle, if it follows from something else.
        """
        identity = identity or self.identify(content)
        if identity in self._stored:
            return Bundle(bundle_id=identity, message=message)
        rows = self.begin(identity)
        words = add(rows)
        rows.leave_out_stored(self.lake)
        message = message if words is None else f"{message}: {words}"
        return rows.make_bundle(message, config=self.config, what=what)

    def read(self, files: Iterable[SourceFile], start: Callable[[], Add]) -> Iterator[Bundle]:
        """Yield the bundles of files in order.

        Args:
            start: Returns a new function that adds records, called once per pass over a file.

        Raises ImportFailed if a record is malformed; nothing of its file is stored.
        """
        for file in files:
            splits: list[dict[str, str]] = []
            if self.identify(f"{file.name} 0 {file.digest}") not in self._stored:
                if file.size > 100 * _MB:
                    log.info("checking %s (%d MB)", file.name, file.size // _MB)
                splits = self._check(file, start)
            add = start()
            first = done = 0
            for number, records in enumerate(_split(file.open())):
                done += sum(record.size for record in records)
                share = f", {min(done / file.size, 1):.0%}" if file.size and done else ""
                last = first + len(records) - 1
                message = f"{self.name} {file.name}: records {first} to {last}{share}"
                first = last + 1
                identity = self.identify(f"{file.name} {number} {file.digest}")
                # Later records may continue what a stored piece began, so it is read all the same.
                rows = self.begin(identity)
                for record in records:
                    add(rows, record)
                if identity in self._stored:
                    yield Bundle(bundle_id=identity, message=message)
                    continue
                for split in splits if number == 0 else ():
                    rows.add("splits", (split["suite"], split["family"]), split)
                rows.leave_out_stored(self.lake)
                yield rows.make_bundle(message, config=self.config, what=f"{file.name} {number}")

    def _check(self, file: SourceFile, start: Callable[[], Add]) -> list[dict[str, str]]:
        """Build all rows of a file and drop them; return the splits of the families of its tasks.

        Splits are decided over the whole file, so they go into its first piece.
        """
        families: dict[str, dict[str, str]] = {}
        add = start()
        for records in _split(file.open()):
            rows = self.begin()
            for record in records:
                add(rows, record)
            for label in rows.tables.get("task_labels", {}).values():
                families.setdefault(label["suite"], {})[label["task_id"]] = label["family"]
        return [
            row
            for suite, by_task in families.items()
            for row in decide_splits(suite, by_task.values(), self.lake)
        ]


Add = Callable[[BundleRows, Fields], object]
"""Adds the rows of one record to those of its bundle."""


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


def open_json_lines(file: Path, root: Path) -> SourceFile:
    """Return a JSON Lines file, which may be compressed (.jsonl.gz)."""
    sources.resolve_regular(file, root)

    def records() -> Iterator[Fields]:
        for values, where, size in text_files.read_lines(file):
            yield Fields(values=values, where=where, size=size)

    return SourceFile(
        name=name_inside(file, root), digest=hash_file(file), size=file.stat().st_size, open=records
    )


def name_columns(required: str, optional: str) -> dict[str, bool]:
    """Return the columns of two lists of words, and whether each is required."""
    return dict.fromkeys(required.split(), True) | dict.fromkeys(optional.split(), False)


def open_parquet(file: Path, root: Path, columns: dict[str, bool]) -> SourceFile:
    """Return a Parquet file whose size `parquet.find` has checked; True marks needed columns."""

    def records() -> Iterator[Fields]:
        number = 0
        for rows in sources.read_batches(file, columns, PIECE_RECORDS):
            for row in rows:
                where = f"{file.name}, row {number}"
                yield Fields(values=row, where=where)
                number += 1

    return SourceFile(name=name_inside(file, root), digest=hash_file(file), size=0, open=records)


def open_documents(
    name: str | None, files: Sequence[Path], root: Path, parse: Callable[[Path], Iterable[Fields]]
) -> SourceFile:
    """Return small files that belong together, each parsed as a whole; None: name of the first."""
    hashes: list[tuple[str, bytes]] = []
    size = 0
    for file in files:
        sources.resolve_regular(file, root)
        size += file.stat().st_size
        hashes.append((name_inside(file, root), hash_file(file).encode()))

    def records() -> Iterator[Fields]:
        for file in files:
            yield from parse(file)

    name = name_inside(files[0], root) if name is None else name
    return SourceFile(name=name, digest=sources.digest(hashes), size=size, open=records)


def parse_document(file: Path, root: Path) -> Fields:
    """Return the object of a JSON file of at most MAX_DOCUMENT_BYTES.

    Raises ImportFailed if the file is larger or holds anything else.
    """
    data = sources.read_bytes(file, root, MAX_DOCUMENT_BYTES)
    values = text_files.parse_object(sources.decode(data, file), str(file))
    return Fields(values=values, where=str(file), size=len(data))


def hash_file(file: Path) -> str:
    """Return the sha256 of a file, read in parts."""
    with faults.at(file, ImportFailed), open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def name_inside(file: Path, root: Path) -> str:
    """Return the path of a file inside its source."""
    return file.relative_to(root).as_posix() if file != root else file.name


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


GROUP_BUNDLES = 100
GROUP_BYTES = 16 << 20
"""Most bundles, and about the most bytes of their texts, that are committed together."""

Progress: TypeAlias = Callable[[str, bool], None]
"""Called for each bundle, once it is committed, with its message and whether this import did it."""


class Importer(Protocol):
    """What a module of store/importers defines, beside `Config` with its options.

    A module that needs no source defines `TAKES_PATH = False`, and refuses a path in `read`.
    """

    def read(self, path: Path | None, config: Any, lake: store.Lake, /) -> Iterator[Bundle]:
        """Yield one bundle per file of the source, in a stable order.

        `lake` is pinned to the snapshot before the import. The id of a bundle is a hash of the
        file's bytes, the importer, its version and the options, so that a repeated import of the
        same bundle is recognized.

        Raises:
            ImportFailed: the source is malformed; the message names the file and the place in it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """Result of an import."""

    files: int
    """Bundles stored by this import."""
    skipped: int
    """Bundles that the lake had before."""
    rows: dict[str, int]
    """Table name to number of rows added; rows that the lake had before do not count."""
    snapshot: int
    """Newest snapshot after the import."""


def run_import(
    writer: store.Writer,
    module: Importer | ModuleType,
    path: Path | None,
    config: Any,
    progress: Progress | None = None,
) -> ImportSummary:
    """Read a source with one importer and store its bundles, each completely or not at all.

    Bundles are committed in groups. An interrupted import resumes after the last committed group
    when it is run again. A bundle whose rows break a rule is refused with a warning, and the others
    are stored.

    Raises:
        ImportFailed: the path does not exist, has no file of the format, or a file is malformed;
            bundles before that file stay stored.
        RowsRejected: a bundle was refused, the first one if there are several. The others are
            stored.
    """
    if path is not None and getattr(module, "TAKES_PATH", True) and not path.exists():
        near = next(parent for parent in path.absolute().parents if parent.exists())
        raise ImportFailed(f"{path} does not exist", f"The part of it that exists is {near}.")
    stored: list[str] = []
    skipped = 0
    refused: dict[str, RowsRejected] = {}
    with writer.reader() as lake:
        for group in _collect_groups(module.read(path, config, lake)):
            # The importer's reader is pinned: it does not see the bundles of this import.
            known = writer.find_committed([one.bundle_id for one in group])
            fresh = {one.bundle_id: one for one in group if one.bundle_id not in known}
            refused |= _store_group(writer, list(fresh.values()))
            for one in group:
                is_stored = fresh.pop(one.bundle_id, None) is not None
                if one.bundle_id in refused:
                    continue
                if is_stored:
                    stored.append(one.bundle_id)
                else:
                    skipped += 1
                if progress is not None:
                    progress(one.message, is_stored)
    if refused:
        raise next(iter(refused.values()))
    counts: Counter[str] = Counter()
    for bundle_counts in writer.find_committed(stored).values():
        counts.update(bundle_counts)
    added = {table: count for table, count in counts.items() if count}
    snapshot = writer.find_newest()
    return ImportSummary(files=len(stored), skipped=skipped, rows=added, snapshot=snapshot)


def run_command(
    importer: Member,
    module: ModuleType,
    path: Path | None,
    config: Any,
    tag: str | None,
    common: Common,
) -> None:
    """Run `store import NAME`: show progress on a terminal, then print what was added."""
    from rich.text import Text

    import store
    from store.upkeep import history

    if tag is not None:
        history.require_tag_name(tag)
    console = echo.open_console(stderr=True)
    with (
        store.writer(common.lake, author=f"store import {importer.name}") as writer,
        console.status(Text(escape_terminal(f"reading {path or importer.name}"))) as status,
    ):

        def progress(message: str, fresh: bool) -> None:
            done = "stored" if fresh else "there already"
            status.update(Text(escape_terminal(f"{message}: {done}")))

        summary = run_import(writer, module, path, config, progress)
        if tag is not None:
            history.add_tag(writer, tag, summary.snapshot, f"store import {importer.name}")
    echo.print_result(summarize(summary))


def summarize(summary: ImportSummary) -> str:
    """Return the result of an import in one line.

    >>> summarize(ImportSummary(files=1, skipped=2, rows={"tasks": 3}, snapshot=9))
    'tasks +3 (2 files there already) → snapshot 9'
    """
    added = ", ".join(f"{table} +{count}" for table, count in summary.rows.items())
    files = f"{summary.skipped} file{'s' * (summary.skipped != 1)} there already"
    skipped = f" ({files})" if summary.skipped else ""
    return f"{added or 'nothing new'}{skipped} → snapshot {summary.snapshot}"


def _collect_groups(bundles: Iterator[Bundle]) -> Iterator[list[Bundle]]:
    """Yield bundles in groups; before an error of the importer, what came before it."""
    group: list[Bundle] = []
    total = 0
    try:
        for one in bundles:
            size = _measure_texts(one)
            # A large bundle is a group of its own, because only `load` reads it part by part.
            if group and (len(group) >= GROUP_BUNDLES or total + size > GROUP_BYTES):
                yield group
                group, total = [], 0
            group.append(one)
            total += size
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _measure_texts(bundle: Bundle) -> int:
    return sum(
        measure(rows) if isinstance(rows, list) else rows.nbytes for rows in bundle.tables.values()
    )


def _store_group(writer: store.Writer, bundles: list[Bundle]) -> dict[str, RowsRejected]:
    if len(bundles) > 1 or (bundles and _measure_texts(bundles[0]) <= GROUP_BYTES):
        try:
            writer.append_all(bundles)
            return {}
        except RowsRejected:
            pass  # the loop below skips what is stored, and finds the error of each that is not
    refused: dict[str, RowsRejected] = {}
    for one in bundles:
        try:
            writer.load(one.tables, one.message, bundle_id=one.bundle_id)
        except RowsRejected as error:
            log.warning("refused %s: %s", one.message, error.message)
            refused[one.bundle_id] = error
    return refused
