"""Weak answers: zeros, a copy of an input, the answer to other inputs, and others without work.

If one of them is within the tolerance of a task, a correct verdict shows nothing about a kernel.
The audit calls only the reference; it needs no kernel.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from evaluators.judging.comparison import compare
from evaluators.memory.tensors import map_tensors, tensors_of
from evaluators.references.task import Expected, Reference, ReferenceFailed, call_seed

_TRIALS = 3


@dataclass(frozen=True)
class Audit:
    """The result of auditing one task."""

    passes: list[str]
    """Weak answers that pass every time, sorted."""
    repeatable: bool
    """Whether answers depend on the inputs alone."""


def audit_task(reference: Reference) -> Audit:
    """Compare weak answers with the reference. Raises ReferenceFailed.

    Weak answers are zeros, ones, the mean of the right answer, each input of the right size
    (input_0 …), the answer to other inputs, and the answer under other parameters. One of them
    passes if it passes on three sets of inputs, because a verdict requires right answers to all
    inputs. The first set is enough where nothing passes it.
    """
    reference.reset()
    passes: set[str] | None = None
    for _ in range(_TRIALS):
        seed = secrets.randbits(48)
        inputs = reference.inputs(seed)
        expected = reference.answer(inputs, call_seed(seed))
        repeated = reference.value(inputs, call_seed(seed))
        if not _is_right(reference, inputs, expected, call_seed(seed), repeated):
            reference.remembers = True
        answers = _iterate_answers(reference, inputs, expected, call_seed(seed))
        passing = {
            name
            for name, answer in answers
            if _is_right(reference, inputs, expected, call_seed(seed), answer)
        }
        passes = passing if passes is None else passes & passing
        if not passes:
            break
    reference.reset()
    return Audit(sorted(passes or ()), reference.repeatable)


def _is_right(
    reference: Reference, inputs: list[Any], expected: Expected, seed: int, answer: Any
) -> bool:
    choices = partial(reference.choices, inputs, seed)
    return compare(expected, answer, choices=choices).reason is None


def _iterate_answers(
    reference: Reference, inputs: list[Any], expected: Expected, seed: int
) -> Iterator[tuple[str, Any]]:
    value = expected.value
    wanted = list(tensors_of(value))
    yield "zeros", map_tensors(value, torch.zeros_like)
    has_numbers = all(tensor.dtype is not torch.float4_e2m1fn_x2 for tensor in wanted)
    if has_numbers:
        yield "ones", map_tensors(value, torch.ones_like)
        yield "mean", map_tensors(value, _fill_with_mean)
    if has_numbers and len(wanted) == 1:
        for number, tensor in enumerate(tensors_of(inputs)):
            if tensor.numel() == wanted[0].numel():
                answer = tensor.to(wanted[0].dtype).reshape(wanted[0].shape)
                yield f"input_{number}", map_tensors(value, lambda _, answer=answer: answer)
    yield "other_inputs", reference.value(reference.inputs(secrets.randbits(48)), seed)
    if reference.parameters():
        reference.load(reference.perturb(secrets.randbits(48)))
        try:
            yield "other_parameters", reference.value(inputs, seed)
        except ReferenceFailed:
            pass  # the module cannot run with these weights, so no answer could pass
        finally:
            reference.reset()


def _fill_with_mean(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    mean = tensor.to(wide).mean() if tensor.numel() else torch.zeros((), dtype=wide)
    return mean.to(tensor.device, tensor.dtype).expand(tensor.shape)
