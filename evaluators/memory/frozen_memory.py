"""Reading a value from the memory of a frozen worker, by address, shape and strides.

The worker says where its tensors are, and the judge reads their contents while nothing of the
worker runs. An answer in memory that cannot be read this way, such as a page that a fault handler
would fill, is refused. On a GPU, the worker names the allocations that its answer is in, and the
judge opens them.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from evaluators.memory.cuda_driver import OpenedMemory
from evaluators.memory.tensors import count_extent, mark_pending
from evaluators.memory.values import DTYPES, build_value, iterate_entries

TensorEntry: TypeAlias = tuple[torch.dtype, list[int], list[int], int]
"""Element type, shape, strides and address of a tensor."""
Place: TypeAlias = Sequence[Sequence[int]]
"""Addresses of the tensors of an output, and the number of elements of each."""
_MOST_RUNS = 1024
_DENSE = 4
"""A tensor whose memory spans up to this many times its own bytes is read in one piece."""
_DENSE_BYTES = 64 << 20

_C = ctypes.CDLL(None, use_errno=True)


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Unreadable(Exception):
    """The memory of an answer cannot be read."""


class Uncaptured(Exception):
    """What an answer consists of was not read when the clock stopped."""


def can_read_memory(pid: int) -> bool:
    """Whether this process may read the memory of another."""
    span = _Span(None, 1)
    held = (ctypes.c_char * 1)()
    ours = _Span(ctypes.addressof(held), 1)
    _C.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(span), 1, 0)
    return ctypes.get_errno() == errno.EFAULT  # nothing is mapped at address 0


def read_value(pid: int, spec: Any, limit_bytes: int) -> Any:
    """Return the value that a worker describes, its tensors copied from its memory.

    Tensors that exceed `limit_bytes` together come without data, on the device `meta`.

    spec: A structure, as the schema has checked it. A tensor is [dtype, shape, strides,
        address, pending conjugation and negation].

    Raises Unreadable: the memory cannot be read.
    """
    return build_read_value(spec, functools.partial(_read_tensor, pid), limit_bytes)


def build_read_value(
    spec: Any, read: Callable[[TensorEntry], torch.Tensor], limit_bytes: int
) -> Any:
    """Return the value that a worker describes, with tensors from `read`.

    Takes and raises what `read_value` does.
    """
    held = sum(math.prod(shape) * dtype.itemsize for dtype, shape, _, _ in read_entries(spec))

    def build_tensor(entry: Any) -> torch.Tensor:
        told = _read_entry(entry)
        if held <= limit_bytes:
            tensor = read(told)
        else:  # expanded, since the bytes of an expanded tensor may exceed 64 bits
            tensor = torch.empty((), dtype=told[0], device="meta").expand(told[1])
        return mark_pending(tensor, entry[-1])

    return build_value(spec, build_tensor)


@dataclass(frozen=True)
class Captured:
    """The bytes of an output that were read before the worker described it."""

    entries: Sequence[TensorEntry]
    """The layouts in which they were read."""
    tensors: Sequence[torch.Tensor] | None
    """None where the memory could not be read."""

    def build_value(self, spec: Any, limit_bytes: int) -> Any:
        """Return the described value with these bytes.

        Raises Uncaptured where its tensors are not what was read; otherwise as `read_value` does.
        """
        entries = read_entries(spec)
        if len(entries) != len(self.entries):
            raise Uncaptured
        for one, other in zip(entries, self.entries, strict=True):
            if (one[0], one[3], math.prod(one[1])) != (other[0], other[3], math.prod(other[1])):
                raise Uncaptured
            # Contiguous elements are the same ones in whichever shape.
            if one[1:3] != other[1:3] and any(_split_dimensions(*e[1:3])[1] for e in (one, other)):
                raise Uncaptured
        if self.tensors is None:
            raise Unreadable("it could not be read when the clock stopped")
        rest = iter(self.tensors)
        return build_read_value(spec, lambda entry: next(rest).view(entry[1]), limit_bytes)


def capture(pid: int, place: Place, layouts: Sequence[TensorEntry], limit_bytes: int) -> Captured:
    """Read the memory of an output that is not described yet.

    Nothing is read where the output exceeds `limit_bytes` or has another number of tensors.

    layouts: The tensors of another output of the same worker. A tensor of as many elements is read
        by the same shape and strides, any other as contiguous.
    """
    entries = [
        (dtype, shape, strides, address)
        if math.prod(shape) == count
        else (dtype, [count], [1], address)
        for address, count, (dtype, shape, strides, _) in zip(*place, layouts, strict=False)
    ]
    held = sum(math.prod(shape) * dtype.itemsize for dtype, shape, _, _ in entries)
    if len(place[0]) != len(layouts) or held > limit_bytes:
        return Captured([], [])
    try:
        return Captured(entries, [_read_tensor(pid, entry) for entry in entries])
    except Unreadable:
        return Captured(entries, None)


def read_entries(spec: Any) -> list[TensorEntry]:
    """Return the described tensors."""
    return list(map(_read_entry, iterate_entries(spec)))


def list_memory_spans(spec: Any) -> list[tuple[int, int]]:
    """Return the first and the past-the-last address of each described tensor."""
    return [
        (address, address + count_extent(shape, strides) * dtype.itemsize)
        for dtype, shape, strides, address in read_entries(spec)
        if math.prod(shape)
    ]


def _read_entry(entry: Any) -> TensorEntry:
    name, shape, strides, address, _ = entry
    return DTYPES[name], shape, strides, address


def _read_tensor(pid: int, entry: TensorEntry) -> torch.Tensor:
    dtype, shape, strides, address = entry
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    elements = count_extent(shape, strides)
    if elements <= _DENSE * count or elements * dtype.itemsize <= _DENSE_BYTES:
        raw = _read(pid, [(address, elements * dtype.itemsize)])
        flat = torch.frombuffer(raw, dtype=dtype)
        return flat.as_strided(shape, strides).contiguous()
    run, outer = _split_dimensions(shape, strides)
    size, raw = dtype.itemsize, bytearray()
    # In parts: a list of all runs can take far more memory than the tensor.
    offsets = torch.zeros((), dtype=torch.int64)
    for length, stride in zip(shape[:outer], strides[:outer], strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(length) * stride
    for part in offsets.reshape(-1).split(_MOST_RUNS):
        raw += _read(pid, [(address + at * size, run * size) for at in part.tolist()])
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def _split_dimensions(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the contiguous elements of the last dimensions, and the number of other dimensions."""
    run, outer = 1, len(shape)
    while outer and (strides[outer - 1] == run or shape[outer - 1] == 1):
        run *= shape[outer - 1]
        outer -= 1
    return run, outer


