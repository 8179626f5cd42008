"""Ways to vary inputs: other signs, sizes, orders and strides, zeros, ties, infinities, no rows.

A tensor is varied wherever it is in the inputs, such as in a dict. The two parts of a complex
number are varied like two numbers. Whole numbers and masks are only varied one tensor at a time
(`vary_whole`), because most values of a generator's range are no valid index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from evaluators.judging.comparison import is_whole
from evaluators.judging.tolerance import compute_rms
from evaluators.memory.tensors import add_gaps, change_elements, map_tensors, tensors_of
from evaluators.memory.values import list_parts, name_parts
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
_STEP = 0.3
"""Size of a random step from an input, beside the root mean square of its values."""
_MASK_ONE_IN = 8
"""One value in this many of a mask becomes the other one."""
_STEEP = 64.0
"""Factor between usual inputs and large ones, and between small ones and usual ones."""
_FEWEST_POSITIONS = 4
"""A dimension with fewer positions is not divided into large and small inputs."""
_FEW_SAMPLES = 8
"""With fewer samples, the boundaries between large and small inputs are drawn."""


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
    by_chance: bool = False
    """Whether chance decides if a draw shows something, so that two are tried."""
    departs: bool = False
    """Whether a finite answer that departs from the reference shows another function."""


def replace_interior(old: Any, new: Any) -> Any:
    """Return new values inside the old corners and ends, for number tensors with an interior."""
    # A task may draw another number of tensors.
    olds = {id(b): a for a, b in zip(tensors_of(old), tensors_of(new), strict=False)}

    def mix(new: torch.Tensor) -> torch.Tensor:
        old = olds.get(id(new), new)
        if is_whole(new) or new.shape != old.shape or new.numel() < _FEWEST_INTERIOR:
            return new
        mixed = new.clone(memory_format=torch.contiguous_format)
        corners = tuple(slice(None, None, max(1, size - 1)) for size in new.shape)
        mixed[corners] = old[corners]
        for ends in (slice(None, _KEPT_ENDS), slice(-_KEPT_ENDS, None)):
            mixed.view(-1)[ends] = old.reshape(-1)[ends]
        return mixed

    return change_elements(new, mix)


_Change: TypeAlias = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _change_numbers(
    change: _Change, *, varies_complex: bool = True
) -> Callable[[list[Any], int], list[Any]]:
    def apply(inputs: list[Any], seed: int) -> list[Any]:
        draws: dict[torch.device, torch.Generator] = {}

        def vary(tensor: torch.Tensor) -> torch.Tensor:
            if is_whole(tensor) or not tensor.numel():
                return tensor
            if tensor.is_complex() and not varies_complex:
                return tensor
            if tensor.device not in draws:
                # With the seed of the inputs, the draws would equal those of the inputs.
                own_seed = call_seed(seed + 1)
                draws[tensor.device] = torch.Generator(tensor.device).manual_seed(own_seed)
            return _vary_parts(tensor, lambda parts: change(parts, draws[tensor.device]))

        return change_elements(inputs, vary)

    return apply


def _vary_parts(
    tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return a tensor after a change, which gets the two parts of complex numbers as numbers."""
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return change(tensor.float()).to(tensor.dtype)  # which have no arithmetic
    if not tensor.is_complex():
        return change(tensor)
    parts = change(torch.view_as_real(tensor.resolve_conj().resolve_neg()))
    return torch.view_as_complex(parts.contiguous())


def name_tensors(value: Any, name: str = "input") -> list[str]:
    """Return a name for each tensor of a value, in the order of `tensors_of`.

    >>> name_tensors([torch.zeros(1), {"mask": torch.zeros(1)}, 3])
    ['input[0]', "input[1]['mask']"]
    """
    if isinstance(value, torch.Tensor):
        return [name]
    parts = list_parts(value) or ()
    keys: Iterable[Any] = range(len(parts))
    if isinstance(value, dict):
        keys = value.keys()
    elif not isinstance(value, list | tuple) and parts:
        keys = name_parts(value)
    return [
        each
        for key, part in zip(keys, parts, strict=True)
        for each in name_tensors(part, f"{name}[{key!r}]")
    ]


