"""What paired samples say about a ratio: its median and an interval, without assumptions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_COVERAGE_MISSED = 0.018


def log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Log of over / under, block by block."""
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Lower bound, median and upper bound of the median of log ratios.

    The bounds are order statistics, exact for any distribution, and cover 98.2 %, which keeps 95 %
    over four looks (Pocock). Fewer than seven values bound nothing.

    >>> interval([0.0] * 5)
    (-inf, 0.0, inf)
    >>> interval([float(n) for n in range(20)])
    (4.0, 9.5, 15.0)
    """
    values = sorted(ratios)
    n = len(values)
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > _COVERAGE_MISSED:
            break
        rank += 1
    middle = statistics.median(values)
    if rank == 0:
        return -math.inf, middle, math.inf
    return values[rank - 1], middle, values[n - rank]
