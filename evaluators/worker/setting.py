"""Settings of a worker, and the memory that it shares with the judge."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.memory.cuda_memory import SharedMemory
from evaluators.memory.tensors import Box


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a worker, as the judge sends them at its start."""

    device: str
    threads: int
    flush_bytes: int
    convolution_tf32: bool = False
    product_tf32: bool = False
    pretends_gpu: bool = False
    """Report a GPU to the code where there is none: much of it compiles only then."""


def make_boxes(
    device: str, fds: tuple[int, int], sizes: tuple[int, int]
) -> tuple[list[Box], list[str]]:
    """Make inbox and outbox; those in GPU memory have handles by which the judge opens them."""
    if device != "cuda":
        return [Box.map_file(fd, size) for fd, size in zip(fds, sizes, strict=True)], []
    shared = [SharedMemory(size) for size in sizes]
    return [Box(memory.bytes) for memory in shared], [memory.handle for memory in shared]
