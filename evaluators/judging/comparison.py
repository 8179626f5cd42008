"""Comparison of a whole output with what the reference answers to the same inputs.

An output is right if its structure, shapes, element types and places of NaN and infinity are those
of the reference, its floating elements are within their tolerance (`judging.tolerance`), and its
whole numbers are equal, except for indices that are as good as the reference's.
"""

from __future__ import annotations

import cmath
import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy
import torch

from evaluators.judging.case import Precision
from evaluators.judging.tolerance import (
    CHUNK,
    EAGER_ERRORS,
    EAGER_ERRORS_ALLOWED,
    QUARTILE_OF_EVEN,
    RELATIVE_LEVELS,
    SINGLE,
    STEPS_BY_EAGER,
    STEPS_BY_LIMIT,
    STEPS_IN_FULL_PRECISION,
    TF32_TOLERANCE,
    TOLERANCE,
    OutputTensor,
    Piece,
    classify_eager,
    classify_error,
    compute_rms,
    count_terms,
    explain_precision,
    find_largest_eager_error,
    find_lowest_class,
    get_low_class,
    get_tolerance,
    has_too_many_large_errors,
    has_too_many_steps,
    is_below,
    iterate_pieces,
    rank_class,
    widen,
)
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.tensors import get_dtype_name, has_same_bits, is_inexact, read_pending
from evaluators.memory.values import name_parts, split_arguments, tensors_of
from evaluators.references.operations import Choice, EagerError, explain, flatten
from evaluators.references.task import Expected, ReferenceFailed, Tolerance
from evaluators.sandbox.failures import Failed, lacks_memory
from store.errors import FlywheelError


@dataclass(frozen=True)
class Comparison:
    """Whether an output is right, and how large its errors are."""

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
    """Precision that the error corresponds to."""
    typical_class: str | None = None
    """The same by the upper quartile of the relative error alone, whatever a few answers say."""
    eager_class: str | None = None
    """Precision that the eager reference's own error corresponds to, for answers in float32."""
    lowest_class: str | None = None
    """The lowest precision class that ranks."""
    eager_error: EagerError | None = None
    """The least of the eager reference's own errors; None where it has none."""
    excused: str | None = None
    """What is wrong by the judge's own tolerance, where the task's own rules accept the output."""


def merge_comparisons(one: Comparison, other: Comparison) -> Comparison:
    """Return the larger error figures of two comparisons that are both right."""
    if other.max_scaled_error is None:
        return replace(one, excused=one.excused or other.excused)
    if one.max_scaled_error is None:
        return replace(other, excused=one.excused or other.excused)
    return Comparison(
        max_abs_error=max(one.max_abs_error or 0.0, other.max_abs_error or 0.0),
        max_scaled_error=max(one.max_scaled_error, other.max_scaled_error),
        rel_l2_error=max(one.rel_l2_error or 0.0, other.rel_l2_error or 0.0),
        precision_class=max(one.precision_class, other.precision_class, key=rank_class),
        typical_class=max(one.typical_class, other.typical_class, key=rank_class),
        eager_class=max(one.eager_class, other.eager_class, key=rank_class),
        lowest_class=max(one.lowest_class, other.lowest_class, key=rank_class),
        excused=one.excused or other.excused,
        eager_error=EagerError.merge(one.eager_error, other.eager_error, min),
    )


_MOST_INPUTS = 8


@dataclass
class _Elements:
    """Elements of an output that have something in common, such as that they are wrong."""

    count: int = 0
    first: int | None = None
    """Number of the first one."""

    def add(self, start: int, are_such: torch.Tensor) -> None:
        """Add those of a piece, whose first element has the number `start`."""
        count = int(are_such.sum())
        if count and self.first is None:
            self.first = start + int(are_such.reshape(-1).int().argmax())
        self.count += count

    def describe(self, output: OutputTensor, fault: str) -> str:
        """Describe the first element with its place, and how many there are.

        fault: What is wrong with them; ends the sentence "n of m elements are …".
        """
        every = output.wanted.numel() * (2 if output.wanted.is_complex() else 1)
        share = f"{self.count} of {every} elements ({self.count / every:.3%})"
        return f"{_describe_element(output, self.first or 0)}; {share} are {fault}"


def describe_largest_error(output: OutputTensor) -> str:
    """Describe the element with the largest error."""
    largest, first = -1.0, 0
    for piece in iterate_pieces(output):
        number = int(piece.error.argmax())
        if float(piece.error[number]) > largest:
            largest, first = float(piece.error[number]), piece.start + number
    return _describe_element(output, first)


