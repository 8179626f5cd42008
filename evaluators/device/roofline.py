"""The roofline of a task: the least time of a call, by the bytes it has to move and its operations.

A floor that is too high would reject an honest kernel, so only unavoidable traffic counts. Of the
inputs these are the elements that differ from one draw to the next and on which the answer depends
(by its gradient, which is zero where a short circuit, a triangle or a maximum leaves elements out).
Of the answer these are the elements that are neither copied from the inputs nor repeated along a
dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from evaluators.memory.values import call, map_tensors, tensors_of

_SAMPLED = 64


@dataclass(frozen=True)
class Floor:
    """Times that no call can be faster than, in milliseconds."""

    memory_ms: float = 0.0
    """Bytes that any answer has to move, over the bandwidth of the memory."""
    compute_ms: float = 0.0
    """Operations of the reference over the peak of the device. Algebra may save some of them."""
    moved_bytes: int = 0
    """Bytes that any answer has to move, caches or not."""
    operations: int = 0
    """Operations of the reference, in whatever precision."""


@dataclass(frozen=True)
class Counts:
    """The least work of a call, on any device."""

    moved_bytes: int = 0
    """Bytes that any answer has to move."""
    operations: int = 0
    """Operations of the reference, in whatever precision."""
    single: bool = False
    """Whether all floating inputs are float32."""


def count_work(module: torch.nn.Module, inputs: list[Any], others: list[Any]) -> Counts:
    """Count the least work of a call of the module from two draws of inputs; 0 where it fails.

    This runs the task's code, so only the task's worker calls it. Gradients stay in the module,
    which nothing may use afterwards.
    """
    try:
        moved = count_moved_bytes(module, inputs, others)
        with torch.no_grad(), _OperationCounter() as counter:
            call(module, inputs)
        single = all(t.dtype is torch.float32 for t in tensors_of(inputs) if t.is_floating_point())
        return Counts(moved, counter.total, single)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        # A task has no floor where its gradient fails, for example for lack of memory.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return Counts()


def compute_floor(
    counts: Counts, *, cache_bytes: int, bandwidth: float | None, float_peak: float | None
) -> Floor:
    """Return the least times of a call with this work.

    cache_bytes: bytes that may be in a cache instead of the memory, before or after the call;
    bandwidth: bytes per second; float_peak: float32 operations per second. With either None there
    is no bound, only the counts.
    """
    moved, operations = counts.moved_bytes, counts.operations
    if bandwidth is None or float_peak is None:
        return Floor(moved_bytes=moved, operations=operations)
    return Floor(
        1000 * max(0, moved - cache_bytes) / bandwidth,
        1000 * operations / float_peak if counts.single else 0.0,
        moved,
        operations,
    )


def count_moved_bytes(module: torch.nn.Module, inputs: list[Any], others: list[Any]) -> int:
    """Return the bytes of the inputs that have to be read and of the answer to be written."""
    given = map_tensors(inputs, lambda t: t.detach().clone().requires_grad_(t.is_floating_point()))
    with torch.enable_grad():
        value = call(module, given)
        answers = [t for t in tensors_of(value) if t.is_floating_point()]
        if any(t.requires_grad for t in answers):
            weighted = [(t * torch.randn_like(t)).sum() for t in answers if t.requires_grad]
            torch.autograd.backward(sum(weighted[1:], weighted[0]))
    read = sum(
        int(((tensor.grad != 0) & (tensor.detach() != other)).sum()) * tensor.element_size()
        for tensor, other in zip(tensors_of(given), tensors_of(others), strict=True)
        if tensor.grad is not None and tensor.shape == other.shape and not _is_symmetric(tensor)
    )
    held = list(tensors_of(inputs))
    written = sum(
        _count_distinct(t.detach()) * t.element_size()
        for t in answers
        if not _is_taken_over(t, held)
    )
    return read + written


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether a matrix is symmetric; a kernel may then read half of it."""
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
    return square and torch.equal(tensor, tensor.mT)


def _count_distinct(tensor: torch.Tensor) -> int:
    """Return the elements without repetitions along a dimension, which may be a view."""
    for dim, size in enumerate(tensor.shape):
        first = tensor.narrow(dim, 0, 1) if size else tensor
        if size > 1 and bool((tensor == first).all()):
            tensor = first
    return tensor.numel()


def _is_taken_over(answer: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    """Whether the answer may be a view of the inputs: sampled values all occur among theirs."""
    flat = answer.detach().flatten()
    if not flat.numel():
        return True
    chosen = flat[torch.randint(flat.numel(), (_SAMPLED,), device=flat.device)]
    same = [tensor for tensor in inputs if tensor.dtype == flat.dtype]
    found = torch.zeros(_SAMPLED, dtype=torch.bool, device=flat.device)
    for tensor in same:
        found |= torch.isin(chosen, tensor.detach().flatten())
    return bool(found.all())


class _OperationCounter(TorchDispatchMode):
    """Counts operations by torch's own table.

    `FlopCounterMode` does the same, but imports torch's compiler at its first call, which takes two
    seconds for every task.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):  # pyright: ignore[reportPrivateUsage]
            return NotImplemented
        known = flop_registry.get(func._overloadpacket)
        if known is None:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        if known is not None:
            self.total += int(known(*args, **kwargs, out_val=out))
        return out
