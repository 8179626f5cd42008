"""A device that a judge shares with others: it steps aside while its worker compiles.

Judges share a device while they ask for answers, and one that times waits for all of them. A worker
that compiles would keep it waiting for as long as that takes. Instead, its judge freezes the worker
and lets the other one have the device. Then the worker continues.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from evaluators.device.lock import DeviceLock

_PROBES = 8
_MOST_IDLE_S = 0.5e-3
"""A kernel that does nothing takes less on an idle GPU; on a busy one, it waits for its turn."""
_MOST_OF_IDLE = 1.5
"""The same, as a ratio to what it took when this judge had the GPU alone. On an H100, the median
was 0.13 ms while the GPU was idle, 0.22 ms beside small matrix products and 1.5 ms beside large
ones."""
_RETRY_S = 0.1
"""Seconds between two attempts while the device computes."""


class SharedDevice:
    """The share of a judge in its device, while it holds the lock together with others."""

    def __init__(self, lock: DeviceLock, device: str, is_starting: Callable[[], bool]) -> None:
        """Store the lock, and time empty kernels while the caller has the device alone.

        Args:
            lock: The lock of the device.
            device: cpu or cuda.
            is_starting: Returns whether another worker of the judge is starting on the device.
        """
        self._lock = lock
        self._is_starting = is_starting
        self._probe = torch.zeros(1, device=device).add_(1) if device == "cuda" else None
        self._idle_s = 0.0 if self._probe is None else self._time_kernel()
        self._next_try = 0.0

    def is_wanted(self) -> bool:
        """Whether another judge waits to have the device for itself, and may have it."""
        if time.monotonic() < self._next_try or self._is_starting():
            return False
        return self._lock.is_wanted()

    def step_aside(self) -> float:
        """Let the judges that wait have the device; return the seconds until it is shared again.

        The caller has frozen its worker. If work of the worker still runs on a GPU, the lock is
        kept, so that it does not run during a timing session of another judge.
        """
        if not self._is_idle():
            self._next_try = time.monotonic() + _RETRY_S
            return 0.0
        return self._lock.step_aside()

    def _is_idle(self) -> bool:
        if self._probe is None:
            return True
        return self._time_kernel() <= min(_MOST_IDLE_S, _MOST_OF_IDLE * self._idle_s)

    def _time_kernel(self) -> float:
        """Return the seconds of an empty kernel: the median of a few."""
        assert self._probe is not None
        seconds: list[float] = []
        for _ in range(_PROBES):
            begin = time.perf_counter()
            self._probe.add_(1)  # a kernel; the copy engines of a GPU need no turn
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)
