"""The input pool of a session: fresh inputs in every worker, one set for each call of a sample."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evaluators.memory.tensors import LaidOut, layout
from evaluators.memory.values import tensors_of
from evaluators.worker.handle import WorkerHandle

_SUPPLY_NS = {"cpu": 20_000_000, "cuda": 40_000_000}
"""Nanoseconds that renewing all sets of a block may take."""
_BATCH_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
_MOST_TENSORS = 1024
"""Tensors that the answer to one request describes, at most: a message has 128 KiB."""
_MOST_AHEAD = 32
"""Input sets that are drawn with one request, at most, beyond those of the present block."""


def spare_memory(device: str) -> int:
    """Return the bytes of inputs, or of answers, that a session keeps aside, at most."""
    return min(1 << 30, torch.cuda.mem_get_info()[0] // 16) if device == "cuda" else 1 << 28


class InputPool:
    """Input sets that every worker holds, one for each call of a sample.

    All are replaced by fresh ones before every block: a kernel could recognize inputs that it has
    seen before, and keep their answers.
    """

    def __init__(
        self,
        draw: Callable[[Sequence[int]], list[list[Any]]],
        workers: Sequence[WorkerHandle],
    ) -> None:
        """`draw` returns the input sets of some seeds."""
        self._draw = draw
        self._workers = workers
        self.device = workers[0].device
        """Kind of device of all of them."""
        self.calls = 1
        """Timed calls of a sample."""
        self._untimed = 0
        self._most_calls = 1
        self._batch = 1
        self._cost_ns = 0.0
        self._drawing_ns = 0.0
        self._ahead: deque[list[Any]] = deque()
        self.sets: dict[int, list[Any]] = {}
        """The inputs of each slot, on the judge's side."""

    @property
    def size(self) -> int:
        """Sets that every worker can hold."""
        return min(worker.slots for worker in self._workers)

    def count_affordable(self) -> int:
        """Return how many calls a sample can have, with a set each that is renewed every block."""
        renewed = int(_SUPPLY_NS[self.device] / max(1.0, self._cost_ns))
        described = min(worker.reply_calls for worker in self._workers)
        return max(1, min(renewed, self._most_calls, self.size - self._untimed, described))

    def begin(self, calls: int, *, most_calls: int = 1, untimed: int = 0) -> None:
        """Hold a set for each of `calls` timed calls, and for calls before them.

        most_calls: Timed calls of a sample, at most.
        untimed: Further calls at the beginning of a sample.
        """
        self.calls = calls
        self._most_calls = most_calls
        self._untimed = untimed

    def refill(self) -> list[int]:
        """Renew every set; returns the slots of one sample."""
        slots = list(range(self.calls + self._untimed))
        filling_ns = 0
        for slot in slots:
            if not self._ahead:
                self._draw_ahead(len(slots) - slot)
            begin = time.perf_counter_ns()
            self.sets[slot] = self._ahead.popleft()
            laid_out: LaidOut | None = None
            for worker in self._workers:
                laid_out = worker.fill(slot, self.sets[slot], known=laid_out)
            filling_ns += time.perf_counter_ns() - begin
        self._cost_ns = self._drawing_ns + filling_ns / len(slots)
        tensors = len(list(tensors_of(self.sets[0])))
        each_bytes = max(1, layout(self.sets[0])[1])
        most = min(_BATCH_BYTES[self.device] // each_bytes, _MOST_TENSORS // max(1, tensors))
        self._batch = max(1, most)
        return slots

    def draw_ahead(self, sets: int) -> None:
        """Have so many sets ready for later blocks, or as many as there is memory for."""
        each_bytes = max(1, layout(self.sets[0])[1])
        sets = min(sets, spare_memory(self.device) // each_bytes)
        while (missing := sets - len(self._ahead)) > 0:
            self._draw_ahead(missing)

    def _draw_ahead(self, needed: int) -> None:
        """Draw sets with one request: those still needed, and small ones also for later blocks."""
        count = min(self._batch, max(needed, _MOST_AHEAD))
        begin = time.perf_counter_ns()
        self._ahead.extend(self._draw([secrets.randbits(48) for _ in range(count)]))
        self._drawing_ns = (time.perf_counter_ns() - begin) / count
