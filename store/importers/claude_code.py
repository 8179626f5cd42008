"""Sessions of Claude Code: JSON Lines as it stores them, or --output-format stream-json prints.

Reads one .jsonl file or a folder of them, such as Infatoshi's kernelbench-*-traces, as written by
versions 1 and 2 of the program. A session gets a row in `sessions`, with its messages in
`session_steps` and its tool calls in `tool_calls`. Each kernel that the agent writes or edits is an
attempt that continues the one before it. Transcripts may hold names and paths of their author:
read them before you publish a lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import ImportFailed
from store.importers.reading import detection, pieces, sources
from store.importers.reading.rows import BundleRows
from store.importers.reading.tasks import find_optional
from store.importers.sessions import claude
from store.importers.sessions.rows import SessionRows
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store
    from store.foreign.fields import Fields

NAME = "claude-code"
IMPORTER_VERSION = 1
_TYPES = ("user", "assistant", "system", "summary", "queue-operation", "file-history-snapshot")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the claude-code importer."""

    task: str | None = None
    """Task that the sessions worked on: its name, or the first 6 characters of its id."""
    problem: str | None = None
    """Name of the task if the lake does not have it."""
    kernel_file: str = "*"
    """Pattern of the names of files that are kernels, such as solution.py."""
    source: str = NAME
    """Repository that the sessions come from."""
    source_revision: str | None = None
    """Its commit."""
    license: str | None = None
    """SPDX identifier under which the sessions were released."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path has sessions of Claude Code."""
    for file in detection.list_files(path, "*.jsonl", "*/*.jsonl")[:1]:
        first = detection.read_first_object(file)
        named = "sessionId" in first or "session_id" in first or "leafUuid" in first
        if first.get("type") in _TYPES and named:
            return f"{file.name}: lines with type and session id"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield each session in a bundle or several.

    Raises ImportFailed if there is no session, or a line is malformed.
    """
    root = sources.require_path(path, "a session file (.jsonl) or a folder of them")
    files = [root] if root.is_file() else sorted(root.rglob("*.jsonl"))
    if not files:
        raise ImportFailed(f"{root} holds no .jsonl file", "Name a session file or its folder.")
    task_id = find_optional(lake, config.task)

    def start() -> pieces.Add:
        rows = SessionRows(importer=NAME, task_id=task_id, kernel_file=config.kernel_file)

        def add(gathered: BundleRows, run_id: str, step: Fields) -> None:
            rows.add(gathered, run_id, step)

        return add

    yield from pieces.read_pieces(
        lake,
        (_open(file, root, config) for file in files),
        importer=NAME,
        version=IMPORTER_VERSION,
        config=config,
        origin=BundleRows(
            source=config.source, source_revision=config.source_revision, license=config.license
        ),
        start=start,
    )


def _open(file: Path, root: Path, config: Config) -> pieces.SourceFile:
    def records() -> Iterator[Fields]:
        yield from claude.read_steps(file, claude.read_session(file, problem=config.problem))

    return replace(pieces.open_json_lines(file, root), open=records)
