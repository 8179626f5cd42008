"""Sessions of Claude Code: JSON Lines as it stores them, or --output-format stream-json prints.

Reads one .jsonl file or a folder of them, such as Infatoshi's kernelbench-*-traces, as written by
versions 1 and 2 of the program. A session gets a row in `sessions`, with its messages in
`session_steps` and its tool calls in `tool_calls`. Each kernel that the agent writes or edits is an
attempt that continues the one before it. Transcripts may hold names and paths of their author:
read them before you publish a lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import store
from store.importers.reading import pieces, sources
from store.importers.reading.sessions import SessionOrigin, SessionRows, read_claude_code

NAME = "claude-code"
_TYPES = ("user", "assistant", "system", "summary", "queue-operation", "file-history-snapshot")


@dataclass(frozen=True, kw_only=True)
class Config(SessionOrigin):
    problem: str | None = None
    """Name of the task if the lake does not have it."""
    source: str = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "*.jsonl", "*/*.jsonl")[:1]:
        first = sources.read_first_object(file)
        named = "sessionId" in first or "session_id" in first or "leafUuid" in first
        if first.get("type") in _TYPES and named:
            return f"{file.name}: lines with type and session id"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each session in a bundle or several."""
    root, files = sources.find_files(
        *(path, "*.jsonl", "a session file (.jsonl) or a folder of them"),
        "Name a session file or its folder.",
    )
    reading = pieces.Import(lake, NAME, config, source=config.source)
    read_session = partial(read_claude_code, problem=config.problem)
    yield from reading.read(
        (pieces.open_json_lines(file, root, read_session) for file in files),
        lambda: SessionRows(NAME, reading.task_id, config.kernel_file).add,
    )
