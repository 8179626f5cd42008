"""Whether an output is the right answer: structure, shape, element type, finiteness, numbers.

Floating outputs are held against the reference computed in double precision: every element has to
satisfy |c - r64| <= L * (|r64| + rms(r64)) + 4 * e0, where e0 is the largest error of the eager
reference itself. Scaling by the root mean square keeps zeros from passing where the answers are
small, and keeps large answers from failing on rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from evaluators._reference import Expected
from evaluators._tensors import tensors_of

TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
}
_LOW_PRECISION_TOLERANCE = 1e-1
_CHUNK = 1 << 24
# Upper ends of the scaled error that formats of lower precision leave behind.
_CLASSES = (("tf32", 2e-3), ("bf16", 2e-2))


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one output with the expected one."""

    reason: str | None = None
    """Why it is wrong, by the catalog's names; None when it is right."""
    message: str | None = None
    max_abs_error: float | None = None
    max_scaled_error: float | None = None
    """Largest error over its tolerance; above 1 is wrong."""
    precision_class: str | None = None
    """Precision that the error corresponds to, for float32 tasks."""


def compare(expected: Expected, got: Any) -> Comparison:
    """Compare an output with what the reference answers to the same inputs."""
    mismatch = _structure(expected.value, got)
    if mismatch is not None:
        return mismatch
    if any(tensor.is_meta for tensor in tensors_of(got)):
        return Comparison("unspecified", "the outputs hold more data than they describe")
    worst = Comparison()
    for wanted, exact, given in zip(
        tensors_of(expected.value), expected.exact, tensors_of(got), strict=True
    ):
        found = _numbers(wanted, exact, given)
        if found.reason is not None:
            return found
        worst = worse(worst, found)
    return worst


def worse(one: Comparison, other: Comparison) -> Comparison:
    """The comparison with the larger error figures of two that are both right."""
    if other.max_scaled_error is None:
        return one
    if one.max_scaled_error is None or one.max_abs_error is None:
        return other
    return Comparison(
        max_abs_error=max(one.max_abs_error, other.max_abs_error or 0.0),
        max_scaled_error=max(one.max_scaled_error, other.max_scaled_error),
        precision_class=max(one.precision_class or "", other.precision_class or "", key=_class_rank)
        or None,
    )


def _class_rank(name: str) -> int:
    return ["", "fp32", "tf32", "bf16", "lower"].index(name)


def _structure(wanted: Any, given: Any) -> Comparison | None:
    if isinstance(wanted, torch.Tensor):
        if not isinstance(given, torch.Tensor):
            return _wrong_type(wanted, given)
        if given.shape != wanted.shape:
            sizes = f"{list(given.shape)} instead of {list(wanted.shape)}"
            return Comparison("incorrect_shape", f"shape {sizes}")
        if given.dtype != wanted.dtype:
            return Comparison("incorrect_dtype", f"{given.dtype} instead of {wanted.dtype}")
        return None
    if isinstance(wanted, list | tuple):
        if not isinstance(given, list | tuple) or isinstance(given, list) != isinstance(
            wanted, list
        ):
            return _wrong_type(wanted, given)
        if len(given) != len(wanted):
            return Comparison("incorrect_count", f"{len(given)} outputs instead of {len(wanted)}")
        pairs = zip(wanted, given, strict=True)
        return next((m for w, g in pairs if (m := _structure(w, g)) is not None), None)
    if type(given) is not type(wanted):
        return _wrong_type(wanted, given)
    if given != wanted:
        return Comparison("incorrect_numerical", f"{given!r:.80} instead of {wanted!r:.80}")
    return None


def _wrong_type(wanted: Any, given: Any) -> Comparison:
    message = f"a {type(given).__name__} instead of a {type(wanted).__name__}"
    return Comparison("incorrect_type", message)


def _numbers(wanted: torch.Tensor, exact: torch.Tensor | None, given: torch.Tensor) -> Comparison:
    if exact is None:
        differing = int((wanted != given).sum())
        if differing:
            message = f"{differing} of {wanted.numel()} elements differ"
            return Comparison("incorrect_numerical", message)
        return Comparison()
    if wanted.numel() == 0:
        return Comparison()
    limit = TOLERANCE.get(wanted.dtype, _LOW_PRECISION_TOLERANCE)
    w, x, g = wanted.reshape(-1), exact.reshape(-1), given.reshape(-1)
    finite = torch.isfinite(w)
    misplaced = (torch.isnan(g) != torch.isnan(w)) | (torch.isinf(w) & (g != w))
    bad = int((misplaced | (finite & torch.isinf(g))).sum())
    if bad:
        message = (
            f"{bad} of {w.numel()} elements are not finite where the reference is, or inversely"
        )
        return Comparison("nan", message)
    kept = x[finite]
    if kept.numel() == 0:
        return Comparison()
    rms = float(kept.square().mean().sqrt())
    eager_error = float((w[finite].double() - kept).abs().max())
    largest = scaled = share = eager_share = 0.0
    for at in range(0, w.numel(), _CHUNK):
        part = finite[at : at + _CHUNK]
        r64 = x[at : at + _CHUNK][part]
        if r64.numel() == 0:
            continue
        error = (g[at : at + _CHUNK][part].double() - r64).abs()
        eager = (w[at : at + _CHUNK][part].double() - r64).abs()
        scale = r64.abs() + rms
        largest = max(largest, float(error.max()))
        scaled = max(scaled, _largest_ratio(error, limit * scale + 4 * eager_error))
        share = max(share, _largest_ratio(error, scale))
        eager_share = max(eager_share, _largest_ratio(eager, scale))
    precision = None
    if wanted.dtype == torch.float32:
        full = max(32 * eager_share, 32 * torch.finfo(torch.float32).eps)
        bounds = (("fp32", full), *_CLASSES)
        precision = next((name for name, bound in bounds if share <= bound), "lower")
    if scaled > 1:
        message = f"largest error {largest:.3g}, {scaled:.3g} times its tolerance"
        return Comparison("incorrect_numerical", message, largest, scaled, precision)
    return Comparison(None, None, largest, scaled, precision)


def _largest_ratio(error: torch.Tensor, scale: torch.Tensor) -> float:
    """Largest error / scale, where no error at all counts as 0 even over a scale of 0."""
    ratio = torch.where(error == 0, torch.zeros_like(error), error / scale)
    return float(ratio.max())
