"""Fenced blocks of a completion, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from store.code.languages import PYTHON_FENCES

LONGEST_HEADING = 200
"""Characters of a line that are searched for a heading or a file name."""
_FILE = re.compile(
    r"[ \t*#]*(?:file(?:name)?[ \t]*:?[ \t]*)`?([\w./-]{1,100})`?[ \t*]*:?[ \t*]*", re.I
)
STARTS = re.compile(r"(?:import |from [\w.]+ import |class |def |@|\"\"\"|#!)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    start: int
    """Line of its fence."""
    end: int
    """The line after the block, including its closing fence."""
    language: str
    text: str
    closed: bool
    name: str | None = None
    """File name that the line before the fence gives."""


def find_blocks(lines: Sequence[str]) -> list[Block]:
    """Return the fenced blocks in order; the last one may lack a closing fence."""
    found: list[Block] = []
    start, mark, length, prefix, language = -1, "", 0, "", ""
    for number, line in enumerate(lines):
        if start < 0:
            opening = _read_fence(line)
            if opening is not None:
                start = number
                mark, length, prefix, language = opening
        elif closes_fence(line, mark, length):
            found.append(_read_block(lines, start, number, prefix, language, closed=True))
            start = -1
    if start >= 0:
        found.append(_read_block(lines, start, len(lines), prefix, language, closed=False))
    return found


def _read_fence(line: str) -> tuple[str, int, str, str] | None:
    """Return an opening fence's mark and length, the text before it, and its language."""
    body = line.lstrip(" \t>")
    prefix = line[: len(line) - len(body)]
    mark = body[:1]
    if mark not in ("`", "~") or not body.startswith(mark * 3):
        # "Here it is: ```python"
        at = line.find("```")
        if at < 0:
            return None
        body, prefix, mark = line[at:], "", "`"
        language = body.lstrip("`").strip().lower()
        if language not in PYTHON_FENCES:
            return None
    length = len(body) - len(body.lstrip(mark))
    info = body[length:].strip()
    if mark == "`" and "`" in info:
        return None  # a code span
    word = info.split(maxsplit=1)[0] if info else ""
    return mark, length, prefix, word.strip("{}.").partition(":")[0].lower()


def closes_fence(line: str, mark: str, length: int) -> bool:
    """Return whether a line closes a fence of this mark and length."""
    body = line.strip(" \t>")
    return len(body) >= length and not body.strip(mark)


def _read_block(
    lines: Sequence[str], start: int, end: int, prefix: str, language: str, *, closed: bool
) -> Block:
    body = lines[start + 1 : end]
    if prefix and all(line.startswith(prefix) for line in body if line.strip(" \t>")):
        body = [line[len(prefix) :] for line in body]
    before = next((line for line in reversed(lines[max(start - 2, 0) : start]) if line.strip()), "")
    name = _FILE.fullmatch(before[:LONGEST_HEADING])
    return Block(
        start=start,
        end=min(end + 1, len(lines)),
        language=language,
        text="\n".join(body),
        closed=closed,
        name=name[1] if name and _is_safe(name[1]) else None,
    )


def _is_safe(path: str) -> bool:
    """Return whether a path from a completion stays inside the kernel's own folder."""
    parts = path.split("/")
    return "." in parts[-1] and all(part.strip(".") for part in parts)


def read_outside(lines: Sequence[str], blocks: Sequence[Block]) -> str:
    """Return the text between the blocks."""
    kept: list[str] = []
    place = 0
    for block in blocks:
        kept += lines[place : block.start]
        place = block.end
    return "\n".join([*kept, *lines[place:]])


def is_python(block: Block) -> bool:
    """Return whether a block is Python by its info string, or by its text."""
    if block.language in PYTHON_FENCES:
        return True
    return not block.language and any(map(STARTS.match, block.text.split("\n")))
