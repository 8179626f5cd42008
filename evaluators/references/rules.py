"""Rules of a task's own, by which its format judges answers: a tolerance, or a checker.

A task's text may define TASK_TOLERANCE, TASK_CHECK and TASK_SCRATCH, as
`store.importers.reading.task_formats` documents them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a floating element may be from the reference's."""

    rtol: float
    atol: float
    either: bool
    """An element passes within rtol or within atol, instead of within their sum."""
    matched: float
    """Share of the elements that have to pass."""

    def __str__(self) -> str:
        """Return it in words."""
        words = f"rtol {self.rtol:g}, atol {self.atol:g}"
        words += ", either of them" if self.either else ""
        return words + (f", for {self.matched:.1%} of the elements" if self.matched < 1 else "")


@dataclass(frozen=True, kw_only=True)
class TaskRules:
    """Rules of one task."""

    tolerance: Tolerance | None = None
    has_checker: bool = False
    scratch: bool = False
    """Whether calls may write into their inputs, which then are no part of an answer."""


NO_RULES = TaskRules()


def read_rules(answer: Mapping[str, Any]) -> TaskRules:
    """Return the rules that a task's worker reports."""
    stated = answer["tolerance"]
    tolerance = None
    if stated is not None:
        rtol, atol, either, matched = stated
        tolerance = Tolerance(rtol=rtol, atol=atol, either=either, matched=matched)
    return TaskRules(tolerance=tolerance, has_checker=answer["checks"], scratch=answer["scratch"])


def report_rules(module: ModuleType) -> dict[str, Any]:
    """Return the rules of a task's module, in its worker, for `read_rules`.

    Raises ValueError, TypeError, KeyError where TASK_TOLERANCE has another form.
    """
    stated = getattr(module, "TASK_TOLERANCE", None)
    tolerance = None
    if stated is not None:
        limits = float(stated["rtol"]), float(stated["atol"])
        shares = bool(stated.get("either", False)), min(float(stated.get("matched", 1.0)), 1.0)
        tolerance = [*limits, *shares]
    return {
        "tolerance": tolerance,
        "checks": callable(getattr(module, "TASK_CHECK", None)),
        "scratch": bool(getattr(module, "TASK_SCRATCH", False)),
    }
