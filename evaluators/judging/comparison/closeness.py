"""Whether an answer is so close to eager's that no reference in double precision is needed.

On a GPU, that reference takes far longer than the call that is checked. An answer c that differs
from eager's answer e by at most half of the tolerance is within the tolerance
(`comparison.tolerance`), as far as eager's own errors are those of the calls before:

    |c - e| <= L / 2 * (|e| + rms(e)) + 2 * e0

and the number of elements that differ by more than q * |e| is at most half of what may be wrong by
that much. For answers that are not as close, the full comparison decides.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison.failures import name_failures
from evaluators.judging.comparison.pieces import CHUNK, flatten, widen
from evaluators.judging.comparison.structure import find_mismatch, is_whole, order_keys
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    RELATIVE_LEVELS,
    compute_rms,
    get_tolerance,
    has_too_many_large_errors,
)
from evaluators.memory.tensors import has_same_bits
from evaluators.memory.values import tensors_of
from evaluators.references.eager_error import EagerError


@name_failures()
def is_close(eager: Any, output: Any, policy: Policy, error: EagerError | None) -> bool:
    """Whether an output is right by its distance to eager's answer to the same inputs alone.

    error: Eager's own error in earlier calls; None counts as no error.
    """
    if find_mismatch(eager, output) is not None:
        return False
    ordered = order_keys(eager, output)
    if any(tensor.is_meta for tensor in tensors_of(ordered)):
        return False
    known = error or EagerError(0.0, (0.0,) * len(RELATIVE_LEVELS))
    pairs = zip(tensors_of(eager), tensors_of(ordered), strict=True)
    return all(_is_tensor_close(wanted, given, policy, known) for wanted, given in pairs)


def _is_tensor_close(
    wanted: torch.Tensor, given: torch.Tensor, policy: Policy, error: EagerError
) -> bool:
    if is_whole(wanted):
        return has_same_bits(wanted, given)
    rms = compute_rms(wanted)
    if not math.isfinite(rms):
        return False
    limit = get_tolerance(wanted.dtype, policy) / 2
    margin = limit * rms + EAGER_ERRORS_ALLOWED / 2 * error.scaled * rms
    large = [0] * len(RELATIVE_LEVELS)
    flat = [flatten(tensor) for tensor in (wanted, given)]
    for start in range(0, flat[0].numel(), CHUNK):
        w, g = (widen(t[start : start + CHUNK].to(wanted.device)) for t in flat)
        difference, size = (g - w).abs_(), w.abs()
        # A comparison with NaN is false: answers that are not finite are not close.
        if not bool((difference <= limit * size + margin).all()):
            return False
        for number, level in enumerate(RELATIVE_LEVELS):
            large[number] += int((difference > level * size).sum())
    return not any(
        has_too_many_large_errors(level, count, 0, limit=limit, elements=flat[0].numel())
        and count > share * flat[0].numel()
        for level, count, share in zip(RELATIVE_LEVELS, large, error.shares, strict=True)
    )
