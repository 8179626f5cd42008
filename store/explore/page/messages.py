"""Prompts and answers as a page shows them: messages with their role, cut where they are long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from store.commandline.escape import escape_text
from store.explore.page.model import Row

_MOST_CHARACTERS = 60_000


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a prompt, or an answer."""

    role: str
    text: str
    """Escaped."""
    left_out: int
    """Number of characters that are not shown."""


def show_messages(rows: Sequence[Row]) -> list[Message]:
    """Return the messages and the answers of rows with the columns messages and body."""
    shown: list[Message] = []
    for row in rows:
        if row.get("messages"):
            shown += [cut_message(role, text) for role, text in _read(row["messages"])]
        if row.get("body"):
            shown.append(cut_message("answer", row["body"]))
    return shown


def _read(messages: str) -> list[tuple[str, str]]:
    """Return role and text of each message; a text that is no list of messages is one message."""
    try:
        read: Any = json.loads(messages)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, list):
        return [("prompt", messages)]
    found: list[tuple[str, str]] = []
    for message in cast("list[Any]", read):
        given = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        content = given.get("content")
        text = content if isinstance(content, str) else json.dumps(content or message)
        found.append((str(given.get("role", "message")), text))
    return found


def cut_message(role: str, text: str) -> Message:
    """Return a text as a message, cut where it is long."""
    return Message(
        role=role[:40],
        text=escape_text(text[:_MOST_CHARACTERS].replace("\r\n", "\n")),
        left_out=max(0, len(text) - _MOST_CHARACTERS),
    )
