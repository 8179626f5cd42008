"""The supply of a session: input sets that are drawn before the device is held alone."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evaluators.memory.tensors import layout
from evaluators.timing.input_pool import BATCH_BYTES


def spare_memory(device: str) -> int:
    """Return the bytes of inputs, or of answers, that a session keeps aside, at most."""
    return min(1 << 30, torch.cuda.mem_get_info()[0] // 16) if device == "cuda" else 1 << 28


class InputSupply:
    """Draws input sets, some of them before a session: others may use the device meanwhile."""

    def __init__(self, draw: Callable[[Sequence[int]], list[list[Any]]], device: str) -> None:
        """`draw` returns the input sets of some seeds."""
        self._draw = draw
        self._device = device
        self._drawn: deque[list[Any]] = deque()

    def prepare(self, sets: int) -> None:
        """Have so many sets ready, or as many as there is memory for."""
        most_bytes, count = spare_memory(self._device), 1  # how large they are is unknown
        while (missing := sets - len(self._drawn)) > 0:
            seeds = [secrets.randbits(48) for _ in range(min(count, missing))]
            self._drawn.extend(self._draw(seeds))
            each_bytes = max(1, layout(self._drawn[0])[1])
            sets = min(sets, most_bytes // each_bytes)
            count = max(1, BATCH_BYTES[self._device] // each_bytes)

    def draw(self, seeds: Sequence[int]) -> list[list[Any]]:
        """Return as many input sets as there are seeds, of these or of other secret ones."""
        ready = [self._drawn.popleft() for _ in seeds[: len(self._drawn)]]
        return ready + (self._draw(seeds[len(ready) :]) if len(ready) < len(seeds) else [])
