"""Inbox and outbox of a worker as shared memory, made by the judge or, on a GPU, by the worker."""

from __future__ import annotations

import os
from collections.abc import Sequence

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.memory.cuda_memory import OpenedMemory
from evaluators.memory.sealed_file import create_sealed_file
from evaluators.memory.tensors import Box


class SharedBoxes:
    """Two pieces of memory that the judge and one worker see, and a GPU's gate between them."""

    def __init__(self, device: str, sizes: Sequence[int]) -> None:
        """Make sealed files of these sizes, in bytes, or on a GPU only the file of the gate."""
        self._on_gpu = device == "cuda"
        self._opened: list[OpenedMemory] = []
        self.gate: Gate | None = None
        """The gate, on a GPU once the memory is open."""
        self.fds = [create_sealed_file(GATE_BYTES if self._on_gpu else size) for size in sizes]
        """Descriptors to pass to the worker."""
        self._gate_fd = os.dup(self.fds[0]) if self._on_gpu else None
        self.boxes = (
            []
            if self._on_gpu
            else [Box.map_file(fd, size) for fd, size in zip(self.fds, sizes, strict=True)]
        )

    def close_fds(self) -> None:
        """Close the descriptors that the worker has."""
        for fd in self.fds:
            os.close(fd)

    def open(self, handles: Sequence[str], sizes: Sequence[int]) -> None:
        """Open memory of these sizes that a worker on a GPU names. Raises RuntimeError, ValueError.

        Does nothing on a processor.
        """
        for handle, size in zip(handles, sizes, strict=False):
            self._opened.append(OpenedMemory(handle, size))
        if self._gate_fd is not None:
            self.gate = Gate(self._gate_fd)
        if self._opened:
            self.boxes = [Box(memory.bytes) for memory in self._opened]

    def close(self) -> None:
        """Close what is open."""
        for memory in self._opened:
            memory.close()
        if self.gate is not None:
            self.gate.close()
        if self._gate_fd is not None:
            os.close(self._gate_fd)
