"""The result of comparing one output with the expected one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluators.judging.comparison.precision_class import rank_class
from evaluators.references.eager_error import EagerError


@dataclass(frozen=True)
class Comparison:
    """Whether an output is right, and how large its errors are."""

    reason: str | None = None
    """Why it is wrong, by the catalog's names; None when it is right."""
    message: str | None = None
    """What is wrong; for numbers the first wrong element and the share of wrong ones."""
    max_abs_error: float | None = None
    max_scaled_error: float | None = None
    """Largest error over its tolerance; above 1 is wrong."""
    rel_l2_error: float | None = None
    """Norm of the error over the norm of the answer."""
    precision_class: str | None = None
    """Precision that the error corresponds to."""
    typical_class: str | None = None
    """The same by the upper quartile of the relative error alone, whatever a few answers say."""
    eager_class: str | None = None
    """Precision that the eager reference's own error corresponds to, for answers in float32."""
    lowest_class: str | None = None
    """The lowest precision class that ranks."""
    eager_error: EagerError | None = None
    """The least of the eager reference's own errors; None where it has none."""
    excused: str | None = None
    """What is wrong by the judge's own tolerance, where the task's own rules accept the output."""


def merge_comparisons(one: Comparison, other: Comparison) -> Comparison:
    """Return the larger error figures of two comparisons that are both right."""
    if other.max_scaled_error is None:
        return replace(one, excused=one.excused or other.excused)
    if one.max_scaled_error is None:
        return replace(other, excused=one.excused or other.excused)
    return Comparison(
        max_abs_error=max(one.max_abs_error or 0.0, other.max_abs_error or 0.0),
        max_scaled_error=max(one.max_scaled_error, other.max_scaled_error),
        rel_l2_error=max(one.rel_l2_error or 0.0, other.rel_l2_error or 0.0),
        precision_class=max(one.precision_class, other.precision_class, key=rank_class),
        typical_class=max(one.typical_class, other.typical_class, key=rank_class),
        eager_class=max(one.eager_class, other.eager_class, key=rank_class),
        lowest_class=max(one.lowest_class, other.lowest_class, key=rank_class),
        excused=one.excused or other.excused,
        eager_error=EagerError.smaller(one.eager_error, other.eager_error),
    )
