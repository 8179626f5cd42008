"""Shared memory that grows with what a task gives, by order of the judge.

How large a task's inputs and answers are is known only once they are there. What does not fit is
kept by the task's worker, which names the bytes it needs; the judge then orders a larger box, or
refuses. On a processor a box is the beginning of a sealed file without pages. On a GPU it is memory
of the worker's context, as for every worker: to open memory, CUDA connects to a socket of the
process that owns it, and a worker may connect to nothing outside.
"""

from __future__ import annotations

import mmap
from typing import Literal, TypeAlias

import torch

from evaluators.memory.cuda_memory import OpenedMemory, SharedMemory
from evaluators.memory.tensors import ALIGN_BYTES, Box, tensors_of

Side: TypeAlias = Literal["inbox", "outbox"]
"""Which way values go, as the worker sees it."""
_PAGE_BYTES = 1 << 21


class MappedBox:
    """The first `size_bytes` bytes of a shared file."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._mapped = mmap.mmap(fd, size_bytes)
        self.box = Box(torch.frombuffer(self._mapped, dtype=torch.uint8))

    def close(self) -> None:
        """Give the pages of the file back; the mapping goes with the last tensor in it."""
        self._mapped.madvise(mmap.MADV_REMOVE)


class OwnedBox:
    """GPU memory of the task's worker, which the judge opens by `handle`. Raises RuntimeError."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = SharedMemory(size_bytes)
        self.handle = self._memory.handle
        self.box = Box(self._memory.bytes)

    def close(self) -> None:
        """Free the memory, which no other process may have open any more."""
        self._memory.close()


class OpenedBox:
    """The same memory in the process that judges. Raises RuntimeError, ValueError."""

    def __init__(self, handle: str, size_bytes: int) -> None:
        self._memory = OpenedMemory(handle, size_bytes)
        self.box = Box(self._memory.bytes)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def find_place(value: object, device: str) -> str:
    """Where a value passes: on the device if all of its tensors are there, else on the processor.

    >>> find_place([torch.zeros(1), 2.0], "cuda")
    'cpu'
    """
    kinds = {tensor.device.type for tensor in tensors_of(value)}
    return device if kinds == {device} else "cpu"


def round_up(size_bytes: int) -> int:
    """Bytes of a box that holds so many, with some to spare: another draw may need a few more.

    >>> round_up(100), round_up(64 << 20) > 64 << 20
    (2097152, True)
    """
    wanted = size_bytes + size_bytes // 8 + ALIGN_BYTES
    return -(-wanted // _PAGE_BYTES) * _PAGE_BYTES
