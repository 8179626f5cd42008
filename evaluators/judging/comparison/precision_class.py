"""The precision class of an answer: fp32, tf32, bf16 or lower, by the size of its errors.

The class depends on the whole answer, not on its worst element: the norm of the error and the upper
quartile of the relative error, each compared with that of the eager reference.
"""

from __future__ import annotations

import math

import torch

from evaluators.judging.case import Policy
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected

_EPS = torch.finfo(torch.float32).eps
_EAGER_ERRORS: dict[Policy, int] = {"torch_default": 32, "fp32_strict": 32, "allow_tf32": 4}
"""How many times the eager reference's error still counts as its precision. Another order of
summation may have 32 times the error of a blocked one. If eager itself rounds to TF32, an error
that large would mean another format."""
_FEWEST_TERMS = 4096
_MOST_FULL = 6e-5
"""Long sums alone cannot explain an error above this in full precision; rounding one factor of a
product to TF32 or half precision gives 2e-4."""
# Upper ends of the relative error that formats of lower precision leave behind: both factors of a
# product rounded to 11 bits leave 3e-4, cut off 1e-3; rounded to 8 bits 2.3e-3.
_CLASSES = (("tf32", 1.5e-3), ("bf16", 1.2e-2))
_RANKS = ("", "fp32", "tf32", "bf16", "lower")
_LOWEST_ALLOWED: dict[Policy, str] = {
    "torch_default": "fp32",
    "fp32_strict": "fp32",
    "allow_tf32": "tf32",
}
"""The lowest class that ranks. Under torch_default, eager's class ranks too if it is lower."""


def classify_error(error: float, eager_error: float, policy: Policy, terms: int) -> str:
    """Return the class of a relative error, given that of the eager reference.

    terms: the most terms of a sum in the answer (`count_terms`).
    """
    long_sum = _bound_full_precision(terms)
    if policy == "torch_default" and classify_eager(eager_error, terms) != "fp32":
        eager_error = 0.0  # Eager rounds more than float32, so its error shows nothing about it.
    full = max(_EAGER_ERRORS[policy] * eager_error, long_sum)
    return _find_class(error, full)


def classify_eager(error: float, terms: int) -> str:
    """Return the class of the eager reference's own relative error.

    >>> classify_eager(1e-7, 64), classify_eager(3e-4, 64)
    ('fp32', 'tf32')
    """
    return _find_class(error, _bound_full_precision(terms))


def _bound_full_precision(terms: int) -> float:
    return min(_MOST_FULL, _EPS * math.sqrt(max(_FEWEST_TERMS, terms)))


def _find_class(error: float, full: float) -> str:
    bounds = (("fp32", full), *_CLASSES)
    return next((name for name, bound in bounds if error <= bound), "lower")


def count_terms(expected: Expected) -> int:
    """Return how many terms the longest sum of an answer may have, as far as shapes tell."""
    answers = max((t.numel() for t in tensors_of(expected.value)), default=0)
    inputs = [t for t in tensors_of(list(expected.inputs)) if t.is_floating_point()]
    return max((max(*t.shape, t.numel() // max(1, answers), 1) for t in inputs), default=1)


def is_below_policy(
    precision_class: str | None, policy: Policy, eager_class: str | None = None
) -> bool:
    """Whether a precision class is lower than a policy lets rank.

    eager_class: class of the eager reference on the same inputs.

    >>> is_below_policy("tf32", "fp32_strict"), is_below_policy("tf32", "allow_tf32")
    (True, False)
    >>> [is_below_policy("tf32", "torch_default", eager) for eager in ("fp32", "tf32")]
    [True, False]
    """
    lowest = rank_class(_LOWEST_ALLOWED[policy])
    if policy == "torch_default":
        lowest = max(lowest, rank_class(eager_class))
    return rank_class(precision_class) > lowest


def rank_class(precision_class: str | None) -> int:
    """Return the place of a precision class, the most precise first; that of none is 0."""
    return _RANKS.index(precision_class or "")
