"""The precision class of a candidate, from its verdict calls and its robustness calls.

Two of the robustness calls show the precision. Rounding errors average out in long sums of positive
products, but not with random signs or with few large inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaluators.judging.case import Evidence, Policy
from evaluators.judging.comparison.precision_class import explain_policy, is_below, rank_class
from evaluators.judging.comparison.result import Comparison
from evaluators.judging.comparison.structure import is_whole
from evaluators.memory.tensors import tensors_of

MOST_ROUNDING = 0.25
"""Norm of the error over that of the answer up to which it counts as rounding."""
DRAWS_OF_FEW = 5
"""Number of answers with few elements that show the precision together."""
_FEW_ELEMENTS = 16


@dataclass
class PrecisionRecord:
    """Precision classes of a candidate's calls."""

    verdict_classes: list[str | None] = field(default_factory=list[str | None])
    robustness_classes: list[str | None] = field(default_factory=list[str | None])
    """Classes of the calls that show the precision; None for a wrong answer."""
    eager_class: str | None = None
    """Lowest class of the eager reference in these calls."""
    lowest_class: str | None = None
    """The lowest class that ranks, by these calls."""
    has_few_elements: bool = False
    """Whether an answer has so few elements that it may be right by chance."""

    def measure_answer(self, answer: Any) -> None:
        """Record how many elements an answer of the task has."""
        sizes = [tensor.numel() for tensor in tensors_of(answer) if not is_whole(tensor)]
        self.has_few_elements = 0 < sum(sizes) < _FEW_ELEMENTS

    def note_eager(self, comparison: Comparison | None) -> None:
        """Note the class of the eager reference in a call, and what ranks by it."""
        if comparison is not None:
            self.lowest_class = max(self.lowest_class, comparison.lowest_class, key=rank_class)
            self.eager_class = max(self.eager_class, comparison.eager_class, key=rank_class)

    def classify(self, evidence: Evidence, policy: Policy) -> None:
        """Set the precision class: the middle one of the verdict calls, or a worse one seen later.

        A candidate whose answers are wrong for random signs and uneven inputs has no trustworthy
        class.
        """
        classes = sorted(self.verdict_classes, key=rank_class)
        usual = classes[len(classes) // 2] if classes else None
        if usual is None:
            return
        worst = max([usual, *self.robustness_classes], key=rank_class)
        comparison: Comparison = evidence.comparison
        evidence.comparison = replace(comparison, precision_class=worst)
        evidence.eager_class = self.eager_class
        is_unknown = bool(self.robustness_classes) and not any(self.robustness_classes)
        flag = "precision_below_policy"
        if flag not in evidence.flags and (is_unknown or is_below(worst, self.lowest_class)):
            evidence.flags.add(flag)
            explained = explain_policy(worst, by_tf32=worst == "tf32" and policy != "allow_tf32")
            if explained is not None and not is_unknown:
                evidence.notes.append(f"precision: {explained}")


def classify_rounding(comparison: Comparison | None, *, typical: bool) -> str | None:
    """Return the precision class of an answer that is right except for rounding, else None.

    typical: take the class of typical elements alone.
    """
    if comparison is None or comparison.rel_l2_error is None:
        return None
    if comparison.rel_l2_error > MOST_ROUNDING:
        return None
    return comparison.typical_class if typical else comparison.precision_class


def pick_class(shown: str | None, repeated: str | None, *, has_few_elements: bool) -> str | None:
    """Return the class of a repeated call: the better one of the two.

    For answers of few elements, only the repetition counts, which combines several draws.
    """
    if has_few_elements:
        return repeated
    classes: Sequence[str] = [name for name in (shown, repeated) if name is not None]
    return min(classes, key=rank_class) if classes else None
