"""One timing session: a kernel and its baselines measured by turns, block by block.

A block is one cold sample of every arm in random order on the same fresh inputs: the kernel, each
baseline, and eager once more in a process of its own. The two eager arms are the session's noise
control: what they differ by is no property of any kernel, so the interval of every speedup is
widened by it, and where it is large the session ranks nothing.

The judge's own clock times a sample. On a processor it runs from the moment before a worker is
thawed with fresh inputs in its memory to the moment at which everything it has started is frozen
again. What is then in its memory is its answer. On a GPU calls are launched behind a gate, their
worker is frozen, and the judge times on its own stream from opening the gate to the report that the
call is done (`timing.rounds`). A kernel whose launches wait for the GPU is
timed end to end by the judge's processor, as all arms are then. Which calls of a sample are checked
is drawn afterwards. An empty arm hands back an answer that it has: its time is the cost of handing
over and taking back, which is taken off every sample.

Sessions are looked at after 20, 40, 80 and 160 blocks and stop as soon as every baseline is known
well enough. A short session without flushes follows, for kernel and eager.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from evaluators.clock.rounds import EmptyRounds
from evaluators.device.fingerprint import Reading
from evaluators.device.host_load import Load, is_contended, read_load
from evaluators.device.roofline import Floor
from evaluators.judging.bench import Baselines
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import same_bits
from evaluators.timing.cpu_watch import Watch
from evaluators.timing.intervals import bias, interval, log_ratios, verdict, widened
from evaluators.worker.handle import Failed, LaunchBlocked, Sample, WorkerHandle

Clock: TypeAlias = Literal["gpu", "latency", "throughput"]
"""What a sample contains.

gpu: the work of a GPU for one call, caches flushed before it, its launches made beforehand.
latency: one call on an idle device, launches included, caches flushed before it.
throughput: calls in a row, each on other inputs, launches included. On a processor caches are
flushed before the first of them.
"""
CLOCKS: dict[str, tuple[Clock, ...]] = {
    "cuda": ("gpu", "latency", "throughput"),
    "cpu": ("throughput", "latency"),
}
"""The clocks of each kind of device. The first that a kernel can be timed by decides how long a
session goes on, and ranks."""
AGAIN = "again"
"""The arm of the noise control: eager in a process of its own. Its ratios to eager are stored."""
EMPTY = "empty"
"""The arm that does nothing: what it takes is taken off every sample."""

_WARM_UP_CALLS = 3
_WARM_UP_ROUNDS = 3
_MOST_LOOPS: dict[Clock, int] = {"gpu": 1, "latency": 1, "throughput": 256}
"""Calls of one sample, at most."""
_SUPPLY_NS = 20_000_000
_SLOW_SAMPLE_MS = 20.0
_LONGEST_SAMPLE_MS = 100.0
# A timed output is verified for so many blocks of the first look, and this share of all others.
_VERIFIED_AT_LEAST = 3
_VERIFIED_SHARE = 1 / 8
_VERIFIED_WARM_UPS = 1 / 3
_VERIFIED_CALLS = 4  # at most, of one sample
_MORE_THREADS = 1.5  # times the processor time that the threads of all arms allow
_DECIDED = 3.0  # times wider may be an interval that lies wholly on one side of 1
_LOW_CLOCK = 0.9
_MOST_DROPPED = 0.2
_DRIFT = math.log(1.03)
_WIDE = math.log(1.10)
_DRIFT_BLOCKS = (7, 12)
_FLOOR_SHARE = 0.9
_LEAST_RESOLUTION_MS = 1e-6
_EMPTY_CALLS = 12
_OVERHEAD_SPREADS = 10.0  # a sample takes so many times what the cost of handing over varies by
_RESOLVED = 5.0  # times the resolution has to take what ranks


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how finely to measure."""

    looks: Sequence[int] = (20, 40, 80, 160)
    """Numbers of blocks after which the intervals are looked at; the last is the end."""
    half_width: float
    """Half-width of a log ratio's interval that is narrow enough to stop."""
    budget_s: float
    """Stop past this time, at the first look's number of blocks or above."""
    limit_s: float
    """Stop past this time whatever the number of blocks."""
    sample_ms: float
    """Calls are repeated inside one sample until the slowest arm takes so long."""
    noise: float = 1.05
    """Ratio of the two eager arms that counts as noise, above 1."""
    further_blocks: int = 20
    """Blocks of each clock beside the one that decides when a session ends."""


