"""The measurement of a session: blocks of samples until the stopping rule ends it."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import secrets
import statistics
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.clock.rounds import EmptyRounds, RoundTime
from evaluators.device.placement import pick_fast_cores, time_loop
from evaluators.device.timing_conditions import read_load
from evaluators.judging.bench import BaselineWorkers
from evaluators.memory.tensors import copy_value, has_same_bits, tensors_of
from evaluators.sandbox.failures import Failed
from evaluators.timing.checks import CpuWatch, OutputChecks, is_slowed_by_gate, mark_noise
from evaluators.timing.intervals import NORMAL, bound_median
from evaluators.timing.session import (
    CLOCKS,
    EAGER_CONTROL,
    EMPTY,
    EMPTY_KERNEL,
    InputPool,
    Plan,
    Session,
    SessionArm,
    Sources,
    count_most_calls,
    list_arms,
    set_calls,
)
from evaluators.worker.baselines import BASELINES
from evaluators.worker.handle import LaunchBlocked, Manner, Sample, WorkerHandle
from store.schema.clocks import Clock

_PROBE_S = 0.01
_SLOWED = 1.25
"""A core counts as slowed down from this multiple of the best time of a loop on."""
_TRIES = 3
"""How often a sample is taken, at most, until its core is not slowed down."""


class PinnedCores:
    """Pins the workers of a session, which never run at the same time, to one core.

    Cores of one host may differ in speed, up to 2 times, for tenths of seconds, by what other
    guests of the hardware do. So the fastest core is chosen once it is slowed down, before a block
    or after a sample. The judge, which watches the gate meanwhile, has the next one. Without
    workers it pins nothing.
    """

    def __init__(self, workers: Sequence[WorkerHandle], cores: Collection[int] = ()) -> None:
        """Take the workers, that of the kernel first, and the cores of the judge while it times.

        No such cores stands for those on which it runs.
        """
        self._workers = workers
        self._home = os.sched_getaffinity(0)
        self._allowed = {*cores} or self._home
        self._chosen: set[int] = set()
        self._best_ns = math.inf
        self.has_held = True
        """Whether every block had its cores, and the kernel stayed on the one it was given."""

    def __enter__(self) -> Self:
        """Move the judge to its cores; `choose` pins."""
        os.sched_setaffinity(0, self._allowed)
        return self

    def choose(self) -> None:
        """Choose the cores of the next block, or keep those that are as fast as before."""
        if not self._workers or not self.has_held:
            return
        self._note_moves()
        if self._chosen and not self.is_slowed():
            return
        os.sched_setaffinity(0, self._allowed)
        fast = pick_fast_cores(sorted(self._allowed), seconds=_PROBE_S) or ()
        self._chosen, own = {*fast[:1]}, {*fast[1:]}
        self.has_held &= bool(own) and all([each.pin(self._chosen) for each in self._workers])
        if self.has_held:
            os.sched_setaffinity(0, own)

    def is_slowed(self) -> bool:
        """Whether the core of the workers is slower now than the fastest one has been."""
        if not self._workers or not self.has_held:
            return False
        taken_ns = time_loop(*self._chosen)
        self._best_ns = min(self._best_ns, taken_ns)
        return taken_ns > _SLOWED * self._best_ns

    def _note_moves(self) -> None:
        self.has_held &= not self._chosen or self._workers[0].is_pinned(self._chosen)

    def __exit__(self, *_: object) -> None:
        """Let the judge and the workers use the cores again that they had."""
        if self._workers:
            self._note_moves()
        os.sched_setaffinity(0, self._home)
        for worker in self._workers:
            worker.pin(self._home)


# The stopping rule of a session: it ends once every baseline is known well enough.
#
# The rule is applied after 20, 40, 80 and 160 blocks (`Plan.looks`), or when the time is up.
# `timing.intervals` explains how several looks affect the level of the intervals.


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
_LAUNCH_MS = 0.02
"""What launching a call is assumed to take on a GPU, beside its time by the clock `gpu`. A call
that takes longer has longer bursts."""
_LONGEST = 4.0
"""Samples that are longer than planned by this factor are made shorter."""
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
    knows_overwritten: bool,
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

    knows_overwritten: Whether the arms copy already what a later call would overwrite.
    """
    copies = (in_burst or not cold) and not knows_overwritten
    loops, calls = dict.fromkeys(arms, 1), _CALLS
    enough = _BURST_ENOUGH if in_burst else 1.0
    choose = _choose_calls if in_burst else _choose_loops
    call_ms: Mapping[str, float] | None = None
    if similar is not None:
        call_ms = similar.compute_medians()
        if in_burst and similar.clock == "gpu":
            call_ms = _guess_call_ms(similar)
        calls = 1
        enough = math.inf if pool.device == "cpu" or in_burst else _CLOSE_ENOUGH
        loops = choose(arms, call_ms, plan.sample_ms, pool)
    for _ in range(_ROUNDS):
        pool.calls = max(loops.values())
        if in_burst and call_ms is not None:
            set_calls(arms, loops, _pace_arms(arms, call_ms))
        if copies and pool.calls > 1:
            copy_answers(arms, find_overwritten(arms, pool))
        times = _take_samples(arms, pool, checks, calls, cold=cold)
        call_ms = times.call_ms
        wanted = choose(arms, call_ms, max(plan.sample_ms, times.least_ms), pool)
        if all(
            wanted[name] <= enough * count and count <= max(1, _LONGEST * wanted[name])
            for name, count in loops.items()
        ):
            return WarmUp(loops, times.empty)
        loops = wanted
        calls = 1 if in_burst else calls
    pool.calls = max(loops.values())
    if in_burst and call_ms is not None:
        set_calls(arms, loops, _pace_arms(arms, call_ms))
    if copies:
        copy_answers(arms, find_overwritten(arms, pool))
    return WarmUp(loops, {})


