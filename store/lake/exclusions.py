"""Rows that rankings and tables leave out; options include them by emptying views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LEFT_OUT = {
    "nonequivalent": (
        "kernel that computes a different function than its task",
        "kernels that compute a different function than their task",
        "--include-nonequivalent",
    ),
    "weak_tasks": (
        "trivial task, which an answer without its inputs passes",
        "trivial tasks, which an answer without their inputs passes",
        "--include-trivial",
    ),
    "unheld": (
        "kernel that fails at another shape, or was tried at none",
        "kernels that fail at another shape, or were tried at none",
        "--shapes any",
    ),
}
"""The views of rows that are left out: words for one row and for several, and the option that
includes them."""
EMPTY_BY_DEFAULT = frozenset({"unheld"})
"""Views of `LEFT_OUT` that are read only where they are asked for."""


@dataclass(frozen=True, kw_only=True)
class Inclusions:
    """Options of every command that shows kernels."""

    include_nonequivalent: bool = False
    """Include correct kernels that compute a different function than their task."""
    include_trivial: bool = False
    """Include trivial tasks, which an answer without their inputs passes."""
    shapes: Literal["any", "held"] = "any"
    """held: rank only kernels that are correct at every other shape that was tried."""

    def views(self) -> tuple[str, ...]:
        """Return the views of `LEFT_OUT` to read otherwise than by default."""
        asked = {
            "nonequivalent": self.include_nonequivalent,
            "weak_tasks": self.include_trivial,
            "unheld": self.shapes == "held",
        }
        return tuple(view for view, included in asked.items() if included)


def describe_left_out(counts: Mapping[str, int]) -> str | None:
    """Describe the rows that an answer leaves out, by view, and the options that include them.

    >>> describe_left_out({"weak_tasks": 3, "nonequivalent": 0})
    '3 trivial tasks, which an answer without their inputs passes (--include-trivial)'
    >>> describe_left_out({"weak_tasks": 1})
    '1 trivial task, which an answer without its inputs passes (--include-trivial)'
    """
    parts = [
        f"{count} {LEFT_OUT[view][count != 1]} ({LEFT_OUT[view][2]})"
        for view, count in counts.items()
        if count
    ]
    return "; ".join(parts) if parts else None
