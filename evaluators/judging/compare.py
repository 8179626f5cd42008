"""Whether an output is the right answer: structure, shape, element type, finiteness, numbers.

Floating outputs are held against the reference computed in double precision: every element has to
satisfy |c - r64| <= L * (|r64| + rms(r64)) + 4 * e0, where e0 is the largest error of the eager
reference itself. Scaling by the root mean square keeps zeros from passing where the answers are
small, and keeps large answers from failing on rounding.

Answers far below the root mean square could be anything by this rule alone. So the share of
elements with a large relative error is bounded too: at each of three levels q, no more elements may
be wrong by more than q * |r64| than 8 times as many as of the eager reference, one, and a share of
L / q, which is what an absolute error of L * rms does to answers spread evenly. Answers that are
zero or not normal do not count, so that flushing them to zero is no fault.

The precision class is what the whole answer says, not its worst element: the norm of the error and
the upper quartile of the relative error, each against that of the eager reference.

Tensors are read in pieces, so that no second copy of an answer in double precision is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.memory.tensors import tensors_of
from evaluators.references.choices import Choice, explain
from evaluators.references.task import Expected, same_bits

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
SINGLE = (torch.float32, torch.complex64)
"""Element types whose answers have a precision class."""
_CHUNK = 1 << 23
_EPS = torch.finfo(torch.float32).eps
_LEVELS = (1e-3, 1e-2, 1e-1)
"""Relative errors whose shares are bounded, ascending."""
_EAGER_SHARES = 8
_SPARED = 1
"""Elements with any relative error that never count: one may be next to zero by chance."""
_SAMPLE = 1 << 14
_QUARTILE = 0.75
_EAGER_ERRORS: dict[Policy, int] = {"fp32_strict": 32, "allow_tf32": 4}
"""How many times the eager reference's error is still its precision. Another order of summation may
well leave 32 times the error of a blocked one; where eager itself rounds to TF32 that would be
another format."""
_FEWEST_TERMS = 4096
_MOST_FULL = 6e-5
"""No error above this is full precision because sums are long; rounding one factor of a product to
TF32 or half precision leaves 2e-4."""
# Upper ends of the relative error that formats of lower precision leave behind: both factors of a
# product rounded to 11 bits leave 3e-4, cut off 1e-3; rounded to 8 bits 2.3e-3.
_CLASSES = (("tf32", 1.5e-3), ("bf16", 1.2e-2))
_INDICES = (torch.int64, torch.int32)
_RANKS = ("", "fp32", "tf32", "bf16", "lower")
_ALLOWED: dict[Policy, str] = {"fp32_strict": "fp32", "allow_tf32": "tf32"}
"""The lowest class that ranks."""


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
    typical_class: str | None = None
    """The same by the upper quartile of the relative error alone, whatever a few answers say."""


def tolerance(dtype: torch.dtype, policy: Policy) -> float:
    """L of the rule above for answers of an element type."""
    if policy == "allow_tf32" and dtype in SINGLE:
        return TF32_TOLERANCE
    return TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE)


def is_below(precision_class: str | None, policy: Policy) -> bool:
    """Whether a precision class is lower than a policy lets rank.

    >>> is_below("tf32", "fp32_strict"), is_below("tf32", "allow_tf32")
    (True, False)
    """
    return class_rank(precision_class) > class_rank(_ALLOWED[policy])


def class_rank(precision_class: str | None) -> int:
    """Place of a precision class, the most precise first; that of none is 0."""
    return _RANKS.index(precision_class or "")


def root_mean_square(tensor: torch.Tensor | None) -> float:
    """Root mean square of the finite elements; 0 where there are none."""
    if tensor is None or not tensor.numel():
        return 0.0
    squares, finite = 0.0, 0
    flat = _flat(tensor)
    for at in range(0, flat.numel(), _CHUNK):
        piece = _wide(flat[at : at + _CHUNK])
        known = piece.isfinite()
        squares += float(torch.where(known, piece, 0.0).square().sum())
        finite += int(known.sum())
    return math.sqrt(squares / finite) if finite else 0.0


def compare(
    expected: Expected,
    got: Any,
    policy: Policy = "fp32_strict",
    choices: Callable[[], Sequence[Choice]] = tuple,
    usual: Sequence[float] | None = None,
) -> Comparison:
    """Compare an output with what the reference answers to the same inputs.

    Args:
        expected: What the reference answers.
        got: The output.
        policy: Which precision is asked for.
        choices: What the reference has chosen indices by; called only where an index differs.
        usual: For special inputs, such as zeros: the root mean square of each tensor of an ordinary
            answer, to which errors may be relative too. Small answers then need no relative
            precision, and any number of indices may be as good as another.
    """
    mismatch = _structure(expected.value, got)
    if mismatch is not None:
        return mismatch
    got = _in_order(expected.value, got)
    if any(tensor.is_meta for tensor in tensors_of(got)):
        return Comparison("unspecified", "the outputs hold more data than they describe")
    worst = Comparison()
    triples = zip(tensors_of(expected.value), expected.exact, tensors_of(got), strict=True)
    terms = _terms(expected)
    for index, (wanted, exact, given) in enumerate(triples):
        if exact is None or not (wanted.is_floating_point() or wanted.is_complex()):
            found = _whole(index, wanted, exact, given, choices, few=usual is None)
        else:
            further = None if usual is None else usual[index]
            found = _numbers(index, wanted, exact, given, policy, terms, further)
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
        precision_class=max(one.precision_class, other.precision_class, key=class_rank),
        typical_class=max(one.typical_class, other.typical_class, key=class_rank),
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


def _in_order(wanted: Any, given: Any) -> Any:
    """A value of the wanted structure with the keys of its dicts in the wanted order."""
    if isinstance(wanted, dict):
        return {key: _in_order(item, given[key]) for key, item in wanted.items()}
    if isinstance(wanted, list | tuple):
        return [_in_order(w, g) for w, g in zip(wanted, given, strict=True)]
    return given


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
    if isinstance(wanted, dict):
        if not isinstance(given, dict):
            return _wrong_type(wanted, given)
        if given.keys() != wanted.keys():
            keys = f"{sorted(given)[:8]} instead of {sorted(wanted)[:8]}"
            return Comparison("incorrect_count", f"outputs {keys}")
        named = ((wanted[key], given[key]) for key in wanted)
        return next((m for w, g in named if (m := _structure(w, g)) is not None), None)
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


@dataclass
class _Relative:
    """Relative errors of one output: how many are large, and those of a sample of elements."""

    tiny: float
    """Smallest normal number of the answer's element type; smaller answers do not count."""
    step: int
    """Every how many elements one is in the sample."""
    large: list[int] = field(default_factory=lambda: [0] * len(_LEVELS))
    sample: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    def add(self, error: torch.Tensor, size: torch.Tensor) -> None:
        """Count a piece: its errors, and the magnitudes of its answers."""
        some = error > _LEVELS[0] * size
        errors, sizes = error[some], size[some]
        normal = sizes >= self.tiny
        errors, sizes = errors[normal], sizes[normal]
        for number, level in enumerate(_LEVELS):
            self.large[number] += int((errors > level * sizes).sum())
        errors, sizes = error[:: self.step], size[:: self.step]
        normal = sizes >= self.tiny
        self.sample.append(errors[normal] / sizes[normal])

    def quartile(self) -> float:
        """Upper quartile of the sample; 0 where no answer counts."""
        found = torch.cat(self.sample)
        if not found.numel():
            return 0.0
        return float(found.kthvalue(math.ceil(_QUARTILE * found.numel())).values)