@dataclass
class Session:
    """Samples of a session, one per block and arm, in milliseconds per call."""

    inner_loops: int
    clock: Clock
    samples_ms: dict[str, list[float]]
    """By arm: kernel, each baseline, and `again`. What handing over costs is taken off."""
    raw_ms: dict[str, list[float]] = field(default_factory=dict)
    """The same before anything is taken off, and the arm `empty` where there is one."""
    positions: dict[str, list[int]] = field(default_factory=dict)
    """Place of each arm in the random order of each block."""
    readings: list[Reading | None] = field(default_factory=list)
    """Clocks after each block; None where the device tells none."""
    loads: list[Load] = field(default_factory=list)
    """What else the host did after each block."""
    further: list[Session] = field(default_factory=list)
    """What the same arms took by other clocks."""
    noisy: bool = False
    flags: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, inner_loops: int, arms: Iterable[str], clock: Clock) -> Session:
        """Return a session without blocks."""
        names = list(arms)
        timed = [name for name in names if name != EMPTY]
        return cls(
            inner_loops,
            clock,
            {name: [] for name in timed},
            {name: [] for name in names},
            {name: [] for name in names},
        )

    def keep(self, arm: str, position: int, elapsed_ns: int) -> None:
        """Add the sample of an arm; `settle` takes off what handing over costs."""
        self.raw_ms[arm].append(elapsed_ns / self.inner_loops / 1e6)
        self.positions[arm].append(position)

    def settle(self) -> None:
        """Derive the samples from what was measured, with the overhead of the session so far.

        A sample of which less is left than this clock can tell counts as the least that it can
        tell: an arm is never credited with a speed that was not seen.
        """
        overhead_ms, least_ms = self.overhead_ms or 0.0, self.least_ms
        for arm in self.samples_ms:
            self.samples_ms[arm] = [max(one - overhead_ms, least_ms) for one in self.raw_ms[arm]]

    @property
    def least_ms(self) -> float:
        """The least time of a call that this session's clock can tell."""
        return _RESOLVED * (self.resolution_ms or 0.0)

    @property
    def overhead_ms(self) -> float | None:
        """Cost of handing over and taking back, per call; None where no empty arm ran."""
        raw = self.raw_ms.get(EMPTY)
        return statistics.median(raw) if raw else None

    @property
    def resolution_ms(self) -> float | None:
        """Uncertainty of that cost, per call: half of the interval of its median."""
        raw = self.raw_ms.get(EMPTY)
        if not raw:
            return None
        low, _, high = interval(raw)
        bounds = (low, high) if math.isfinite(high - low) else (min(raw), max(raw))
        return max((bounds[1] - bounds[0]) / 2, _LEAST_RESOLUTION_MS)

    @property
    def baselines(self) -> list[str]:
        """The arms that the kernel is held against."""
        return [name for name in self.samples_ms if name not in ("kernel", AGAIN)]

    def dropped(self) -> set[int]:
        """Blocks in which the device was slowed down, for all arms alike.

        The hardware held its clocks down, or the clock of the multiprocessors lay below 90 % of its
        median over the session.
        """
        clocks = [reading.sm_mhz for reading in self.readings if reading is not None]
        usual = statistics.median(clocks) if clocks else 0
        return {
            block
            for block, reading in enumerate(self.readings)
            if reading is not None and (reading.slowed or reading.sm_mhz < _LOW_CLOCK * usual)
        }

    def kept(self) -> list[int]:
        """Blocks that count: those not dropped, or all where none would be left."""
        blocks = list(range(len(self.readings)))
        dropped = self.dropped()
        return [block for block in blocks if block not in dropped] or blocks

    def interval(self, over: str, under: str = "kernel") -> tuple[float, float, float]:
        """Lower bound, median and upper bound of the log of over / under, kept blocks alone."""
        kept = self.kept()
        one, other = self.samples_ms[over], self.samples_ms[under]
        return interval(log_ratios([one[b] for b in kept], [other[b] for b in kept]))

    def control(self) -> list[float]:
        """Eager over eager in its second process, kept blocks alone."""
        one, other = self.samples_ms["eager"], self.samples_ms[AGAIN]
        return [one[block] / other[block] for block in self.kept()]

    def bias(self) -> float:
        """By how much two processes that do the same may differ here, as a log ratio."""
        return bias(self.control())

    def best(self) -> tuple[str, tuple[float, float, float]]:
        """The baseline that is hardest to beat, and the widened interval of the speedup over it."""
        found = {name: widened(self.interval(name), self.bias()) for name in self.baselines}
        name = min(found, key=lambda one: found[one][1])
        return name, found[name]


