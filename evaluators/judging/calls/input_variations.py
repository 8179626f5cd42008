"""Ways to vary inputs: other signs, sizes, orders and strides, zeros, ties, infinities, no rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from evaluators.judging.comparison.tolerance import compute_rms
from evaluators.memory.tensors import add_gaps, tensors_of
from evaluators.references.task import call_seed

_SCALE = 40.0
_SHIFT = 2.5
_ONE_IN = 64
"""One input in this many is far larger than the rest, or infinite, or NaN."""
_UNEVEN = 8.0
_FEWEST_UNEVEN = 16
_LEVELS_PER_RMS = 2
_KEPT_ENDS = 8
_FEWEST_INTERIOR = 64
_STRUCTURAL_ZEROS = 1 / 8
"""Share of zeros above which they count as the structure of an input."""


@dataclass(frozen=True)
class Variation:
    """A way to vary inputs."""

    flag: str
    """Flag to raise if the candidate's answer is wrong."""
    change: Callable[[list[Any], int], list[Any]]
    """Makes varied inputs from inputs and a seed."""
    tells_precision: bool = False
    widens: bool = False
    """Whether some inputs are beyond their usual range. Their answers then do not show the
    precision, because a kernel may rely on the range."""
    special: bool = False
    """Whether answers may be far smaller than usual ones, such as the mean of centered inputs."""
    finite: bool = True
    """Whether to try the variation only if the reference's answer is finite."""
    strided: bool = False
    """Whether the inputs have gaps in memory."""


def replace_interior(old: Any, new: Any) -> Any:
    """Return new values inside the old corners and ends, for floating tensors with an interior."""
    if isinstance(new, torch.Tensor):
        if not isinstance(old, torch.Tensor) or not new.is_floating_point():
            return new
        if new.shape != old.shape:
            return new
        if new.numel() < _FEWEST_INTERIOR:
            return new
        mixed = new.clone(memory_format=torch.contiguous_format)
        corners = tuple(slice(None, None, max(1, size - 1)) for size in new.shape)
        mixed[corners] = old[corners]
        for ends in (slice(None, _KEPT_ENDS), slice(-_KEPT_ENDS, None)):
            mixed.view(-1)[ends] = old.reshape(-1)[ends]
        return mixed
    if isinstance(new, list | tuple) and len(new) == len(old):
        return type(new)(replace_interior(a, b) for a, b in zip(old, new, strict=True))
    return new


_Change: TypeAlias = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _change_floating(change: _Change) -> Callable[[list[Any], int], list[Any]]:
    """Return a change of all inputs that applies a change to each floating tensor."""

    def apply(value: Any, draws: dict[torch.device, torch.Generator], seed: int) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.is_floating_point() or not value.numel():
                return value
            if value.device not in draws:
                # With the seed of the inputs, the draws would equal those of the inputs.
                own_seed = call_seed(seed + 1)
                draws[value.device] = torch.Generator(value.device).manual_seed(own_seed)
            return change(value, draws[value.device])
        if isinstance(value, list | tuple):
            return type(value)(apply(item, draws, seed) for item in value)
        return value

    return lambda inputs, seed: apply(inputs, {}, seed)


def _draw_some(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Choose one in 64 elements, and always at least one."""
    shape = tensor.shape
    numbers = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return (numbers < 1 / _ONE_IN) | (numbers == numbers.min())


def _randomize_signs(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    shape = tensor.shape
    numbers = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return torch.where(numbers < 0.5, tensor, -tensor)


def _center(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _add_step(tensor, -tensor.mean())


def _take_magnitude(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return tensor.abs()


def _shift(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _add_step(tensor, torch.tensor(_SHIFT, dtype=tensor.dtype, device=tensor.device))


def _add_step(tensor: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Add a step, but keep zeros where many elements are zero.

    A triangular or diagonal matrix keeps its structure, which a task may promise.
    """
    is_zero = tensor == 0
    if int(is_zero.sum()) < _STRUCTURAL_ZEROS * tensor.numel():
        return tensor + step
    return torch.where(is_zero, tensor, tensor + step)


def _make_uneven(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Make one in 64 elements 8 times as large and the others 8 times as small.

    The norm stays the same, and few terms dominate a sum, so errors do not average out.
    """
    if tensor.numel() < _FEWEST_UNEVEN:
        return tensor
    return torch.where(_draw_some(tensor, draws), tensor * _UNEVEN, tensor / _UNEVEN)


def _scale(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return tensor * _SCALE


def _reverse_interior(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Return the same values with all but the ends in another order."""
    flat = tensor.reshape(-1).clone()
    if flat.numel() < _FEWEST_INTERIOR:
        return tensor
    inner = flat[_KEPT_ENDS:-_KEPT_ENDS]
    inner.copy_(inner.flip(0))
    return flat.view(tensor.shape)


def _set_to_zero(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return torch.zeros_like(tensor)


def _make_constant(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Return rows of equal elements with so few digits that sums of them are exact."""
    first = tensor[..., :1] if tensor.dim() else tensor
    return first.bfloat16().to(tensor.dtype).expand_as(tensor).clone()


def _make_coarse(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    step = compute_rms(tensor - tensor.mean()) / _LEVELS_PER_RMS
    return (tensor / step).round() * step if step else tensor


def _put_infinities(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    signed = torch.where(tensor < 0, -torch.inf, torch.inf).to(tensor.dtype)
    return torch.where(_draw_some(tensor, draws), signed, tensor)


def _put_nan(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    return torch.where(_draw_some(tensor, draws), torch.full_like(tensor, torch.nan), tensor)


def _add_gaps(inputs: list[Any], _: int) -> list[Any]:
    return add_gaps(inputs)


def _remove_rows(inputs: list[Any], _: int) -> list[Any]:
    """Remove all rows of every tensor that has as many rows as the first one."""
    rows = next((t.shape[0] for t in tensors_of(inputs) if t.dim()), 0)

    def remove(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value[:0] if value.dim() and value.shape[0] == rows else value
        if isinstance(value, list | tuple):
            return type(value)(remove(item) for item in value)
        return value

    return remove(inputs)


SIGNS = (
    Variation("fails_random_signs", _change_floating(_randomize_signs), tells_precision=True),
    Variation("fails_signed", _change_floating(_center), special=True),
    Variation("fails_positive", _change_floating(_take_magnitude)),
    Variation("fails_shifted", _change_floating(_shift)),
)
"""Inputs of usual size: a kernel that is wrong on them is another function, or rounds."""
FRAGILE = (
    Variation("fails_uneven", _change_floating(_make_uneven), tells_precision=True, widens=True),
    Variation("fails_scaled", _change_floating(_scale)),
    Variation("fails_equal_corners", _change_floating(_reverse_interior)),
    Variation("fails_noncontiguous", _add_gaps, strided=True),
)
"""Inputs of other sizes, orders and strides."""
SPECIAL = (
    Variation("fails_zeros", _change_floating(_set_to_zero), special=True),
    Variation("fails_constants", _change_floating(_make_constant), special=True),
    Variation("fails_ties", _change_floating(_make_coarse), special=True),
    Variation("fails_infinities", _change_floating(_put_infinities), special=True, finite=False),
    Variation("fails_nan", _change_floating(_put_nan), special=True, finite=False),
    Variation("fails_empty_rows", _remove_rows, special=True),
)
"""Inputs of special values or shapes."""
