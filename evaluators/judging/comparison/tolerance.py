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
"""

from __future__ import annotations

import math

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison.pieces import CHUNK, flatten, widen

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
RELATIVE_LEVELS = (1e-3, 1e-2, 1e-1)
"""Relative errors whose shares are bounded, ascending."""
_EAGER_SHARES = 8
_SPARED = 1
"""Elements with any relative error that never count: one may be next to zero by chance."""


def get_tolerance(dtype: torch.dtype, policy: Policy) -> float:
    """Return L of the rule above for answers of an element type."""
    if policy == "allow_tf32" and dtype in SINGLE:
        return TF32_TOLERANCE
    return TOLERANCE.get(dtype, LOW_PRECISION_TOLERANCE)


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
