"""Pieces of an answer: read one by one, so that no second copy in double precision exists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from evaluators.references.eager_error import EagerError

CHUNK = 1 << 23
"""Elements of a piece."""


@dataclass(frozen=True)
class OutputTensor:
    """One tensor of an output beside the expected one."""

    index: int
    """Place of the tensor in the output."""
    wanted: torch.Tensor
    """The eager reference's answer."""
    exact: torch.Tensor
    """The reference's answer in double precision."""
    given: torch.Tensor
    """The candidate's answer."""
    algorithms: EagerError | None = None
    """Largest error of eager by the other algorithms that the policy allows."""
    slack: torch.Tensor | None = None
    """How much another rounding step changes each element: by eager's own error of the value before
    it, and by the tolerance of that value."""
    name: str | None = None
    """What messages call it, if not by its place."""

    @property
    def is_small(self) -> bool:
        """Whether all pieces together may be kept in memory."""
        return self.wanted.numel() <= CHUNK // 2  # a complex element is two


@dataclass(frozen=True)
class Piece:
    """A stretch of one output beside its answer; not finite answers are 0 in `r64` and `error`."""

    start: int
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
    """Error of every element of the eager reference."""
    slack: torch.Tensor | None = None
    """See `OutputTensor`."""


def iterate_pieces(output: OutputTensor) -> Iterator[Piece]:
    """Yield the pieces of an output in order, with the errors of the output and of eager."""
    flat = [flatten(tensor) for tensor in (output.wanted, output.exact, output.given)]
    steps = None if output.slack is None else output.slack.reshape(2, -1)
    for start in range(0, flat[0].numel(), CHUNK):
        w, x, g = (tensor[start : start + CHUNK] for tensor in flat)
        w, x, g = widen(w), widen(x.to(w.device)), widen(g.to(w.device))
        slack = None if steps is None else steps[:, start : start + CHUNK].to(w.device)
        if all(_is_finite(tensor) for tensor in (w, x, g)):
            eager = (w - x).abs_()
            yield Piece(
                start=start,
                finite=w.numel(),
                r64=x,
                error=(g - x).abs_(),
                misplaced=None,
                eager_error=_find_largest(eager, slack),
                eager_by_element=eager,
                slack=slack,
            )
            continue
        finite = w.isfinite()
        # The double precision answer may be infinite where the reference's own is not.
        r64 = torch.where(finite, torch.where(x.isfinite(), x, w), 0.0)
        eager = torch.where(finite, (w - r64).abs(), 0.0)
        yield Piece(
            start=start,
            finite=int(finite.sum()),
            r64=r64,
            error=torch.where(finite, (g - r64).abs(), 0.0),
            misplaced=(g.isnan() != w.isnan()) | (w.isinf() & (g != w)) | (finite & g.isinf()),
            eager_error=_find_largest(eager, slack),
            eager_by_element=eager,
            slack=slack,
        )


def _find_largest(error: torch.Tensor, slack: torch.Tensor | None) -> float:
    """Return the largest error that no rounding step explains."""
    return max(0.0, float((error if slack is None else error - slack[1]).max()))


def flatten(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements in order; a complex one is two."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision; numbers that are packed by two, by their bytes."""
    if tensor.dtype is torch.float4_e2m1fn_x2:
        tensor = tensor.view(torch.uint8)
    return tensor.to(torch.float64)


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite; a NaN among them is an extreme."""
    return all(math.isfinite(float(extreme)) for extreme in tensor.aminmax())
