"""Comparisons that fail for a reason of the judge's own, which says nothing about the kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from evaluators.limits.kinds import refuse_limit
from evaluators.references.connection import ReferenceFailed
from evaluators.sandbox.failures import Failed, lacks_memory
from store.errors import FlywheelError

_MOST_TEXT = 300


class ComparisonFailed(ReferenceFailed):
    """Answers to a task cannot be compared."""

    reason = "comparison_failed"


@contextlib.contextmanager
def name_failures(what: str = "an answer cannot be compared") -> Generator[None]:
    """Turn an error of the judge's own in a block into ComparisonFailed, which names the limit."""
    try:
        yield
    except (Failed, ReferenceFailed, FlywheelError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        detail = f"{what}: {type(error).__name__}: {lines[0][:_MOST_TEXT]}"
        limit = "comparison_memory" if lacks_memory(error) else "comparison"
        raise ComparisonFailed(refuse_limit(limit, detail)) from error
