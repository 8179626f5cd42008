"""Answers to inputs of uneven size that rounding cannot explain, though the reference is stable.

A part of a module may be within the tolerance of every usual answer: a branch that is scaled by
1e-5, or the first steps of a recurrence. If some inputs are far larger than the rest, it dominates
the answers to the others. Their tolerance must not come from the large answers:

    |c - r64| <= 1.5 (L (|r64| + rms(row)) + max(32 e0, L / 4 rms(slice)))

A slice has one index of the first dimension, and a row one index of all but the last. `e0` is
eager's largest error in the slice. Another order of summation has at most 32 times that error
(`comparison.precision_class`), so it is no departure where eager itself is stable, nor where eager
is not. Fourier transforms round all elements by as much as the largest one; a departure is also
more than 8 times as large as what such noise in the inputs moves in the row. An answer that is not
finite is beyond a kernel's range and no departure either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison.error_text import describe_errors
from evaluators.judging.comparison.pieces import CHUNK, OutputTensor, widen
from evaluators.judging.comparison.structure import find_mismatch, is_finite, is_whole, order_keys
from evaluators.judging.comparison.tolerance import get_tolerance
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected

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
    policy: Policy,
    moved: Sequence[torch.Tensor | None] | None = None,
) -> str | None:
    """Describe the first element that departs from the reference; None if there is none.

    moved: Answers in double precision to the same inputs with noise, if they are known.
    """
    outputs = pair_outputs(expected, output)
    finite = [all(map(is_finite, (o.wanted, o.exact, o.given))) for o in outputs]
    if not all(finite):
        return None
    texts: list[str | None] = []
    for o in outputs:
        exact = None if moved is None else moved[o.index]
        limit = get_tolerance(o.wanted.dtype, policy)
        texts.append(_find_in_tensor(o, limit, o.exact if exact is None else exact))
    return next((text for text in texts if text is not None), None)


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
        is_lost = wanted.isinf() & (exact == wanted) & given.isfinite() & (given.abs() <= limit)
        failing = int(is_lost.sum())
        if failing:
            first = int(is_lost.reshape(-1).int().argmax())
            return describe_errors(number, first, failing, "finite where the task's are infinite")
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


def _find_in_tensor(output: OutputTensor, limit: float, moved: torch.Tensor) -> str | None:
    flat = [
        torch.view_as_real(t.resolve_conj()).flatten(-2) if t.is_complex() else t
        for t in (output.wanted, output.exact, output.given, moved)
    ]
    if flat[0].dim() < 2:
        flat = [tensor.reshape(1, -1) for tensor in flat]
    slices, last = flat[0].shape[0], flat[0].shape[-1]
    per_slice = flat[0].numel() // slices
    has_rows = flat[0].dim() > 2 and last >= _FEWEST_IN_ROW
    shape = (-1, per_slice // last, last) if has_rows else (-1, 1, per_slice)
    step = max(1, CHUNK // per_slice)
    failing, first = 0, None
    for start in range(0, slices, step):
        wanted, exact, given, moved = (
            widen(t[start : start + step].to(flat[0].device)).reshape(shape) for t in flat
        )
        eager_error = (wanted - exact).abs().amax((1, 2), keepdim=True)
        rms = exact.square().mean((1, 2), keepdim=True).sqrt()
        if output.algorithms is not None:
            eager_error = torch.maximum(eager_error, output.algorithms.scaled * rms)
        row_rms = exact.square().mean(2, keepdim=True).sqrt()
        allowed = limit * (exact.abs() + row_rms)
        allowed += torch.maximum(_EAGER_ERRORS * eager_error, _SHARE * limit * rms)
        move_rms = (moved - exact).nan_to_num().square().mean(2, keepdim=True).sqrt()
        allowed = torch.maximum(allowed, _NOISE_MOVES * move_rms)
        is_over = (given - exact).abs() > _MARGIN * allowed
        count = int(is_over.sum())
        if count and first is None:
            first = start * per_slice + int(is_over.reshape(-1).int().argmax())
        failing += count
    if first is None:
        return None
    return describe_errors(output, first, failing, "off by more than rounding explains")
