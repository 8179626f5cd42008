"""Whether an output is the right answer: structure, shape, element type, finiteness, numbers.

Floating outputs are held against the reference computed in double precision: every element has to
satisfy |c - r64| <= L * (|r64| + rms(r64)) + 4 * e0, where e0 is the largest error of the eager
reference itself. Scaling by the root mean square keeps zeros from passing where the answers are
small, and keeps large answers from failing on rounding. Tensors are read in pieces, so that no
second copy of an answer in double precision is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evaluators._case import Policy
from evaluators._reference import Expected, same_bits
from evaluators._tensors import tensors_of

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
_LOW_PRECISION_TOLERANCE = 1e-1
_SINGLE = (torch.float32, torch.complex64)
_CHUNK = 1 << 23
# Upper ends of the scaled error that formats of lower precision leave behind.
_CLASSES = (("tf32", 2e-3), ("bf16", 2e-2))


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one output with the expected one."""

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


def tolerance(dtype: torch.dtype, policy: Policy) -> float:
    """L of the rule above for answers of an element type."""
    if policy == "allow_tf32" and dtype in _SINGLE:
        return TF32_TOLERANCE
    return TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE)


def compare(expected: Expected, got: Any, policy: Policy = "fp32_strict") -> Comparison:
    """Compare an output with what the reference answers to the same inputs."""
    mismatch = _structure(expected.value, got)
    if mismatch is not None:
        return mismatch
    if any(tensor.is_meta for tensor in tensors_of(got)):
        return Comparison("unspecified", "the outputs hold more data than they describe")
    worst = Comparison()
    triples = zip(tensors_of(expected.value), expected.exact, tensors_of(got), strict=True)
    for index, (wanted, exact, given) in enumerate(triples):
        if exact is None or not (wanted.is_floating_point() or wanted.is_complex()):
            found = _whole(index, wanted, exact, given, expected.inputs)
        else:
            found = _numbers(index, wanted, exact, given, tolerance(wanted.dtype, policy))
        if found.reason is not None:
            return found
        worst = worse(worst, found)
    return worst


def worse(one: Comparison, other: Comparison) -> Comparison:
    """The comparison with the larger error figures of two that are both right."""
    if other.max_scaled_error is None:
        return one
    if one.max_scaled_error is None:
        return other
    return Comparison(
        max_abs_error=max(one.max_abs_error or 0.0, other.max_abs_error or 0.0),
        max_scaled_error=max(one.max_scaled_error, other.max_scaled_error),
        rel_l2_error=max(one.rel_l2_error or 0.0, other.rel_l2_error or 0.0),
        precision_class=max(one.precision_class or "", other.precision_class or "", key=_class_rank)
        or None,
    )


def repeats(expected: Expected, one: Any, other: Any) -> bool:
    """Whether two outputs of right structure for the same inputs are one answer.

    They are where they have the same bits, or differ by at most 4 times the eager reference's own
    error.
    """
    groups = zip(
        tensors_of(expected.value), expected.exact, tensors_of(one), tensors_of(other), strict=True
    )
    for wanted, exact, first, second in groups:
        if same_bits(first, second):
            continue
        if exact is None or not (wanted.is_floating_point() or wanted.is_complex()):
            return False
        first_error = max((p.eager_error for p in _pieces(wanted, exact, wanted)), default=0.0)
        given = [_flat(tensor) for tensor in (first, second)]
        for at in range(0, given[0].numel(), _CHUNK):
            a, b = (flat[at : at + _CHUNK] for flat in given)
            same = (a == b) | (a.isnan() & b.isnan())
            apart = torch.where(same, 0.0, (_wide(a) - _wide(b)).abs())
            if not bool((apart <= 4 * first_error).all()):
                return False
    return True


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
    if given != wanted and not (_is_nan(given) and _is_nan(wanted)):
        return Comparison("incorrect_numerical", f"{given!r:.80} instead of {wanted!r:.80}")
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _wrong_type(wanted: Any, given: Any) -> Comparison:
    message = f"a {type(given).__name__} instead of a {type(wanted).__name__}"
    return Comparison("incorrect_type", message)


