"""The input pool of a session: fresh inputs in every worker, one set for each call of a sample."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from evaluators.timing.plan import MOST_LOOPS, Clock
from evaluators.worker.handle import WorkerHandle

_SUPPLY_NS = 20_000_000


class InputPool:
    """Input sets that every worker holds, one for each call of a sample.

    All are replaced by fresh ones before every block: a kernel could recognize inputs that it has
    seen before, and keep their answers.
    """

    def __init__(self, inputs: Callable[[int], list[Any]], workers: Sequence[WorkerHandle]) -> None:
        self._inputs = inputs
        self._workers = workers
        self.device = workers[0].device
        """Kind of device of all of them."""
        self._clock: Clock = "latency"
        self._size = 1
        self._cost_ns = 0
        self.sets: dict[int, list[Any]] = {}
        """The inputs of each slot, on the judge's side."""

    def count_affordable(self) -> int:
        """Return how many sets every worker can hold and receive anew for each block."""
        renewed = max(1, _SUPPLY_NS // max(1, self._cost_ns))
        return min(renewed, MOST_LOOPS[self._clock], *(worker.slots for worker in self._workers))

    def begin(self, clock: Clock, size: int) -> None:
        """Hold `size` input sets, for samples of a clock."""
        self._clock = clock
        self._size = size

    def resize(self, size: int) -> None:
        """Hold `size` input sets."""
        self._size = size

    def refill(self) -> list[int]:
        """Renew every set; returns the slots of one sample."""
        for slot in range(self._size):
            self._fill(slot)
        return list(range(self._size))

    def _fill(self, slot: int) -> None:
        begin = time.perf_counter_ns()
        self.sets[slot] = self._inputs(secrets.randbits(48))
        # In random order, because the first worker finds the machine in another state than the last
        # one.
        for worker in random.sample(self._workers, len(self._workers)):
            worker.fill(slot, self.sets[slot])
        self._cost_ns = time.perf_counter_ns() - begin