def take_step(tensor: torch.Tensor, seed: int, times: float = 1.0) -> torch.Tensor:
    """Return a tensor after a random step of 0.3 of its size, or `times` as much."""
    draws = torch.Generator(tensor.device).manual_seed(seed)

    def step(parts: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(
            parts.shape, generator=draws, device=parts.device, dtype=torch.float32
        ).to(parts.dtype)
        return _add_step(parts, times * _STEP * (compute_rms(parts) or 1.0) * noise)

    return _vary_parts(tensor, step)


def vary_whole(
    tensor: torch.Tensor,
    others: Sequence[torch.Tensor],
    sizes: Sequence[int],
    seed: int,
    *,
    may_fail: bool,
) -> torch.Tensor | None:
    """Return other whole numbers that are as valid as those of a tensor; None if there are none.

    They are the same numbers in another order along the longest dimension, so that an index stays
    valid. Sorted numbers stay sorted, and offsets keep their ends. One value in 8 of a mask is
    inverted; ones alone are a mask. Of lengths that are all full, one in 8 becomes shorter. If an
    index out of range does no harm, one in 8 of zeros alone becomes one.

    Args:
        others: The same tensor of other draws.
        sizes: The sizes of all inputs' dimensions: the last of several offsets, and a full length,
            is one of these.
        may_fail: Whether a call with an index out of range only fails, as on a processor.
    """
    if tensor.numel() < 2:
        return None
    draws = torch.Generator().manual_seed(seed)
    own = tensor.cpu()
    flips = torch.rand(own.shape, generator=draws) < 1 / _MASK_ONE_IN
    if own.dtype == torch.bool:
        return (own ^ flips).to(tensor.device)
    if bool((own == 1).all()):  # such as a mask of tokens
        return own.masked_fill(flips, 0).to(tensor.device)
    if may_fail and not bool(own.any()):
        flips.view(-1)[0] = True
        return own.masked_fill(flips, 1).to(tensor.device)
    full = int(own.reshape(-1)[0])
    if full > 1 and full in sizes and bool((own == full).all()):
        flips.view(-1)[0] = True  # lengths are often few
        shorter = torch.randint(1, full, own.shape, generator=draws).to(own.dtype)
        return torch.where(flips, shorter, own).to(tensor.device)
    dim = max(range(own.dim()), key=lambda dim: own.shape[dim])
    rows = own.movedim(dim, -1)
    first, last = int(rows.reshape(-1)[0]), int(rows.reshape(-1)[-1])
    if own.dim() == 1 and _is_sorted(own) and first == 0 and last in sizes and last > 1:
        # Offsets of ragged rows.
        varied = torch.randint(1, last, rows.shape, generator=draws).sort().values.to(own.dtype)
        varied[0], varied[-1] = first, last
        return varied.to(tensor.device)
    order = torch.rand(rows.shape, generator=draws).argsort(-1)
    # The numbers of a range follow each other, as those of `torch.arange` do.
    is_range = bool((rows[..., 1:] - rows[..., :-1] == 1).all())
    if not is_range and all(_is_sorted(t.cpu().movedim(dim, -1)) for t in (tensor, *others)):
        # The same number may come more often, so that sorted rows differ from the task's own.
        places = torch.randint(rows.shape[-1], rows.shape, generator=draws)
        varied = rows.gather(-1, places).sort(-1).values
    else:
        varied = rows.gather(-1, order)
    varied = varied.movedim(-1, dim).contiguous()
    return None if torch.equal(varied, own) else varied.to(tensor.device)


def _is_sorted(rows: torch.Tensor) -> bool:
    return bool((rows[..., 1:] >= rows[..., :-1]).all())


def _draw_some(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    shape = tensor.shape
    numbers = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return (numbers < 1 / _ONE_IN) | (numbers == numbers.min())


def _randomize_signs(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    shape = tensor.shape
    numbers = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return torch.where(numbers < 0.5, tensor, -tensor)


def _center(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _add_step(tensor, -tensor.mean())


def _shift(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _add_step(tensor, torch.tensor(_SHIFT, dtype=tensor.dtype, device=tensor.device))


def _add_step(tensor: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    return _keep_structure(tensor, tensor + step)


def _keep_structure(tensor: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Return the changed tensor, with the zeros of one in which many elements are zero.

    A triangular or diagonal matrix keeps its structure, which a task may promise. Zeros alone, such
    as those of a first state, are no structure.
    """
    is_zero = tensor == 0
    if not _STRUCTURAL_ZEROS * tensor.numel() <= int(is_zero.sum()) < tensor.numel():
        return changed
    return torch.where(is_zero, tensor, changed)


def _make_uneven(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Make one in 64 elements 8 times as large and the others 8 times as small.

    The norm stays the same, and few terms dominate a sum, so errors do not average out.
    """
    if tensor.numel() < _FEWEST_UNEVEN:
        return tensor
    return torch.where(_draw_some(tensor, draws), tensor * _UNEVEN, tensor / _UNEVEN)


def _make_steep(*, along_first: bool, large: float) -> _Change:
    """Return a change that makes some positions of a dimension far larger than all the others.

    What a kernel leaves out, because it is small beside the rest, then dominates the answers: the
    first steps of a recurrence, or a branch that mixes positions and is scaled down. Each index of
    another dimension has its own boundary between large and small, and its own direction, since
    nothing tells which positions are left out.

    Args:
        along_first: Divide the first dimension; otherwise all others, each for some indices of the
            first.
        large: Factor of the large inputs.
    """

    def change(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
        divided = [0] if along_first else range(1, tensor.dim())
        boundaries = [
            (dim, tensor.shape[dim] >> level, is_end)
            for level in range(1, max(tensor.shape, default=0).bit_length())
            for dim in divided
            if tensor.shape[dim] >= max(_FEWEST_POSITIONS, 1 << level)
            for is_end in (True, False)
        ]
        if not boundaries:
            return tensor
        varied = tensor.clone(memory_format=torch.contiguous_format)
        # With the dimension first whose indices have boundaries of their own.
        samples = (
            varied.unsqueeze(0) if tensor.dim() == 1 else varied.transpose(0, int(along_first))
        )
        count = min(len(boundaries), samples.shape[0])
        if count < _FEW_SAMPLES:
            order = torch.randperm(len(boundaries), generator=draws, device=draws.device)
            boundaries = [boundaries[number] for number in order.tolist()]
        for number in range(count):
            dim, few, is_end = boundaries[number]
            own = samples[number :: len(boundaries)]
            dim = max(dim, 1)
            own.mul_(large)
            begin_of_small = own.shape[dim] - few if is_end else 0
            own.narrow(dim, begin_of_small, few).div_(_STEEP * _STEEP)
        return varied

    return change


def _reverse_interior(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    flat = tensor.reshape(-1).clone()
    if flat.numel() < _FEWEST_INTERIOR:
        return tensor
    inner = flat[_KEPT_ENDS:-_KEPT_ENDS]
    inner.copy_(inner.flip(0))
    return flat.view(tensor.shape)


def _make_constant(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Return rows of equal elements with so few digits that sums of them are exact."""
    first = tensor[..., :1] if tensor.dim() else tensor
    return first.bfloat16().to(tensor.dtype).expand_as(tensor).clone()


def _make_coarse(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    step = compute_rms(tensor - tensor.mean()) / _LEVELS_PER_RMS
    return (tensor / step).round() * step if step else tensor


def _put_infinities(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    signed = torch.where(tensor < 0, -torch.inf, torch.inf).to(tensor.dtype)
    return _keep_structure(tensor, torch.where(_draw_some(tensor, draws), signed, tensor))


def _put_nan(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    nan = torch.full_like(tensor, torch.nan)
    return _keep_structure(tensor, torch.where(_draw_some(tensor, draws), nan, tensor))


def _remove_rows(inputs: list[Any], _: int) -> list[Any]:
    """Remove all rows of every tensor that has as many rows as the first one."""
    rows = next((t.shape[0] for t in tensors_of(inputs) if t.dim()), 0)

    return map_tensors(
        inputs, lambda tensor: tensor[:0] if tensor.dim() and tensor.shape[0] == rows else tensor
    )


def _add_rounding(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    noise = torch.randn(tensor.shape, generator=draws, device=tensor.device, dtype=torch.float32)
    size = torch.finfo(tensor.dtype).eps / 2 * tensor.abs().amax()
    return tensor + (size * noise).to(tensor.dtype)


ADD_ROUNDING = _change_numbers(_add_rounding)
"""Adds as much noise to all elements as the largest element has rounding errors."""
SIGNS = (
    Variation("fails_random_signs", _change_numbers(_randomize_signs), tells_precision=True),
    Variation("fails_signed", _change_numbers(_center), special=True),
    Variation("fails_positive", _change_numbers(lambda tensor, _: tensor.abs())),
    Variation("fails_shifted", _change_numbers(_shift)),
)
"""Inputs of usual size: a kernel that is wrong on them is another function, or rounds."""
STEEP = tuple(
    tuple(
        Variation(
            "fails_uneven",
            _change_numbers(_make_steep(along_first=along_first, large=large)),
            departs=True,
        )
        for large in (_STEEP, 1.0)
    )
    for along_first in (False, True)
)
"""Inputs of steep scale, each with those to try if the reference overflows on the first."""
FRAGILE = (
    Variation(
        "fails_uneven",
        _change_numbers(_make_uneven),
        tells_precision=True,
        widens=True,
        departs=True,
    ),
    Variation("fails_scaled", _change_numbers(lambda tensor, _: tensor * _SCALE)),
    Variation("fails_equal_corners", _change_numbers(_reverse_interior)),
    Variation("fails_noncontiguous", lambda inputs, _: add_gaps(inputs), strided=True),
)
"""Inputs of other sizes, orders and strides."""
SPECIAL = (
    Variation(
        "fails_zeros", _change_numbers(lambda tensor, _: torch.zeros_like(tensor)), special=True
    ),
    Variation("fails_constants", _change_numbers(_make_constant), special=True),
    Variation("fails_ties", _change_numbers(_make_coarse), special=True),
    Variation(
        "fails_infinities",
        _change_numbers(_put_infinities, varies_complex=False),
        special=True,
        finite=False,
        by_chance=True,
        departs=True,
    ),
    Variation(
        "fails_nan",
        _change_numbers(_put_nan, varies_complex=False),
        special=True,
        finite=False,
    ),
    Variation("fails_empty_rows", _remove_rows, special=True),
)
"""Inputs of special values or shapes."""
