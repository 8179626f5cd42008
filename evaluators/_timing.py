"""One timing session: a kernel and its baselines measured by turns, block by block.

A block is one cold sample of every arm in random order on the same fresh inputs: the kernel, each
baseline, and eager once more in a process of its own. The two eager arms are the session's noise
control: what they differ by is no property of any kernel, so the interval of every speedup is
widened by it, and where it is large the session ranks nothing.
Sessions are looked at after 20, 40, 80 and 160 blocks and stop as soon as every baseline is known
well enough. A short session without flushes follows, for kernel and eager.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluators._arm import Arm, Failed, Sample
from evaluators._bench import Baselines
from evaluators._device import Reading
from evaluators._intervals import bias, interval, log_ratios, verdict, widened
from evaluators._outside_clock import Aside, Watch, hold_against_wall_clock
from evaluators._reference import ReferenceFailed
from evaluators._roofline import Floor

AGAIN = "again"
"""The arm of the noise control: eager in a process of its own. Its ratios to eager are stored."""

_WARM_UP_CALLS = 3
_MOST_LOOPS = 16
_SUPPLY_NS = 20_000_000
_SLOW_SAMPLE_MS = 20.0
# A timed output is verified for so many blocks of the first look, and this share of all others.
_VERIFIED_AT_LEAST = 3
_VERIFIED_SHARE = 1 / 8
_DECIDED = 3.0  # times wider may be an interval that lies wholly on one side of 1
_LOW_CLOCK = 0.9
_MOST_DROPPED = 0.2
_DRIFT = math.log(1.03)
_WIDE = math.log(1.10)
_DRIFT_BLOCKS = (7, 12)
_FLOOR_SHARE = 0.9


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
    warm_blocks: int = 12
    """Blocks without flushes."""


@dataclass
class Session:
    """Samples of a session, one per block and arm, in milliseconds per call."""

    inner_loops: int
    samples_ms: dict[str, list[float]]
    """By arm: kernel, each baseline, and `again`."""
    positions: dict[str, list[int]]
    """Place of each arm in the random order of each block."""
    readings: list[Reading | None] = field(default_factory=list)
    """Clocks after each block; None where the device tells none."""
    warm_ms: dict[str, list[float]] = field(default_factory=dict)
    """Samples of kernel and eager without flushes."""
    warm_positions: dict[str, list[int]] = field(default_factory=dict)
    noisy: bool = False
    flags: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, inner_loops: int, arms: Iterable[str]) -> Session:
        """Return a session without blocks."""
        names = list(arms)
        return cls(inner_loops, {n: [] for n in names}, {n: [] for n in names})

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


def measure(kernel: Arm, baselines: Baselines, sources: Sources, plan: Plan) -> Session:
    """Time a kernel against every baseline that is prepared.

    Raises Failed: timer_mismatch where the kernel's own times do not hold against the judge's
    clock or it works on after it has returned, memorised_output where a timed call gave a wrong
    answer, and whatever the kernel's worker fails with.
    """
    draw = random.Random(secrets.randbits(64))
    pool = _Pool(sources.inputs, (kernel, *baselines.arms))
    for _ in range(2):  # the first fill allocates, and says nothing of what a further one takes
        pool.refill()
    turns = _turns(kernel, baselines)
    first_ns = {name: _warm_up(turn, pool) for name, turn in turns.items()}
    loops = min(_inner_loops(list(first_ns.values()), plan.sample_ms), pool.affordable())
    session = Session.of(loops, turns)
    pool.resize(loops)
    verified = set(draw.sample(range(plan.looks[0]), _VERIFIED_AT_LEAST))
    walls_ms: dict[str, list[float]] = {name: [] for name in turns}
    watch = Watch(kernel)
    aside = Aside(kernel, baselines.again)
    checked = False
    begin = time.monotonic()
    for block in range(plan.looks[-1]):
        slots = pool.refill()
        chosen: Any = None
        for position, name in enumerate(draw.sample(list(turns), len(turns))):
            turn = turns[name]
            with watch.beside(turn.arm):
                sample = turn.time(slots, cold=True)
            _keep(session, name, position, sample)
            walls_ms[name].append(sample.wall_ns / session.inner_loops / 1e6)
            if name != "kernel":
                continue
            # Whether an output is verified is decided after its call, and told to nobody.
            if sources.check and (block in verified or draw.random() < _VERIFIED_SHARE):
                chosen = aside.fetched()
        session.readings.append(sources.clocks())
        ends = enough(session, plan, time.monotonic() - begin)
        if sources.check and ends and not checked and chosen is None:
            chosen = aside.fetched()  # a session that is cut short
        if sources.check and chosen is not None:
            sources.check(pool.held[slots[-1]], chosen)
            checked = True
        if ends:
            break
    _measure_warm(session, turns, pool, plan, draw)
    watch.refuse_busy()
    doubtful = aside.refuse_hidden_work()
    session.noisy = is_noisy(session, plan.noise) or doubtful
    hold_against_wall_clock(kernel, baselines.again, session, pool.slots, walls_ms)
    return session


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
    draw = random.Random(secrets.randbits(64))
    pool = _Pool(sources.inputs, (baselines.arm, baselines.again))
    pool.refill()
    pool.resize(session.inner_loops)
    turns = {n: t for n, t in _turns(None, baselines).items() if n in ("eager", AGAIN)}
    alone = Session.of(session.inner_loops, turns)
    begin = time.monotonic()
    least, most = _DRIFT_BLOCKS
    for block in range(most):
        if block >= least and time.monotonic() - begin > plan.budget_s / 4:
            break
        slots = pool.refill()
        for position, name in enumerate(draw.sample(list(turns), len(turns))):
            _keep(alone, name, position, turns[name].time(slots, cold=True))
    kept = session.kept()
    low, _, high = _spread([session.samples_ms["eager"][block] for block in kept])
    alone_low, _, alone_high = _spread(alone.samples_ms["eager"])
    if low > alone_high + _DRIFT or high < alone_low - _DRIFT:
        session.noisy = True
        session.flags.add("baseline_drift")


def _spread(samples_ms: list[float]) -> tuple[float, float, float]:
    return interval([math.log(sample) for sample in samples_ms])


@dataclass(frozen=True)
class _Turn:
    """One arm of a session: a worker, and what it is asked to call."""

    arm: Arm
    time: _Time


class _Time(Protocol):
    def __call__(self, slots: list[int], *, cold: bool = False) -> Sample: ...


def _turns(kernel: Arm | None, baselines: Baselines) -> dict[str, _Turn]:
    named = {} if kernel is None else {"kernel": _Turn(kernel, kernel.time)}
    for name in baselines.prepared:
        named[name] = _Turn(baselines.of(name), _Named(baselines, name))
    return named | {AGAIN: _Turn(baselines.again, baselines.again.time)}


@dataclass(frozen=True)
class _Named:
    baselines: Baselines
    name: str

    def __call__(self, slots: list[int], *, cold: bool = False) -> Sample:
        return self.baselines.time(self.name, slots, cold=cold)


def _measure_warm(
    session: Session, turns: dict[str, _Turn], pool: _Pool, plan: Plan, draw: random.Random
) -> None:
    """A few blocks of kernel and eager without flushes; the inputs are fresh all the same."""
    names = ["kernel", "eager"]
    session.warm_ms = {name: [] for name in names}
    session.warm_positions = {name: [] for name in names}
    for name in names:
        turns[name].time(pool.slots(session.inner_loops))
    begin = time.monotonic()
    for block in range(plan.warm_blocks):
        if block and time.monotonic() - begin > plan.budget_s / 4:
            break
        slots = pool.refill()
        for position, name in enumerate(draw.sample(names, len(names))):
            per_call_ms = _per_call_ms(name, turns[name].time(slots), session.inner_loops)
            session.warm_ms[name].append(per_call_ms)
            session.warm_positions[name].append(position)


class _Pool:
    """Input sets that lie in every worker, one for each call of a sample.

    All are replaced by fresh ones before every block: what has been seen before could be told by
    its content, and its answer kept.
    """

    def __init__(self, inputs: Callable[[int], list[Any]], arms: Sequence[Arm]) -> None:
        self._inputs = inputs
        self._arms = arms
        self._size = 1
        self._cost_ns = 0
        self.held: dict[int, list[Any]] = {}
        """What each slot holds, on the judge's side."""

    def affordable(self) -> int:
        """How many sets can be renewed for each block."""
        return max(1, _SUPPLY_NS // max(1, self._cost_ns))

    def resize(self, loops: int) -> None:
        """Hold so many sets."""
        self._size = loops

    def refill(self) -> list[int]:
        """Renew every set; returns the slots of one sample."""
        for slot in range(self._size):
            self._fill(slot)
        return self.slots(self._size)

    def slots(self, calls: int) -> list[int]:
        """So many slots in turn."""
        return [step % self._size for step in range(calls)]

    def _fill(self, slot: int) -> None:
        begin = time.perf_counter_ns()
        self.held[slot] = self._inputs(secrets.randbits(48))
        # In any order: the first to be asked finds the machine in another state than the last.
        for arm in random.sample(self._arms, len(self._arms)):
            arm.fill(slot, self.held[slot])
        self._cost_ns = time.perf_counter_ns() - begin


def _warm_up(turn: _Turn, pool: _Pool) -> float:
    """Median time of the first calls, in nanoseconds."""
    slots = pool.slots(1)
    return statistics.median(turn.time(slots).reported_ns for _ in range(_WARM_UP_CALLS))


def _inner_loops(calls_ns: Sequence[float], sample_ms: float) -> int:
    """Calls per sample, the same for all arms, so that all find the caches equally cold."""
    slow_ms, fast_ms = max(calls_ns) / 1e6, max(min(calls_ns) / 1e6, 1e-3)
    wanted = max(sample_ms / max(slow_ms, 1e-3), sample_ms / 10 / fast_ms)
    affordable = _SLOW_SAMPLE_MS / max(slow_ms, 1e-3)
    return max(1, min(math.ceil(wanted), math.floor(affordable), _MOST_LOOPS))


def _keep(session: Session, name: str, position: int, sample: Sample) -> None:
    session.samples_ms[name].append(_per_call_ms(name, sample, session.inner_loops))
    session.positions[name].append(position)


def _per_call_ms(name: str, sample: Sample, inner_loops: int) -> float:
    if not sample.reported_ns > 0:
        message = f"a call is reported to take {sample.reported_ns} ns"
        if name != "kernel":
            raise ReferenceFailed(f"the baseline {name} cannot be timed: {message}")
        raise Failed("rejected", "timer_mismatch", message)
    return sample.reported_ns / inner_loops / 1e6
