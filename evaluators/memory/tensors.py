"""Values that pass between processes: structure as JSON, tensors in shared memory.

The memory is a sealed file on a processor, and memory of the worker's own context on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import mmap
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

import torch
from torch import Tensor

from evaluators.memory.cuda_memory import wrap_memory
from evaluators.processes.messages import Malformed
from evaluators.processes.schema import ITEM_BYTES

ALIGN_BYTES = 512
"""Alignment of tensors, the same as torch's in GPU memory."""
_FIRST_ELEMENTS = 1 << 18
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}


# Bound before any code of a candidate runs: a replaced method could otherwise compute an answer
# only when it is fetched, while no clock runs.
_COPY, _DETACH = Tensor.copy_, Tensor.detach
_NO_FUNCTION_MODES = torch._C.DisableTorchFunction  # pyright: ignore[reportPrivateUsage]
_NO_DISPATCH_MODES = torch._C._DisableTorchDispatch  # pyright: ignore[reportPrivateUsage]


@contextlib.contextmanager
def suspend_modes() -> Generator[None]:
    """Suspend torch modes that a candidate has left active."""
    with _NO_FUNCTION_MODES(), _NO_DISPATCH_MODES():
        yield


class BoxFull(Exception):
    """A value is larger than its shared memory."""


class Box:
    """A piece of shared memory that holds the tensors of one value at a time."""

    def __init__(self, memory: Tensor) -> None:
        """Use a flat tensor of bytes that both processes see."""
        self._memory = memory
        self.size_bytes = memory.numel()
        self.device = memory.device.type

    @classmethod
    def map_file(cls, fd: int, size_bytes: int) -> Self:
        """Return the box in a shared file."""
        return cls(torch.frombuffer(mmap.mmap(fd, size_bytes), dtype=torch.uint8))

    def put(self, value: Any, at: int = 0) -> dict[str, Any]:
        """Copy the tensors of a value in from an offset; returns its structure.

        Raises BoxFull, TypeError.
        """
        spec = self.queue(value, at)
        self._settle()
        return spec

    def queue(self, value: Any, at: int = 0) -> dict[str, Any]:
        """Like `put`, without waiting for the copies on a GPU."""
        spec, end = layout(value, at)
        if end > self.size_bytes:
            raise BoxFull(f"{end} bytes do not fit into {self.size_bytes}")
        for view, tensor in zip(self.views(spec), tensors_of(value), strict=True):
            _COPY(view, _DETACH(tensor))
        return spec

    def get(self, spec: Any, device: str = "cpu") -> Any:
        """Return the value of a structure, its tensors copied to a device. Raises Malformed.

        Their total size may not exceed the memory, since overlapping tensors could otherwise fill
        the reader's own memory.
        """
        held_bytes = sum(
            math.prod(shape) * ITEM_BYTES[name] for name, shape, _ in iterate_tensor_entries(spec)
        )
        if held_bytes > self.size_bytes:
            raise Malformed("the tensors of a value are larger than its memory")
        value = build_value(spec, lambda entry: self._view(entry).to(device, copy=True))
        self._settle()
        return value

    def view(self, spec: Any) -> Any:
        """Return the value of a structure, its tensors in the shared memory. Raises Malformed."""
        return build_value(spec, self._view)

    def views(self, spec: Any) -> list[Tensor]:
        """Return the tensors of a structure in the shared memory."""
        return [self._view(entry) for entry in iterate_tensor_entries(spec)]

    def share(self, spec: Any) -> Any:
        """Return the value of a structure whose tensors have storages in the shared memory.

        Each storage begins and ends with its tensor, as if torch had made it. Raises Malformed.
        """
        return build_value(spec, lambda entry: _give_own_storage(self._view(entry)))

    def _view(self, entry: Any) -> Tensor:
        name, shape, at = entry
        dtype, count = DTYPES[name], math.prod(shape)
        if at % ALIGN_BYTES or at + count * dtype.itemsize > self.size_bytes:
            raise Malformed(f"a tensor of shape {shape} at {at} is outside its memory")
        if count == 0:
            return torch.empty(shape, dtype=dtype, device=self._memory.device)
        return self._memory[at : at + count * dtype.itemsize].view(dtype).view(shape)

    def _settle(self) -> None:
        """Wait for copies on a GPU: the other process cannot see this one's streams."""
        if self._memory.is_cuda:
            torch.cuda.synchronize()


