"""Load SQL from files: a statement as text, or a question whose comment explains its answer."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"(?:-- .*\n)+")
_EMPTY = "Empty: "


def read_sql(module: str, name: str) -> str:
    """Return the text of `sql/NAME.sql` in the folder of a module.

    Args:
        module: The module's `__file__`.
        name: The file's name without its suffix; it may begin with a subfolder.
    """
    return (Path(module).parent / "sql" / f"{name}.sql").read_text("utf-8")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A statement of a report, with the words that introduce its answer."""

    title: str
    """The comment's first line."""
    sentence: str
    """The meaning of the rows and how to read them: the lines after the first."""
    empty: str
    """Why there are no rows, and what adds some: the lines `-- Empty: …`."""
    sql: str
    sha256: str
    """Checksum of the file: a figure is the answer to this text at a snapshot."""


def read_question(file: Path) -> Question:
    """Read a question from its file."""
    text = file.read_text("utf-8")
    comment = _COMMENT.match(text)
    assert comment is not None, file
    title, *lines = (line[3:] for line in comment[0].splitlines())
    return Question(
        title=title,
        sentence=" ".join(line for line in lines if not line.startswith(_EMPTY)),
        empty=" ".join(line.removeprefix(_EMPTY) for line in lines if line.startswith(_EMPTY)),
        sql=text[comment.end() :].strip(),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