def _guess_call_ms(session: Session) -> dict[str, float]:
    """Return about what a call of each arm takes with its launches, by its time on the GPU."""
    return {name: ms + _LAUNCH_MS for name, ms in session.compute_call_medians().items()}


def _pace_arms(arms: Iterable[str], call_ms: Mapping[str, float]) -> dict[str, float]:
    """Return the time of a call by which the burst of each arm is paced: the kernel's own, or that
    of the fastest other arm."""
    alone = ("kernel", EMPTY_KERNEL)
    others_ms = min(ms for name, ms in call_ms.items() if name not in (*alone, EMPTY))
    return {name: call_ms["kernel"] if name in alone else others_ms for name in arms}


def _choose_calls(
    arms: Iterable[str], call_ms: Mapping[str, float], sample_ms: float, pool: InputPool
) -> dict[str, int]:
    """Return the calls of a burst of each arm, as many as the pool affords."""
    most = pool.count_affordable()
    counts = _count_calls(arms, call_ms, sample_ms)
    return {name: min(count, most) for name, count in counts.items()}


def _count_calls(
    arms: Iterable[str], call_ms: Mapping[str, float], sample_ms: float
) -> dict[str, int]:
    """Return the calls with which a burst of each arm takes as long as planned."""
    paces_ms = _pace_arms(arms, call_ms)
    return {name: max(1, math.ceil(sample_ms / max(ms, 1e-3))) for name, ms in paces_ms.items()}


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


