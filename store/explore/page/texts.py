"""Prompts, answers and the steps of a session as a page shows them, cut where they are long."""

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


_MOST_OF_STEP = 4_000
_MOST_OF_PAGE = 120_000
"""Characters of all texts of a page."""


@dataclass(frozen=True, kw_only=True)
class ShownText:
    """A text, escaped, and the number of characters that are not shown."""

    text: str
    left_out: int


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """One tool call with its result."""

    tool: str
    is_error: bool
    arguments: ShownText | None
    result: ShownText | None


@dataclass(frozen=True, kw_only=True)
class ShownStep:
    """One message of a session."""

    row: Row
    reasoning: ShownText | None
    content: ShownText | None
    calls: Sequence[ShownCall]


def show_steps(rows: Sequence[Row]) -> list[ShownStep]:
    """Return the steps of rows with the columns reasoning, content and calls."""
    budget = _Budget()
    return [
        ShownStep(
            row=row,
            reasoning=budget.cut(row["reasoning"]),
            content=budget.cut(row["content"]),
            calls=[
                ShownCall(
                    tool=call["tool"],
                    is_error=bool(call["is_error"]),
                    arguments=budget.cut(_format_arguments(call["arguments"])),
                    result=budget.cut(call["result"]),
                )
                for call in row["calls"] or []
            ],
        )
        for row in rows
    ]


def _format_arguments(text: str | None) -> str | None:
    """Return the arguments of a call with one line for each name; other texts stay as they are."""
    try:
        read: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return text
    if not isinstance(read, dict):
        return text
    named = cast("dict[str, Any]", read)
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in named.items()
    )


class _Budget:
    """Cuts the texts of a page, the later ones more if the earlier ones were long."""

    def __init__(self) -> None:
        self._left = _MOST_OF_PAGE

    def cut(self, text: str | None) -> ShownText | None:
        """Return the beginning of a text that the budget allows."""
        if not text:
            return None
        most = min(_MOST_OF_STEP, max(self._left, 200))
        shown = escape_text(text[:most].replace("\r\n", "\n"))
        self._left -= len(shown)
        return ShownText(text=shown, left_out=max(0, len(text) - most))
