"""Rules of a task's own, by which its format judges answers: a tolerance, or a checker.

A task's text may define TASK_TOLERANCE, TASK_CHECK and TASK_SCRATCH, as
`store.importers.reading.task_formats` documents them.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from evaluators.processes.text import make_readable

_MOST_NAMES = 64
_MOST_NAME = 80


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
    names: tuple[str, ...] = ()
    """Names of the inputs, for messages."""


NO_RULES = TaskRules()


def read_rules(answer: Mapping[str, Any]) -> TaskRules:
    """Return the rules that a task's worker reports."""
    stated = answer["tolerance"]
    tolerance = None
    if stated is not None:
        rtol, atol, either, matched = stated
        tolerance = Tolerance(rtol=rtol, atol=atol, either=either, matched=matched)
    return TaskRules(
        tolerance=tolerance,
        has_checker=answer["checks"],
        scratch=answer["scratch"],
        names=tuple(map(make_readable, answer["names"])),
    )


def name_inputs(forward: Callable[..., Any]) -> list[str]:
    """Return the names of a method's first parameters; none where it does not show them."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    named = itertools.takewhile(lambda one: one.kind is not one.VAR_POSITIONAL, parameters)
    return [one.name[:_MOST_NAME] for one in itertools.islice(named, _MOST_NAMES)]


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