def find_overwritten(arms: Mapping[str, SessionArm], pool: InputPool) -> list[str]:
    """Return the arms whose answers are to be copied, if a later call overwrites the kernel's.

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
        return []
    if not eager.outputs_overlap():
        return ["kernel"]
    last = copy_value(kernel.output(0))
    for arm in both:
        arm.take(slots[:1])
    if all(map(has_same_bits, tensors_of(kernel.output(0)), tensors_of(last))):
        return []
    return ["kernel", "eager", EAGER_CONTROL]


def copy_answers(arms: dict[str, SessionArm], names: Iterable[str]) -> None:
    """Let samples of these arms copy the answer of each call before the next one."""
    for name in names:
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
            if name not in (EMPTY, EMPTY_KERNEL):
                pool.stage(arm.worker)
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


_FEWEST_CHECKED = 3
"""Blocks of the first look whose outputs are checked, whatever is drawn."""
_FEWEST = 2
_FEWEST_BOUNDED = 7
"""Blocks of a clock after which a median has a confidence interval."""
_DRAWN = 2
"""Input sets that are drawn before a session, for each block of its first look."""
_LONGER = 3.0
"""They may take this many times as long as planned."""
_FEWEST_SETS = 32
"""Input sets of the first renewal before bursts on a GPU, if that many are drawn at once."""
_WARM_UP_REFILLS = 3
"""How often all inputs are renewed before the first block of bursts."""
_AS_FAST = 0.95
"""A baseline counts as faster than eager below this share of its time."""


def prepare_pool(
    kernel: WorkerHandle, baselines: BaselineWorkers, sources: Sources, plan: Plan
) -> InputPool:
    """Return the input pool of a session. Other judges may use the device meanwhile.

    Every baseline of a GPU is called once outside the gate: the driver loads a kernel's code at its
    first launch and waits for the GPU to do so, which would never be idle behind the gate. The
    candidate has been called before.
    """
    pool = InputPool(sources.draw, (kernel, *baselines.workers))
    for _ in range(2):  # the first fill allocates, and does not tell what a further one takes
        slots = pool.refill()
        for name in baselines.prepared if pool.device == "cuda" else ():
            baselines.time(name, slots)
    pool.draw_ahead(_DRAWN * plan.looks[0])
    return pool


class Measurement:
    """The timing of a kernel against every prepared baseline, with a pool of `prepare_pool`.

    The caller holds the device alone for `time` and `time_further`, in this order, and not between
    them. They raise Failed: memorised_output or incorrect_numerical if a timed call gave a wrong
    answer, input_mutated if one changed its inputs, timer_mismatch if an answer is reported before
    it can exist, or any failure of the kernel's worker.
    """

    def __init__(
        self,
        kernel: WorkerHandle,
        baselines: BaselineWorkers,
        sources: Sources,
        plan: Plan,
        pool: InputPool,
        cores: Collection[int],
    ) -> None:
        self._kernel = kernel
        self._baselines = baselines
        self._sources = sources
        self._plan = plan
        self._pool = pool
        self._cores = cores
        self._draw = random.Random(secrets.randbits(64))
        self._further: Sequence[Clock] = ()

    def time(self) -> None:
        """Time the kernel by the clock that ranks, until the stopping rule ends the session."""
        clocks = CLOCKS[self._kernel.device]
        with PinnedCores((), self._cores):
            if clocks[0] == "gpu":
                with contextlib.suppress(LaunchBlocked):
                    self._time(clocks)
                    return
                clocks = clocks[1:]
            self._time(clocks)

    def _time(self, clocks: Sequence[Clock]) -> None:
        kernel, baselines, sources = self._kernel, self._baselines, self._sources
        plan, pool, draw = self._plan, self._pool, self._draw
        self._checks = checks = OutputChecks(kernel, baselines.main, sources, pool, draw)
        self._watch = CpuWatch(kernel)
        self._block = block = Block(baselines, kernel, sources, pool, draw, checks, self._watch)
        self._session = session = block.begin(clocks[0], plan)
        checked = set(draw.sample(range(plan.looks[0]), _FEWEST_CHECKED))
        begin = time.monotonic()
        for number in range(plan.looks[-1]):
            block.measure(session, is_checked=number in checked)
            is_over = should_stop(session, plan, time.monotonic() - begin)
            if is_over and not checks.has_checked:  # a session that is cut short
                block.measure(session, is_checked=True)
            if is_over:
                break
        self._further = clocks[1:] if plan.further_blocks else ()
        block.leave_out_baselines(session)

    def prepare_further(self) -> None:
        """Do for the other clocks what needs no device alone: draw inputs, find what is copied."""
        self._block.prepare_bursts(self._session, self._plan, clocks=len(self._further))

    @property
    def has_further(self) -> bool:
        """Whether other clocks follow the one that ranks."""
        return bool(self._further)

    def time_further(self) -> None:
        """Time the kernel by the other clocks; end to end by all of them if the gate slows it."""
        self._time_clocks()
        if is_slowed_by_gate(self._session):
            # By bursts alone, work before a call would not count: their inputs are there earlier.
            with PinnedCores((), self._cores):
                self._time(CLOCKS[self._kernel.device][1:])
            self._time_clocks()

    def _time_clocks(self) -> None:
        is_on_gpu = self._kernel.device == "cuda"
        workers = [self._kernel, *self._baselines.workers] if is_on_gpu else []
        with PinnedCores(workers, self._cores) as cores:
            for clock in self._further:
                self._session.further.append(self._time_clock(clock, cores))
        if not cores.has_held:
            self._session.flags.add("unpinned")

    def _time_clock(self, clock: Clock, cores: PinnedCores) -> Session:
        cores.choose()
        plan = self._plan
        session = self._block.begin(clock, plan, similar=self._session)
        begin = time.monotonic()
        for number in range(plan.further_blocks):
            elapsed_s = time.monotonic() - begin
            fewest = _FEWEST_BOUNDED if elapsed_s < _LONGER * plan.further_s else _FEWEST
            if number >= fewest and elapsed_s > plan.further_s:
                break
            cores.choose()
            self._block.measure(session, is_checked=False, cores=cores)
        return session

    def end(self) -> Session:
        """Return the session, with what its samples say about it. Raises Failed."""
        kernel, session = self._kernel, self._session
        self._watch.reject_busy()
        if self._checks.is_unverified:
            session.flags.add("timed_outputs_unverified")
        if self._watch.uses_more_threads():
            session.flags.add("more_threads")
            session.mark_disturbed()
        if kernel.shares_device():
            session.flags.add("shares_device")
            session.mark_disturbed()
        if kernel.device == "cuda" and session.clock != "gpu":
            session.flags.add("timed_end_to_end")
        mark_noise(session, self._plan.noise)
        return session


class Block:
    """Measures one sample of every arm at a time, in random order on the same fresh inputs."""

    def __init__(
        self,
        baselines: BaselineWorkers,
        kernel: WorkerHandle | None,
        sources: Sources,
        pool: InputPool,
        draw: random.Random,
        checks: OutputChecks | None = None,
        watch: CpuWatch | None = None,
    ) -> None:
        self._baselines = baselines
        self._kernel = kernel
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self._checks = checks
        self._watch = watch
        self._arms: dict[str, SessionArm] = {}
        self._empty: dict[str, EmptyRounds] = {}
        self._has_gated = False
        self._is_behind_gate = False
        self._overwritten: list[str] | None = None
        """Arms that copy their answers in bursts; None until `prepare_bursts` has looked."""
        self._most_calls: int | None = None
        """Calls of the bursts in which it looked; later ones have no more."""
        self._checked_share = 0.0

    def begin(
        self, clock: Clock, plan: Plan, loops: int | None = None, similar: Session | None = None
    ) -> Session:
        """Warm every arm up for a clock and return its session. Raises Failed, LaunchBlocked.

        Args:
            clock: The clock.
            plan: How finely to measure.
            loops: Calls of a sample (default: as many as the plan asks for).
            similar: A session of the same arms. By another clock it makes the warm-up shorter.
        """
        manner = self._choose_manner(clock)
        self._checked_share = plan.checked_share
        untimed = int(manner == "in_burst" and self._pool.size > 1)
        calls = loops or 1
        if self._pool.device == "cuda" and untimed:
            # What a few sets take to renew says little of what many do.
            calls = max(calls, self._pool.count_drawn_at_once(_FEWEST_SETS) - untimed)
        most_calls = self._most_calls or count_most_calls(self._pool.device, clock, manner)
        self._pool.begin(calls, most_calls=most_calls, untimed=untimed)
        self._pool.refill()
        self._pool.calls = loops or 1
        self._empty = {EMPTY: EmptyRounds(), EMPTY_KERNEL: EmptyRounds()}
        self._is_behind_gate = manner == "behind_gate"
        self._arms = list_arms(self._kernel, self._baselines, manner)
        if manner == "in_burst":
            copy_answers(self._arms, self._overwritten or ())
        cold = clock != "throughput"
        empty: Mapping[str, Sequence[Sample]] = {}
        counts: int | Mapping[str, int] = loops or 1
        if loops is not None and similar is not None and manner == "in_burst":
            call_ms = similar.compute_medians()["eager"]
            set_calls(
                self._arms,
                dict.fromkeys(self._arms, loops),
                dict.fromkeys(self._arms, call_ms),
            )
        if self._checks is not None and loops is None:
            warm = warm_up(
                self._arms,
                self._pool,
                self._checks,
                plan,
                cold=cold,
                in_burst=manner == "in_burst",
                similar=similar,
                knows_overwritten=manner == "in_burst" and self._overwritten is not None,
            )
            counts, empty = warm.loops, warm.empty
        if self._pool.device == "cuda" and manner != "end_to_end":
            if not empty:
                slots = self._pool.refill()
                empty = {
                    name: self._time_empty(name, slots, cold=cold) for name in self._empty_arms
                }
            for name, samples in empty.items():
                self._empty[name].add([one for sample in samples for one in sample.rounds])
        if self._checks is not None:
            self._checks.follow_state()
        session = Session.of(counts, self._arms, clock)
        session.warm_up_ms = {
            name: [
                self._compute_elapsed_ns(name, sample, cold=cold) / session.inner_loops[name] / 1e6
                for sample in samples
            ]
            for name, samples in empty.items()
        }
        return session

    def prepare_bursts(self, session: Session, plan: Plan, *, clocks: int) -> None:
        """Prepare sessions in bursts by `clocks` clocks after one by the clock `gpu`.

        Draws their inputs, as far as memory allows, and finds the arms whose answers are copied,
        with as many calls as samples may then have. Does nothing on a processor, where this does
        not disturb the judges of other cores.
        """
        if session.clock != "gpu" or self._choose_manner("throughput") != "in_burst":
            return
        arms = list_arms(self._kernel, self._baselines, "in_burst")
        call_ms = _guess_call_ms(session)
        counts = _count_calls(arms, call_ms, plan.sample_ms)
        most_calls = count_most_calls(self._pool.device, "throughput", "in_burst")
        self._pool.begin(1, most_calls=most_calls, untimed=1)
        self._pool.calls = calls = min(max(counts.values()), self._pool.count_held())
        self._pool.draw_ahead(clocks * (plan.further_blocks + _WARM_UP_REFILLS) * (1 + calls))
        set_calls(arms, dict.fromkeys(arms, calls), _pace_arms(arms, call_ms))
        self._overwritten, self._most_calls = find_overwritten(arms, self._pool), calls

    def leave_out_baselines(self, session: Session) -> None:
        """Leave out baselines whose launches cost what those of eager or of a graph cost.

        These are compiled ones, and those in a process of their own that were no faster there than
        eager. They compete on the device, which is held for less time without them.
        """
        medians_ms = session.compute_call_medians()
        prepared = {
            name: seconds
            for name, seconds in self._baselines.prepared.items()
            if not BASELINES[name].compiles
            and not (
                BASELINES[name].owns_process and medians_ms[name] > _AS_FAST * medians_ms["eager"]
            )
        }
        self._baselines = replace(self._baselines, prepared=prepared)

    @property
    def _empty_arms(self) -> list[str]:
        return [name for name in (EMPTY, EMPTY_KERNEL) if name in self._arms]

    def _time_empty(self, name: str, slots: list[int], *, cold: bool) -> list[Sample]:
        samples: list[Sample] = []
        for _ in range(EMPTY_CALLS // len(self._empty_arms)):
            self._arms[name].call_untimed(slots)
            samples.append(self._arms[name].time(slots, cold=cold))
        return samples

    def _choose_manner(self, clock: Clock) -> Manner:
        """Return how to time samples of a clock.

        A candidate is frozen while the inputs of a burst are written. On a GPU, work that it has
        launched before is not, so that bursts count only beside the clock `gpu`, which ranks, and
        which bounds a latency (`checks.is_slowed_by_gate`). They need a second set of inputs, for
        the calls that are not timed.
        """
        if clock == "gpu":
            self._has_gated = True
            return "behind_gate"
        can_burst = self._pool.device == "cpu" or (self._has_gated and self._pool.size > 1)
        return "in_burst" if can_burst else "end_to_end"

    def measure(
        self, session: Session, *, is_checked: bool, cores: PinnedCores | None = None
    ) -> None:
        """Add a block to a session.

        Args:
            session: The session.
            is_checked: Check calls of the kernel; otherwise a draw decides whether to.
            cores: The cores on which it is measured, where launches are part of the time. A sample
                for which they were slowed down is taken again, whatever it says. The kernel gets
                new inputs for that.
        """
        slots = self._pool.refill()
        for position, name in enumerate(self._draw.sample(list(self._arms), len(self._arms))):
            if name not in (EMPTY, EMPTY_KERNEL):
                self._pool.stage(self._arms[name].worker)
            elapsed_ns = self._take_sample(session, name, slots, is_checked=is_checked)
            if cores is not None and session.inner_loops[name] > 1:
                tries = 1
                while (is_slowed := cores.is_slowed()) and tries < _TRIES:
                    cores.choose()
                    if name == "kernel":
                        slots = self._pool.refill()
                    self._pool.stage(self._arms[name].worker)
                    elapsed_ns = self._take_sample(session, name, slots, is_checked=is_checked)
                    tries += 1
                session.slowed += is_slowed
            session.add_sample(name, position, elapsed_ns)
        session.readings.append(self._sources.clocks())
        session.loads.append(read_load())
        session.subtract_overhead()

    def _take_sample(
        self, session: Session, name: str, slots: list[int], *, is_checked: bool
    ) -> int:
        """Take a sample of an arm; return its nanoseconds."""
        arm, cold = self._arms[name], session.clock != "throughput"
        if arm.untimed:
            with self._watch_turn(arm):
                arm.call_untimed(slots)
        with self._watch_turn(arm):
            sample = arm.time(slots, cold=cold)
        # What is divided by the calls of a sample has as many.
        assert len(sample.kept) == session.inner_loops[name]
        if name == "kernel":
            self._reject_early_report(sample, slots, cold=cold)
        elapsed_ns = self._compute_elapsed_ns(name, sample, cold=cold)
        if name == "kernel" and sample.early_ns:
            session.early_ms.append(sample.early_ns / len(sample.kept) / 1e6)
        if name == "kernel" and self._checks is not None:
            # Drawn after the call, while the kernel's worker is frozen.
            is_drawn = is_checked or self._draw.random() < self._checked_share
            calls = slots[:1] * arm.untimed + arm.select_slots(slots)
            elapsed_ns += self._checks.end_sample(sample, calls, is_drawn=is_drawn)
        return elapsed_ns

    def _watch_turn(self, arm: SessionArm) -> contextlib.AbstractContextManager[None]:
        """Watch a turn of an arm. A burst is one by itself: untimed calls make it no room."""
        return self._watch.watch(arm.worker) if self._watch else contextlib.nullcontext()

    def _compute_elapsed_ns(self, name: str, sample: Sample, *, cold: bool) -> int:
        if not sample.rounds:
            return sample.elapsed_ns
        has_own = name in ("kernel", EMPTY_KERNEL) and EMPTY_KERNEL in self._arms
        empty = self._empty[EMPTY_KERNEL if has_own else EMPTY]
        elapsed_ns = empty.elapsed_ns(sample.rounds)
        if name in (EMPTY, EMPTY_KERNEL):
            empty.add(sample.rounds)
        if name == EMPTY and self._is_behind_gate:
            elapsed_ns -= len(sample.rounds) * time_empty_kernel()
        elif name in (EMPTY, EMPTY_KERNEL) and not self._is_behind_gate:
            # What launching the kernel takes without a judge is no cost of passing values.
            elapsed_ns -= self._arms[name].worker.time_empty(len(sample.kept), alone=cold)
        return elapsed_ns

    def _reject_early_report(self, sample: Sample, slots: list[int], *, cold: bool) -> None:
        def time_more() -> list[RoundTime]:
            samples = self._time_empty(EMPTY, slots, cold=cold)
            return [one for sample in samples for one in sample.rounds]

        is_gated = self._is_behind_gate
        if is_gated and self._empty[EMPTY].has_early_report(sample.rounds, time_more):
            message = "a call is reported as done before the GPU can have turned to it"
            raise Failed("rejected", "timer_mismatch", message)


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
    session: Session,
    baselines: BaselineWorkers,
    sources: Sources,
    plan: Plan,
    pool: InputPool,
    cores: Collection[int],
) -> None:
    """Time eager again without the kernel's process; flag and distrust a difference of 3 %.

    Call this after that process has ended: anything that it did to the device has slowed only the
    interleaved samples. The two eager processes still take turns, as before.
    """
    try:
        with PinnedCores((), cores):
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
