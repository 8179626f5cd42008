"""Parameters and buffers of a worker's module, described and sent in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from evaluators.memory.tensors import ALIGN_BYTES, DTYPES

_MOST_PARAMETERS = 100_000
_MOST_PIECES = 200
_WIDEST_BYTES = torch.complex128.itemsize
"""A candidate may hold its state in any element type."""

Piece: TypeAlias = tuple[str, int, int]
"""Elements in a row of a parameter or buffer: its name, the first element, the count."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of a worker's module, as the worker describes it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


def read_parameters(ask: Callable[[int], Mapping[str, Any]]) -> list[Parameter]:
    """Return the parameters and buffers that a worker describes in pages.

    `ask` requests the page that begins with the parameter of this number.
    """
    parameters: list[Parameter] = []
    while True:
        answer = ask(len(parameters))
        page = [
            Parameter(name, DTYPES[dtype], tuple(shape)) for name, dtype, shape in answer["state"]
        ]
        parameters += page
        count = len(parameters)
        if not page or count >= _MOST_PARAMETERS or count == answer["total"]:
            return parameters


def split_to_write(
    state: Mapping[str, torch.Tensor], room_bytes: int
) -> Iterator[tuple[list[tuple[str, int]], list[torch.Tensor]]]:
    """Yield pages of pieces, each a name and first element, with their values."""
    pieces: list[tuple[str, int]] = []
    values: list[torch.Tensor] = []
    held = 0
    for name, tensor in state.items():
        flat = tensor.detach().reshape(-1)
        most = max(1, room_bytes // flat.element_size())
        for start in range(0, flat.numel(), most):
            piece = flat[start : start + most]
            size = piece.numel() * piece.element_size()
            if pieces and (held + size > room_bytes or len(pieces) >= _MOST_PIECES):
                yield pieces, values
                pieces, values, held = [], [], 0
            pieces.append((name, start))
            values.append(piece)
            held += -(-size // ALIGN_BYTES) * ALIGN_BYTES
    if pieces:
        yield pieces, values


def split_to_read(wanted: Mapping[str, torch.Tensor], room_bytes: int) -> Iterator[Piece]:
    """Yield pieces that cover some tensors and each fit into a box."""
    most = max(1, room_bytes // 2 // _WIDEST_BYTES)
    for name, tensor in wanted.items():
        for start in range(0, tensor.numel(), most):
            yield name, start, min(most, tensor.numel() - start)


def split_pages(pieces: Iterable[Piece], room_bytes: int) -> Iterator[list[Piece]]:
    """Yield pages of pieces that fit into a box together."""
    page: list[Piece] = []
    room = room_bytes
    for piece in pieces:
        size = piece[2] * _WIDEST_BYTES + ALIGN_BYTES
        if page and (size > room or len(page) >= _MOST_PIECES):
            yield page
            page, room = [], room_bytes
        page.append(piece)
        room -= size
    if page:
        yield page


def are_pieces(values: Any, page: Sequence[Piece]) -> bool:
    """Whether values are flat tensors of the counts in a page."""
    return (
        isinstance(values, list)
        and len(values) == len(page)
        and all(
            isinstance(value, torch.Tensor) and value.shape == (count,)
            for value, (_, _, count) in zip(values, page, strict=True)
        )
    )
