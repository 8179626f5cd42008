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
largest over those that the policy allows (`references.algorithms`), so that a kernel may do what
eager may.

A task may round to steps. An element may be on a neighbouring step if the value before the rounding
is within its tolerance of the edge (`references.steps`). It may then differ by what that step
changes, and counts as right. One element in 4 may, where an error of that value of eager's size
explains it, and one in 16 where only L does, or four times as many as of the eager reference. The
first count as without error for the precision, the others only if they are fewer than one in 1024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison.pieces import CHUNK, flatten, widen
from evaluators.references.eager_error import RELATIVE_LEVELS as RELATIVE_LEVELS
from evaluators.references.task import Reference

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
"""L for float32 under the policy allow_tf32."""
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


def get_tolerance(dtype: torch.dtype, policy: Policy) -> float:
    """Return L of the rule above for answers of an element type."""
    if policy == "allow_tf32" and dtype in SINGLE:
        return TF32_TOLERANCE
    return TOLERANCE.get(dtype, LOW_PRECISION_TOLERANCE)


def measure_algorithms(
    reference: Reference,
    policy: Policy,
    kind: str | None = None,
    questions: Sequence[tuple[list[Any], int]] = (),
) -> None:
    """Measure the reference's errors by every algorithm that a policy allows, once for each kind.

    Args:
        reference: The reference.
        policy: The policy.
        kind: What the inputs are, if they are not the task's own.
        questions: These inputs, each with the seed of its call.
    """
    limits = {str(dtype): get_tolerance(dtype, policy) for dtype in TOLERANCE}
    if kind is None:
        reference.measure_algorithms(policy, limits)
    else:
        reference.measure_algorithms(policy, limits, kind, questions)


def has_too_many_steps(count: int, eager_count: int, elements: int, *, one_in: int) -> bool:
    """Whether too many elements are on another step than the reference's double precision answer.

    Args:
        count: Elements on another step.
        eager_count: Elements of the eager reference on another step.
        elements: Finite elements of the answer.
        one_in: Allow one in as many, `STEPS_BY_EAGER` or another.
    """
    return count > max(_SPARED_STEPS, _EAGER_STEPS * eager_count, elements / one_in)


def has_too_many_large_errors(
    level: float, count: int, eager_count: int, *, limit: float, elements: int
) -> bool:
    """Whether too many elements exceed a relative error.

    Args:
        level: The relative error, one of `RELATIVE_LEVELS`.
        count: Elements of the output that exceed it.
        eager_count: Elements of the eager reference that exceed it.
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
