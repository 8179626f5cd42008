"""A kernel that does nothing: what a call behind the gate takes beside its kernels."""

from __future__ import annotations

import functools
import statistics

import torch

_LAUNCHES = 60
_QUEUED_CYCLES = 400_000


def launch_empty_kernel() -> None:
    """Launch a kernel of one thread that does nothing."""
    torch.cuda._sleep(0)  # pyright: ignore[reportPrivateUsage]


@functools.cache
def time_empty_kernel() -> int:
    """Return the nanoseconds of an empty kernel behind queued work, by CUDA events.

    The time between events around nothing is subtracted. What a call behind the gate with this
    kernel takes longer is no part of a kernel's time, and is the same for all kernels.
    """
    times_ms: list[float] = []
    for _ in range(_LAUNCHES):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        torch.cuda._sleep(_QUEUED_CYCLES)  # pyright: ignore[reportPrivateUsage]
        marks[0].record()
        marks[1].record()
        launch_empty_kernel()
        marks[2].record()
        torch.cuda.synchronize()
        nothing_ms, launch_ms = (marks[i].elapsed_time(marks[i + 1]) for i in range(2))
        times_ms.append(launch_ms - nothing_ms)
    return max(0, round(statistics.median(times_ms) * 1e6))
