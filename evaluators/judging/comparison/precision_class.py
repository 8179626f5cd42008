"""The precision class of an answer: fp32, tf32, fp16, bf16, fp8 or lower, by its errors.

The class depends on the whole answer, not on its worst element: the norm of the error and the upper
quartile of the relative error, each compared with that of the eager reference. The class of an
answer in half precision or less is that of its element type if its errors are of eager's size.
"""

from __future__ import annotations

import math

import torch

from evaluators.judging.case import Policy
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected

_EPS = torch.finfo(torch.float32).eps
EAGER_ERRORS: dict[Policy, int] = {"torch_default": 32, "fp32_strict": 32, "allow_tf32": 4}
"""How many times the eager reference's error still counts as its precision. Another order of
summation may have 32 times the error of a blocked one. If eager itself rounds to TF32, an error
that large would mean another format."""
_FEWEST_TERMS = 4096
_MOST_FULL = 6e-5
"""Long sums alone cannot explain an error above this in full precision; rounding one factor of a
product to TF32 or half precision gives 2e-4."""
# Upper ends of the relative error that formats of lower precision leave behind: both factors of a
# product rounded to 11 bits leave 3e-4, cut off 1e-3; rounded to 8 bits 2.3e-3; as 8-bit floats
# 4e-2, as scaled 8-bit integers 6e-3 to 2e-2. The upper quartile may be 2.4 times as large.
_CLASSES = (("tf32", 1.5e-3), ("bf16", 1.2e-2), ("fp8", 0.15))
_RANKS = {"": 0, "fp32": 1, "tf32": 2, "fp16": 2, "bf16": 3, "fp8": 4, "lower": 5}
_LOW_CLASSES = {torch.float16: "fp16", torch.complex32: "fp16", torch.bfloat16: "bf16"}
_LOW_EAGER_ERRORS = 2.5
"""How many times eager's error keeps the class of an element type below float32. Sums in 8 parts
that are rounded and added in it leave 2.4 times a single rounding; 8-bit integers in blocks of 32
terms leave 3.4 times with one factor and 4.7 times with both."""
QUARTILE_OF_EVEN = 2.41
"""Upper quartile of the relative error if errors are spread evenly, over the norm of the error: the
upper quartile of the ratio of two normal numbers."""
_SIZES = {
    "tf32": "TF32's or fp16's",
    "fp16": "fp16's",
    "bf16": "bf16's",
    "fp8": "fp8's or int8's",
}
_LOWEST_ALLOWED: dict[Policy, str] = {
    "torch_default": "fp32",
    "fp32_strict": "fp32",
    "allow_tf32": "tf32",
}


def get_low_class(dtype: torch.dtype) -> str | None:
    """Return the class of an element type with less precision than float32; None for others.

    >>> get_low_class(torch.bfloat16), get_low_class(torch.float8_e5m2), get_low_class(torch.float)
    ('bf16', 'fp8', None)
    """
    if dtype.is_floating_point and dtype.itemsize == 1:
        return "fp8"
    return _LOW_CLASSES.get(dtype)


def classify_error(
    error: float, eager_error: float, dtype: torch.dtype, policy: Policy, terms: int
) -> str:
    """Return the class of a relative error, given that of the eager reference.

    Args:
        error: The relative error.
        eager_error: That of eager.
        dtype: Element type of the answer.
        policy: Precision that is allowed for float32.
        terms: The most terms of a sum in the answer (`count_terms`).
    """
    low = get_low_class(dtype)
    if low is not None:
        full = max(_LOW_EAGER_ERRORS * eager_error, torch.finfo(dtype).eps / 2)
        return _find_class(error, full, low)
    long_sum = _bound_full_precision(terms)
    if policy == "torch_default" and classify_eager(eager_error, terms) != "fp32":
        eager_error = 0.0  # Eager rounds more than float32, so its error shows nothing about it.
    full = max(EAGER_ERRORS[policy] * eager_error, long_sum)
    return _find_class(error, full)


def classify_eager(error: float, terms: int) -> str:
    """Return the class of the eager reference's own relative error.

    >>> classify_eager(1e-7, 64), classify_eager(3e-4, 64)
    ('fp32', 'tf32')
    """
    return _find_class(error, _bound_full_precision(terms))


def _bound_full_precision(terms: int) -> float:
    return min(_MOST_FULL, _EPS * math.sqrt(max(_FEWEST_TERMS, terms)))


def _find_class(error: float, full: float, own: str = "fp32") -> str:
    lower = [(name, bound) for name, bound in _CLASSES if _RANKS[name] > _RANKS[own]]
    return next((name for name, bound in ((own, full), *lower) if error <= bound), "lower")


def count_terms(expected: Expected) -> int:
    """Return how many terms the longest sum of an answer may have, as far as shapes tell."""
    answers = max((t.numel() for t in tensors_of(expected.value)), default=0)
    inputs = [t for t in tensors_of(list(expected.inputs)) if t.is_floating_point()]
    return max((max(*t.shape, t.numel() // max(1, answers), 1) for t in inputs), default=1)


def find_lowest_class(dtype: torch.dtype, policy: Policy, eager_class: str | None) -> str:
    """Return the lowest class that ranks: under torch_default, eager's own if that is lower.

    >>> find_lowest_class(torch.float32, "fp32_strict", "tf32")
    'fp32'
    >>> find_lowest_class(torch.float32, "torch_default", "tf32")
    'tf32'
    >>> find_lowest_class(torch.bfloat16, "fp32_strict", None)
    'bf16'
    """
    lowest = get_low_class(dtype) or _LOWEST_ALLOWED[policy]
    return max(lowest, eager_class or "", key=rank_class) if policy == "torch_default" else lowest


def is_below(precision_class: str | None, lowest_class: str | None) -> bool:
    """Whether a precision class is lower than the lowest one that ranks."""
    return lowest_class is not None and rank_class(precision_class) > rank_class(lowest_class)


def explain_policy(precision_class: str | None, *, by_tf32: bool) -> str | None:
    """Describe an error by the policy that accepts it; None for one that is not rounding.

    by_tf32: Whether the policy allow_tf32 accepts it.
    """
    size = _SIZES.get(precision_class or "")
    if size is None:
        return None
    accepting = "--policy allow_tf32 would accept" if by_tf32 else "no policy accepts"
    return f"{accepting} this error: it has the size of {size}"


def rank_class(precision_class: str | None) -> int:
    """Return the place of a precision class, the most precise first; that of none is 0."""
    return _RANKS[precision_class or ""]
