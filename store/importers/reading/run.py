"""Runs an importer: it yields bundles, and each bundle is stored whole and only once."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast

import store
from store.commandline import echo
from store.commandline.escape import escape_terminal
from store.commandline.members import Common, Member
from store.errors import ImportFailed, RowsRejected
from store.foreign.fields import measure
from store.lake.reader import Lake
from store.writing.bundle import Bundle

log = logging.getLogger(__name__)

GROUP_BUNDLES = 100
GROUP_BYTES = 16 << 20
"""Most bundles, and about the most bytes of their texts, that are committed together."""

Progress: TypeAlias = Callable[[str, bool], None]
"""Called for each bundle, once it is committed, with its message and whether this import did it."""


class Importer(Protocol):
    """What a module of store/importers defines, beside `Config` with its options.

    A module that needs no source defines `TAKES_PATH = False`, and refuses a path in `read`.
    """

    def read(self, path: Path | None, config: Any, lake: Lake, /) -> Iterator[Bundle]:
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
            with writer.reader() as newest:
                rows = newest.run(
                    "SELECT bundle_id FROM ingest_log WHERE bundle_id IN (SELECT unnest($1))",
                    [[one.bundle_id for one in group]],
                ).rows()
            known = {row["bundle_id"] for row in rows}
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
    with writer.reader() as lake:
        for row in lake.run(
            "SELECT row_counts FROM ingest_log WHERE bundle_id IN (SELECT unnest($1))", [stored]
        ).rows():
            counts.update(cast("dict[str, int]", json.loads(row["row_counts"])))
        added = {table: count for table, count in counts.items() if count}
        return ImportSummary(files=len(stored), skipped=skipped, rows=added, snapshot=lake.snapshot)


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
            size = sum(
                measure(rows) if isinstance(rows, list) else rows.nbytes
                for rows in one.tables.values()
            )
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


def _store_group(writer: store.Writer, bundles: list[Bundle]) -> dict[str, RowsRejected]:
    if len(bundles) > 1:
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
