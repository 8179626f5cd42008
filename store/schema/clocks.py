"""The clocks of a timing session, which contain different parts of a call."""

from __future__ import annotations

from typing import Literal, TypeAlias

Clock: TypeAlias = Literal["gpu", "latency", "throughput"]
"""What a sample contains.

gpu: the work of a GPU for one call, caches flushed before it, its launches made beforehand.
latency: one call on an idle device, launches included: the mean of calls that each begin when the
judge has the report of the one before, with caches flushed before the first of them.
throughput: calls in a row, each on other inputs, launches included, nothing flushed.
"""

RESOLVED = 5.0
"""A time counts as measured from this many times the resolution of its clock."""
_WORDS: dict[Clock, str] = {
    "gpu": "without launches",
    "latency": "one call at a time, launches included",
    "throughput": "calls in a row, launches included",
}


def describe_clock(clock: Clock) -> str:
    """Return the words for a clock in prompts.

    >>> describe_clock("latency")
    'one call at a time, launches included'
    """
    return _WORDS[clock]
