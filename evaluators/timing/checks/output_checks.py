"""Checks of timed calls, drawn after their samples: their outputs, and the state after them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from evaluators.memory.tensors import tensors_of
from evaluators.references.task import has_same_bits
from evaluators.timing.input_pool import InputPool
from evaluators.timing.plan import Sources
from evaluators.worker.handle import Failed, WorkerHandle

_MOST_CALLS = 4  # of one sample


class OutputChecks:
    """Checks calls of timed samples, drawn after a sample, while the worker is frozen."""

    def __init__(
        self, kernel: WorkerHandle, sources: Sources, pool: InputPool, draw: random.Random
    ) -> None:
        self._kernel = kernel
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self.has_checked = False
        """Whether a sample of the session has been checked; samples of the warm-up do not count."""
        self._calls: list[list[Any]] = []
        """Inputs of the last sample, if the state after it is to be checked."""

    def begin_sample(self) -> None:
        """Check the state after the last sample, if it was drawn, and note the present one.

        To be called once its inputs are replaced: updates that were put off cannot be made then.
        """
        if self._sources.follow_state is not None:
            self._sources.follow_state(self._calls)
        self._calls = []

    def note_calls(self, slots: Sequence[int]) -> None:
        """Have the state after these calls checked, which are all calls of the last sample."""
        self.has_checked = True
        self._calls = [self._pool.sets[slot] for slot in slots]

    def check(self, slots: Sequence[int]) -> None:
        """Check some calls of the kernel's last sample. Raises Failed."""
        if self._sources.check is None:
            return
        for call in self._draw.sample(range(len(slots)), min(len(slots), _MOST_CALLS)):
            inputs = self._pool.sets[slots[call]]
            self._sources.check(inputs, self._kernel.output(call))
            now = self._kernel.inputs(slots[call])
            pairs = zip(tensors_of(inputs), tensors_of(now), strict=False)
            if self._sources.keeps_inputs and not all(has_same_bits(a, b) for a, b in pairs):
                raise Failed("incorrect", "input_mutated", "a timed call has changed its inputs")