def _describe_element(output: OutputTensor, number: int) -> str:
    wanted, exact = output.wanted, output.exact
    place = number // 2 if wanted.is_complex() else number
    coordinates = _compute_coordinates(place, wanted.shape)
    value = get_element(exact if math.isfinite(get_element(wanted, number)) else wanted, number)
    name = output.name or f"output {output.index}"
    return (
        f"{name} {describe_tensor(wanted)} at {coordinates}: got"
        f" {get_element(output.given, number):.9g}, wanted {value:.9g}"
    )


def describe_tensor(tensor: torch.Tensor) -> str:
    """Return element type and shape.

    >>> describe_tensor(torch.zeros(2, 3))
    'float32[2, 3]'
    """
    return f"{get_dtype_name(tensor.dtype)}{list(tensor.shape)}"


def describe_inputs(inputs: Sequence[Any], names: Sequence[str]) -> str:
    """Return the inputs of a call by name, or number, with element types and shapes.

    >>> describe_inputs([torch.zeros(2), 3], ["x"])
    'x: float32[2], input 1: 3'
    """
    shown: list[str] = []
    positional, keywords = split_arguments(inputs)
    named = [
        (names[number] if number < len(names) else f"input {number}", value)
        for number, value in enumerate(positional)
    ]
    for name, value in [*named, *keywords.items()]:
        if isinstance(value, torch.Tensor):
            text = describe_tensor(value)
        elif isinstance(value, list | tuple | dict):
            tensors = [describe_tensor(tensor) for tensor in tensors_of(value)]
            text = f"{type(value).__name__}({', '.join(tensors[:_MOST_INPUTS])})"
        else:
            text = f"{value!r:.40}"
        shown.append(f"{name}: {text}")
    more = len(shown) - _MOST_INPUTS
    return ", ".join(shown[:_MOST_INPUTS]) + (f" and {more} more" if more > 0 else "")


def describe_change(
    before: Any, after: Any, names: Sequence[str], allowed: Sequence[int] = ()
) -> str:
    """Describe the first element of the inputs that differs after a call.

    allowed: Numbers of the tensors that the task changes as well.
    """
    place = itertools.count()
    for number, (one, other) in enumerate(zip(before, after, strict=False)):
        for tensor, now in zip(tensors_of(one), tensors_of(other), strict=False):
            if next(place) in allowed or has_same_bits(tensor, now):
                continue
            name = names[number] if number < len(names) else f"input {number}"
            was, found = widen(flatten(tensor)), widen(flatten(now).to(tensor.device))
            differs = (was != found) & ~(was.isnan() & found.isnan())
            first = int(differs.int().argmax())
            coordinates = _compute_coordinates(
                first // 2 if tensor.is_complex() else first, tensor.shape
            )
            return (
                f"{name} {describe_tensor(tensor)} at {coordinates}: was"
                f" {get_element(tensor, first):.9g}, is {get_element(now, first):.9g} after it"
            )
    return "an input"


def get_element(tensor: torch.Tensor, number: int) -> float:
    """Return an element by its number in order; a complex element is two."""
    element = flatten(tensor)[number]
    packed = element.dtype is torch.float4_e2m1fn_x2  # has no arithmetic
    return float(element.view(torch.uint8) if packed else element)


