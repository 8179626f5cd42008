"""The load of the host: whether other work shares it while a session is timed.

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
