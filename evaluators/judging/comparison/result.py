"""The result of comparing one output with the expected one."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.judging.comparison.precision_class import rank_class


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
    """Precision that the error corresponds to, for float32 tasks."""
    typical_class: str | None = None
    """The same by the upper quartile of the relative error alone, whatever a few answers say."""
    eager_class: str | None = None
    """Precision that the eager reference's own error corresponds to."""


def merge_comparisons(one: Comparison, other: Comparison) -> Comparison:
    """Return the larger error figures of two comparisons that are both right."""
    if other.max_scaled_error is None:
        return one
    if one.max_scaled_error is None:
        return other
    return Comparison(
        max_abs_error=max(one.max_abs_error or 0.0, other.max_abs_error or 0.0),
        max_scaled_error=max(one.max_scaled_error, other.max_scaled_error),
        rel_l2_error=max(one.rel_l2_error or 0.0, other.rel_l2_error or 0.0),
        precision_class=max(one.precision_class, other.precision_class, key=rank_class),
        typical_class=max(one.typical_class, other.typical_class, key=rank_class),
        eager_class=max(one.eager_class, other.eager_class, key=rank_class),
    )
