"""Text of foreign processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def make_readable(text: str) -> str:
    """Return a text that can be stored and printed: valid UTF-8 without NUL.

    >>> make_readable("a\\x00b\\ud800")
    'ab\\\\ud800'
    """
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")


def name_axes(axes: Mapping[str, Any]) -> str:
    """Return the name of a shape, which says the sizes that differ.

    >>> name_axes({"ROWS": 1, "SHAPE": [3, 4]})
    'ROWS=1, SHAPE=[3, 4]'
    """
    return ", ".join(f"{name}={value}" for name, value in axes.items())
