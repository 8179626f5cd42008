"""Weak tasks, which an answer without work passes: zeros, a copy of an input, the answer to others.

If one of them is within the tolerance of a task, a correct verdict shows nothing about a kernel.
The audit calls only the reference; it needs no kernel. Importing this module loads no torch.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from evaluators.judging.bench import Bench
    from evaluators.references.task import Expected, Reference

VERSION = 2
"""Version of the rules of `audit_task`; a new version audits every task again."""
_TRIALS = 3
_INPUT_COPIES, _ANSWER_COPIES = 7, 14
"""Bytes that an audit takes for a byte of inputs and of the answer: both processes hold them, in
double precision as well, and the judge compares them with several weak answers."""


def build_audit_row(task: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    """Return the row of `task_audits` for a task of pending_tasks.sql.

    task: with `free_bytes` of the machine's memory; a GPU refuses what it has no room for.

    Raises ReferenceFailed, also for a task that is too large for the memory.
    """
    from evaluators.references.task import ReferenceFailed

    reference = bench.open_reference(task["task_code"], json.loads(task["axes"]))
    known = reference.count_bytes() if bench.device == "cpu" else None
    if known is not None:
        inputs, answer = known
        needed = _INPUT_COPIES * inputs + _ANSWER_COPIES * answer
        if needed > task["free_bytes"]:
            sizes = f"inputs of {inputs / 1e9:.1f} GB and an answer of {answer / 1e9:.1f} GB"
            raise ReferenceFailed(
                f"too large: {sizes} take about {needed / 1e9:.0f} GB, and"
                f" {task['free_bytes'] / 1e9:.0f} GB are free"
            )
    passes = audit_task(reference)
    return {
        "task_id": task["task_id"],
        "workload_id": task["workload_id"],
        "auditor_version": VERSION,
        "device_id": bench.row["device_id"],
        "passes": passes,
        "weak": bool(passes),
        "repeatable": reference.repeatable,  # whether answers depend on the inputs alone
        "created_at": datetime.now(UTC).isoformat(),
    }


def audit_task(reference: Reference) -> list[str]:
    """Return the weak answers that the reference's task lets pass, sorted. Raises ReferenceFailed.

    Weak answers are zeros, ones, the mean of the right answer, each input of the right size
    (input_0 …), the answer to other inputs, and the answer under other parameters. One of them
    passes if it passes on three sets of inputs, because a verdict requires right answers to all
    inputs. The first set is enough where nothing passes it.
    """
    from evaluators.judging.comparison import compare
    from evaluators.references.task import call_seed

    reference.reset()
    passes: set[str] | None = None
    for _ in range(_TRIALS):
        seed = secrets.randbits(48)
        inputs, own_seed = reference.inputs(seed), call_seed(seed)
        expected = reference.answer(inputs, own_seed)
        choices = partial(reference.choices, inputs, own_seed)
        repeated = reference.value(inputs, own_seed)
        if compare(expected, repeated, choices=choices).reason is not None:
            reference.remembers = True
        passing = {
            name
            for name, answer in _iterate_answers(reference, inputs, expected, own_seed)
            if compare(expected, answer, choices=choices).reason is None
        }
        passes = passing if passes is None else passes & passing
        if not passes:
            break
    reference.reset()
    return sorted(passes or ())


def _iterate_answers(
    reference: Reference, inputs: list[Any], expected: Expected, seed: int
) -> Iterator[tuple[str, Any]]:
    import torch

    from evaluators.memory.tensors import map_tensors, tensors_of
    from evaluators.references.task import ReferenceFailed

    def fill_with_mean(tensor: torch.Tensor) -> torch.Tensor:
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        mean = tensor.to(wide).mean() if tensor.numel() else torch.zeros((), dtype=wide)
        return mean.to(tensor.device, tensor.dtype).expand(tensor.shape)

    value = expected.value
    tensors = list(tensors_of(value))
    yield "zeros", map_tensors(value, torch.zeros_like)
    has_numbers = all(tensor.dtype is not torch.float4_e2m1fn_x2 for tensor in tensors)
    if has_numbers:
        yield "ones", map_tensors(value, torch.ones_like)
        yield "mean", map_tensors(value, fill_with_mean)
    if has_numbers and len(tensors) == 1:
        for number, tensor in enumerate(tensors_of(inputs)):
            if tensor.numel() == tensors[0].numel():
                answer = tensor.to(tensors[0].dtype).reshape(tensors[0].shape)
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
