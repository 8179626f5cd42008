"""Turns on a GPU that several trainings and judges use.

Judges time kernels alone on a GPU (`DeviceLock`). A process that samples or computes gradients
there would disturb them, so it holds the same lock: shared while it samples, because others can
sample beside it, and alone while it computes gradients. Sampling pauses between two tokens while
another process has the GPU alone, and keeps its memory. Nothing is held while kernels are judged.
"""

import gc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch

from evaluators import DeviceLock
from trainers.runs import processes


class GpuTurns:
    """The turns of a process that samples or trains on a GPU: each ends the one before."""

    def __init__(self, device: str, lock: DeviceLock) -> None:
        """Take a device of torch, and its lock (`open_lock`)."""
        self._device = torch.device(device)
        self._lock = lock
        self._held = ExitStack()
        self._turn: Literal["shared", "alone"] | None = None

    def share(self) -> None:
        """Wait until nobody has the GPU alone, then use it together with others."""
        if self._turn is not None:
            self.leave()
        self._held.enter_context(self._lock.hold_shared())
        self._turn = "shared"

    def take(self) -> None:
        """Wait until nobody uses the GPU, then use it alone."""
        if self._turn == "alone":
            return
        if self._turn is not None:
            self.leave()
        self._held.enter_context(self._lock.hold_exclusive())
        self._turn = "alone"

    def leave(self) -> None:
        """Finish the work on the GPU, release cached memory, and let others have it."""
        try:
            self._finish_work()
            if self._device.type == "cuda":
                gc.collect()
                with torch.cuda.device(self._device):
                    torch.cuda.empty_cache()
        finally:
            self._held.close()
            self._turn = None

    def give_way(self) -> None:
        """Let who waits for the GPU have it before the next token, if it is shared."""
        if self._turn == "shared" and self._lock.is_wanted():
            self._finish_work()
            self._lock.step_aside()

    def _finish_work(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @contextmanager
    def sharing(self) -> Generator[None]:
        """Share the GPU within a block."""
        self.share()
        try:
            yield
        finally:
            self.leave()

    def watch(self, model: Any) -> None:
        """Give way before every forward pass of a model, which is before every token."""
        # The model inside an adapter is the one that generates.
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        inner.register_forward_pre_hook(lambda *_: self.give_way())

    def close(self) -> None:
        """End the last turn, and close the lock."""
        try:
            self.leave()
        finally:
            self._lock.close()


def open_lock(device: str) -> DeviceLock:
    """Return the lock of a GPU, such as cuda or cuda:1; one of nothing for the processor.

    One process of several takes no turns: each waits for all others in every step, so two such
    trainings would wait for each other's GPUs forever.
    """
    if not device.startswith("cuda") or processes.count_processes() > 1:
        return DeviceLock()
    _, _, number = device.partition(":")
    return DeviceLock.of_device(f"cuda:{number or torch.cuda.current_device()}")
