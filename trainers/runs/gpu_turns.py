"""Turns on a GPU that several trainings and judges use.

Judges time kernels alone on a GPU (`DeviceLock`). A process that samples or computes gradients
there would disturb them, so it holds the same lock: shared while it samples, because others can
sample beside it, and alone while it computes gradients, which takes most of the memory. Sampling
pauses between two tokens while a judge times. Nothing is held while kernels are judged.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import torch

from evaluators import DeviceLock
from trainers.runs import processes


class GpuTurns:
    """The turns of a process that samples or trains on a GPU: each ends the one before."""

    def __init__(self, lock: DeviceLock) -> None:
        """Take the lock of the GPU (`open_lock`)."""
        self._lock = lock
        self._held = ExitStack()

    def share(self) -> None:
        """Wait until nobody has the GPU alone, then use it together with others."""
        self.leave()
        self._held.enter_context(self._lock.hold_shared())

    def take(self) -> None:
        """Wait until nobody uses the GPU, then use it alone."""
        self.leave()
        self._held.enter_context(self._lock.hold_exclusive())

    def leave(self) -> None:
        """Finish the work on the GPU, release cached memory, and let others have it."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            gc.collect()
            torch.cuda.empty_cache()
        self._held.close()

    def give_way(self) -> None:
        """Let who waits for the GPU have it before the next token, if it is shared."""
        if self._lock.is_wanted():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._lock.step_aside()

    @contextmanager
    def sharing(self) -> Generator[None]:
        """Share the GPU within a block."""
        self.share()
        try:
            yield
        finally:
            self.leave()

    def watch(self, model: torch.nn.Module) -> None:
        """Give way before every forward pass of a model, which is before every token."""
        model.register_forward_pre_hook(lambda *_: self.give_way())


def open_lock(device: str) -> DeviceLock:
    """Return the lock of a GPU, such as cuda or cuda:1; one of nothing for the processor.

    One process of several takes no turns: each waits for all others in every step, so two such
    trainings would wait for each other's GPUs forever.
    """
    if not device.startswith("cuda") or processes.count_processes() > 1:
        return DeviceLock()
    _, _, number = device.partition(":")
    return DeviceLock.of_device(f"cuda:{number or torch.cuda.current_device()}")
