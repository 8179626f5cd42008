"""Shared memory that grows with a task's values, by order of the judge.

The size of a task's inputs and answers is unknown until they exist. The task's worker keeps a value
that does not fit and names the bytes it needs; the judge then orders a larger box, or refuses. On a
processor a box is the beginning of a sealed file without pages. On a GPU it is memory of the
worker's context: to open memory, CUDA connects to a socket of the process that owns it, and a
worker may not connect to anything outside.
"""

from __future__ import annotations

import mmap
from typing import Literal, TypeAlias

import torch

from evaluators.memory.cuda_memory import OpenedMemory, SharedMemory
from evaluators.memory.tensors import ALIGN_BYTES, Box, tensors_of

Side: TypeAlias = Literal["inbox", "outbox"]
"""Direction in which values pass, as the worker sees it."""
_PAGE_BYTES = 1 << 21


class MappedBox:
    """The first `size_bytes` bytes of a shared file."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._mapped = mmap.mmap(fd, size_bytes)
        self.box = Box(torch.frombuffer(self._mapped, dtype=torch.uint8))

    def close(self) -> None:
        """Free the pages of the file; the mapping ends with the last tensor in it."""
        self._mapped.madvise(mmap.MADV_REMOVE)


class OwnedBox:
    """GPU memory of the task's worker, which the judge opens by `handle`. Raises RuntimeError."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = SharedMemory(size_bytes)
        self.handle = self._memory.handle
        self.box = Box(self._memory.bytes)

    def close(self) -> None:
        """Free the memory; no other process may have it open."""
        self._memory.close()


class OpenedBox:
    """The same memory in the process that judges. Raises RuntimeError, ValueError."""

    def __init__(self, handle: str, size_bytes: int) -> None:
        self._memory = OpenedMemory(handle, size_bytes)
        self.box = Box(self._memory.bytes)

    def close(self) -> None:
        """Close the memory."""
        self._memory.close()


def find_place(value: object, device: str) -> str:
    """Return where a value passes: the device if all its tensors are on it, else the processor.

    >>> find_place([torch.zeros(1), 2.0], "cuda")
    'cpu'
    """
    kinds = {tensor.device.type for tensor in tensors_of(value)}
    return device if kinds == {device} else "cpu"


def round_up(size_bytes: int) -> int:
    """Return the size of a box for these bytes, with room for a slightly larger value.

    >>> round_up(100), round_up(64 << 20) > 64 << 20
    (2097152, True)
    """
    wanted = size_bytes + size_bytes // 8 + ALIGN_BYTES
    return -(-wanted // _PAGE_BYTES) * _PAGE_BYTES
