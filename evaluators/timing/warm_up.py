"""The warm-up of a session: first calls of every arm, and how many calls make a sample."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from evaluators.memory.tensors import copy_value, tensors_of
from evaluators.references.task import has_same_bits
from evaluators.timing.arms import SessionArm, set_calls
from evaluators.timing.checks.output_checks import OutputChecks
from evaluators.timing.input_pool import InputPool
from evaluators.timing.plan import Plan
from evaluators.timing.session import EAGER_CONTROL, EMPTY, EMPTY_KERNEL, Session
from evaluators.worker.handle import Sample

EMPTY_CALLS = 12
"""Samples of the empty arm in a warm-up."""
_CALLS = 3
_ROUNDS = 3
_CLOSE_ENOUGH = 2.0
"""A sample may be shorter by this factor where another clock has told how long a call takes."""
_BURST_ENOUGH = 1.25
"""The same in a burst."""
_SLOW_SAMPLE_MS = 20.0
_LONGEST_SAMPLE_MS = 100.0
_CHECKED_SHARE = 1 / 3
_OVERHEAD_SPREADS = 10.0
"""A sample takes this many times the spread of the cost of passing values."""


@dataclass(frozen=True)
class WarmUp:
    """The result of a warm-up."""

    loops: Mapping[str, int]
    """Calls of a sample, by arm."""
    empty: Mapping[str, Sequence[Sample]]
    """Samples of the empty arms with as many calls; none if they were not timed with as many."""


def warm_up(
    arms: dict[str, SessionArm],
    pool: InputPool,
    checks: OutputChecks,
    plan: Plan,
    *,
    cold: bool,
    in_burst: bool,
    similar: Session | None,
) -> WarmUp:
    """Warm up every arm, and choose how many calls make a sample; the pool then holds as many sets.

    In a burst the kernel has its own number: every arm's sample takes as long, so that what is cold
    after a pause adds the same share. Otherwise only eager's time sets the number; a slow kernel
    lowers it, but gains nothing by that. The first call of a sample takes longer than the others,
    so the numbers are tested and raised until samples take as long as they should.

    The answers of all calls of a sample must exist afterwards, unless each is read before the next:
    the kernel's arm is replaced by one that copies its answers if a later call would overwrite
    them.

    similar: A session of the same arms by another clock. The first number is chosen by its times,
    and a short warm-up is enough.
    """
    keeps_all = in_burst or not cold
    loops, calls = dict.fromkeys(arms, 1), _CALLS
    enough = _BURST_ENOUGH if in_burst else 1.0
    choose = _choose_calls if in_burst else _choose_loops
    call_ms: Mapping[str, float] | None = None
    if similar is not None:
        call_ms = similar.compute_medians()
        calls = 1
        if pool.device == "cpu":
            enough = math.inf
        elif not in_burst:
            enough = _CLOSE_ENOUGH
        loops = choose(arms, call_ms, plan.sample_ms, pool)
    for _ in range(_ROUNDS):
        pool.calls = max(loops.values())
        if in_burst and call_ms is not None:
            set_calls(arms, loops, _pace_arms(arms, call_ms))
        if keeps_all and pool.calls > 1:
            _copy_overwritten_answers(arms, pool)
        times = _take_samples(arms, pool, checks, calls, cold=cold)
        call_ms = times.call_ms
        wanted = choose(arms, call_ms, max(plan.sample_ms, times.least_ms), pool)
        if all(wanted[name] <= enough * count for name, count in loops.items()):
            return WarmUp(loops, times.empty)
        loops = wanted
        calls = 1 if in_burst else calls
    pool.calls = max(loops.values())
    if in_burst and call_ms is not None:
        set_calls(arms, loops, _pace_arms(arms, call_ms))
    if keeps_all:
        _copy_overwritten_answers(arms, pool)
    return WarmUp(loops, {})


def _pace_arms(arms: Iterable[str], call_ms: Mapping[str, float]) -> dict[str, float]:
    """Return the time of a call by which the burst of each arm is paced: the kernel's own, or that
    of the fastest other arm."""
    alone = ("kernel", EMPTY_KERNEL)
    others_ms = min(ms for name, ms in call_ms.items() if name not in (*alone, EMPTY))
    return {name: call_ms["kernel"] if name in alone else others_ms for name in arms}


def _choose_calls(
    arms: Iterable[str], call_ms: Mapping[str, float], sample_ms: float, pool: InputPool
) -> dict[str, int]:
    """Return the calls of a burst of each arm."""
    return {
        name: max(1, min(math.ceil(sample_ms / max(ms, 1e-3)), pool.count_affordable()))
        for name, ms in _pace_arms(arms, call_ms).items()
    }


def _choose_loops(
    arms: Iterable[str], call_ms: Mapping[str, float], sample_ms: float, pool: InputPool
) -> dict[str, int]:
    """Return the calls of a sample, the same for all arms, so that all find equally cold caches.

    Only eager's time decides, so a kernel cannot influence how it is measured.
    """
    eager_ms = max(call_ms["eager"], 1e-3)
    wanted, slow = math.ceil(sample_ms / eager_ms), math.floor(_SLOW_SAMPLE_MS / eager_ms)
    loops = max(1, min(wanted, pool.count_affordable(), slow))
    return dict.fromkeys(arms, _limit_loops(loops, call_ms["kernel"]))


def _copy_overwritten_answers(arms: dict[str, SessionArm], pool: InputPool) -> None:
    """Copy the kernel's answers after each call if a later call overwrites them.

    All answers must exist when some are drawn for checking. The copies count as the kernel's time,
    and as eager's if that overwrites its answers too. A tensor that eager also returns several
    times and that keeps its value, such as a weight, is not copied.
    """
    slots = pool.refill()
    both = [arms["kernel"], arms["eager"]]
    for arm in both:
        arm.take(slots if arm.calls is None else slots[-max(2, arm.calls) :])
    kernel, eager = (arm.worker for arm in both)
    if not kernel.outputs_overlap():
        return
    copied = ["kernel"]
    if eager.outputs_overlap():
        last = copy_value(kernel.output(0))
        for arm in both:
            arm.take(slots[:1])
        if all(map(has_same_bits, tensors_of(kernel.output(0)), tensors_of(last))):
            return
        copied += ["eager", EAGER_CONTROL]
    for name in copied:
        arms[name] = replace(arms[name], take=functools.partial(arms[name].take, copies=True))


@dataclass(frozen=True)
class _WarmUpTimes:
    """Results of the warm-up, in milliseconds."""

    call_ms: Mapping[str, float]
    """Time of a call of each arm; on a GPU, that of the kernel includes the cost of passing
    values."""
    least_ms: float
    """Length of a sample on a GPU at which that cost is known well enough."""
    empty: Mapping[str, Sequence[Sample]]
    """Samples of the empty arms."""


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
            arm.call_untimed(slots)
            sample = arm.time(slots, cold=cold)
            elapsed_ns[name].append(sample.elapsed_ns)
            if name == "kernel" and random.random() < _CHECKED_SHARE:
                checks.check(sample)
    empty: dict[str, list[Sample]] = {name: [] for name in (EMPTY, EMPTY_KERNEL) if name in arms}
    for name, samples in empty.items():
        for _ in range(EMPTY_CALLS // len(empty)):
            arms[name].call_untimed(slots)
            samples.append(arms[name].time(slots, cold=cold))
    empty_ns = {name: sorted(one.elapsed_ns for one in empty[name]) for name in empty}
    costs_ns = {name: statistics.median(taken) for name, taken in empty_ns.items()}
    call_ms: dict[str, float] = {}
    for name, arm in arms.items():
        # A slow kernel limits the length of its samples on a GPU, whatever they contain.
        cost_ns = costs_ns.get(EMPTY_KERNEL, 0.0) if name == "kernel" else costs_ns[EMPTY]
        left_ns = max(statistics.median(elapsed_ns[name]) - cost_ns, 1.0 if name == "kernel" else 0)
        call_ms[name] = left_ns / 1e6 / (arm.calls or pool.calls)
    return _WarmUpTimes(
        call_ms=call_ms,
        least_ms=_OVERHEAD_SPREADS * (empty_ns[EMPTY][-2:][0] - empty_ns[EMPTY][:2][-1]) / 1e6,
        empty=empty,
    )


def _limit_loops(wanted: int, kernel_ms: float) -> int:
    """Return how many calls a sample may have, so that a slow kernel takes no longer than it may.

    >>> _limit_loops(32, 0.5), _limit_loops(32, 50.0), _limit_loops(32, 500.0)
    (32, 2, 1)
    """
    return min(wanted, max(1, math.floor(_LONGEST_SAMPLE_MS / kernel_ms)))
