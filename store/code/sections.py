"""The sections of a completion: its analysis, its design, and the heading of its code."""

from __future__ import annotations

import re
from collections.abc import Sequence

from store.code.code_blocks import LONGEST_HEADING, Block, is_python

_SECTIONS = {
    "performance analysis": "analysis",
    "analysis": "analysis",
    "analysis of performance": "analysis",
    "performance": "analysis",
    "algorithm design": "design",
    "algorithmic design": "design",
    "algorithm": "design",
    "design": "design",
    "optimization strategy": "design",
    "optimisation strategy": "design",
    "strategy": "design",
    "plan": "design",
    "code implementation": "code",
    "implementation": "code",
    "code": "code",
    "final code": "code",
    "final implementation": "code",
    "complete code": "code",
    "solution": "code",
    "answer": "code",
}
_NAME = "|".join(sorted(map(re.escape, _SECTIONS), key=len, reverse=True))
# Matches one line; only its first 200 characters are examined.
_HEADING = re.compile(
    rf"[ \t>]*(?P<marks>#{{1,6}}[ \t]*)?(?P<bold>[*_]{{1,3}})?[ \t]*"
    rf"(?P<number>(?:part|step|section|block)?[ \t]*[(\[]?[0-9a-c]{{1,2}}[.):\]][ \t]*)?"
    rf"(?P<inner>[*_]{{1,3}})?(?P<name>{_NAME})"
    rf"(?P<after>[ \t]*[*_]{{0,3}}[ \t]*(?P<colon>[:.\u2014-])?[ \t]*[*_]{{0,3}}[ \t]*#*)"
    rf"(?P<rest>.*)",
    re.IGNORECASE,
)


def read_sections(lines: Sequence[str], blocks: Sequence[Block]) -> tuple[dict[str, str], int]:
    """Return the first text of each section, and the line of the code's heading (-1: none)."""
    headings: list[tuple[int, str, str]] = []
    inside = {number for block in blocks for number in range(block.start, block.end)}
    for number, line in enumerate(lines):
        if number not in inside and (found := _read_heading(line)):
            headings.append((number, *found))
    sections: dict[str, str] = {}
    code_line = -1
    for place, (number, kind, rest) in enumerate(headings):
        if kind == "code":
            code_line = number
            continue
        until = headings[place + 1][0] if place + 1 < len(headings) else len(lines)
        if place + 1 == len(headings):
            # Without a heading of its own the code ends the section.
            until = next((b.start for b in blocks if b.start > number and is_python(b)), until)
        text = "\n".join([rest, *lines[number + 1 : until]]).strip()
        if text:
            sections.setdefault(kind, text)
    return sections, code_line


def _read_heading(line: str) -> tuple[str, str] | None:
    """Return the section that a line begins, and the text that follows on the same line."""
    found = _HEADING.match(line[:LONGEST_HEADING])
    if found is None:
        return None
    rest = line[found.end("after") :].strip()
    marked = bool(found["marks"] or found["bold"] or found["inner"] or found["number"])
    words = " ".join(found["name"].lower().split())
    long = " " in words
    if rest:
        # Prose may begin with the same words: a heading with text after it needs marks or a colon.
        shown = (found["colon"] and (marked or long)) or (found["marks"] and long)
        if not shown or not found["after"]:
            return None
    elif not (marked or found["colon"] or long):
        return None
    return _SECTIONS[words], rest
