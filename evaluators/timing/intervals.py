"""Confidence intervals of speedups from paired samples, without assumptions on their distribution.

This module defines the level of every interval of a session's speedup. The view `session_speedups`
(store/views/session_speedups.sql) computes the same intervals from stored samples, and a test
compares the two.

A session stops as soon as its intervals are narrow enough, which is examined after 20, 40, 80 and
160 blocks. Each look is another chance for the interval to miss the true speedup: intervals of 95 %
would miss it at one of the four looks in 12 % of the sessions. Pocock (Biometrika 64, 1977) gives
the level that a single look needs for 95 % over four of them: 98.2 %, which misses it in 4 %. The
interval of a stored session needs that level as well, because its number of blocks was chosen by
looking at its samples. Intervals over tasks or kernels (views `leaderboard` and `techniques`) are
not stopped by looking, and cover 95 %.

Two sessions of one kernel differ by more than the samples of each say, because processes that do
the same differ for as long as they run: by addresses, a core, the state of an allocator. More
blocks do not average that out, and the two eager processes of a session are one draw of it, not a
bound. Its standard deviation, the spread of sessions (`timing.spreads`), is part of every interval.
The judge reads no lake, so it uses the spread of a device model without an estimate.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Sequence
from typing import Literal

from store.lake.sql_files import read_view
from store.schema.clocks import Clock

MISSED = 0.018
"""Share of intervals that miss the true median at a single look: the level is 98.2 %."""
NORMAL = 1.96
"""Standard deviations on each side that cover 95 % of a normal distribution."""
_FASTER = math.log(1.02)
_SLOWER = math.log(0.98)


def compute_log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the log of over / under, block by block."""
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]


def bound_median(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return lower bound, median and upper bound of the median of log ratios.

    The bounds are order statistics, exact for any distribution: they miss the median in at most
    `MISSED` of all cases. Fewer than seven values bound nothing.

    >>> bound_median([0.0] * 5)
    (-inf, 0.0, inf)
    >>> bound_median([float(n) for n in range(20)])
    (4.0, 9.5, 15.0)
    """
    values = sorted(ratios)
    n = len(values)
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > MISSED:
            break
        rank += 1
    middle = statistics.median(values)
    if rank == 0:
        return -math.inf, middle, math.inf
    return values[rank - 1], middle, values[n - rank]


@functools.cache
def read_fallback_spreads(kind: Literal["cuda", "cpu"] = "cuda") -> dict[Clock, float]:
    """Return the spread of sessions by clock of a device model of this kind without an estimate.

    >>> read_fallback_spreads()["gpu"] < 0.05 < read_fallback_spreads("cpu")["latency"]
    True
    """
    figures = re.findall(r"\('(\w+)', '(\w+)', ([\d.]+)\)", read_view("fallback_spreads"))
    return {clock: float(tau) for of, clock, tau in figures if of == kind}


def widen(bounds: tuple[float, float, float], spread: float) -> tuple[float, float, float]:
    """Return an interval of a log ratio that includes the spread of sessions.

    >>> low, middle, high = widen((0.7, 1.0, 1.4), 0.4 / 1.96)
    >>> round(low, 3), middle, round(high, 3)
    (0.5, 1.0, 1.566)
    """
    low, middle, high = bounds
    between = NORMAL * spread
    return (
        middle - math.hypot(middle - low, between),
        middle,
        middle + math.hypot(high - middle, between),
    )


def classify_speedup(low: float, high: float) -> str:
    """Classify a speedup by its interval: faster, slower or same.

    A kernel is faster if even the lower bound is above 1.02, slower if even the upper bound is
    below 0.98, and otherwise the same.

    >>> classify_speedup(math.log(1.03), math.log(1.2)), classify_speedup(-0.001, 0.3)
    ('faster', 'same')
    >>> classify_speedup(-0.3, -0.1)
    'slower'
    """
    return "faster" if low > _FASTER else "slower" if high < _SLOWER else "same"
