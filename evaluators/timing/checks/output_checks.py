"""Checks of timed calls, drawn after their samples: their outputs, and the state after them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.memory.values import tensors_of
from evaluators.timing.input_pool import InputPool
from evaluators.timing.plan import Sources
from evaluators.worker.handle import Sample, WorkerHandle

_MOST_CALLS = 4  # of one sample
_MOST_LATE = 0.25


@dataclass(frozen=True)
class _CheckedCall:
    """A timed call that is checked."""

    number: int
    """Among the calls whose outputs are kept."""
    inputs: list[Any]
    inputs_now: Any
    """Its inputs as they are after the sample."""


class KeptAnswers:
    """Answers of timed calls, to be compared when the device need not be held alone any more."""

    def __init__(self, check: Callable[[list[Any], Any, Any], None], most_bytes: int) -> None:
        """Keep answers for `check` (`Sources.check`), of at most so many bytes together."""
        self._check = check
        self._most_bytes = self._left_bytes = most_bytes
        self._kept: list[tuple[list[Any], Any, Any]] = []

    def keep(self, inputs: list[Any], output: Any, inputs_now: Any) -> None:
        """Keep the answer of a call; compare all if they take too much memory. Raises Failed."""
        self._kept.append((inputs, output, inputs_now))
        tensors = itertools.chain.from_iterable(map(tensors_of, self._kept[-1]))
        self._left_bytes -= sum(tensor.nbytes for tensor in tensors)
        if self._left_bytes < 0:
            self.compare()

    def compare(self) -> None:
        """Compare what is kept, in the order of the calls. Raises Failed."""
        kept, self._kept, self._left_bytes = self._kept, [], self._most_bytes
        for answer in kept:
            self._check(*answer)


class OutputChecks:
    """Checks calls of timed samples, drawn after a sample, while the worker is frozen."""

    def __init__(
        self,
        kernel: WorkerHandle,
        eager: WorkerHandle,
        sources: Sources,
        pool: InputPool,
        draw: random.Random,
    ) -> None:
        self._kernel = kernel
        self._eager = eager
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self.has_checked = False
        """Whether a sample of the session has been checked; samples of the warm-up do not count."""
        self._checked = 0
        """Samples that have been checked, with those of the warm-up."""
        self._late = 0

    @property
    def is_unverified(self) -> bool:
        """Whether too many samples have answers that could not be captured when the clock stopped.

        One may: an answer is captured by the layout of the last described one.
        """
        return self._late > max(min(1, self._checked - 1), _MOST_LATE * self._checked)

    def follow_state(self, calls: Sequence[list[Any]] = ()) -> int:
        """Check the state after the calls with these inputs, or only note it if there are none.

        Returns the nanoseconds that count as time of the last sample.
        """
        if self._sources.follow_state is None:
            return 0
        return self._sources.follow_state(calls, self._eager)

    def end_sample(self, sample: Sample, slots: Sequence[int], *, is_drawn: bool) -> int:
        """Check the kernel's last sample if it is drawn, and read the state of its module.

        The state is read after every sample and before the kernel can tell whether it is drawn.

        slots: The slots of all its calls.

        Returns the nanoseconds that count as time of the sample. Raises Failed.
        """
        if not is_drawn:
            return self.follow_state()
        self.has_checked = True
        captured = self._capture(sample)
        late_ns = self.follow_state([self._pool.sets[slot] for slot in slots])
        self._compare(captured)
        return late_ns

    def check(self, sample: Sample) -> None:
        """Check some calls of the kernel's last sample. Raises Failed."""
        self._compare(self._capture(sample))

    def _capture(self, sample: Sample) -> list[_CheckedCall]:
        """Draw calls; read their outputs and inputs before the worker gets another request."""
        if self._sources.check is None:
            return []
        slots = sample.kept
        calls = self._draw.sample(range(len(slots)), min(len(slots), _MOST_CALLS))
        self._kernel.capture_outputs(calls)
        return [
            _CheckedCall(call, self._pool.sets[slots[call]], self._kernel.inputs(slots[call]))
            for call in calls
        ]

    def _compare(self, checked: Sequence[_CheckedCall]) -> None:
        if self._sources.check is None:
            return
        outputs = self._kernel.timed_outputs([call.number for call in checked])
        for call, (output, _) in zip(checked, outputs, strict=True):
            self._sources.check(call.inputs, output, call.inputs_now)
        self._checked += 1
        self._late += not all(is_captured for _, is_captured in outputs)