@dataclass(frozen=True)
class Sources:
    """Where a session's inputs and expected outputs come from."""

    inputs: Callable[[int], list[Any]]
    """Inputs of a secret seed."""
    check: Callable[[list[Any], Any], None] | None
    """Raises Failed where an output is not the answer to the inputs; None where none can tell."""
    clocks: Callable[[], Reading | None]
    """State of the device."""
    flush: Callable[[], None]
    """Pushes everything out of the caches of a processor."""
    keeps_inputs: bool = True
    """Whether the task leaves its inputs as they are."""


def measure(kernel: WorkerHandle, baselines: Baselines, sources: Sources, plan: Plan) -> Session:
    """Time a kernel against every baseline that is prepared.

    Raises Failed: memorised_output where a timed call gave a wrong answer, input_mutated where one
    changed its inputs, timer_mismatch where an answer is reported before it can be there, and
    whatever the kernel's worker fails with.
    """
    clocks = CLOCKS[kernel.device]
    if clocks[0] == "gpu":
        with contextlib.suppress(LaunchBlocked):
            return _measure(kernel, baselines, sources, plan, clocks)
        clocks = clocks[1:]
    return _measure(kernel, baselines, sources, plan, clocks)


def _measure(
    kernel: WorkerHandle,
    baselines: Baselines,
    sources: Sources,
    plan: Plan,
    clocks: Sequence[Clock],
) -> Session:
    draw = random.Random(secrets.randbits(64))
    pool = _Pool(sources.inputs, (kernel, *baselines.arms))
    for _ in range(2):  # the first fill allocates, and says nothing of what a further one takes
        pool.refill()
    checker = _Checker(kernel, sources, pool, draw)
    watch = Watch(kernel)
    block = _Block(baselines, kernel, sources, pool, draw, checker, watch)
    session = block.begin(clocks[0], plan)
    verified = set(draw.sample(range(plan.looks[0]), _VERIFIED_AT_LEAST))
    begin = time.monotonic()
    for number in range(plan.looks[-1]):
        block.measure(session, checks=number in verified)
        ends = enough(session, plan, time.monotonic() - begin)
        if ends and not checker.checked:  # a session that is cut short
            block.measure(session, checks=True)
        if ends:
            break
    for clock in clocks[1:]:
        session.further.append(_measure_further(block, clock, plan))
    watch.refuse_busy()
    if watch.uses_more_threads(kernel.threads * _MORE_THREADS):
        session.flags.add("more_threads")
        session.noisy = True
    if kernel.shares_device():
        session.flags.add("shares_device")
        session.noisy = True
    if kernel.device == "cuda" and session.clock != "gpu":
        session.flags.add("timed_end_to_end")
    session.noisy |= is_noisy(session, plan.noise)
    _look_at_resolution(session)
    for one in session.further:
        one.noisy = session.noisy or is_noisy(one, plan.noise)
        _look_at_resolution(one)
    _look_at_host(session)
    return session


def _look_at_host(session: Session) -> None:
    """Flag a session that shares its host, and distrust every clock that the host is part of."""
    measured = (session, *session.further)
    if not is_contended([load for one in measured for load in one.loads]):
        return
    session.flags.add("contended")
    for one in measured:
        one.noisy |= one.clock != "gpu"


def _measure_further(block: _Block, clock: Clock, plan: Plan) -> Session:
    """Some blocks of another clock."""
    session = block.begin(clock, plan)
    begin = time.monotonic()
    for number in range(plan.further_blocks):
        if number > 1 and time.monotonic() - begin > plan.budget_s / 2:
            break
        block.measure(session, checks=False)
    return session


