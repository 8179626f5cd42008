"""The tolerance of an answer: how far a floating output may be from the double precision reference.

Every element has to satisfy |c - r64| <= L * (|r64| + rms(r64)) + 4 * e0, where e0 is the largest
error of the eager reference itself. Scaling by the root mean square keeps zeros from passing where
the answers are small, and keeps large answers from failing on rounding.

By this rule alone, answers far below the root mean square could be anything. A second rule
therefore bounds the share of elements with a large relative error. At each of three levels q, the
number of elements that are wrong by more than q * |r64| may not exceed 8 times that of the eager
reference, plus one, plus a share of L / q, which is what an absolute error of L * rms does to
answers spread evenly. Answers that are zero or subnormal do not count, so that a candidate may
flush them to zero.

Eager may compute a task by several algorithms. e0, the share and the precision of eager are the
largest over those that the precision allows (`references.operations`), so that a kernel may do what
eager may.

A task may round to steps. An element may be on a neighbouring step if the value before the rounding
is within its tolerance of the edge (`references.operations`). It may then differ by what that step
changes, and counts as right. One element in 4 may, where an error of that value of eager's size
explains it, and one in 16 where only L does, or four times as many as of the eager reference. The
first count as without error for the precision, the others only if they are fewer than one in 1024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from evaluators.judging.case import Precision
from evaluators.memory.tensors import tensors_of
from evaluators.references.operations import RELATIVE_LEVELS as RELATIVE_LEVELS
from evaluators.references.operations import EagerError, flatten
from evaluators.references.task import Expected, Reference

CHUNK = 1 << 23
"""Elements of a piece."""


@dataclass(frozen=True)
class OutputTensor:
    """One tensor of an output beside the expected one."""

    index: int
    """Place of the tensor in the output."""
    wanted: torch.Tensor
    """The eager reference's answer."""
    exact: torch.Tensor
    """The reference's answer in double precision."""
    given: torch.Tensor
    """The candidate's answer."""
    algorithms: EagerError | None = None
    """Largest error of eager by the other algorithms that the precision allows."""
    slack: torch.Tensor | None = None
    """How much another rounding step changes each element: by eager's own error of the value before
    it, and by the tolerance of that value."""
    name: str | None = None
    """What messages call it, if not by its place."""

    @property
    def is_small(self) -> bool:
        """Whether all pieces together may be kept in memory."""
        return self.wanted.numel() <= CHUNK // 2  # a complex element is two


@dataclass(frozen=True)
class Piece:
    """A stretch of one output beside its answer; not finite answers are 0 in `r64` and `error`."""

    start: int
    """Number of its first element."""
    finite: int
    """How many elements of the reference are finite."""
    r64: torch.Tensor
    error: torch.Tensor
    misplaced: torch.Tensor | None
    """Where an element is not finite and the reference's is, or inversely; None where all are."""
    eager_error: float
    """Largest error of the eager reference that no rounding step explains."""
    eager_by_element: torch.Tensor
    """Error of every element of the eager reference."""
    slack: torch.Tensor | None = None
    """See `OutputTensor`."""


def iterate_pieces(output: OutputTensor) -> Iterator[Piece]:
    """Yield the pieces of an output in order, with the errors of the output and of eager."""
    flat = [flatten(tensor) for tensor in (output.wanted, output.exact, output.given)]
    steps = None if output.slack is None else output.slack.reshape(2, -1)
    for start in range(0, flat[0].numel(), CHUNK):
        w, x, g = (tensor[start : start + CHUNK] for tensor in flat)
        w, x, g = widen(w), widen(x.to(w.device)), widen(g.to(w.device))
        slack = None if steps is None else steps[:, start : start + CHUNK].to(w.device)
        # A NaN among the elements is an extreme.
        if all(math.isfinite(float(extreme)) for t in (w, x, g) for extreme in t.aminmax()):
            finite, r64, misplaced = w.numel(), x, None
            error, eager = (g - x).abs_(), (w - x).abs_()
        else:
            is_finite = w.isfinite()
            finite = int(is_finite.sum())
            # The double precision answer may be infinite where the reference's own is not.
            r64 = torch.where(is_finite, torch.where(x.isfinite(), x, w), 0.0)
            misplaced = (g.isnan() != w.isnan()) | (w.isinf() & (g != w)) | (is_finite & g.isinf())
            error, eager = (torch.where(is_finite, (t - r64).abs(), 0.0) for t in (g, w))
        unexplained = eager if slack is None else eager - slack[1]
        yield Piece(
            start=start,
            finite=finite,
            r64=r64,
            error=error,
            misplaced=misplaced,
            eager_error=max(0.0, float(unexplained.max())),
            eager_by_element=eager,
            slack=slack,
        )


def find_largest_eager_error(output: OutputTensor) -> float:
    """Return the largest error of the eager reference, and of its other algorithms."""
    pieces = iterate_pieces(replace(output, given=output.wanted))
    eager_error = max((piece.eager_error for piece in pieces), default=0.0)
    if output.algorithms is None:
        return eager_error
    return max(eager_error, output.algorithms.scaled * compute_rms(output.exact))


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision; numbers that are packed by two, by their bytes."""
    if tensor.dtype is torch.float4_e2m1fn_x2:
        tensor = tensor.view(torch.uint8)
    return tensor.to(torch.float64)


TOLERANCE = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
}
"""L by the element type of the task's own answer."""
TF32_TOLERANCE = 2e-3
"""L for float32 under the precision allow_tf32."""
LOW_PRECISION_TOLERANCE = 1e-1
"""L for element types that are not in `TOLERANCE`, such as 8-bit floats."""
SINGLE = (torch.float32, torch.complex64)
"""Element types whose answers have a precision class."""
EAGER_ERRORS_ALLOWED = 4
"""How many times the eager reference's largest error is added to the tolerance."""
_SPARED_STEPS = 4
_EAGER_STEPS = 4
STEPS_BY_EAGER = 4
STEPS_BY_LIMIT = 16
STEPS_IN_FULL_PRECISION = 1024
"""One element in as many may be on another step that eager's own error explains, that only the
tolerance explains, and that only the tolerance explains without a lower precision class."""
_EAGER_SHARES = 8
_SPARED = 1
"""Elements with any relative error that never count: one may be next to zero by chance."""


