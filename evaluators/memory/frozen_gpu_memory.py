"""Reading a value from a frozen worker's GPU memory, by handle, address, shape and strides.

The worker names the allocations that its answer is in. The judge opens them and reads the answer
itself, while nothing of the worker runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from evaluators.memory.cuda_memory import OpenedMemory
from evaluators.memory.frozen_memory import TensorEntry, Unreadable
from evaluators.memory.tensors import count_extent

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
                    self._open_one(handle, size)
        self._at = {address: (size, self._open[handle]) for address, size, handle in pieces}

    def trim(self) -> None:
        """Close all pieces if there are many; views of them become invalid."""
        if len(self._open) > _MOST_OPEN:
            self.close()

    def _open_one(self, handle: str, size: int) -> None:
        if handle in self._open:
            return
        try:
            self._open[handle] = OpenedMemory(handle, size)
        except (RuntimeError, ValueError) as error:
            raise Unreadable(str(error)) from error

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
