"""Speedups of stored samples, and whether a surprising one is found again in another process.

Rule 7 of CUDA-L1 (arXiv 2507.14111, section 2.4.4): a speedup above 3, or above twice the best one
so far, is measured a second time, on another device of the kind where there is one, and two
measurements that differ by more than 10 % count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from evaluators._intervals import bias, interval, log_ratios, widened

Rows: TypeAlias = Sequence[dict[str, Any]]
"""Rows of `timings` of one session."""
Bounds: TypeAlias = tuple[float, float, float]
"""Lower bound, median and upper bound of a log speedup."""

_SURPRISING = math.log(3)
_LEAP = math.log(2)
_APART = math.log(1.10)


def speedups(session: Rows) -> dict[str, Bounds]:
    """Logs of the cold speedups over every baseline of a session, blocks paired.

    Widened by what the session's two eager processes differ by.

    >>> arm = {"cache": "cold", "blocks": list(range(9))}
    >>> rows = [{"arm": "kernel", "samples_ms": [1.0] * 9} | arm]
    >>> rows += [{"arm": "eager", "samples_ms": [1.0] * 9} | arm]
    >>> speedups(rows)
    {'eager': (0.0, 0.0, 0.0)}
    """
    cold = {row["arm"]: row for row in session if row["cache"] == "cold"}
    kernel = cold.pop("kernel", None)
    if kernel is None:
        return {}
    control = kernel.get("control_ratios")
    apart = bias(control) if control else 0.0
    return {
        name: widened(interval(log_ratios(row["samples_ms"], kernel["samples_ms"])), apart)
        for name, row in cold.items()
    }


def best_baseline(found: dict[str, Bounds]) -> str:
    """The baseline that is hardest to beat."""
    return min(found, key=lambda name: found[name][1])


def surprising(session: Rows, best_speedup: float | None) -> bool:
    """Whether a session that may rank shows a win over eager that needs a second look.

    best_speedup: the best one over eager measured so far, where there is one.
    """
    if any(row["noisy"] for row in session):
        return False
    middle = speedups(session)["eager"][1]
    leap = math.inf if best_speedup is None else math.log(best_speedup) + _LEAP
    return middle > _SURPRISING or middle > leap


def confirmed(first: Rows, second: Rows) -> bool:
    """Whether a second session shows the first one's speedup over eager, within 10 %.

    It does not where there is none.
    """
    if not second or any(row["noisy"] for row in second):
        return False
    low, _, high = speedups(first)["eager"]
    second_low, _, second_high = speedups(second)["eager"]
    if math.isinf(low) or math.isinf(second_low):  # too few blocks to agree or to differ
        return False
    return low <= second_high + _APART and second_low <= high + _APART