def get_tolerance(dtype: torch.dtype, precision: Precision) -> float:
    """Return L of the rule above for answers of an element type."""
    if precision == "allow_tf32" and dtype in SINGLE:
        return TF32_TOLERANCE
    return TOLERANCE.get(dtype, LOW_PRECISION_TOLERANCE)


def measure_algorithms(
    reference: Reference,
    precision: Precision,
    kind: str = "own",
    probes: Sequence[tuple[list[Any], int]] = (),
) -> None:
    """Measure the reference's errors by every algorithm of a precision, once for each kind.

    Args:
        kind: What the inputs are; the task's own by default.
        probes: Inputs of that kind, each with the seed of its call.
    """
    limits = {str(dtype): get_tolerance(dtype, precision) for dtype in TOLERANCE}
    reference.measure_algorithms(precision, limits, kind, probes)


def has_too_many_steps(count: int, eager_count: int, elements: int, *, one_in: int) -> bool:
    """Whether too many elements are on another step than the reference's double precision answer.

    Args:
        elements: Finite elements of the answer.
        one_in: Allow one in as many, `STEPS_BY_EAGER` or another.
    """
    return count > max(_SPARED_STEPS, _EAGER_STEPS * eager_count, elements / one_in)


def has_too_many_large_errors(
    level: float, count: int, eager_count: int, *, limit: float, elements: int
) -> bool:
    """Whether too many elements exceed a relative error.

    Args:
        limit: L of the answer's element type.
        elements: Finite elements of the answer.
    """
    return count > _EAGER_SHARES * eager_count + _SPARED + limit / level * elements


def compute_rms(tensor: torch.Tensor | None) -> float:
    """Return the root mean square of the finite elements; 0 where there are none."""
    if tensor is None or not tensor.numel():
        return 0.0
    squares, finite = 0.0, 0
    flat = flatten(tensor)
    for start in range(0, flat.numel(), CHUNK):
        piece = widen(flat[start : start + CHUNK])
        is_known = piece.isfinite()
        squares += float(torch.where(is_known, piece, 0.0).square().sum())
        finite += int(is_known.sum())
    return math.sqrt(squares / finite) if finite else 0.0


# The precision class of an answer: fp32, tf32, fp16, bf16, fp8 or lower, by its errors.
#
# The class depends on the whole answer, not on its worst element: the norm of the error and the
# upper quartile of the relative error, each compared with that of the eager reference. The class
# of an answer in half precision or less is that of its element type if its errors are of eager's
# size.

_EPS = torch.finfo(torch.float32).eps
EAGER_ERRORS: dict[Precision, int] = {"torch_default": 32, "fp32_strict": 32, "allow_tf32": 4}
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
_LOWEST_ALLOWED: dict[Precision, str] = {
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
    error: float, eager_error: float, dtype: torch.dtype, precision: Precision, terms: int
) -> str:
    """Return the class of a relative error, given that of the eager reference.

    terms: The most terms of a sum in the answer (`count_terms`).
    """
    low = get_low_class(dtype)
    if low is not None:
        full = max(_LOW_EAGER_ERRORS * eager_error, torch.finfo(dtype).eps / 2)
        return _find_class(error, full, low)
    long_sum = _bound_full_precision(terms)
    if precision == "torch_default" and classify_eager(eager_error, terms) != "fp32":
        eager_error = 0.0  # Eager rounds more than float32, so its error shows nothing about it.
    full = max(EAGER_ERRORS[precision] * eager_error, long_sum)
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


def find_lowest_class(dtype: torch.dtype, precision: Precision, eager_class: str | None) -> str:
    """Return the lowest class that ranks: under torch_default, eager's own if that is lower.

    >>> find_lowest_class(torch.float32, "fp32_strict", "tf32")
    'fp32'
    >>> find_lowest_class(torch.float32, "torch_default", "tf32")
    'tf32'
    >>> find_lowest_class(torch.bfloat16, "fp32_strict", None)
    'bf16'
    """
    lowest = get_low_class(dtype) or _LOWEST_ALLOWED[precision]
    return (
        max(lowest, eager_class or "", key=rank_class) if precision == "torch_default" else lowest
    )


def is_below(precision_class: str | None, lowest_class: str | None) -> bool:
    """Whether a precision class is lower than the lowest one that ranks."""
    return lowest_class is not None and rank_class(precision_class) > rank_class(lowest_class)


def explain_precision(precision_class: str | None, *, by_tf32: bool) -> str | None:
    """Describe an error by the precision that accepts it; None for one that is not rounding.

    by_tf32: Whether the precision allow_tf32 accepts it.
    """
    size = _SIZES.get(precision_class or "")
    if size is None:
        return None
    accepting = "--precision allow_tf32 would accept" if by_tf32 else "no precision accepts"
    return f"{accepting} this error: it has the size of {size}"


def rank_class(precision_class: str | None) -> int:
    """Return the place of a precision class, the most precise first; that of none is 0."""
    return _RANKS[precision_class or ""]
