"""Places in a kernel's text that detectors point at, and names in many spellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAIN = "kernel.py"
"""Path of the file with the entry point."""
QUOTE_LENGTH = 160
"""Most characters of a quote."""


class Hit(NamedTuple):
    """One place that a detector points at."""

    path: str
    line: int
    quote: str
    confidence: float


def split_names(names: str, *prefixes: str) -> frozenset[str]:
    """Return the words of a text, each with every prefix.

    >>> sorted(split_names("zeros ones", "torch."))
    ['torch.ones', 'torch.zeros']
    """
    return frozenset(f"{prefix}{name}" for prefix in prefixes or ("",) for name in names.split())


def quote_line(lines: Sequence[str], line: int) -> str:
    """Return a line of text, cut, as valid UTF-8 without NUL."""
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text[:QUOTE_LENGTH].encode(errors="replace").decode().replace("\0", "")