@dataclass(frozen=True)
class _Piece:
    """A stretch of one output beside its answer; not finite answers are 0 in `r64` and `error`."""

    at: int
    """Number of its first element."""
    finite: int
    """How many elements of the reference are finite."""
    r64: torch.Tensor
    error: torch.Tensor
    misplaced: torch.Tensor | None
    """Where an element is not finite and the reference's is, or inversely; None where all are."""
    eager_error: float
    """Largest error of the eager reference."""
    eager_by_element: torch.Tensor


def _pieces(wanted: torch.Tensor, exact: torch.Tensor, given: torch.Tensor) -> Iterator[_Piece]:
    flat = [_flat(tensor) for tensor in (wanted, exact, given)]
    for at in range(0, flat[0].numel(), _CHUNK):
        w, x, g = (tensor[at : at + _CHUNK] for tensor in flat)
        w, x, g = _wide(w), _wide(x.to(w.device)), _wide(g.to(w.device))
        if all(_is_finite(tensor) for tensor in (w, x, g)):
            eager = (w - x).abs_()
            yield _Piece(
                at=at,
                finite=w.numel(),
                r64=x,
                error=(g - x).abs_(),
                misplaced=None,
                eager_error=float(eager.max()),
                eager_by_element=eager,
            )
            continue
        finite = w.isfinite()
        # The double precision answer may be infinite where the reference's own is not.
        r64 = torch.where(finite, torch.where(x.isfinite(), x, w), 0.0)
        eager = torch.where(finite, (w - r64).abs(), 0.0)
        yield _Piece(
            at=at,
            finite=int(finite.sum()),
            r64=r64,
            error=torch.where(finite, (g - r64).abs(), 0.0),
            misplaced=(g.isnan() != w.isnan()) | (w.isinf() & (g != w)) | (finite & g.isinf()),
            eager_error=float(eager.max()),
            eager_by_element=eager,
        )


def _numbers(
    index: int, wanted: torch.Tensor, exact: torch.Tensor, given: torch.Tensor, limit: float
) -> Comparison:
    if wanted.numel() == 0:
        return Comparison()
    squares, finite, misplaced, eager_error = 0.0, 0, 0, 0.0
    first: int | None = None
    looks = _pieces(wanted, exact, given)
    held = list(looks) if wanted.numel() <= _CHUNK // 2 else None  # a complex element is two
    for piece in held or looks:
        squares += float(piece.r64.square().sum())
        finite += piece.finite
        eager_error = max(eager_error, piece.eager_error)
        if piece.misplaced is None:
            continue
        here = int(piece.misplaced.sum())
        if here and first is None:
            first = piece.at + int(piece.misplaced.int().argmax())
        misplaced += here
    if first is not None:
        what = "not finite where the reference is, or inversely"
        return Comparison("nan", _told(index, wanted, exact, given, first, misplaced, what))
    if not finite:
        return Comparison()
    rms = math.sqrt(squares / finite)
    largest = scaled = share = eager_share = squared_error = 0.0
    failing = 0
    for piece in held or _pieces(wanted, exact, given):
        scale = piece.r64.abs() + rms
        allowed = limit * scale + 4 * eager_error
        over = piece.error > allowed
        here = int(over.sum())
        if here and first is None:
            first = piece.at + int(over.int().argmax())
        failing += here
        largest = max(largest, float(piece.error.max()))
        scaled = max(scaled, _largest_ratio(piece.error, allowed))
        # With the allowance of the rule, so that what passes as a format is called that format.
        beyond = (piece.error - 4 * eager_error).clamp_(min=0)
        share = max(share, _largest_ratio(beyond, scale))
        eager_share = max(eager_share, _largest_ratio(piece.eager_by_element, scale))
        squared_error += float(piece.error.square().sum())
    precision = None
    if wanted.dtype in _SINGLE:
        full = max(32 * eager_share, 32 * torch.finfo(torch.float32).eps)
        bounds = (("fp32", full), *_CLASSES)
        precision = next((name for name, bound in bounds if share <= bound), "lower")
    reason = message = None
    if first is not None:
        reason = "incorrect_numerical"
        allowed = limit * (abs(_element(exact, first)) + rms) + 4 * eager_error
        what = f"beyond their tolerance, here {allowed:.3g}"
        told = _told(index, wanted, exact, given, first, failing, what)
        message = f"{told}; largest error {largest:.3g}, {scaled:.3g} times its tolerance"
    relative = math.sqrt(squared_error / squares) if squares else None
    return Comparison(reason, message, largest, scaled, relative, precision)


