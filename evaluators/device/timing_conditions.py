"""What a timed call needs: caches without its data, and a host without other work.

The judge reads the load between samples, when every worker is frozen. Every other running thread
then belongs to somebody else. A process that shares the cores delays launches and calls, and time
that a hypervisor gives to other guests is missing from every clock.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

_MIB = 1 << 20


def flush_caches(memory: torch.Tensor) -> None:
    """Read memory of `compute_flush_bytes`, so that nothing else stays in the caches.

    Reading leaves no lines that are written back later, within the time of a call. The memory must
    have been written once: untouched pages of a processor may all be the same one.
    """
    memory.sum(dtype=memory.dtype)  # into a wider type, it takes 80 times as long on a processor


def compute_flush_bytes(device: str) -> int:
    """Return the number of bytes to read so that nothing else stays in the caches."""
    if device == "cuda":
        l2_bytes = int(torch.cuda.get_device_properties(0).L2_cache_size)
        return max(256 * _MIB, 4 * l2_bytes)
    return min(max(2 * (read_last_level_cache_bytes() or 0), 32 * _MIB), 256 * _MIB)


def read_last_level_cache_bytes() -> int | None:
    """Return the size of the largest cache that the first processor sees, as Linux describes it."""
    sizes: list[int] = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = file.read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=None)


_MOST_STOLEN = 0.05
_LOAD = Path("/proc/loadavg")
_TIMES = Path("/proc/stat")
_STEAL = 8
"""Position of the time that a hypervisor gave to others, in a line of /proc/stat."""


@dataclass(frozen=True)
class Load:
    """The load of the host at one moment."""

    others: int
    """Running threads besides the reading one; 0 where they are not known."""
    stolen_ticks: int
    """Time that all cores were taken away, since the machine started."""
    total_ticks: int
    """Time of all cores since then."""


def read_load() -> Load:
    """Read the load of the host; figures that the system does not report are 0.

    Where this process may not use every core, the running threads of the machine say nothing about
    the cores that it may use.
    """
    others = stolen = total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        if len(os.sched_getaffinity(0)) == os.cpu_count():
            others = max(0, int(_LOAD.read_text().split()[3].split("/")[0]) - 1)
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = [int(word) for word in _TIMES.read_text().splitlines()[0].split()[1:]]
        stolen, total = ticks[_STEAL - 1], sum(ticks[:_STEAL])
    return Load(others, stolen, total)


def is_contended(loads: Sequence[Load]) -> bool:
    """Whether others needed every core in half of the readings, or took 5 % of the time.

    >>> is_contended([Load(10**6, 0, 100), Load(10**6, 0, 200)])
    True
    >>> is_contended([Load(0, 0, 100), Load(0, 4, 200)])
    False
    """
    if not loads:
        return False
    cores = len(os.sched_getaffinity(0))
    first, last = loads[0], loads[-1]
    passed = last.total_ticks - first.total_ticks
    stolen = last.stolen_ticks - first.stolen_ticks
    return (
        statistics.median(load.others for load in loads) >= cores
        or stolen > _MOST_STOLEN * passed > 0
    )
