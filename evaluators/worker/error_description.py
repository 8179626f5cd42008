"""Describes an exception of a candidate, whose own methods may fail."""

from __future__ import annotations

import contextlib
import itertools
import traceback
from typing import Any

_TEXT_LIMIT = 6000
_NAME_LIMIT = 80
_MOST_TYPES = 8
_MOST_BASES = 4


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return the types and texts of an error and its causes, and its traceback."""
    types: list[str] = []
    longest = 0
    with contextlib.suppress(Exception):  # a cause that cannot be described ends the list
        cause: BaseException | None = error
        while cause is not None and len(types) < _MOST_TYPES:
            bases = itertools.islice(type(cause).__mro__, _MOST_BASES)
            types.extend(kind.__name__[:_NAME_LIMIT] for kind in bases)
            longest = max(longest, len(str(cause)))
            cause = cause.__cause__ or cause.__context__
    try:
        text = str(error)[:_TEXT_LIMIT]
    except Exception:
        text = "(its text cannot be read)"
    try:
        # Formatting tens of megabytes takes longer than a call may take.
        long = longest > _TEXT_LIMIT
        lines = (
            traceback.format_tb(error.__traceback__) if long else traceback.format_exception(error)
        )
        trace = "".join(lines)[-_TEXT_LIMIT:]
    except Exception:
        trace = ""
    return {
        "type": type(error).__name__[:_NAME_LIMIT],
        "types": types,
        "text": text,
        "trace": trace,
    }
