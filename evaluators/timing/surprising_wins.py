"""Surprising wins: speedups that have to show again in another process before they rank.

Rule 7 of CUDA-L1 (arXiv 2507.14111, section 2.4.4): a speedup above 3, or above twice the best one
so far, is measured a second time, on another device of the kind where there is one, and two
measurements that differ by more than 10 % count for nothing. Two that agree both count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from evaluators.timing.intervals import (
    bound_median,
    compute_log_ratios,
    read_fallback_spreads,
    widen,
)
from evaluators.timing.session import mark_disturbed

Rows: TypeAlias = Sequence[dict[str, Any]]
"""Rows of `timings` of one session, those of the clock that ranks first."""
Bounds: TypeAlias = tuple[float, float, float]
"""Lower bound, median and upper bound of a log speedup."""

_SURPRISING = math.log(3)
_LEAP = math.log(2)
_MOST_DIFFERENCE = math.log(1.10)
_WIDEST = math.log(1.25)


def select_ranking_rows(session: Rows) -> dict[str, dict[str, Any]]:
    """Return the rows of the clock that ranks, by arm."""
    return {row["arm"]: row for row in session if row["clock"] == session[0]["clock"]}


def ranks_nothing(session: Rows) -> bool:
    """Whether the session is disturbed by the ranking clock, or eager too short for that clock.

    A session that does not say so ranks nothing: its judge may run what a kernel left behind.
    """
    ranking = select_ranking_rows(session)
    return any(
        row.get("disturbed") is not False or (arm == "eager" and row.get("unresolved") is not False)
        for arm, row in ranking.items()
    )


def compute_speedups(session: Rows, spread: float | None = None) -> dict[str, Bounds]:
    """Return the log speedup over every baseline of a session, by the clock that ranks.

    Samples are paired by block. The intervals include the spread of sessions, by default that of a
    GPU without an estimate.

    >>> arm = {"clock": "gpu", "blocks": list(range(9))}
    >>> rows = [{"arm": "kernel", "samples_ms": [1.0] * 9} | arm]
    >>> rows += [{"arm": "eager", "samples_ms": [1.0] * 9} | arm]
    >>> low, middle, high = compute_speedups(rows)["eager"]
    >>> -0.1 < low < 0 == middle < high < 0.1
    True
    """
    if spread is None:
        spread = read_fallback_spreads()[session[0]["clock"]]
    return {name: widen(bounds, spread) for name, bounds in _bound_speedups(session).items()}


def _bound_speedups(session: Rows) -> dict[str, Bounds]:
    """Return the log speedups with the intervals of this session's samples alone."""
    ranking = select_ranking_rows(session)
    kernel = ranking.pop("kernel", None)
    if kernel is None:
        return {}
    return {
        name: bound_median(compute_log_ratios(row["samples_ms"], kernel["samples_ms"]))
        for name, row in ranking.items()
    }


def find_best_baseline(speedups: dict[str, Bounds]) -> str:
    """Return the baseline that is hardest to beat."""
    return min(speedups, key=lambda name: speedups[name][1])


def is_surprising(session: Rows, best_speedup: float | None) -> bool:
    """Whether a session that may rank shows a win over eager that needs a second session.

    best_speedup: the best one over eager measured so far, where there is one.
    """
    if ranks_nothing(session):
        return False
    middle = _bound_speedups(session)["eager"][1]
    leap = math.inf if best_speedup is None else math.log(best_speedup) + _LEAP
    return middle > _SURPRISING or middle > leap


def is_confirmed(first: Rows, second: Rows) -> bool:
    """Whether two sessions agree on the speedup over eager.

    They agree if both may rank, their medians differ by at most 10 %, and neither session's samples
    leave an interval that extends further than 25 % from its median.
    """
    if not second or ranks_nothing(second):
        return False
    medians: list[float] = []
    for session in (first, second):
        low, middle, high = _bound_speedups(session)["eager"]
        if max(high - middle, middle - low) > _WIDEST:
            return False
        medians.append(middle)
    return abs(medians[0] - medians[1]) <= _MOST_DIFFERENCE


def rank_sessions(first: Rows, second: Rows) -> list[dict[str, Any]]:
    """Return the rows of a surprising win's sessions, confirmed or disturbed.

    If two sessions agree, both count, and the higher one is noisy for older readers. Otherwise
    neither counts.
    """
    if not is_confirmed(first, second):
        return mark_disturbed((*first, *second))
    higher = max(second, first, key=lambda rows: _bound_speedups(rows)["eager"][1])
    return [
        {
            **row,
            "noisy": rows is higher or row["noisy"],
            "confirmed": row["clock"] == rows[0]["clock"],
        }
        for rows in (first, second)
        for row in rows
    ]
