"""Do intervals of speedups cover what other sessions of the same kernel measure?

python -m lab.merge DIR docs/runs/*/tables
store import cuda-l1 RELEASE --lake DIR
store import measured --own docs/h100 --lake DIR
store import measured --own docs/h200 --lake DIR
python benchmarks/coverage.py --lake DIR

Each session over eager of a kernel with several is left out once, and its speedup is compared with
that of the others. They agree if the difference is within its interval, which combines the interval
of the session and that of the others (Zou and Donner, Statistics in Medicine 27, 2008). 95 % of
them should. The spread of sessions comes from the other half of the kernels.

samples: intervals of the samples alone, and the newest of the others
control: intervals widened by the far end of the interval of eager over eager of their session
spread:  intervals with the spread of sessions, and the others pooled, as in the views

The second table has eager over eager in its second process: the share of sessions whose interval is
above 1.01 (won) or below 1 / 1.01 (lost).
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import store
from evaluators.timing.intervals import NORMAL, bound_median, compute_log_ratios, widen
from evaluators.timing.spreads import estimate_spread

Bounds = tuple[float, float, float]
SESSIONS = """
SELECT
    speedups.device, speedups.clock, speedups.kernel_id, speedups.measured_at,
    hash(speedups.kernel_id, speedups.task_id, speedups.workload_id, speedups."precision",
        speedups.evaluator, speedups.evaluator_version) AS kernel,
    pairs.kernel_samples, pairs.baseline_samples, timings.control_ratios
FROM speedups
INNER JOIN paired_samples AS pairs USING (session_id, kernel_id, task_id, baseline, clock)
INNER JOIN clocked_timings AS timings USING (session_id, kernel_id, task_id, clock)
WHERE baseline = 'eager' AND timings.arm = 'kernel' AND speedups.correct
    AND NOT speedups.disturbed AND NOT speedups.unresolved
ORDER BY device, clock, kernel, measured_at, session_id
"""
LONG_MS = 0.1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One session of a kernel over eager: intervals of log ratios from its samples."""

    speedup: Bounds
    control: Bounds
    eager_ms: float

    @property
    def error(self) -> float:
        """Standard error of the log speedup, from the samples."""
        return (self.speedup[2] - self.speedup[0]) / (2 * NORMAL)


def read_session(row: dict[str, Any]) -> Measured:
    """Read a row of SESSIONS."""
    kernel, eager = row["kernel_samples"], row["baseline_samples"]
    return Measured(
        speedup=bound_median(compute_log_ratios(eager, kernel)),
        control=bound_median([math.log(ratio) for ratio in row["control_ratios"] or ()] or [0.0]),
        eager_ms=sorted(eager)[len(eager) // 2],
    )


def pool(sessions: list[Measured], spread: float) -> Bounds:
    """Pool sessions as the view pooled_speedups does."""
    if len(sessions) == 1:
        return widen(sessions[0].speedup, spread)
    weights = [1 / max(one.error**2 + spread**2, 1e-9) for one in sessions]
    middle = sum(w * one.speedup[1] for w, one in zip(weights, sessions, strict=True)) / sum(
        weights
    )
    half = NORMAL / math.sqrt(sum(weights))
    return middle - half, middle, middle + half


def agree(one: Bounds, other: Bounds) -> bool:
    """Whether the difference of two log speedups is within its interval."""
    if one[1] < other[1]:
        one, other = other, one
    return one[1] - other[1] <= math.hypot(one[1] - one[0], other[2] - other[1])


def widen_by_control(session: Measured) -> Bounds:
    """Widen the interval of the samples by the far end of that of eager over eager."""
    low, middle, high = session.speedup
    far = max(session.control[2], -session.control[0])
    return low - far, middle, high + far


def count_covered(
    kernels: list[list[Measured]], bound: Callable[[list[Measured]], Bounds]
) -> tuple[int, int]:
    """Count sessions that agree with the others of their kernel, and all of them."""
    agreements = [
        agree(bound([session]), bound(sessions[:place] + sessions[place + 1 :]))
        for sessions in kernels
        for place, session in enumerate(sessions)
    ]
    return sum(agreements), len(agreements)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lake", required=True)
    with store.open(parser.parse_args().lake) as lake:
        rows = lake.sql(SESSIONS).rows()
    models = {
        model: [
            [read_session(row) for row in of_kernel]
            for _, of_kernel in itertools.groupby(of_model, key=itemgetter("kernel"))
        ]
        for model, of_model in itertools.groupby(rows, key=itemgetter("device", "clock"))
    }
    columns = "device | clock | kernels | sessions | spread | samples | control | spread, pooled"
    print(f"| {columns} |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    spreads: dict[tuple[str, str], float] = {}
    for model, sessions in models.items():
        kernels = [one for one in sessions if len(one) > 1]
        halves = [kernels[0::2], kernels[1::2]]
        if not all(halves):
            continue
        ways: dict[str, list[tuple[int, int]]] = {"samples": [], "control": [], "spread": []}
        for half, other in (halves, halves[::-1]):
            spread = estimate([*other])
            ways["samples"].append(count_covered(half, lambda one: one[-1].speedup))
            ways["control"].append(count_covered(half, lambda one: widen_by_control(one[-1])))
            ways["spread"].append(count_covered(half, lambda one, spread=spread: pool(one, spread)))
        spreads[model] = estimate(kernels)
        shares = [
            f"{sum(covered for covered, _ in counts) / sum(count for _, count in counts):.1%}"
            for counts in ways.values()
        ]
        number = sum(map(len, kernels))
        print(
            f"| {' | '.join(model)} | {len(kernels)} | {number} | {spreads[model]:.4f} |", end=" "
        )
        print(f"{' | '.join(shares)} |")
    print("\n| device | clock | eager | sessions | won, samples | lost, samples | won | lost |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for model, kernels in models.items():
        for long in (True, False):
            controls = [
                session.control
                for session in itertools.chain(*kernels)
                if (session.eager_ms >= LONG_MS) is long and math.isfinite(session.control[0])
            ]
            if model not in spreads or not controls:
                continue
            wide = [widen(control, spreads[model]) for control in controls]
            edge = math.log(1.01)
            shares: list[str] = []
            for way in (controls, wide):
                for count in (
                    sum(low > edge for low, _, _ in way),
                    sum(high < -edge for _, _, high in way),
                ):
                    shares.append(f"{count / len(way):.2%}")
            name = f"{LONG_MS} ms or more" if long else "shorter"
            print(f"| {' | '.join(model)} | {name} | {len(controls)} | {' | '.join(shares)} |")


def estimate(kernels: list[list[Measured]]) -> float:
    """Estimate the spread of sessions."""
    return estimate_spread(
        [[(one.speedup[1], one.error) for one in sessions] for sessions in kernels]
    )


if __name__ == "__main__":
    main()
