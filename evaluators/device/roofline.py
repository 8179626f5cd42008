"""How fast any kernel can be at most: the bytes that an answer has to move, and its operations.

A floor that is too high rejects an honest kernel, so that only what cannot be avoided is counted:
elements of the inputs that differ from one draw to the next and on which the answer depends (by its
gradient, which is zero in what a short circuit, a triangle or a maximum leaves out), and elements
of the answer that are neither taken over from the inputs nor repeated along a dimension.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from evaluators.memory.tensors import tensors_of

_SAMPLED = 64


@dataclass(frozen=True)
class Floor:
    """Times that no call can beat, in milliseconds."""

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
    """What a call has to do at the least, whatever the device."""

    moved_bytes: int = 0
    """Bytes that any answer has to move."""
    operations: int = 0
    """Operations of the reference, in whatever precision."""
    single: bool = False
    """Whether all floating inputs are float32."""


def count_work(module: torch.nn.Module, inputs: list[Any], others: list[Any]) -> Counts:
    """What a call of the module has to do, given two draws of inputs; nothing where it fails.

    It runs the task's code, and so it is called in the task's worker alone. The module is not used
    again: gradients are left in it.
    """
    with _tolerate_failure():
        moved = count_moved_bytes(module, inputs, others)
        operations = _count_operations(module, inputs)
        single = all(t.dtype is torch.float32 for t in tensors_of(inputs) if t.is_floating_point())
        return Counts(moved, operations, single)
    return Counts()


def compute_floor(
    counts: Counts, *, cache_bytes: int, bandwidth: float | None, float_peak: float | None
) -> Floor:
    """Least times of one call of which this is counted.

    cache_bytes: what may lie in a cache in place of the memory, before or after the call;
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
    """Bytes of the inputs that have to be read and of the answer that have to be written."""
    given = [_require_gradients(value) for value in inputs]
    with torch.enable_grad():
        value = module(*given)
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


def _require_gradients(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.is_floating_point())
    if isinstance(value, list | tuple):
        return type(value)(_require_gradients(item) for item in value)
    return value


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether one half tells the other; then a kernel may read less than all."""
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
    return square and torch.equal(tensor, tensor.mT)


def _count_distinct(tensor: torch.Tensor) -> int:
    """Elements left when what repeats along a dimension is counted once: the rest may be a view."""
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


def _count_operations(module: torch.nn.Module, inputs: list[Any]) -> int:
    with torch.no_grad(), _OperationCounter() as counter:
        module(*inputs)
    return counter.total


class _OperationCounter(TorchDispatchMode):
    """Adds up operations by torch's own table of them.

    As `FlopCounterMode` does, which imports torch's compiler at its first call: two seconds for
    every task.
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


@contextlib.contextmanager
def _tolerate_failure() -> Generator[None]:
    """Let a task whose gradient cannot be had, for want of memory say, go without a floor."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
