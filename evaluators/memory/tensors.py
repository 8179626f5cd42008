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

ALIGN_BYTES = 512
"""Alignment of tensors, the same as torch's in GPU memory."""
MOST_DEPTH = 8
"""Nesting limit of containers in a value."""
_FIRST_ELEMENTS = 1 << 18
_NAMES = (
    "float64 float32 float16 bfloat16 complex128 complex64 int64 int32 int16 int8 uint8 bool "
    "float8_e4m3fn float8_e5m2"
)
DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in _NAMES.split() if hasattr(torch, n)}


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

        On the device `meta` the tensors have no data. Elsewhere their total size may not exceed the
        memory, since overlapping tensors could otherwise fill the reader's own memory.
        """
        if device != "meta" and _count_stated_bytes(spec, 0) > self.size_bytes:
            raise Malformed("the tensors of a value are larger than its memory")
        value = self._get(spec, device, 0)
        self._settle()
        return value

    def view(self, spec: Any) -> Any:
        """Return the value of a structure, its tensors in the shared memory. Raises Malformed."""
        return self._get(spec, "here", 0)

    def views(self, spec: Any) -> list[Tensor]:
        """Return the tensors of a structure in the shared memory."""
        return [self._view(entry) for entry in _iterate_tensor_entries(spec)]

    def share(self, spec: Any) -> Any:
        """Return the value of a structure whose tensors have storages in the shared memory.

        Each storage begins and ends with its tensor, as if torch had made it. Raises Malformed.
        """
        return self._get(spec, "shared", 0)

    def _get(self, spec: Any, device: str, depth: int) -> Any:
        if not isinstance(spec, dict) or len(spec) != 1 or depth > MOST_DEPTH:
            raise Malformed("a value has no known structure")
        [(kind, body)] = spec.items()
        if kind == "tensor" and device == "meta":
            dtype, shape, _ = _check_entry(body)
            return torch.empty(shape, dtype=dtype, device="meta")
        if kind == "tensor" and device == "here":
            return self._view(body)
        if kind == "tensor" and device == "shared":
            view = self._view(body)
            return view if view.numel() == 0 else _give_own_storage(view)
        if kind == "tensor":
            return self._view(body).to(device, copy=True)
        if kind in ("list", "tuple") and isinstance(body, list):
            items = [self._get(item, device, depth + 1) for item in body]
            return items if kind == "list" else tuple(items)
        if kind == "dict" and isinstance(body, list):
            return {_read_key(pair): self._get(pair[1], device, depth + 1) for pair in body}
        if kind == "value" and (body is None or isinstance(body, bool | int | float | str)):
            return body
        raise Malformed(f"a value has the unknown kind {kind!r:.40}")

    def _view(self, entry: Any) -> Tensor:
        dtype, shape, at = _check_entry(entry)
        count = math.prod(shape)
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
    size = view.numel() * view.element_size()
    if view.is_cuda:  # the box lives as long as its process
        return wrap_memory(view.data_ptr(), size).view(view.dtype).view(view.shape)
    piece = (ctypes.c_char * size).from_address(view.data_ptr())
    vars(piece)["box"] = view  # keeps the memory mapped while the tensor exists
    return torch.frombuffer(piece, dtype=view.dtype).view(view.shape)


def _read_key(pair: Any) -> str:
    match pair:
        case [str(key), _]:
            return key
        case _:
            raise Malformed("a dict has a key that is no text")


def _count_stated_bytes(spec: Any, depth: int) -> int:
    """Return the bytes of all tensors of a structure. Raises Malformed."""
    if not isinstance(spec, dict) or depth > MOST_DEPTH:
        return 0
    held = 0
    for kind, body in spec.items():
        if kind == "tensor":
            dtype, shape, _ = _check_entry(body)
            held += math.prod(shape) * dtype.itemsize
        elif kind == "dict" and isinstance(body, list):
            held += sum(_count_stated_bytes(pair[-1], depth + 1) for pair in body if pair)
        elif isinstance(body, list):
            held += sum(_count_stated_bytes(item, depth + 1) for item in body)
    return held


def _check_entry(entry: Any) -> tuple[torch.dtype, list[int], int]:
    """Return element type, shape and offset of a tensor's entry. Raises Malformed."""
    match entry:
        case [str(name), [*shape], int(at)] if (
            name in DTYPES and at >= 0 and all(type(n) is int and 0 <= n < 2**40 for n in shape)
        ):
            return DTYPES[name], shape, at
        case _:
            raise Malformed("a tensor has no known element type and shape")


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


def _iterate_tensor_entries(spec: Any) -> Iterator[Any]:
    [(kind, body)] = spec.items()
    if kind == "tensor":
        yield body
    elif kind in ("list", "tuple"):
        for item in body:
            yield from _iterate_tensor_entries(item)
    elif kind == "dict":
        for _, item in body:
            yield from _iterate_tensor_entries(item)
