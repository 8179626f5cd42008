"""The stopping rule of a session: it ends once every baseline is known well enough.

The rule is applied after 20, 40, 80 and 160 blocks (`Plan.looks`), or when the time is up.
`timing.intervals` explains how several looks affect the level of the intervals.
"""

from __future__ import annotations

from evaluators.timing.intervals import NORMAL, classify_speedup, read_fallback_spread, widen
from evaluators.timing.plan import Plan
from evaluators.timing.session import Session

_DECIDED = 3.0
"""An interval that is wholly on one side of 1 may be this many times wider."""
_OF_SPREAD = 0.5
"""An interval with this share of the width that the spread of sessions adds is narrow enough:
however many blocks follow, they would make the whole interval at most 11 % narrower."""


def should_stop(session: Session, plan: Plan, elapsed_s: float) -> bool:
    """Whether a session may stop: every baseline is known well enough, or the time is up.

    A baseline is known well enough if the interval of its samples is no wider than the plan allows,
    or than half of what the spread of sessions adds. Three times the plan's width is enough if the
    interval with that spread is wholly above 1.02 or below 0.98.
    """
    blocks = len(session.readings)
    if elapsed_s > plan.limit_s:
        return True
    if blocks < plan.looks[0]:
        return False
    if elapsed_s > plan.budget_s:
        return True
    if blocks not in plan.looks:
        return False
    spread = read_fallback_spread(session.clock)
    return all(_is_known(session.bound_ratio(name), spread, plan) for name in session.baselines)


def _is_known(bounds: tuple[float, float, float], spread: float, plan: Plan) -> bool:
    low, _, high = bounds
    wide_low, _, wide_high = widen(bounds, spread)
    is_decided = classify_speedup(wide_low, wide_high) != "same"
    half_width = plan.half_width * (_DECIDED if is_decided else 1.0)
    return high - low <= 2 * max(half_width, _OF_SPREAD * NORMAL * spread)
