"""The warm-up of a session: first calls of every arm, and how many calls make a sample."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluators.memory.tensors import copy_value, tensors_of
from evaluators.references.task import has_same_bits
from evaluators.timing.arms import SessionArm
from evaluators.timing.checks.output_checks import OutputChecks
from evaluators.timing.input_pool import InputPool
from evaluators.timing.plan import Plan
from evaluators.timing.session import EAGER_CONTROL, EMPTY, Session
from evaluators.worker.handle import Sample

EMPTY_CALLS = 12
"""Samples of the empty arm in a warm-up."""
_CALLS = 3
_ROUNDS = 3
_CLOSE_ENOUGH = 2.0
"""A sample may be shorter by this factor where another clock has told how long a call takes."""
_SLOW_SAMPLE_MS = 20.0
_LONGEST_SAMPLE_MS = 100.0
_CHECKED_SHARE = 1 / 3
_OVERHEAD_SPREADS = 10.0
"""A sample takes this many times the spread of the cost of passing values."""


@dataclass(frozen=True)
class WarmUp:
    """The result of a warm-up."""

    loops: int
    """Calls of a sample."""
    empty: Sequence[Sample]
    """Samples of the empty arm with as many calls; none if it was not timed with as many."""


def warm_up(
    arms: dict[str, SessionArm],
    pool: InputPool,
    checks: OutputChecks,
    plan: Plan,
    *,
    cold: bool,
    similar: Session | None,
) -> WarmUp:
    """Warm up every arm, and choose how many calls make a sample; the pool then holds as many sets.

    Only eager's time sets the number; a slow kernel lowers it, but gains nothing by that. The first
    call of a sample takes longer than the others, so the number is tested and raised until eager
    takes as long as a sample should.

    Calls in a row, which are not `cold`, must all have their answers afterwards: the kernel's arm
    is replaced by one that copies its answers if a later call would overwrite them.

    similar: A session of the same arms by another clock. The first number is chosen by its times,
    and a short warm-up is enough.
    """
    loops, calls, enough = 1, _CALLS, 1.0
    if similar is not None:
        calls, enough = 1, _CLOSE_ENOUGH
        kernel_ms, eager_ms = (
            statistics.median(similar.raw_ms[name]) for name in ("kernel", "eager")
        )
        loops = _limit_loops(_compute_loops(eager_ms, plan.sample_ms, pool), kernel_ms)
    for _ in range(_ROUNDS):
        pool.calls = loops
        if loops > 1 and not cold:
            _copy_overwritten_answers(arms, pool)
        times = _take_samples(arms, pool, checks, calls, cold=cold)
        wanted = _compute_loops(times.eager_ms, max(plan.sample_ms, times.least_ms), pool)
        wanted = _limit_loops(wanted, times.kernel_ms)
        if wanted <= enough * loops:
            return WarmUp(loops, times.empty)
        loops = wanted
    pool.calls = loops
    if not cold:
        _copy_overwritten_answers(arms, pool)
    return WarmUp(loops, ())


def _copy_overwritten_answers(arms: dict[str, SessionArm], pool: InputPool) -> None:
    """Copy the kernel's answers after each call if a later call overwrites them.

    All answers must exist when some are drawn for checking. The copies count as the kernel's time,
    and as eager's if that overwrites its answers too. A tensor that eager also returns several
    times and that keeps its value, such as a weight, is not copied.
    """
    slots = pool.refill()
    both = [arms["kernel"], arms["eager"]]
    for arm in both:
        arm.time(slots)
    kernel, eager = (arm.worker for arm in both)
    if not kernel.outputs_overlap():
        return
    copied = ["kernel"]
    if eager.outputs_overlap():
        last = copy_value(kernel.output(0))
        for arm in both:
            arm.time(slots[:1])
        if all(map(has_same_bits, tensors_of(kernel.output(0)), tensors_of(last))):
            return
        copied += ["eager", EAGER_CONTROL]
    for name in copied:
        arms[name] = replace(arms[name], time=functools.partial(arms[name].time, copies=True))


@dataclass(frozen=True)
class _WarmUpTimes:
    """Results of the warm-up, in milliseconds."""

    kernel_ms: float
    """Time of a call of the kernel, including the cost of passing values."""
    eager_ms: float
    """Time of a call of eager."""
    least_ms: float
    """Length of a sample at which that cost is known well enough."""
    empty: Sequence[Sample]
    """Samples of the empty arm."""


def _take_samples(
    arms: Mapping[str, SessionArm],
    pool: InputPool,
    checks: OutputChecks,
    calls: int,
    *,
    cold: bool,
) -> _WarmUpTimes:
    """Take some samples of every arm, and more of the empty one.

    Warm-ups are samples like any other to a kernel: their inputs are fresh and they may be checked.
    """
    elapsed_ns: dict[str, list[int]] = {name: [] for name in arms}
    slots: list[int] = []
    for _ in range(calls):
        slots = pool.refill()
        for name, arm in arms.items():
            sample = arm.time(slots, cold=cold)
            elapsed_ns[name].append(sample.elapsed_ns)
            if name == "kernel" and random.random() < _CHECKED_SHARE:
                checks.check(sample)
    kernel_ns, eager_ns = (statistics.median(elapsed_ns[name]) for name in ("kernel", "eager"))
    empty = [arms[EMPTY].time(slots, cold=cold) for _ in range(EMPTY_CALLS)]
    empty_ns = sorted(sample.elapsed_ns for sample in empty)
    ns_a_call = 1e6 * pool.calls
    return _WarmUpTimes(
        kernel_ms=max(kernel_ns, 1.0) / ns_a_call,
        eager_ms=max(eager_ns - statistics.median(empty_ns), 0.0) / ns_a_call,
        least_ms=_OVERHEAD_SPREADS * (empty_ns[-2:][0] - empty_ns[:2][-1]) / 1e6,
        empty=empty,
    )


def _limit_loops(wanted: int, kernel_ms: float) -> int:
    """Return how many calls a sample may have, so that a slow kernel takes no longer than it may.

    >>> _limit_loops(32, 0.5), _limit_loops(32, 50.0), _limit_loops(32, 500.0)
    (32, 2, 1)
    """
    return min(wanted, max(1, math.floor(_LONGEST_SAMPLE_MS / kernel_ms)))


def _compute_loops(eager_ms: float, sample_ms: float, pool: InputPool) -> int:
    """Return the calls per sample, the same for all arms, so that all find equally cold caches.

    Only eager decides, so a kernel cannot influence how it is measured.
    """
    wanted = math.ceil(sample_ms / max(eager_ms, 1e-3))
    slow = math.floor(_SLOW_SAMPLE_MS / max(eager_ms, 1e-3))
    return max(1, min(wanted, pool.count_affordable(), slow))
