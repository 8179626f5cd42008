"""A question in a file of its own: SQL, and in its comment what the answer is called and means."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_HEAD = re.compile(r"(?:-- .*\n)+")
_EMPTY = "Empty: "


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a file asks, and how its answer is told."""

    title: str
    """The comment's first line."""
    sentence: str
    """What the rows are and how to read them: the lines after it."""
    empty: str
    """Why there are none, and what would bring some: the lines `-- Empty: …`."""
    sql: str
    sha256: str
    """Of the file: a figure is the answer to this text at a snapshot."""


def read(file: Path) -> Question:
    """Read a question from its file."""
    text = file.read_text("utf-8")
    head = _HEAD.match(text)
    assert head is not None, file
    title, *lines = (line[3:] for line in head[0].splitlines())
    return Question(
        title=title,
        sentence=" ".join(line for line in lines if not line.startswith(_EMPTY)),
        empty=" ".join(line.removeprefix(_EMPTY) for line in lines if line.startswith(_EMPTY)),
        sql=text[head.end() :].strip(),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
