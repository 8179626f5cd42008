"""Text of foreign processes."""

from __future__ import annotations


def make_readable(text: str) -> str:
    """Return a text that can be stored and printed: valid UTF-8 without NUL.

    >>> make_readable("a\\x00b\\ud800")
    'ab\\\\ud800'
    """
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")
