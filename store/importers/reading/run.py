"""Runs an importer: it yields bundles, and each bundle is stored whole and only once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from store.commandline import echo
from store.commandline.escape import escape_terminal
from store.errors import ImportFailed
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    from types import ModuleType

    import store
    from store.commandline.members import Common, Member
    from store.lake.reader import Lake

Progress: TypeAlias = Callable[[str, bool], None]
"""Called after each bundle with its message and whether this import stored it."""


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
    """Read a source with one importer and store each of its bundles in a transaction of its own.

    An interrupted import resumes where it stopped when it is run again.

    Raises:
        ImportFailed: the path does not exist, has no file of the format, or a file is malformed;
            bundles before that file stay stored.
        RowsRejected: rows break a rule of the catalog; nothing of their bundle is stored.
    """
    if path is not None and getattr(module, "TAKES_PATH", True) and not path.exists():
        near = next(parent for parent in path.absolute().parents if parent.exists())
        raise ImportFailed(f"{path} does not exist", f"The part of it that exists is {near}.")
    stored: list[str] = []
    skipped = 0
    with writer.reader() as lake:
        for bundle in module.read(path, config, lake):
            # The reader is pinned: only the writer knows the bundles of this import.
            fresh = not writer.has_bundle(bundle.bundle_id) and (
                writer.load(bundle.tables, bundle.message, bundle_id=bundle.bundle_id) is not None
            )
            if fresh:
                stored.append(bundle.bundle_id)
            else:
                skipped += 1
            if progress is not None:
                progress(bundle.message, fresh)
    with writer.reader() as lake:
        return ImportSummary(
            files=len(stored),
            skipped=skipped,
            rows=_count_added(lake, stored),
            snapshot=lake.snapshot,
        )


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


def _count_added(lake: Lake, bundle_ids: list[str]) -> dict[str, int]:
    logged = lake.run(
        "SELECT row_counts FROM ingest_log WHERE bundle_id IN (SELECT unnest($1))", [bundle_ids]
    ).rows()
    total: Counter[str] = Counter()
    for row in logged:
        total.update(cast("dict[str, int]", json.loads(row["row_counts"])))
    return {table: count for table, count in total.items() if count}
