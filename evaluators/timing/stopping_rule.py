"""The stopping rule of a session: it ends once every baseline is known well enough.

The rule is applied after 20, 40, 80 and 160 blocks (`Plan.looks`), or when the time is up.
`timing.intervals` explains how several looks affect the level of the intervals.
"""

from __future__ import annotations

from evaluators.timing.intervals import NORMAL
from evaluators.timing.plan import Plan
from evaluators.timing.session import Session


def should_stop(session: Session, plan: Plan, elapsed_s: float) -> bool:
    """Whether a session may stop: every baseline is known well enough, or the time is up.

    A baseline is known well enough if the interval of its samples is no wider than the plan allows,
    or than what the spread of sessions adds: however many blocks follow, they would make the whole
    interval at most 29 % narrower, and another session does more in that time.
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
    half_width = max(plan.half_width, NORMAL * plan.spreads[session.clock])
    intervals = map(session.bound_ratio, session.baselines)
    return all(high - low <= 2 * half_width for low, _, high in intervals)