def _read(pid: int, spans: Sequence[tuple[int, int]]) -> bytearray:
    """Return bytes of another process, span after span. Raises Unreadable."""
    held = bytearray(sum(length for _, length in spans))
    target = (ctypes.c_char * len(held)).from_buffer(held)
    done = 0
    while done < len(held):  # one call moves at most 2 GiB
        ours = _Span(ctypes.addressof(target) + done, len(held) - done)
        rest: list[tuple[int, int]] = []
        before = done  # of the spans, what is moved already
        for base, length in spans:
            taken = min(before, length)
            before -= taken
            rest.append((base + taken, length - taken))
        theirs = (_Span * len(spans))(*rest)
        moved = _C.process_vm_readv(pid, ctypes.byref(ours), 1, theirs, len(spans), 0)
        if moved <= 0:
            raise Unreadable(os.strerror(ctypes.get_errno()))
        done += moved
    return held


_C.process_vm_readv.restype = ctypes.c_ssize_t
_C.process_vm_readv.argtypes = (
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong),
    *(ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong),
)


_MOST_OPEN = 32


class Pieces:
    """Pieces of one worker's GPU memory that are open in this process.

    `let_run` lets the worker run meanwhile: CUDA needs the owner's process to open memory.
    """

    def __init__(self, let_run: Callable[[], AbstractContextManager[None]]) -> None:
        self._let_run = let_run
        self._open: dict[str, OpenedMemory] = {}
        self._at: dict[int, tuple[int, OpenedMemory]] = {}

    def open(self, pieces: Sequence[tuple[int, int, str]]) -> None:
        """Open the pieces that a worker names, each an address, bytes and a handle.

        Raises Unreadable where a piece cannot be opened.
        """
        missing = [(size, handle) for _, size, handle in pieces if handle not in self._open]
        if missing:
            with self._let_run():
                for size, handle in missing:
                    try:
                        if handle not in self._open:
                            self._open[handle] = OpenedMemory(handle, size)
                    except (RuntimeError, ValueError) as error:
                        raise Unreadable(str(error)) from error
        self._at = {address: (size, self._open[handle]) for address, size, handle in pieces}

    def trim(self) -> None:
        """Close all pieces if there are many; views of them become invalid."""
        if len(self._open) > _MOST_OPEN:
            self.close()

    def view(self, entry: TensorEntry) -> Tensor:
        """Return a described tensor in the worker's own memory. Raises Unreadable."""
        dtype, shape, strides, address = entry
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype, device="cuda")
        size_bytes = count_extent(shape, strides) * dtype.itemsize
        for base, (piece_bytes, memory) in self._at.items():
            start = address - base
            if start >= 0 and start + size_bytes <= piece_bytes and start % dtype.itemsize == 0:
                flat = memory.bytes[start : start + size_bytes].view(dtype)
                return flat.as_strided(shape, strides)
        raise Unreadable("it is in none of the pieces of memory that the worker names")

    def close(self) -> None:
        """Close all pieces."""
        for memory in self._open.values():
            memory.close()
        self._open.clear()
        self._at.clear()
