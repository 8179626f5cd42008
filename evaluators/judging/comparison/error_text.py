"""The message on a wrong output: its first wrong element, and how many elements are wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from evaluators.judging.comparison.pieces import (
    OutputTensor,
    Piece,
    flatten,
    iterate_pieces,
    widen,
)
from evaluators.memory.tensors import get_dtype_name, has_same_bits
from evaluators.memory.values import split_arguments, tensors_of

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
    """Return the coordinates of an element by its number in order."""
    coordinates: list[int] = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        coordinates.insert(0, place)
    return tuple(coordinates)
