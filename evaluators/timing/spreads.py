"""The spread of sessions: how far speedups of one kernel differ beyond the error of each session.

The logarithm of the speedup that a session measures is that of the kernel, a difference that lasts
for the session, and the error of its samples. The spread is the standard deviation of the second.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from store import read_sql
from store.ids import uuid7

if TYPE_CHECKING:
    import store

LEAST_PAIRS = 10
"""Fewer pairs of sessions estimate nothing: the standard error of ten is a fifth of the spread."""
_MODEL = ("device", "clock", "evaluator", "evaluator_version")
_FARTHEST = 4.0
"""A pair counts as at most this many standard deviations apart."""


def estimate_spread(kernels: Iterable[Sequence[tuple[float, float]]]) -> float:
    """Return the standard deviation between sessions, from sessions of each kernel.

    This is the estimator of Paule and Mandel (Journal of Research of the NBS 87, 1982; DerSimonian
    and Kacker, Contemporary Clinical Trials 28, 2007, compare it with others), over pairs: at the
    true spread, the squared difference of two sessions over its variance has the mean 1. The pairs
    of a kernel with m sessions weigh m - 1 together, its degrees of freedom. One session that went
    wrong would decide the mean alone, so a pair counts as at most four standard deviations apart
    (proposal 2 of Huber, Annals of Mathematical Statistics 35, 1964).

    Args:
        kernels: The logarithm of the speedup and its standard error of each session of a kernel.

    >>> round(estimate_spread([[(0.0, 0.0), (0.02, 0.0)]] * 10), 6)
    0.014143
    >>> estimate_spread([[(0.0, 0.1), (0.02, 0.1)]] * 10)
    0.0
    """
    pairs = [
        (2 / len(sessions), (one[0] - other[0]) ** 2, one[1] ** 2 + other[1] ** 2)
        for sessions in kernels
        for one, other in itertools.combinations(sessions, 2)
    ]
    weights, squares, variances = np.array(pairs).T
    within = math.erf(_FARTHEST / math.sqrt(2))
    density = math.exp(-(_FARTHEST**2) / 2) / math.sqrt(2 * math.pi)
    # The mean of the square of a normal variable that is cut off there.
    mean = within - 2 * _FARTHEST * density + _FARTHEST**2 * (1 - within)

    def is_too_small(spread: float) -> bool:
        with np.errstate(divide="ignore", invalid="ignore"):
            standard = np.nan_to_num(squares / (variances + 2 * spread**2))
        return bool(weights @ np.minimum(standard, _FARTHEST**2) > mean * weights.sum())

    low, high = 0.0, 1.0
    if not is_too_small(low):
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_too_small(middle) else (low, middle)
    return high


def read_spreads(lake: store.Lake, device: str, version: int) -> dict[str, float]:
    """Return the estimated spread of the judge's sessions by clock, if there is any.

    Args:
        lake: The lake.
        device: Name of the device.
        version: Version of the judge.
    """
    rows = lake.run(read_sql(__file__, "spreads"), {"device": device, "version": version}).rows()
    return {row["clock"]: row["tau"] for row in rows}


def estimate_spreads(lake: store.Lake) -> list[dict[str, Any]]:
    """Return a row of `session_spreads` for each device model, clock and version with enough pairs.

    All rows with repeated sessions are returned; `tau` is None where they are too few.
    """
    sessions = lake.run(read_sql(__file__, "repeated_sessions")).rows()
    rows: list[dict[str, Any]] = []
    for model, of_model in itertools.groupby(sessions, key=itemgetter(*_MODEL)):
        kernels = [
            [(row["ratio"], row["error"]) for row in of_kernel]
            for _, of_kernel in itertools.groupby(of_model, key=itemgetter("kernel"))
        ]
        pairs = sum(math.comb(len(one), 2) for one in kernels)
        rows.append(
            {
                "spread_id": uuid7(),
                **dict(zip(_MODEL, model, strict=True)),
                "tau": estimate_spread(kernels) if pairs >= LEAST_PAIRS else None,
                "kernels": len(kernels),
                "sessions": sum(map(len, kernels)),
                "pairs": pairs,
                "snapshot_id": lake.snapshot,
            }
        )
    return rows