def _numbers(
    index: int,
    wanted: torch.Tensor,
    exact: torch.Tensor,
    given: torch.Tensor,
    policy: Policy,
    terms: int,
    usual: float | None,
) -> Comparison:
    if wanted.numel() == 0:
        return Comparison()
    limit = tolerance(wanted.dtype, policy)
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
    further = rms + (usual or 0.0)
    tiny, step = torch.finfo(wanted.dtype).tiny, max(1, wanted.numel() // _SAMPLE)
    ours, eagers = _Relative(tiny, step), _Relative(tiny, step)
    largest = scaled = squared_error = eager_squared_error = 0.0
    failing = 0
    for piece in held or _pieces(wanted, exact, given):
        size = piece.r64.abs()
        allowed = limit * (size + further) + 4 * eager_error
        over = piece.error > allowed
        here = int(over.sum())
        if here and first is None:
            first = piece.at + int(over.int().argmax())
        failing += here
        largest = max(largest, float(piece.error.max()))
        scaled = max(scaled, _largest_ratio(piece.error, allowed))
        squared_error += float(piece.error.square().sum())
        eager_squared_error += float(piece.eager_by_element.square().sum())
        ours.add(piece.error, size)
        eagers.add(piece.eager_by_element, size)
    relative = math.sqrt(squared_error / squares) if squares else None
    precision = typical = None
    if wanted.dtype in SINGLE and relative is not None:
        by_norm = _class(relative, math.sqrt(eager_squared_error / squares), policy, terms)
        typical = _class(ours.quartile(), eagers.quartile(), policy, terms)
        precision = max(by_norm, typical, key=class_rank)
    reason = message = None
    if first is not None:
        reason = "incorrect_numerical"
        allowed = limit * (abs(_element(exact, first)) + further) + 4 * eager_error
        what = f"beyond their tolerance, here {allowed:.3g}"
        told = _told(index, wanted, exact, given, first, failing, what)
        message = f"{told}; largest error {largest:.3g}, {scaled:.3g} times its tolerance"
    elif usual is None:
        for level, count, eager_count in zip(_LEVELS, ours.large, eagers.large, strict=True):
            if count > _EAGER_SHARES * eager_count + _SPARED + limit / level * finite:
                reason = "incorrect_numerical"
                message = _told_relative(
                    index, wanted, exact, given, (level, count, eager_count), tiny
                )
    return Comparison(reason, message, largest, scaled, relative, precision, typical)


def _class(error: float, eager_error: float, policy: Policy, terms: int) -> str:
    """The class of a relative error beside that of the eager reference."""
    long = min(_MOST_FULL, _EPS * math.sqrt(max(_FEWEST_TERMS, terms)))
    full = max(_EAGER_ERRORS[policy] * eager_error, long)
    bounds = (("fp32", full), *_CLASSES)
    return next((name for name, bound in bounds if error <= bound), "lower")


def _terms(expected: Expected) -> int:
    """How many terms the longest sum of an answer may have, as far as shapes tell."""
    answers = max((t.numel() for t in tensors_of(expected.value)), default=0)
    given = [t for t in tensors_of(list(expected.inputs)) if t.is_floating_point()]
    return max((max(*t.shape, t.numel() // max(1, answers), 1) for t in given), default=1)


def _whole(
    index: int,
    wanted: torch.Tensor,
    exact: torch.Tensor | None,
    given: torch.Tensor,
    choices: Callable[[], Sequence[Choice]],
    *,
    few: bool,
) -> Comparison:
    """Whole numbers are exact: those of the reference, or of the reference in double precision."""
    wrong = given != wanted
    if exact is not None:
        wrong &= given != exact.to(given.device)
    failing = int(wrong.sum())
    if not failing:
        return Comparison()
    if wanted.dtype in _INDICES and explain(choices(), wanted, given, wrong, few=few):
        return Comparison()
    first = int(wrong.reshape(-1).int().argmax())
    message = _told(index, wanted, wanted, given, first, failing, "another value")
    return Comparison("incorrect_numerical", message)


def _told_relative(
    index: int,
    wanted: torch.Tensor,
    exact: torch.Tensor,
    given: torch.Tensor,
    counts: tuple[float, int, int],
    tiny: float,
) -> str:
    """The first element with a large relative error, and how many there are beside eager's."""
    level, count, eager_count = counts
    first = next(
        piece.at + int(over.int().argmax())
        for piece in _pieces(wanted, exact, given)
        if bool((over := _is_beyond(piece, level, tiny)).any())
    )
    what = f"wrong by more than {level:.1%} of their value, of eager's {eager_count}"
    return _told(index, wanted, exact, given, first, count, what)


def _is_beyond(piece: _Piece, level: float, tiny: float) -> torch.Tensor:
    size = piece.r64.abs()
    return (piece.error > level * size) & (size >= tiny)


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
