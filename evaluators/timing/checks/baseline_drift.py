"""Drift of the baseline: eager timed once more after the kernel's process has ended."""

from __future__ import annotations

import math
import random
import secrets
import time

from evaluators.judging.baseline_workers import BaselineWorkers
from evaluators.timing.input_pool import InputPool
from evaluators.timing.intervals import bound_median
from evaluators.timing.measurement import Block
from evaluators.timing.plan import Plan, Sources
from evaluators.timing.session import Session
from evaluators.worker.handle import LaunchBlocked

_DRIFT = math.log(1.03)
_BLOCKS = (7, 12)
"""Fewest and most blocks of eager alone."""


def prepare_eager_alone(
    session: Session, baselines: BaselineWorkers, sources: Sources
) -> InputPool:
    """Return the input pool of `check_eager_alone`. Other judges may use the device meanwhile."""
    pool = InputPool(sources.draw, (baselines.main, baselines.control))
    pool.refill()
    pool.draw_ahead(_BLOCKS[1] * session.inner_loops["eager"])
    return pool


def check_eager_alone(
    session: Session, baselines: BaselineWorkers, sources: Sources, plan: Plan, pool: InputPool
) -> None:
    """Time eager again without the kernel's process; flag and distrust a difference of 3 %.

    Call this after that process has ended: anything that it did to the device has slowed only the
    interleaved samples. The two eager processes still take turns, as before.
    """
    try:
        alone_ms = _time_eager_alone(session, baselines, sources, plan, pool)
    except LaunchBlocked:  # a machine that is far slower now
        session.mark_disturbed()
        return
    low, _, high = _bound_log_median(
        [session.raw_ms["eager"][block] for block in session.list_kept_blocks()]
    )
    alone_low, _, alone_high = _bound_log_median(alone_ms)
    if low > alone_high + _DRIFT or high < alone_low - _DRIFT:
        session.mark_disturbed()
        session.flags.add("baseline_drift")


def _time_eager_alone(
    session: Session, baselines: BaselineWorkers, sources: Sources, plan: Plan, pool: InputPool
) -> list[float]:
    """Return samples of eager that take turns only with its second process, in milliseconds."""
    alone = BaselineWorkers(baselines.main, baselines.control)
    alone.prepared["eager"] = 0.0
    block = Block(alone, None, sources, pool, random.Random(secrets.randbits(64)))
    again = block.begin(session.clock, plan, session.inner_loops["eager"], similar=session)
    begin = time.monotonic()
    fewest, most = _BLOCKS
    for number in range(most):
        if number >= fewest and time.monotonic() - begin > plan.budget_s / 4:
            break
        block.measure(again, is_checked=False)
    return again.raw_ms["eager"]


def _bound_log_median(samples_ms: list[float]) -> tuple[float, float, float]:
    return bound_median([math.log(sample) for sample in samples_ms])