class _Block:
    """Measures one sample of every arm at a time, in random order on the same fresh inputs."""

    def __init__(
        self,
        baselines: Baselines,
        kernel: WorkerHandle | None,
        sources: Sources,
        pool: _Pool,
        draw: random.Random,
        checker: _Checker | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._baselines = baselines
        self._kernel = kernel
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self._checker = checker
        self._watch = watch
        self._turns: dict[str, _Turn] = {}
        self._empty = EmptyRounds()

    def begin(self, clock: Clock, plan: Plan, loops: int | None = None) -> Session:
        """Warm every arm up for a clock and return its session. Raises Failed, LaunchBlocked.

        `loops` calls make a sample, or as many as the plan asks for.
        """
        self._pool.begin(clock, loops or 1)
        self._pool.refill()
        gated = clock == "gpu"
        self._turns = _turns(self._kernel, self._baselines, gated)
        if self._checker is not None and loops is None:
            loops = _decide_loops(self._turns, self._pool, self._checker, plan)
        for _ in range(_EMPTY_CALLS if gated else 0):
            slots = self._pool.refill()
            self._empty.add(self._turns[EMPTY].time(slots, cold=True).rounds)
        return Session.of(loops or 1, self._turns, clock)

    def measure(self, session: Session, *, checks: bool) -> None:
        """Add a block to a session; `checks` has calls of the kernel checked for sure."""
        slots = self._pool.refill()
        cold = session.clock != "throughput" or self._pool.device == "cpu"
        for position, name in enumerate(self._draw.sample(list(self._turns), len(self._turns))):
            turn = self._turns[name]
            if cold:
                self._sources.flush()
            watched = self._watch.beside(turn.arm) if self._watch else contextlib.nullcontext()
            with watched:
                sample = turn.time(slots, cold=cold)
            session.keep(name, position, self._elapsed_ns(name, sample))
            # What is verified is drawn after the call, while its worker is frozen.
            drawn = checks or self._draw.random() < _VERIFIED_SHARE
            if name == "kernel" and drawn and self._checker is not None:
                self._checker.check(slots)
        session.readings.append(self._sources.clocks())
        session.loads.append(read_load())
        session.settle()

    def _elapsed_ns(self, name: str, sample: Sample) -> int:
        if not sample.rounds:
            return sample.elapsed_ns
        if name == "kernel" and self._empty.has_early_report(sample.rounds):
            message = "a call is reported as done before the GPU can have turned to it"
            raise Failed("rejected", "timer_mismatch", message)
        elapsed_ns = self._empty.elapsed_ns(sample.rounds)
        if name == EMPTY:
            self._empty.add(sample.rounds)
        return elapsed_ns


def _look_at_resolution(session: Session) -> None:
    """Flag a kernel that is too short for the clock, and distrust a session whose eager is.

    A kernel that counts as the least time that can be told is at least as fast as it is said to be;
    where eager is as short, nothing can be told.
    """
    short = {
        arm: statistics.median(session.samples_ms[arm]) <= session.least_ms
        for arm in ("kernel", "eager")
    }
    if short["kernel"] or short["eager"]:
        session.flags.add("below_resolution")
    session.noisy |= short["eager"]


class _Checker:
    """Checks calls of timed samples, drawn once they are over and their worker is frozen."""

    def __init__(
        self, kernel: WorkerHandle, sources: Sources, pool: _Pool, draw: random.Random
    ) -> None:
        self._kernel = kernel
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self.checked = False
        """Whether a sample has been checked."""

    def check(self, slots: Sequence[int]) -> None:
        """Check some calls of the kernel's last sample. Raises Failed."""
        self.checked = True
        if self._sources.check is None:
            return
        for call in self._draw.sample(range(len(slots)), min(len(slots), _VERIFIED_CALLS)):
            held = self._pool.held[slots[call]]
            self._sources.check(held, self._kernel.output(call))
            now = self._kernel.inputs(slots[call])
            pairs = zip(tensors_of(held), tensors_of(now), strict=False)
            if self._sources.keeps_inputs and not all(same_bits(a, b) for a, b in pairs):
                raise Failed("incorrect", "input_mutated", "a timed call has changed its inputs")


def enough(session: Session, plan: Plan, elapsed_s: float) -> bool:
    """Whether a session may stop: every baseline is known well enough, or the time is up.

    Well enough is an interval no wider than the plan's, or three times so wide and, with what the
    eager arms differ by, wholly above 1.02 or below 0.98.
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
    apart = session.bias()
    return all(_known(session.interval(name), apart, plan) for name in session.baselines)


def _known(bounds: tuple[float, float, float], apart: float, plan: Plan) -> bool:
    low, _, high = bounds
    wide_low, _, wide_high = widened(bounds, apart)
    decided = verdict(wide_low, wide_high) != "same"
    return high - low <= 2 * plan.half_width * (_DECIDED if decided else 1.0)


def is_noisy(session: Session, noise: float) -> bool:
    """Whether the two eager arms differ by more than `noise`, or too erratically to say by what.

    So does a session in which more than a fifth of the blocks had to be dropped.
    """
    bound = math.log(noise)
    if len(session.dropped()) > _MOST_DROPPED * len(session.readings):
        return True
    low, _, high = session.interval("eager", AGAIN)
    return low > bound or high < -bound or high - low > 2 * _WIDE


def hold_against_floor(session: Session, floor: Floor) -> None:
    """Raise Failed where the kernel is faster than the memory of the device allows.

    Near the floor, or below the time that the reference's own operations take, it is flagged.
    """
    kernel_ms = statistics.median(session.samples_ms["kernel"])
    if kernel_ms < _FLOOR_SHARE * floor.memory_ms:
        message = (
            f"a call takes {kernel_ms:.4g} ms, in which the device cannot move what the answer"
            f" needs: that takes {floor.memory_ms:.4g} ms"
        )
        raise Failed("rejected", "below_roofline", message)
    if kernel_ms < max(floor.memory_ms, _FLOOR_SHARE * floor.compute_ms):
        session.flags.add("near_roofline")


def hold_against_eager_alone(
    session: Session, baselines: Baselines, sources: Sources, plan: Plan
) -> None:
    """Time eager again without the kernel's process; where it differs by 3 %, flag and distrust.

    Called once that process has ended: whatever it did to the device while it lived has slowed the
    interleaved samples alone. The two eager processes still take turns, as they did before.
    """
    if session.noisy:
        return
    try:
        alone_ms = _eager_alone(session, baselines, sources, plan)
    except LaunchBlocked:  # a machine that is far slower now
        session.noisy = True
        return
    low, _, high = _spread([session.raw_ms["eager"][block] for block in session.kept()])
    alone_low, _, alone_high = _spread(alone_ms)
    if low > alone_high + _DRIFT or high < alone_low - _DRIFT:
        session.noisy = True
        session.flags.add("baseline_drift")


def _eager_alone(
    session: Session, baselines: Baselines, sources: Sources, plan: Plan
) -> list[float]:
    """Samples of eager that take turns with its second process alone, in milliseconds."""
    pool = _Pool(sources.inputs, (baselines.arm, baselines.again))
    alone = Baselines(baselines.arm, baselines.again)
    alone.prepared["eager"] = 0.0
    block = _Block(alone, None, sources, pool, random.Random(secrets.randbits(64)))
    found = block.begin(session.clock, plan, session.inner_loops)
    begin = time.monotonic()
    least, most = _DRIFT_BLOCKS
    for number in range(most):
        if number >= least and time.monotonic() - begin > plan.budget_s / 4:
            break
        block.measure(found, checks=False)
    return found.raw_ms["eager"]


def _spread(samples_ms: list[float]) -> tuple[float, float, float]:
    return interval([math.log(sample) for sample in samples_ms])


@dataclass(frozen=True)
class _Turn:
    """One arm of a session: a worker, and what it is asked to call."""

    arm: WorkerHandle
    time: _Time


class _Time(Protocol):
    def __call__(self, slots: list[int], *, cold: bool = False) -> Sample: ...


def _turns(kernel: WorkerHandle | None, baselines: Baselines, gated: bool) -> dict[str, _Turn]:
    named: dict[str, _Turn] = {}
    if kernel is not None:
        named["kernel"] = _Turn(kernel, functools.partial(kernel.time, gated=gated))
    for name in baselines.prepared:
        time_it = functools.partial(baselines.time, name, gated=gated)
        named[name] = _Turn(baselines.of(name), time_it)
    again = baselines.again
    named[AGAIN] = _Turn(again, functools.partial(again.time, gated=gated))
    again.prepare_empty(0)
    named[EMPTY] = _Turn(again, functools.partial(again.time, variant=EMPTY, gated=gated))
    return named


class _Pool:
    """Input sets that lie in every worker, one for each call of a sample.

    All are replaced by fresh ones before every block: what has been seen before could be told by
    its content, and its answer kept.
    """

    def __init__(self, inputs: Callable[[int], list[Any]], arms: Sequence[WorkerHandle]) -> None:
        self._inputs = inputs
        self._arms = arms
        self.device = arms[0].device
        """Kind of device of all of them."""
        self._clock: Clock = "latency"
        self._size = 1
        self._cost_ns = 0
        self.held: dict[int, list[Any]] = {}
        """What each slot holds, on the judge's side."""

    def affordable(self) -> int:
        """How many sets every worker can hold and be given anew for each block."""
        renewed = max(1, _SUPPLY_NS // max(1, self._cost_ns))
        return min(renewed, _MOST_LOOPS[self._clock], *(arm.slots for arm in self._arms))

    def begin(self, clock: Clock, size: int) -> None:
        """Hold `size` input sets, for samples of a clock."""
        self._clock = clock
        self._size = size

    def resize(self, loops: int) -> None:
        """Hold `loops` input sets."""
        self._size = loops

    def refill(self) -> list[int]:
        """Renew every set; returns the slots of one sample."""
        for slot in range(self._size):
            self._fill(slot)
        return list(range(self._size))

    def _fill(self, slot: int) -> None:
        begin = time.perf_counter_ns()
        self.held[slot] = self._inputs(secrets.randbits(48))
        # In any order: the first to be asked finds the machine in another state than the last.
        for arm in random.sample(self._arms, len(self._arms)):
            arm.fill(slot, self.held[slot])
        self._cost_ns = time.perf_counter_ns() - begin


def _decide_loops(turns: dict[str, _Turn], pool: _Pool, checker: _Checker, plan: Plan) -> int:
    """Warm up every arm, and decide how many calls a sample has; the pool then holds as many sets.

    Eager's time alone sets the number; a kernel can lower it by taking long, and gains nothing by
    that. The first call of a sample takes longer than the others, so that a number is tried before
    it is taken: it is raised until eager takes as long as a sample should.
    """
    loops = 1
    for _ in range(_WARM_UP_ROUNDS):
        taken = _warm_up(turns, pool, checker)
        wanted = _inner_loops(taken.eager_ms, max(plan.sample_ms, taken.least_ms), pool)
        wanted = min(wanted, max(1, math.floor(_LONGEST_SAMPLE_MS / taken.kernel_ms)))
        if wanted <= loops:
            break
        loops = wanted
        pool.resize(loops)
        _copy_what_is_overwritten(turns, pool)
    return loops


def _copy_what_is_overwritten(turns: dict[str, _Turn], pool: _Pool) -> None:
    """Have the kernel's answers copied after each call where a later one overwrites them.

    All of them have to be there when those to check are drawn. The copies take the kernel's own
    time. What eager hands back several times, such as a weight, is no such answer.
    """
    slots = pool.refill()
    kernel, eager = turns["kernel"].arm, turns["eager"].arm
    for name in ("kernel", "eager"):
        turns[name].time(slots)
    if kernel.outputs_overlap() and not eager.outputs_overlap():
        turns["kernel"] = _Turn(kernel, functools.partial(kernel.time, copies=True))


@dataclass(frozen=True)
class _Taken:
    """What warming up has shown, in milliseconds."""

    kernel_ms: float
    """Time of a call of the kernel, the cost of handing over included."""
    eager_ms: float
    """Time of a call of eager."""
    least_ms: float
    """How long a sample has to be for that cost to be known well enough beside it."""


def _warm_up(turns: Mapping[str, _Turn], pool: _Pool, checker: _Checker) -> _Taken:
    """Take some samples of every arm, and more of the empty one.

    Warm-ups are samples like any other to a kernel: their inputs are fresh and they may be checked.
    """
    taken_ns: dict[str, list[int]] = {name: [] for name in turns}
    slots: list[int] = []
    for _ in range(_WARM_UP_CALLS):
        slots = pool.refill()
        for name, turn in turns.items():
            taken_ns[name].append(turn.time(slots).elapsed_ns)
            if name == "kernel" and random.random() < _VERIFIED_WARM_UPS:
                checker.check(slots)
    kernel_ns, eager_ns = (statistics.median(taken_ns[name]) for name in ("kernel", "eager"))
    empty_ns = sorted(turns[EMPTY].time(slots).elapsed_ns for _ in range(_EMPTY_CALLS))
    ns_a_call = 1e6 * len(slots)
    return _Taken(
        kernel_ms=max(kernel_ns, 1.0) / ns_a_call,
        eager_ms=max(eager_ns - statistics.median(empty_ns), 0.0) / ns_a_call,
        least_ms=_OVERHEAD_SPREADS * (empty_ns[-2:][0] - empty_ns[:2][-1]) / 1e6,
    )


def _inner_loops(eager_ms: float, sample_ms: float, pool: _Pool) -> int:
    """Calls per sample, the same for all arms, so that all find the caches equally cold.

    Eager alone decides: a kernel has no say in how it is measured.
    """
    wanted = math.ceil(sample_ms / max(eager_ms, 1e-3))
    return max(1, min(wanted, pool.affordable(), math.floor(_SLOW_SAMPLE_MS / max(eager_ms, 1e-3))))
