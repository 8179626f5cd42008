"""The result of comparing one output with the expected one."""

from __future__ import annotations

import cmath
import contextlib
import dataclasses
import itertools
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy
import torch

from evaluators.judging.comparison.tolerance import (
    TOLERANCE,
    OutputTensor,
    Piece,
    flatten,
    iterate_pieces,
    rank_class,
    widen,
)
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.tensors import get_dtype_name, has_same_bits, is_inexact, read_pending
from evaluators.memory.values import name_parts, split_arguments, tensors_of
from evaluators.references.connection import ReferenceFailed
from evaluators.references.eager_error import EagerError
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
        eager_error=EagerError.smaller(one.eager_error, other.eager_error),
    )


_MOST_INPUTS = 8


def describe_errors(output: OutputTensor, first: int, failing: int, fault: str) -> str:
    """Describe the first wrong element with its place, and how many there are.

    Args:
        output: The wrong tensor.
        first: Number of the first wrong element.
        failing: How many elements are wrong.
        fault: What is wrong with them; ends the sentence "n of m elements are …".
    """
    count = output.wanted.numel() * (2 if output.wanted.is_complex() else 1)
    share = f"{failing} of {count} elements ({failing / count:.3%})"
    return f"{_describe_element(output, first)}; {share} are {fault}"


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


def describe_relative_errors(
    output: OutputTensor, level: float, count: int, eager_count: int, tiny: float
) -> str:
    """Describe the first element beyond a relative error, and how many there are beside eager's."""
    first = next(
        piece.start + int(is_beyond.int().argmax())
        for piece in iterate_pieces(output)
        if bool((is_beyond := _find_beyond(piece, level, tiny)).any())
    )
    fault = f"wrong by more than {level:.1%} of their value, of eager's {eager_count}"
    return describe_errors(output, first, count, fault)


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


def _find_beyond(piece: Piece, level: float, tiny: float) -> torch.Tensor:
    size = piece.r64.abs()
    return (piece.error > level * size) & (size >= tiny)


def _compute_coordinates(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    coordinates: list[int] = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        coordinates.insert(0, place)
    return tuple(coordinates)


_Part: TypeAlias = "tuple[Any, Any, Any]"
"""Place of a part in its container, what is wanted there, and what is given."""


def find_mismatch(wanted: Any, given: Any, place: str = "") -> Comparison | None:
    """Return the first difference in structure; None where the structures are the same.

    place: Where in the output they are, such as `[1]`; empty for the whole output.
    """
    mismatch, inner = _find_part(wanted, given)
    if mismatch is not None:
        if not place:
            return mismatch
        return replace(mismatch, message=f"output{place}: {mismatch.message}")
    for key, w, g in inner:
        if (found := find_mismatch(w, g, f"{place}[{key!r:.40}]")) is not None:
            return found
    return None


def _find_part(wanted: Any, given: Any) -> tuple[Comparison | None, Sequence[_Part]]:
    """Return the difference of two values but their parts, and these parts by place."""
    if isinstance(wanted, torch.Tensor):
        return _find_tensor_mismatch(wanted, given), ()
    if dataclasses.is_dataclass(wanted):
        if not dataclasses.is_dataclass(given):
            return _report_wrong_type(wanted, given), ()
        return _find_part(name_parts(wanted), name_parts(given))
    if isinstance(wanted, list | tuple):
        if not isinstance(given, list | tuple) or isinstance(given, list) != isinstance(
            wanted, list
        ):
            return _report_wrong_type(wanted, given), ()
        if len(given) != len(wanted):
            message = f"{len(given)} outputs instead of {len(wanted)}"
            return Comparison("incorrect_count", message), ()
        return None, list(zip(range(len(wanted)), wanted, given, strict=True))
    if isinstance(wanted, dict):
        if not isinstance(given, dict):
            return _report_wrong_type(wanted, given), ()
        if given.keys() != wanted.keys():
            keys = f"{sorted(map(str, given))[:8]} instead of {sorted(map(str, wanted))[:8]}"
            return Comparison("incorrect_count", f"outputs {keys}"), ()
        return None, [(key, wanted[key], given[key]) for key in wanted]
    if type(given) is not type(wanted):
        return _report_wrong_type(wanted, given), ()
    if not _is_same_value(wanted, given):
        message = f"{given!r:.80} instead of {wanted!r:.80}"
        return Comparison("incorrect_numerical", message), ()
    return None, ()


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


def _find_tensor_mismatch(wanted: torch.Tensor, given: Any) -> Comparison | None:
    if not isinstance(given, torch.Tensor):
        return _report_wrong_type(wanted, given)
    if given.shape != wanted.shape:
        sizes = f"{list(given.shape)} instead of {list(wanted.shape)}"
        return Comparison("incorrect_shape", f"shape {sizes}")
    if given.dtype != wanted.dtype:
        return Comparison("incorrect_dtype", f"{given.dtype} instead of {wanted.dtype}")
    if read_pending(given) & ~read_pending(wanted):  # eager itself may leave it to the reader
        message = (
            "an output leaves a conjugation or negation to its reader, and the task's does not"
        )
        remedy = "return what its resolve_conj() and resolve_neg() return"
        return Comparison("incorrect_type", f"{message}: {remedy}")
    return None


def _is_same_value(wanted: Any, given: Any) -> bool:
    """Whether two values of one plain type are equal.

    A float is usually read from a tensor of single precision, so it may differ as much.
    """
    if not isinstance(wanted, float | complex | numpy.floating):
        return given == wanted
    is_same = cmath.isclose(given, wanted, rel_tol=TOLERANCE[torch.float32])
    return is_same or (cmath.isnan(given) and cmath.isnan(wanted))


def _report_wrong_type(wanted: Any, given: Any) -> Comparison:
    message = f"a {type(given).__name__} instead of a {type(wanted).__name__}"
    return Comparison("incorrect_type", message)


_MOST_TEXT = 300


class ComparisonFailed(ReferenceFailed):
    """Answers to a task cannot be compared."""

    reason = "comparison_failed"


@contextlib.contextmanager
def name_failures(what: str = "an answer cannot be compared") -> Generator[None]:
    """Turn an error of the judge's own in a block into ComparisonFailed, which names the limit."""
    try:
        yield
    except (Failed, ReferenceFailed, FlywheelError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        detail = f"{what}: {type(error).__name__}: {lines[0][:_MOST_TEXT]}"
        limit = "comparison_memory" if lacks_memory(error) else "comparison"
        raise ComparisonFailed(refuse_limit(limit, detail)) from error
