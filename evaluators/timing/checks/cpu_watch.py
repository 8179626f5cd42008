"""The CPU watch: processor time that a kernel's worker takes while other arms have their turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

from evaluators.worker.handle import Failed, WorkerHandle

_BUSY_SHARE = 0.1
_MORE_SHARE = 0.1
"""Share of its processor time that may exceed what its threads could use."""
_CPU_SLACK_NS = 2_000_000
# The driver of a GPU cleans up after thousands of launches.
_AFTER_SHARE = {"cuda": 0.05, "cpu": 0.0}


class CpuWatch:
    """Measures the processor time of the kernel's worker in its turns and in those of others."""

    def __init__(self, kernel: WorkerHandle) -> None:
        self._kernel = kernel
        # On a processor the judge writes inputs in a turn, while the worker is frozen.
        self._read_turn_ns = kernel.running_ns if kernel.device == "cpu" else time.perf_counter_ns
        self._own_ns = 0
        self._excess_ns = 0
        self._busy_ns = 0
        self._idle_ns = 0

    @contextlib.contextmanager
    def watch(self, worker: WorkerHandle) -> Generator[None]:
        """Count the processor time of the kernel's worker during a turn of this worker."""
        cpu_ns, begin_ns = self._kernel.cpu_ns(), time.perf_counter_ns()
        turn_ns = self._read_turn_ns()
        yield
        worked_ns = self._kernel.cpu_ns() - cpu_ns
        if worker is self._kernel:
            self._own_ns += worked_ns
            possible_ns = self._kernel.threads * (self._read_turn_ns() - turn_ns)
            self._excess_ns += max(0, worked_ns - possible_ns)
        else:
            self._busy_ns += worked_ns
            self._idle_ns += time.perf_counter_ns() - begin_ns

    def reject_busy(self) -> None:
        """Raise Failed if it worked while it was not called, beyond a share of its turns."""
        after_ns = _AFTER_SHARE[self._kernel.device] * self._own_ns
        if self._busy_ns > _BUSY_SHARE * self._idle_ns + after_ns:
            share = self._busy_ns / self._idle_ns
            message = f"worked on for {share:.0%} of the time in which it was not called"
            raise Failed("rejected", "timer_mismatch", message)

    def uses_more_threads(self) -> bool:
        """Whether its turns took more processor time than its threads can use.

        Each turn counts by itself: a turn in which it sleeps makes no room for the others.
        """
        return self._excess_ns > _MORE_SHARE * self._own_ns + _CPU_SLACK_NS
