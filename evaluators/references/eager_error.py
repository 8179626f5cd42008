"""The error of an eager answer against the answer in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

RELATIVE_LEVELS = (1e-3, 1e-2, 1e-1)
"""Relative errors whose shares are bounded, ascending."""
_CHUNK = 1 << 23


@dataclass(frozen=True)
class EagerError:
    """The eager reference's own error in the floating elements of an answer."""

    scaled: float
    """Largest error over the root mean square of the answer."""
    shares: tuple[float, ...]
    """Share of elements with a relative error above each of `RELATIVE_LEVELS`."""
    relative: float = 0.0
    """Norm of the error over the norm of the answer."""

    @classmethod
    def smaller(cls, one: EagerError | None, other: EagerError | None) -> EagerError | None:
        """Return the smaller of each figure."""
        return cls._merge(one, other, min)

    @classmethod
    def larger(cls, one: EagerError | None, other: EagerError | None) -> EagerError | None:
        """Return the larger of each figure."""
        return cls._merge(one, other, max)

    @classmethod
    def _merge(
        cls,
        one: EagerError | None,
        other: EagerError | None,
        choose: Callable[[float, float], float],
    ) -> EagerError | None:
        if one is None or other is None:
            return one or other
        shares = tuple(map(choose, one.shares, other.shares))
        relative = choose(one.relative, other.relative)
        return cls(choose(one.scaled, other.scaled), shares, relative)

    @classmethod
    def measure(
        cls, value: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor | None = None
    ) -> EagerError | None:
        """Measure the error of a floating answer, of its finite elements; None for zeros.

        slack: Error of each element that a rounding step explains (`references.steps`).
        """
        largest = squares = size_squares = 0.0
        finite, large = 0, [0] * len(RELATIVE_LEVELS)
        tiny = torch.finfo(value.dtype).tiny
        flat = [_flatten(tensor) for tensor in (value, exact)]
        spared = None if slack is None else _flatten(slack)
        for start in range(0, flat[0].numel(), _CHUNK):
            v, x = (t[start : start + _CHUNK].to(exact.device, torch.float64) for t in flat)
            is_finite = v.isfinite() & x.isfinite()
            error = torch.where(is_finite, (v - x).abs(), 0.0)
            size = torch.where(is_finite, x.abs(), 0.0)
            if spared is not None:
                error = (error - spared[start : start + _CHUNK].to(error.device)).clamp_(min=0.0)
            largest = max(largest, float(error.max()))
            squares += float(error.square().sum())
            size_squares += float(size.square().sum())
            finite += int(is_finite.sum())
            for number, level in enumerate(RELATIVE_LEVELS):
                large[number] += int(((error > level * size) & (size >= tiny)).sum())
        if not 0 < size_squares < math.inf or not squares < math.inf:
            return None
        return cls(
            largest / math.sqrt(size_squares / finite),
            tuple(count / finite for count in large),
            math.sqrt(squares / size_squares),
        )


def measure_errors(
    values: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor | None],
    slack: Sequence[torch.Tensor | None],
) -> list[EagerError | None]:
    """Return the error of each floating tensor of an answer; None for others."""
    triples = zip(values, exact, slack, strict=True)
    return [
        None
        if x is None or not (v.is_floating_point() or v.is_complex())
        else EagerError.measure(v, x, s)
        for v, x, s in triples
    ]


def _flatten(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)