def _give_own_storage(view: Tensor) -> Tensor:
    """Return a contiguous view of shared memory as a tensor with a storage of its own."""
    if view.numel() == 0:
        return view
    size = view.numel() * view.element_size()
    if view.is_cuda:  # the box lives as long as its process
        return wrap_memory(view.data_ptr(), size).view(view.dtype).view(view.shape)
    piece = (ctypes.c_char * size).from_address(view.data_ptr())
    vars(piece)["box"] = view  # keeps the memory mapped while the tensor exists
    return torch.frombuffer(piece, dtype=view.dtype).view(view.shape)


def get_dtype_name(dtype: torch.dtype) -> str:
    """Return the name of an element type, such as float32."""
    return str(dtype).removeprefix("torch.")


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item)


def layout(value: Any, at: int = 0) -> tuple[dict[str, Any], int]:
    """Return the structure of a value laid out from an offset, and the end offset, in bytes.

    Raises TypeError for what is neither a tensor nor a plain value.
    """
    if isinstance(value, Tensor):
        size = value.numel() * value.element_size()
        entry = [get_dtype_name(value.dtype), list(value.shape), at]
        return {"tensor": entry}, at + -(-size // ALIGN_BYTES) * ALIGN_BYTES
    if isinstance(value, list | tuple):
        parts: list[Any] = []
        for item in value:
            part, at = layout(item, at)
            parts.append(part)
        return {"list" if isinstance(value, list) else "tuple": parts}, at
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs: list[Any] = []
        for key, item in value.items():
            part, at = layout(item, at)
            pairs.append([key, part])
        return {"dict": pairs}, at
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}, at
    raise TypeError(f"{type(value).__name__} is neither a tensor nor a plain value")


def move_to_device(value: Any, device: str) -> Any:
    """Return the value with its tensors on a device."""
    return map_tensors(value, lambda tensor: tensor.to(device))


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the value with every tensor changed; a named tuple becomes a tuple."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes, so that NaN equals itself."""
    if one.shape != other.shape:
        return False
    held = [_view_bytes(one), _view_bytes(other).to(one.device)]
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in held):
        held = [each.view(torch.int64) for each in held]  # comparing single bytes is far slower
    return torch.equal(*held)


def compute_fingerprint(value: Any) -> str:
    """Return a hash of the shapes, element types and first elements of a value's tensors.

    It tells whether two computations that mean no harm give the same bits.
    """
    found = hashlib.sha256()
    for tensor in tensors_of(value):
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(_view_bytes(tensor.reshape(-1)[:_FIRST_ELEMENTS].cpu()).numpy().tobytes())
    return found.hexdigest()


def _view_bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    # Of one element or none any stride counts as contiguous, but cannot be viewed otherwise.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def add_gaps(value: Any) -> Any:
    """Return the value with tensors of two or more dimensions spread over twice their memory."""

    def spread(tensor: Tensor) -> Tensor:
        if tensor.dim() < 2 or tensor.numel() == 0:
            return tensor
        shape = (*tensor.shape[:-1], 2 * tensor.shape[-1])
        wide = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)[..., ::2]
        return wide.copy_(tensor)

    return map_tensors(value, spread)


def build_value(spec: Any, make: Callable[[Any], Tensor]) -> Any:
    """Return the value of a structure that the schema has checked, with tensors from `make`."""
    [(kind, body)] = spec.items()
    if kind == "tensor":
        return make(body)
    if kind == "value":
        return body
    if kind == "dict":
        return {key: build_value(item, make) for key, item in body}
    items = [build_value(item, make) for item in body]
    return items if kind == "list" else tuple(items)


def iterate_tensor_entries(spec: Any) -> Iterator[Any]:
    """Yield the descriptions of the tensors of a structure, in order."""
    [(kind, body)] = spec.items()
    if kind == "tensor":
        yield body
    elif kind in ("list", "tuple"):
        for item in body:
            yield from iterate_tensor_entries(item)
    elif kind == "dict":
        for _, item in body:
            yield from iterate_tensor_entries(item)
