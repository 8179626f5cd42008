"""Processor time that a kernel's worker takes while other arms have their turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

from evaluators.worker.handle import Failed, WorkerHandle

_BUSY_SHARE = 0.1
_CPU_SLACK_NS = 2_000_000
# A GPU's driver clears away behind thousands of launches.
_AFTER_SHARE = {"cuda": 0.05, "cpu": 0.0}


class Watch:
    """Looks at the processor time of the kernel's worker while others have their turn."""

    def __init__(self, kernel: WorkerHandle) -> None:
        self._kernel = kernel
        self._own_ns = 0
        self._own_wall_ns = 0
        self._busy_ns = 0
        self._idle_ns = 0

    @contextlib.contextmanager
    def beside(self, arm: WorkerHandle) -> Generator[None]:
        """Count what the kernel's worker does meanwhile, apart from what it does in its turns."""
        cpu_ns, begin_ns = self._kernel.cpu_ns(), time.perf_counter_ns()
        yield
        worked_ns = self._kernel.cpu_ns() - cpu_ns
        if arm is self._kernel:
            self._own_ns += worked_ns
            self._own_wall_ns += time.perf_counter_ns() - begin_ns
        else:
            self._busy_ns += worked_ns
            self._idle_ns += time.perf_counter_ns() - begin_ns

    def refuse_busy(self) -> None:
        """Raise Failed where it worked while it was not called, beyond a share of its turns."""
        after_ns = _AFTER_SHARE[self._kernel.device] * self._own_ns
        if self._busy_ns > _BUSY_SHARE * self._idle_ns + after_ns:
            share = self._busy_ns / self._idle_ns
            message = f"worked on for {share:.0%} of the time in which it was not called"
            raise Failed("rejected", "timer_mismatch", message)

    def uses_more_threads(self, threads: float) -> bool:
        """Whether its turns took more processor time than a number of threads can."""
        return self._own_ns > threads * self._own_wall_ns + _CPU_SLACK_NS
