"""Confidence intervals of speedups from paired samples, without assumptions on their distribution.

This module defines the level of every interval of a session's speedup. The view `speedups`
(store/views/speedups.sql) computes the same intervals from stored samples, and a test compares the
two.

A session stops as soon as its intervals are narrow enough, which is examined after 20, 40, 80 and
160 blocks. Each look is another chance for the interval to miss the true speedup: intervals of 95 %
would miss it at one of the four looks in 12 % of the sessions. Pocock (Biometrika 64, 1977) gives
the level that a single look needs for 95 % over four of them: 98.2 %, which misses it in 4 %. The
interval of a stored session needs that level as well, because its number of blocks was chosen by
looking at its samples. Intervals over tasks or kernels (views `leaderboard` and `techniques`) are
not stopped by looking, and cover 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MISSED = 0.018
"""Share of intervals that miss the true median at a single look: the level is 98.2 %."""
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


def compute_bias(control: Sequence[float]) -> float:
    """Return how much two processes that do the same may differ: the far end of the interval.

    As a log ratio, 0 or above. A speedup is measured between two processes as well. A difference
    between processes that lasts for a whole session (addresses, a core, the state of an allocator)
    is not averaged out by more blocks.

    control: ratios of two arms that do the same, block by block.

    >>> round(compute_bias([1.01] * 20), 4), round(compute_bias([0.99] * 20), 4)
    (0.01, 0.0101)
    """
    low, _, high = bound_median([math.log(ratio) for ratio in control])
    return max(high, -low)


def widen(bounds: tuple[float, float, float], bias: float) -> tuple[float, float, float]:
    """Return an interval of a log ratio with a systematic difference added on both sides.

    >>> widen((0.5, 1.0, 1.5), 0.25)
    (0.25, 1.0, 1.75)
    """
    low, middle, high = bounds
    return low - bias, middle, high + bias


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
