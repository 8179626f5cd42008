"""The message on a wrong output: its first wrong element, and how many elements are wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from evaluators.judging.comparison.pieces import OutputTensor, Piece, flatten, iterate_pieces


def describe_errors(output: OutputTensor, first: int, failing: int, fault: str) -> str:
    """Describe the first wrong element with its place, and how many there are.

    Args:
        output: The wrong tensor.
        first: Number of the first wrong element.
        failing: How many elements are wrong.
        fault: What is wrong with them; ends the sentence "n of m elements are …".
    """
    wanted, exact, given = output.wanted, output.exact, output.given
    place = first // 2 if wanted.is_complex() else first
    coordinates = _compute_coordinates(place, wanted.shape)
    count = wanted.numel() * (2 if wanted.is_complex() else 1)
    value = get_element(exact if math.isfinite(get_element(wanted, first)) else wanted, first)
    return (
        f"output {output.index} at {coordinates}: got {get_element(given, first):.9g}, wanted"
        f" {value:.9g}; {failing} of {count} elements ({failing / count:.3%}) are {fault}"
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
