"""Values that cross a process border: their structure as JSON, their tensors in shared memory.

The memory is a sealed file for the processor, and memory of the worker's own context for a GPU.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Generator, Iterator
from typing import Any, Self

import torch
from torch import Tensor

from evaluators._channel import Malformed

ALIGN_BYTES = 64
_MOST_DEPTH = 8
_NAMES = (
    "float64 float32 float16 bfloat16 complex128 complex64 int64 int32 int16 int8 uint8 bool "
    "float8_e4m3fn float8_e5m2"
)
DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in _NAMES.split() if hasattr(torch, n)}


# As they were before a candidate's text ran: a name that it has replaced would otherwise compute an
# answer only once it is fetched, when no clock runs.
_COPY, _DETACH = Tensor.copy_, Tensor.detach
_NO_FUNCTION_MODES = torch._C.DisableTorchFunction  # pyright: ignore[reportPrivateUsage]
_NO_DISPATCH_MODES = torch._C._DisableTorchDispatch  # pyright: ignore[reportPrivateUsage]


@contextlib.contextmanager
def without_modes() -> Generator[None]:
    """Run no mode of torch that a candidate has left in force."""
    with _NO_FUNCTION_MODES(), _NO_DISPATCH_MODES():
        yield


class BoxFull(Exception):
    """The value is larger than the shared memory made for it."""


class Box:
    """A piece of shared memory that holds the tensors of one value at a time."""

    def __init__(self, memory: Tensor) -> None:
        """Take a flat tensor of bytes that both processes see."""
        self._memory = memory
        self.size_bytes = memory.numel()

    @classmethod
    def mapped(cls, fd: int, size_bytes: int) -> Self:
        """Return the box in a shared file."""
        return cls(torch.frombuffer(mmap.mmap(fd, size_bytes), dtype=torch.uint8))

    def put(self, value: Any) -> dict[str, Any]:
        """Copy the tensors of a value in; returns its structure. Raises BoxFull, TypeError."""
        spec, size = layout(value)
        if size > self.size_bytes:
            raise BoxFull(f"{size} bytes do not fit into {self.size_bytes}")
        for view, tensor in zip(self.views(spec), tensors_of(value), strict=True):
            _COPY(view, _DETACH(tensor))
        self._settle()
        return spec

    def get(self, spec: Any, device: str = "cpu") -> Any:
        """The value of a structure, its tensors copied out to a device. Raises Malformed.

        On the device `meta` the tensors have shape and element type and no data. Elsewhere they are
        no larger together than the memory: many that lie over one another would be copied out
        until the reader's own memory is full.
        """
        if device != "meta" and _stated_bytes(spec, 0) > self.size_bytes:
            raise Malformed("the tensors of a value are larger than its memory")
        value = self._get(spec, device, 0)
        self._settle()
        return value

    def views(self, spec: Any) -> list[Tensor]:
        """The tensors of a structure as they lie in the shared memory, not copied."""
        return [self._view(entry) for entry in _tensor_entries(spec)]

    def _get(self, spec: Any, device: str, depth: int) -> Any:
        if not isinstance(spec, dict) or len(spec) != 1 or depth > _MOST_DEPTH:
            raise Malformed("a value has no known structure")
        [(kind, body)] = spec.items()
        if kind == "tensor" and device == "meta":
            dtype, shape, _ = checked_entry(body)
            return torch.empty(shape, dtype=dtype, device="meta")
        if kind == "tensor":
            return self._view(body).to(device, copy=True)
        if kind in ("list", "tuple") and isinstance(body, list):
            items = [self._get(item, device, depth + 1) for item in body]
            return items if kind == "list" else tuple(items)
        if kind == "value" and (body is None or isinstance(body, bool | int | float | str)):
            return body
        raise Malformed(f"a value has the unknown kind {kind!r:.40}")

    def _view(self, entry: Any) -> Tensor:
        dtype, shape, at = checked_entry(entry)
        count = math.prod(shape)
        if at % ALIGN_BYTES or at + count * dtype.itemsize > self.size_bytes:
            raise Malformed(f"a tensor of shape {shape} at {at} lies outside its memory")
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        return self._memory[at : at + count * dtype.itemsize].view(dtype).view(shape)

    def _settle(self) -> None:
        """Wait for copies on a GPU: the other process knows nothing of this one's streams."""
        if self._memory.is_cuda:
            torch.cuda.synchronize()


def _stated_bytes(spec: Any, depth: int) -> int:
    """Bytes of all tensors of a structure. Raises Malformed where a tensor's entry is none."""
    if not isinstance(spec, dict) or depth > _MOST_DEPTH:
        return 0
    held = 0
    for kind, body in spec.items():
        if kind == "tensor":
            dtype, shape, _ = checked_entry(body)
            held += math.prod(shape) * dtype.itemsize
        elif isinstance(body, list):
            held += sum(_stated_bytes(item, depth + 1) for item in body)
    return held


def checked_entry(entry: Any) -> tuple[torch.dtype, list[int], int]:
    """Element type, shape and offset of a tensor's entry. Raises Malformed for anything else."""
    match entry:
        case [str(name), [*shape], int(at)] if (
            name in DTYPES and at >= 0 and all(type(n) is int and 0 <= n < 2**40 for n in shape)
        ):
            return DTYPES[name], shape, at
        case _:
            raise Malformed("a tensor has no known element type and shape")


def dtype_name(dtype: torch.dtype) -> str:
    """The name that stands for an element type, such as float32."""
    return str(dtype).removeprefix("torch.")


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)


def layout(value: Any, at: int = 0) -> tuple[dict[str, Any], int]:
    """Structure of a value laid out from an offset, and the offset behind it, in bytes.

    Raises TypeError for what is neither a tensor nor a plain value.
    """
    if isinstance(value, Tensor):
        size = value.numel() * value.element_size()
        entry = [dtype_name(value.dtype), list(value.shape), at]
        return {"tensor": entry}, at + -(-size // ALIGN_BYTES) * ALIGN_BYTES
    if isinstance(value, list | tuple):
        parts: list[Any] = []
        for item in value:
            part, at = layout(item, at)
            parts.append(part)
        return {"list" if isinstance(value, list) else "tuple": parts}, at
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}, at
    raise TypeError(f"{type(value).__name__} is neither a tensor nor a plain value")


def to_device(value: Any, device: str) -> Any:
    """The value with its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device) for item in value)
    return value


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes, so that NaN equals itself."""
    if one.shape != other.shape:
        return False
    held = [_bytes(one), _bytes(other).to(one.device)]
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in held):
        held = [each.view(torch.int64) for each in held]  # single bytes are compared far slower
    return torch.equal(*held)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    # Of one element or none any stride counts as contiguous, but cannot be viewed otherwise.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def with_gaps(value: Any) -> Any:
    """The value with every tensor of two or more dimensions spread over twice its memory."""
    if isinstance(value, Tensor):
        if value.dim() < 2 or value.numel() == 0:
            return value
        shape = (*value.shape[:-1], 2 * value.shape[-1])
        spread = torch.zeros(shape, dtype=value.dtype, device=value.device)[..., ::2]
        return spread.copy_(value)
    if isinstance(value, list | tuple):
        return type(value)(with_gaps(item) for item in value)
    return value


def _tensor_entries(spec: Any) -> Iterator[Any]:
    [(kind, body)] = spec.items()
    if kind == "tensor":
        yield body
    elif kind in ("list", "tuple"):
        for item in body:
            yield from _tensor_entries(item)