def _compute_coordinates(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    coordinates: list[int] = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        coordinates.insert(0, place)
    return tuple(coordinates)


def find_mismatch(wanted: Any, given: Any, place: str = "") -> Comparison | None:
    """Return the first difference in structure; None where the structures are the same.

    place: Where in the output they are, such as `[1]`; empty for the whole output.
    """

    def report(reason: str, message: str) -> Comparison:
        return Comparison(reason, f"output{place}: {message}" if place else message)

    kinds = (torch.Tensor, list, tuple, dict)
    kind = next((kind for kind in kinds if isinstance(wanted, kind)), None)
    if kind is None and dataclasses.is_dataclass(wanted):
        is_same_kind = dataclasses.is_dataclass(given)
    else:
        is_same_kind = isinstance(given, kind) if kind else type(given) is type(wanted)
    if not is_same_kind:
        names = f"a {type(given).__name__} instead of a {type(wanted).__name__}"
        return report("incorrect_type", names)
    if isinstance(wanted, torch.Tensor):
        if given.shape != wanted.shape:
            sizes = f"{list(given.shape)} instead of {list(wanted.shape)}"
            return report("incorrect_shape", f"shape {sizes}")
        if given.dtype != wanted.dtype:
            return report("incorrect_dtype", f"{given.dtype} instead of {wanted.dtype}")
        if read_pending(given) & ~read_pending(wanted):  # eager itself may leave it to the reader
            return report(
                "incorrect_type",
                "an output leaves a conjugation or negation to its reader, and the task's does"
                " not: return what its resolve_conj() and resolve_neg() return",
            )
        return None
    if dataclasses.is_dataclass(wanted):
        return find_mismatch(name_parts(wanted), name_parts(given), place)
    parts: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(wanted, list | tuple):
        if len(given) != len(wanted):
            return report("incorrect_count", f"{len(given)} outputs instead of {len(wanted)}")
        parts = zip(range(len(wanted)), wanted, given, strict=True)
    elif isinstance(wanted, dict):
        if given.keys() != wanted.keys():
            keys = f"{sorted(map(str, given))[:8]} instead of {sorted(map(str, wanted))[:8]}"
            return report("incorrect_count", f"outputs {keys}")
        parts = [(key, wanted[key], given[key]) for key in wanted]
    else:
        is_same = given == wanted
        if isinstance(wanted, float | complex | numpy.floating):
            # It is usually read from a tensor of single precision, so it may differ as much.
            is_same = cmath.isclose(given, wanted, rel_tol=TOLERANCE[torch.float32])
            is_same |= cmath.isnan(given) and cmath.isnan(wanted)
        if not is_same:
            return report("incorrect_numerical", f"{given!r:.80} instead of {wanted!r:.80}")
    found = (find_mismatch(w, g, f"{place}[{key!r:.40}]") for key, w, g in parts)
    return next((mismatch for mismatch in found if mismatch is not None), None)


def order_keys(wanted: Any, given: Any) -> Any:
    """Return a value of the wanted structure with the keys of its dicts in the wanted order."""
    if isinstance(wanted, dict):
        return {key: order_keys(item, given[key]) for key, item in wanted.items()}
    if dataclasses.is_dataclass(wanted):
        return order_keys(name_parts(wanted), name_parts(given))
    if isinstance(wanted, list | tuple):
        return [order_keys(w, g) for w, g in zip(wanted, given, strict=True)]
    return given


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers or booleans, which are compared exactly."""
    return not is_inexact(tensor.dtype)


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite."""
    if is_whole(tensor):
        return True
    has_arithmetic = tensor.is_complex() or tensor.element_size() > 1
    return bool((tensor if has_arithmetic else tensor.float()).isfinite().all())


_MOST_TEXT = 300


class ComparisonFailed(ReferenceFailed):
    """Answers to a task cannot be compared."""

    reason = "comparison_failed"


@contextlib.contextmanager
def name_failures() -> Generator[None]:
    """Turn an error of the judge's own in a block into ComparisonFailed, which names the limit."""
    try:
        yield
    except (Failed, ReferenceFailed, FlywheelError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        name = type(error).__name__
        detail = f"an answer cannot be compared: {name}: {lines[0][:_MOST_TEXT]}"
        limit = "comparison_memory" if lacks_memory(error) else "comparison"
        raise ComparisonFailed(refuse_limit(limit, detail)) from error


_NO_ERROR = EagerError(0.0, (0.0,) * len(RELATIVE_LEVELS))

# Whether an answer is so close to eager's that no reference in double precision is needed.
#
# On a GPU, that reference takes far longer than the call that is checked. An answer c that differs
# from eager's answer e by at most half of the tolerance is within the tolerance
# (`judging.tolerance`), as far as eager's own errors are those of the calls before:
#
#     |c - e| <= L / 2 * (|e| + rms(e)) + 2 * e0
#
# and the number of elements that differ by more than q * |e| is at most half of what may be wrong
# by that much. For answers that are not as close, the full comparison decides.


@name_failures()
def is_close(eager: Any, output: Any, precision: Precision, error: EagerError | None) -> bool:
    """Whether an output is right by its distance to eager's answer to the same inputs alone.

    error: Eager's own error in earlier calls; None counts as no error.
    """
    if find_mismatch(eager, output) is not None:
        return False
    ordered = order_keys(eager, output)
    if any(tensor.is_meta for tensor in tensors_of(ordered)):
        return False
    known = error or _NO_ERROR
    for wanted, given in zip(tensors_of(eager), tensors_of(ordered), strict=True):
        if is_whole(wanted):
            if not has_same_bits(wanted, given):
                return False
            continue
        rms = compute_rms(wanted)
        if not math.isfinite(rms):
            return False
        limit = get_tolerance(wanted.dtype, precision) / 2
        margin = limit * rms + EAGER_ERRORS_ALLOWED / 2 * known.scaled * rms
        large = [0] * len(RELATIVE_LEVELS)
        flat = [flatten(tensor) for tensor in (wanted, given)]
        elements = flat[0].numel()
        for start in range(0, elements, CHUNK):
            w, g = (widen(t[start : start + CHUNK].to(wanted.device)) for t in flat)
            difference, size = (g - w).abs_(), w.abs()
            # A comparison with NaN is false: answers that are not finite are not close.
            if not bool((difference <= limit * size + margin).all()):
                return False
            for number, level in enumerate(RELATIVE_LEVELS):
                large[number] += int((difference > level * size).sum())
        for level, count, share in zip(RELATIVE_LEVELS, large, known.shares, strict=True):
            too_many = has_too_many_large_errors(level, count, 0, limit=limit, elements=elements)
            if too_many and count > share * elements:
                return False
    return True


# Answers to inputs of uneven size that rounding cannot explain, though the reference is stable.
#
# A part of a module may be within the tolerance of every usual answer: a branch that is scaled by
# 1e-5, or the first steps of a recurrence. If some inputs are far larger than the rest, it
# dominates the answers to the others. Their tolerance must not come from the large answers:
#
#     |c - r64| <= 1.5 (L (|r64| + rms(row)) + max(32 e0, L / 4 rms(slice)))
#
# A slice has one index of the first dimension, and a row one index of all but the last. `e0` is
# eager's largest error in the slice. Another order of summation has at most 32 times that error
# (`tolerance.EAGER_ERRORS`), so it is no departure where eager itself is stable, nor where
# eager is not. Fourier transforms round all elements by as much as the largest one; a departure is
# also more than 8 times as large as what such noise in the inputs moves in the row. An answer that
# is not finite is beyond a kernel's range and no departure either.

_MARGIN = 1.5
_EAGER_ERRORS = 32
_SHARE = 0.25
_NOISE_MOVES = 8
_FEWEST_IN_ROW = 8
_USUAL = 1000.0
"""A finite number in place of infinity is of usual size up to this many times the root mean square
of an ordinary answer. A kernel that cuts infinities off answers far larger ones."""


def find_departure(
    expected: Expected,
    output: Any,
    precision: Precision,
    moved: Sequence[torch.Tensor | None] | None = None,
) -> str | None:
    """Describe the first element that departs from the reference; None if there is none.

    moved: Answers in double precision to the same inputs with noise, if they are known.
    """
    outputs = pair_outputs(expected, output)
    if not all(is_finite(t) for o in outputs for t in (o.wanted, o.exact, o.given)):
        return None
    for tensor in outputs:
        limit = get_tolerance(tensor.wanted.dtype, precision)
        noisy = None if moved is None else moved[tensor.index]
        flat = [
            torch.view_as_real(t.resolve_conj()).flatten(-2) if t.is_complex() else t
            for t in (
                tensor.wanted,
                tensor.exact,
                tensor.given,
                tensor.exact if noisy is None else noisy,
            )
        ]
        if flat[0].dim() < 2:
            flat = [t.reshape(1, -1) for t in flat]
        slices, last = flat[0].shape[0], flat[0].shape[-1]
        per_slice = flat[0].numel() // slices
        has_rows = flat[0].dim() > 2 and last >= _FEWEST_IN_ROW
        shape = (-1, per_slice // last, last) if has_rows else (-1, 1, per_slice)
        step = max(1, CHUNK // per_slice)
        departing = _Elements()
        for start in range(0, slices, step):
            wanted, exact, given, after_noise = (
                widen(t[start : start + step].to(flat[0].device)).reshape(shape) for t in flat
            )
            eager_error = (wanted - exact).abs().amax((1, 2), keepdim=True)
            rms = exact.square().mean((1, 2), keepdim=True).sqrt()
            if tensor.algorithms is not None:
                eager_error = torch.maximum(eager_error, tensor.algorithms.scaled * rms)
            row_rms = exact.square().mean(2, keepdim=True).sqrt()
            allowed = limit * (exact.abs() + row_rms)
            allowed += torch.maximum(_EAGER_ERRORS * eager_error, _SHARE * limit * rms)
            move_rms = (after_noise - exact).nan_to_num().square().mean(2, keepdim=True).sqrt()
            allowed = torch.maximum(allowed, _NOISE_MOVES * move_rms)
            departing.add(start * per_slice, (given - exact).abs() > _MARGIN * allowed)
        if departing.count:
            return departing.describe(tensor, "off by more than rounding explains")
    return None


def find_lost_infinity(expected: Expected, output: Any, usual: Sequence[float]) -> str | None:
    """Describe the first element of usual size where the reference is infinite, if there is one.

    It does not depend on an infinite input that decides the reference's answer.

    usual: Root mean square of each tensor of an ordinary answer.
    """
    for number in pair_outputs(expected, output):
        limit = _USUAL * usual[number.index]
        wanted, exact, given = (
            torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            for t in (number.wanted, number.exact.to(number.wanted.device), number.given)
        )
        lost = _Elements()
        is_usual = given.isfinite() & (given.abs() <= limit)
        lost.add(0, wanted.isinf() & (exact == wanted) & is_usual)
        if lost.count:
            return lost.describe(number, "finite where the task's are infinite")
    return None


def pair_outputs(expected: Expected, output: Any) -> list[OutputTensor]:
    """Return the tensors that have tolerances; none where the structures differ."""
    if find_mismatch(expected.value, output) is not None:
        return []
    triples = zip(
        tensors_of(expected.value),
        expected.exact,
        tensors_of(order_keys(expected.value, output)),
        strict=True,
    )
    return [
        OutputTensor(
            index,
            wanted,
            exact,
            given,
            expected.algorithms[index] if expected.algorithms else None,
        )
        for index, (wanted, exact, given) in enumerate(triples)
        if exact is not None and not is_whole(wanted) and not given.is_meta and wanted.numel()
    ]


_SAMPLE = 1 << 14
_Size = TypeVar("_Size", float, torch.Tensor)
_QUARTILE = 0.75


def compare_numbers(
    output: OutputTensor, precision: Precision, terms: int, usual: float | None, *, classifies: bool
) -> Comparison:
    """Compare a floating tensor with the reference's.

    Args:
        terms: The most terms of a sum in the answer.
        usual: Root mean square of an ordinary answer, where the inputs are special.
        classifies: Whether this tensor shows the precision.
    """
    if output.wanted.numel() == 0:
        return Comparison()
    pieces = iterate_pieces(output)
    kept_pieces = list(pieces) if output.is_small else None
    # The first pass: the size of the answer, and elements that are not finite in one alone.
    answer_squares, finite, largest_eager_error, misplaced = 0.0, 0, 0.0, _Elements()
    for piece in kept_pieces or pieces:
        answer_squares += float(piece.r64.square().sum())
        finite += piece.finite
        largest_eager_error = max(largest_eager_error, piece.eager_error)
        if piece.misplaced is not None:
            misplaced.add(piece.start, piece.misplaced)
    if misplaced.count:
        fault = "not finite where the reference is, or inversely"
        return Comparison("nan", misplaced.describe(output, fault))
    if not finite:
        return Comparison()

    rms = math.sqrt(answer_squares / finite)
    others = output.algorithms or _NO_ERROR

    def collect(limit: float) -> _Errors:
        errors = _Errors(
            limit=limit,
            scale=rms + (usual or 0.0),
            eager_error=max(largest_eager_error, others.scaled * rms),
            candidate=_RelativeErrors.of(output.wanted),
            eager=_RelativeErrors.of(output.wanted),
        )
        for piece in kept_pieces or iterate_pieces(output):
            errors.add(piece)
        counts = zip(errors.eager.large, others.shares, strict=True)
        errors.eager.large = [max(count, round(share * finite)) for count, share in counts]
        return errors

    errors = collect(get_tolerance(output.wanted.dtype, precision))
    squares, eager_squares = errors.squares, errors.eager_squares
    if errors.has_too_many_steps(finite, STEPS_IN_FULL_PRECISION):
        squares += errors.step_squares
        # The number of steps grows as errors do, and their norm as its root.
        eager_squares += errors.eager_step_squares / EAGER_ERRORS[precision]
    relative = math.sqrt(squares / answer_squares) if answer_squares else None
    precision_class = typical = eager = lowest = None
    dtype = output.wanted.dtype
    if classifies and relative is not None:
        eager_relative = math.sqrt(eager_squares / answer_squares)
        by_norm = classify_error(relative, eager_relative, dtype, precision, terms)
        shown, eager_shown = errors.candidate.compute_quartile(), errors.eager.compute_quartile()
        if get_low_class(dtype) is None:
            own = math.sqrt(errors.eager_squares / answer_squares)
            eager = classify_eager(max(own, others.relative), terms)
        else:
            # Eager rounds each answer once, in proportion to it; partial sums do not.
            eager_shown = max(eager_shown, QUARTILE_OF_EVEN * eager_relative)
        typical = classify_error(shown, eager_shown, dtype, precision, terms)
        precision_class = max(by_norm, typical, key=rank_class)
        lowest = find_lowest_class(dtype, precision, eager)
    message = _describe_fault(output, errors, finite, is_special=usual is not None)
    if message is not None and typical is not None and is_below(typical, lowest):
        by_tf32 = (
            dtype in SINGLE
            and precision != "allow_tf32"
            and _describe_fault(output, collect(TF32_TOLERANCE), finite, is_special=False) is None
        )
        explained = explain_precision(precision_class or typical, by_tf32=by_tf32)
        message += f"; {explained}" if explained else ""
    eager_error = None  # of an answer of zeros
    if answer_squares:
        shares = tuple(count / finite for count in errors.eager.large)
        eager_error = EagerError(errors.eager_error / rms, shares)
    return Comparison(
        None if message is None else "incorrect_numerical",
        message,
        errors.largest,
        errors.largest_scaled,
        relative,
        precision_class,
        typical,
        eager,
        lowest,
        eager_error,
    )


def _describe_fault(
    output: OutputTensor, errors: _Errors, finite: int, *, is_special: bool
) -> str | None:
    if errors.failing.first is not None:
        size = abs(get_element(output.exact, errors.failing.first))
        text = errors.failing.describe(
            output, f"beyond their tolerance, here {errors.compute_allowed(size):.3g}"
        )
        return (
            f"{text}; largest error {errors.largest:.3g}, {errors.largest_scaled:.3g} times its"
            " tolerance"
        )
    if errors.has_too_many_steps(finite, STEPS_BY_LIMIT):
        fault = f"on another rounding step, of eager's {errors.eager_steps}"
        return errors.all_steps.describe(output, fault)
    if is_special:
        return None
    message = None
    counts = zip(RELATIVE_LEVELS, errors.candidate.large, errors.eager.large, strict=True)
    for level, count, eager_count in counts:
        if has_too_many_large_errors(
            level, count, eager_count, limit=errors.limit, elements=finite
        ):
            beyond = _Elements()
            for piece in iterate_pieces(output):
                size = piece.r64.abs()
                is_beyond = (piece.error > level * size) & (size >= errors.candidate.tiny)
                beyond.add(piece.start, is_beyond)
                if beyond.count:
                    break
            beyond.count = count
            fault = f"wrong by more than {level:.1%} of their value, of eager's {eager_count}"
            message = beyond.describe(output, fault)
    return message


@dataclass
class _RelativeErrors:
    """Relative errors of one output: how many are large, and those of a sample of elements."""

    tiny: float
    """Smallest normal number of the answer's element type; smaller answers do not count."""
    step: int
    """Distance between two elements of the sample."""
    large: list[int] = field(default_factory=lambda: [0] * len(RELATIVE_LEVELS))
    sample: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    @classmethod
    def of(cls, wanted: torch.Tensor) -> _RelativeErrors:
        return cls(torch.finfo(wanted.dtype).tiny, max(1, wanted.numel() // _SAMPLE))

    def add(self, error: torch.Tensor, size: torch.Tensor) -> None:
        """Count a piece: its errors, and the magnitudes of its answers."""
        is_large = error > RELATIVE_LEVELS[0] * size
        errors, sizes = error[is_large], size[is_large]
        is_normal = sizes >= self.tiny
        errors, sizes = errors[is_normal], sizes[is_normal]
        for number, level in enumerate(RELATIVE_LEVELS):
            self.large[number] += int((errors > level * sizes).sum())
        errors, sizes = error[:: self.step], size[:: self.step]
        is_normal = sizes >= self.tiny
        self.sample.append(errors[is_normal] / sizes[is_normal])

    def compute_quartile(self) -> float:
        """Return the upper quartile of the sample; 0 where no answer counts."""
        values = torch.cat(self.sample)
        if not values.numel():
            return 0.0
        return float(values.kthvalue(math.ceil(_QUARTILE * values.numel())).values)


@dataclass
class _Errors:
    """The second pass: the errors of every element beside their tolerance."""

    limit: float
    """L of the rule (`judging.tolerance`)."""
    scale: float
    """What is added to the magnitude of an answer: the root mean square."""
    eager_error: float
    candidate: _RelativeErrors
    eager: _RelativeErrors
    largest: float = 0.0
    largest_scaled: float = 0.0
    squares: float = 0.0
    eager_squares: float = 0.0
    failing: _Elements = field(default_factory=_Elements)
    """Elements beyond their tolerance."""
    all_steps: _Elements = field(default_factory=_Elements)
    """Elements that are right because another rounding step explains their error."""
    steps: int = 0
    """Those of them whose step only the tolerance explains."""
    step_squares: float = 0.0
    eager_steps: int = 0
    eager_step_squares: float = 0.0

    def add(self, piece: Piece) -> None:
        """Count the errors of a piece."""
        size = piece.r64.abs()
        allowed = self.compute_allowed(size)
        error, eager = piece.error, piece.eager_by_element
        if piece.slack is not None:
            by_eager, by_limit = (allowed + change for change in piece.slack)
            is_step = (error > allowed) & (error <= by_limit)
            is_eager_step = (eager > allowed) & (eager <= by_limit)
            is_far = is_step & (error > by_eager)
            self.all_steps.add(piece.start, is_step)
            self.steps += int(is_far.sum())
            self.eager_steps += int(is_eager_step.sum())
            self.step_squares += float(error[is_far].square().sum())
            self.eager_step_squares += float(eager[is_eager_step].square().sum())
            error = torch.where(is_step, 0.0, error)
            eager = torch.where(is_eager_step, 0.0, eager)
        self.failing.add(piece.start, error > allowed)
        self.largest = max(self.largest, float(error.max()))
        scaled = float((error / allowed).max())
        if math.isnan(scaled):  # no error counts as 0 even where none is allowed
            scaled = float(torch.where(error == 0, 0.0, error / allowed).max())
        self.largest_scaled = max(self.largest_scaled, scaled)
        self.squares += float(error.square().sum())
        self.eager_squares += float(eager.square().sum())
        self.candidate.add(error, size)
        self.eager.add(eager, size)

    def has_too_many_steps(self, elements: int, one_in: int) -> bool:
        """Whether too many elements are on another step; see `tolerance`."""
        counts = ((self.all_steps.count, STEPS_BY_EAGER), (self.steps, one_in))
        return any(
            has_too_many_steps(count, self.eager_steps, elements, one_in=most)
            for count, most in counts
        )

    def compute_allowed(self, size: _Size) -> _Size:
        """Return the tolerance of answers of a magnitude."""
        return self.limit * (size + self.scale) + EAGER_ERRORS_ALLOWED * self.eager_error


_INDICES = (torch.int64, torch.int32)


@name_failures()
def compare(
    expected: Expected,
    output: Any,
    precision: Precision = "torch_default",
    choices: Callable[[], Sequence[Choice]] = tuple,
    usual: Sequence[float] | None = None,
) -> Comparison:
    """Compare an output with what the reference answers to the same inputs.

    Args:
        choices: Returns how the reference chose indices; called only if an index differs.
        usual: For special inputs, such as zeros: the root mean square of each tensor of an ordinary
            answer, to which errors may be relative too. Small answers then need no relative
            precision, and any number of indices may be as good as another.
    """
    mismatch = find_mismatch(expected.value, output)
    if mismatch is not None:
        return mismatch
    output = order_keys(expected.value, output)
    if any(tensor.is_meta for tensor in tensors_of(output)):
        return Comparison("unspecified", "the outputs hold more data than they describe")
    total = Comparison()
    triples = zip(tensors_of(expected.value), expected.exact, tensors_of(output), strict=True)
    terms = count_terms(expected)
    # An answer in half precision beside one in float32 shows nothing of the latter's precision.
    finest = min(map(_get_step, tensors_of(expected.value)), default=math.inf)
    changed = [f"input {number} after the call" for number in expected.changed]
    names = [*[None] * (len(expected.exact) - len(changed)), *changed]
    for index, (wanted, exact, given) in enumerate(triples):
        if exact is None or is_whole(wanted):
            tensor = OutputTensor(index, wanted, wanted, given, name=names[index])
            few = usual is None
            comparison = _compare_whole(tensor, exact, choices, expected.steps, few=few)
        else:
            algorithms = expected.algorithms[index] if expected.algorithms else None
            tensor = OutputTensor(index, wanted, exact, given, algorithms, name=names[index])
            compare_tensor = partial(
                compare_numbers,
                precision=precision,
                terms=terms,
                usual=None if usual is None else usual[index],
                classifies=_get_step(wanted) == finest < math.inf,
            )
            comparison = compare_tensor(tensor)
            # Eager may be on another step too, and its error would then allow any step everywhere.
            error = comparison.eager_error
            limit = get_tolerance(wanted.dtype, precision)
            is_wide = expected.rounds and error is not None and error.scaled > limit
            if comparison.reason == "incorrect_numerical" or is_wide:
                slack = _find_slack(expected.steps(), index, wanted)
                if slack is not None:
                    tensor = replace(tensor, slack=slack)
                    comparison = compare_tensor(tensor)
            rule = expected.rules.tolerance
            if rule is not None and comparison.reason in (None, "incorrect_numerical"):
                comparison = _apply_tolerance(tensor, rule, comparison)
        if comparison.reason in ("incorrect_numerical", "nan") and expected.check is not None:
            accepted, _ = expected.check(output)  # the task's own checker
            if accepted:
                return replace(comparison, reason=None, message=None, excused=comparison.message)
        if comparison.reason is not None:
            return comparison
        total = merge_comparisons(total, comparison)
    return total


def _apply_tolerance(output: OutputTensor, rule: Tolerance, own: Comparison) -> Comparison:
    """Return the comparison by the task's own tolerance.

    No tolerance is smaller than the eager reference's own error, as in the judge's tolerance.
    """
    failing = _Elements()
    eager_error = find_largest_eager_error(output)
    for piece in iterate_pieces(output):
        relative = rule.rtol * piece.r64.abs()
        limit = relative.clamp(min=rule.atol) if rule.either else relative + rule.atol
        slack = 0.0 if piece.slack is None else piece.slack[1]
        is_beyond = piece.error > limit + EAGER_ERRORS_ALLOWED * eager_error + slack
        failing.add(piece.start, is_beyond)
    if failing.count <= (1 - rule.matched) * flatten(output.wanted).numel():
        return replace(own, reason=None, message=None, excused=own.message)
    message = failing.describe(output, f"beyond the task's own tolerance ({rule})")
    return replace(own, reason="incorrect_numerical", message=message)


@name_failures()
def is_same_answer(expected: Expected, one: Any, other: Any) -> bool:
    """Whether two outputs of right structure for the same inputs are one answer.

    They are if they have the same bits, or differ by at most 4 times the eager reference's own
    error.
    """
    groups = zip(
        tensors_of(expected.value), expected.exact, tensors_of(one), tensors_of(other), strict=True
    )
    for wanted, exact, first, second in groups:
        if has_same_bits(first, second):
            continue
        if exact is None or is_whole(wanted):
            return False
        allowed = EAGER_ERRORS_ALLOWED * find_largest_eager_error(
            OutputTensor(0, wanted, exact, wanted)
        )
        flat = [flatten(tensor) for tensor in (first, second)]
        for start in range(0, flat[0].numel(), CHUNK):
            a, b = (tensor[start : start + CHUNK] for tensor in flat)
            is_same = (a == b) | (a.isnan() & b.isnan())
            difference = torch.where(is_same, 0.0, (widen(a) - widen(b)).abs())
            if not bool((difference <= allowed).all()):
                return False
    return True


def _find_slack(
    changes: Sequence[torch.Tensor | None], index: int, wanted: torch.Tensor
) -> torch.Tensor | None:
    """Return how much another rounding step changes each element of a tensor; None if nothing."""
    change = changes[index] if index < len(changes) else None
    return change if change is not None and change.shape[1:] == wanted.shape else None


def _get_step(tensor: torch.Tensor) -> float:
    """Return the distance of 1 and the next number; infinity for types without precision class."""
    dtype = tensor.dtype
    has_class = dtype in SINGLE or (get_low_class(dtype) is not None and not is_whole(tensor))
    return torch.finfo(dtype).eps if has_class else math.inf


def _compare_whole(
    output: OutputTensor,
    exact: torch.Tensor | None,
    choices: Callable[[], Sequence[Choice]],
    steps: Callable[[], Sequence[torch.Tensor | None]],
    *,
    few: bool,
) -> Comparison:
    wanted, given = output.wanted, output.given
    is_wrong = given != wanted
    if exact is not None:
        is_wrong &= given != exact.to(given.device)
    wrong = _Elements()
    wrong.add(0, is_wrong)
    if not wrong.count:
        return Comparison()
    if wanted.dtype in _INDICES and explain(choices(), wanted, given, is_wrong, few=few):
        return Comparison()
    slack = None if exact is None else _find_slack(steps(), output.index, wanted)
    if exact is not None and slack is not None:
        distance = (widen(given) - widen(exact.to(given.device))).abs()
        by_eager, by_limit = (
            int((is_wrong & (distance <= change)).sum()) for change in slack.to(given.device)
        )
        eager_count = int((wanted != exact.to(wanted.device)).sum())
        counts = ((wrong.count, STEPS_BY_EAGER), (wrong.count - by_eager, STEPS_BY_LIMIT))
        if wrong.count == by_limit and not any(
            has_too_many_steps(count, eager_count, wanted.numel(), one_in=most)
            for count, most in counts
        ):
            return Comparison()
    return Comparison("incorrect_numerical", wrong.describe(output, "another value"))