def _whole(
    index: int,
    wanted: torch.Tensor,
    exact: torch.Tensor | None,
    given: torch.Tensor,
    inputs: Sequence[Any],
) -> Comparison:
    """Whole numbers are exact: those of the reference, or of the reference in double precision."""
    wrong = given != wanted
    if exact is not None:
        wrong &= given != exact.to(given.device)
    failing = int(wrong.sum())
    if not failing or _tied(wanted, given, inputs):
        return Comparison()
    first = int(wrong.reshape(-1).int().argmax())
    message = _told(index, wanted, wanted, given, first, failing, "another value")
    return Comparison("incorrect_numerical", message)


def _tied(wanted: torch.Tensor, given: torch.Tensor, inputs: Sequence[Any]) -> bool:
    """Whether both are places of the same extreme values along one dimension of an input."""
    if wanted.dtype != torch.int64 or wanted.numel() == 0:
        return False
    for source in tensors_of(list(inputs)):
        if source.is_complex() or source.numel() == 0:
            continue
        views = [(source, dim) for dim in range(source.dim())]
        if wanted.numel() == 1:
            views.append((source.reshape(-1), 0))
        for values, dim in views:
            kept = [*values.shape[:dim], 1, *values.shape[dim + 1 :]]
            reduced = [*values.shape[:dim], *values.shape[dim + 1 :]]
            if list(wanted.shape) not in (kept, reduced):
                continue
            ours, theirs = wanted.reshape(kept), given.reshape(kept)
            inside = (ours >= 0) & (ours < values.shape[dim])
            inside &= (theirs >= 0) & (theirs < values.shape[dim])
            if not bool(inside.all()):
                continue
            best = values.gather(dim, ours)
            ends = (values.amax(dim, keepdim=True), values.amin(dim, keepdim=True))
            extreme = any(torch.equal(best, end) for end in ends)
            if extreme and torch.equal(best, values.gather(dim, theirs)):
                return True
    return False


def _told(
    index: int,
    wanted: torch.Tensor,
    exact: torch.Tensor,
    given: torch.Tensor,
    first: int,
    failing: int,
    what: str,
) -> str:
    """The first wrong element with its place, and how many there are."""
    place = first // 2 if wanted.is_complex() else first
    at = _index(place, wanted.shape)
    got = _element(given, first)
    count = wanted.numel() * (2 if wanted.is_complex() else 1)
    want = (
        _element(exact, first)
        if math.isfinite(_element(wanted, first))
        else (_element(wanted, first))
    )
    return (
        f"output {index} at {at}: got {got:.9g}, wanted {want:.9g};"
        f" {failing} of {count} elements ({failing / count:.3%}) are {what}"
    )


def _index(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Coordinates of an element by its number in order."""
    index: list[int] = []
    for size in reversed(shape):
        number, at = divmod(number, size)
        index.insert(0, at)
    return tuple(index)


def _element(tensor: torch.Tensor, number: int) -> float:
    return float(_flat(tensor)[number])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in order; a complex one is two."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64)


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are; a NaN is the extreme of any that it stands among."""
    return all(math.isfinite(float(extreme)) for extreme in tensor.aminmax())


def _largest_ratio(error: torch.Tensor, scale: torch.Tensor) -> float:
    """Largest error / scale, where no error at all counts as 0 even over a scale of 0."""
    largest = float((error / scale).max())
    if math.isnan(largest):
        largest = float(torch.where(error == 0, 0.0, error / scale).max())
    return largest
