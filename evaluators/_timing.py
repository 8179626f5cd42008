"""One timing session: a kernel and its baselines measured by turns, block by block.

A block is one cold sample of every arm in random order on the same fresh inputs: the kernel, each
baseline, and eager once more in a process of its own. The two eager arms are the session's noise
control: what they differ by is no property of any kernel, so the interval of every speedup is
widened by it, and where it is large the session ranks nothing.
Sessions are looked at after 20, 40, 80 and 160 blocks and stop as soon as every baseline is known
well enough. A short session without flushes follows, for kernel and eager.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluators._arm import Arm, Failed, Sample
from evaluators._bench import Baselines
from evaluators._device import Reading
from evaluators._intervals import bias, interval, log_ratios, verdict, widened
from evaluators._reference import ReferenceFailed
from evaluators._roofline import Floor
from evaluators._tensors import layout

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
_OUTSIDE_TRIES = 6
_OUTSIDE_BURST_NS = 2_000_000
_OUTSIDE_RATIO = 1.25
_OUTSIDE_RATIO_NOISY = 10.0
_OUTSIDE_SLACK_MS = {"cuda": 0.005, "cpu": 0.01}
# Two events of a GPU with no work between them are 1.5 µs apart on an H200.
_LEAST_SAMPLE_MS = {"cuda": 0.8e-3, "cpu": 0.0}
_MOST_BURST_CALLS = 256
_UNTIMED = ("fill", "flush", "output")
_UNTIMED_RATIO = 1.5
_UNTIMED_RATIO_BUSY = 5.0
_BUSY_SPREAD = 2.0  # eager's slow requests against its fastest
_UNTIMED_LEAST = 3  # fewer may all have met a busy machine, or pages shared with a fork
_UNTIMED_MANY = 12  # so many that the tenth of them which is slowest does not count
_UNTIMED_SLACK_NS = 100_000
# What gathering an output from strided memory may cost.
_COPY_NS_PER_BYTE = {"cuda": 1 / 30, "cpu": 2.0}
_BUSY_SHARE = 0.1
# A GPU's driver clears away behind thousands of launches.
_AFTER_SHARE = {"cuda": 0.05, "cpu": 0.0}
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
    watch = _Watch(kernel)
    aside = _Aside(kernel, baselines.again)
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
    _hold_against_outside_clock(kernel, baselines, session, pool, walls_ms)
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


class _Watch:
    """Looks at the processor time of the kernel's worker while others have their turn."""

    def __init__(self, kernel: Arm) -> None:
        self._kernel = kernel
        self._own_ns = 0
        self._busy_ns = 0
        self._idle_ns = 0

    @contextlib.contextmanager
    def beside(self, arm: Arm) -> Generator[None]:
        """Count what the kernel's worker does meanwhile, apart from what it does in its turns."""
        cpu_ns, begin_ns = self._kernel.cpu_ns(), time.perf_counter_ns()
        yield
        worked_ns = self._kernel.cpu_ns() - cpu_ns
        if arm is self._kernel:
            self._own_ns += worked_ns
        else:
            self._busy_ns += worked_ns
            self._idle_ns += time.perf_counter_ns() - begin_ns

    def refuse_busy(self) -> None:
        """Raise Failed where it worked while it was not called, beyond a share of its turns."""
        after_ns = _AFTER_SHARE[self._kernel.device] * self._own_ns
        if self._busy_ns > _BUSY_SHARE * self._idle_ns + after_ns:
            share = self._busy_ns / self._idle_ns
            message = f"worked on for {share:.0%} of the time in which it was not called"
            raise Failed("rejected", "timer_mismatch", message)


class _Aside:
    """Holds requests that are not timed against the same requests to eager.

    A worker whose loop has been replaced could compute while its output is fetched, its inputs are
    filled or the caches are flushed, in place of when it is timed. An honest output may be slower
    to fetch, since it may lie in memory in another order: that costs by the byte, and every time.
    """

    def __init__(self, kernel: Arm, eager: Arm) -> None:
        self._arms = (kernel, eager)
        self._again_ns: list[int] = []
        self._copied_bytes = 0
        self._from = [{do: len(arm.walls_ns.get(do, ())) for do in _UNTIMED} for arm in self._arms]

    def fetched(self) -> Any:
        """The output of the last timed call; it is fetched twice, and from eager as well."""
        kernel, eager = self._arms
        output = kernel.output(0)
        kernel.output(0)
        eager.output(0)
        self._again_ns.append(kernel.walls_ns["output"][-1])
        self._copied_bytes = max(self._copied_bytes, layout(output)[1])
        return output

    def refuse_hidden_work(self) -> bool:
        """Raise Failed where even the shortest such request takes much longer than eager's do.

        Returns whether a session is in doubt: it looks like that, but on a machine so busy that
        eager's own requests differ as much.
        """
        doubtful = False
        for do in _UNTIMED:
            kernel_ns, eager_ns = self._walls_ns(do)
            if min(len(kernel_ns), len(eager_ns)) < _UNTIMED_LEAST:
                continue
            if do == "output" and len(eager_ns) < _UNTIMED_MANY:
                # One of few may have met a busy machine and would hide what the others show.
                usual_ns = statistics.median(eager_ns)
                if min(kernel_ns[::2]) > _UNTIMED_RATIO * usual_ns + _UNTIMED_SLACK_NS:
                    self._fetch_more(_UNTIMED_MANY - len(eager_ns))
                    kernel_ns, eager_ns = self._walls_ns(do)
            # Of ten or fewer the longest: a busy machine is no fault of the kernel.
            usual_ns = sorted(eager_ns)[int(0.9 * len(eager_ns))]
            slack_ns = _UNTIMED_SLACK_NS
            if do == "output":
                kernel_ns = kernel_ns[::2]
                if min(kernel_ns) <= _UNTIMED_RATIO * statistics.median(self._again_ns) + slack_ns:
                    slack_ns += _COPY_NS_PER_BYTE[self._arms[0].device] * self._copied_bytes
            if min(kernel_ns) > _UNTIMED_RATIO * usual_ns + slack_ns:
                busy = usual_ns > _BUSY_SPREAD * min(eager_ns)
                if busy and min(kernel_ns) <= _UNTIMED_RATIO_BUSY * usual_ns + slack_ns:
                    doubtful = True
                    continue
                message = (
                    f"works outside of its timed calls: {do} takes {min(kernel_ns) / 1e6:.4g} ms, "
                    f"and {usual_ns / 1e6:.4g} ms for eager"
                )
                raise Failed("rejected", "timer_mismatch", message)
        return doubtful

    def _walls_ns(self, do: str) -> tuple[list[int], list[int]]:
        """What such requests took in this session, of kernel and eager."""
        kernel_ns, eager_ns = (
            arm.walls_ns.get(do, [])[start[do] :]
            for arm, start in zip(self._arms, self._from, strict=True)
        )
        return kernel_ns, eager_ns

    def _fetch_more(self, times: int) -> None:
        for _ in range(times):
            for arm in self._arms:
                arm.time([0])
            self.fetched()


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


def _hold_against_outside_clock(
    kernel: Arm,
    baselines: Baselines,
    session: Session,
    pool: _Pool,
    walls_ms: Mapping[str, list[float]],
) -> None:
    """Compare the kernel's reported time with the judge's own clock.

    From request to answer of a timed sample, a call took no longer than its wall time. Where that
    is close enough, as it is for all but short calls, no more is needed. Nor is it where the wall
    clock sees what the kernel claims to save against eager: messages, flushes and launches are the
    same for both. Else the slope of the wall clock decides: two bursts of n and 3n calls differ by
    2n calls and, on a GPU, by the flushes ahead of them, which eager's bursts tell the time of. A
    busy machine can only make the slope too steep, and not every time, so the flattest of several
    tries counts. Where it is too steep and the worker reports the same of these bursts, calls in a
    row are slower than the timed ones: launches of a Python loop, say, that a busy host is late
    with. That is no lie, and no speed either: the session is flagged and noisy. One that is noisy
    cannot be ranked: there only a gross mismatch is held against the kernel.
    """
    reported_ms, eager_ms = (statistics.median(session.samples_ms[n]) for n in ("kernel", "eager"))
    wall_ms, eager_wall_ms = (statistics.median(walls_ms[name]) for name in ("kernel", "eager"))
    least_ms, slack_ms = _LEAST_SAMPLE_MS[kernel.device], _OUTSIDE_SLACK_MS[kernel.device]
    if reported_ms * session.inner_loops < least_ms:
        message = f"reports {reported_ms:.4g} ms a call, and no clock of a GPU ticks so fast"
        raise Failed("rejected", "timer_mismatch", message)
    if wall_ms <= _OUTSIDE_RATIO * reported_ms + slack_ms:
        return
    if eager_ms - reported_ms <= _OUTSIDE_RATIO * (eager_wall_ms - wall_ms) + slack_ms:
        return
    calls = 1
    while calls < _MOST_BURST_CALLS and _burst(kernel, pool, calls).wall_ns < _OUTSIDE_BURST_NS:
        calls *= 4
    flush_ms = 0.0
    if kernel.device == "cuda":
        eager = [_slopes_ms(baselines.again, pool, calls) for _ in range(_OUTSIDE_TRIES)]
        flush_ms = max(0.0, statistics.median(wall - reported for wall, reported in eager))
    ratio = _OUTSIDE_RATIO_NOISY if session.noisy else _OUTSIDE_RATIO
    slope_ms, told_alike = math.inf, False
    for _ in range(_OUTSIDE_TRIES):
        wall_slope_ms, told_ms = _slopes_ms(kernel, pool, calls)
        slope_ms = min(slope_ms, wall_slope_ms - flush_ms)
        if slope_ms <= ratio * reported_ms + slack_ms:
            return
        told_alike |= wall_slope_ms - flush_ms <= _OUTSIDE_RATIO * told_ms + slack_ms
    if told_alike and slope_ms <= _OUTSIDE_RATIO_NOISY * reported_ms + slack_ms:
        session.noisy = True
        session.flags.add("slower_in_bursts")
        return
    message = f"reports {reported_ms:.4g} ms a call where the judge's clock sees {slope_ms:.4g} ms"
    raise Failed("rejected", "timer_mismatch", message)


def _slopes_ms(arm: Arm, pool: _Pool, calls: int) -> tuple[float, float]:
    """Wall time and reported time of one more call, in milliseconds."""
    few, many = _burst(arm, pool, calls), _burst(arm, pool, 3 * calls)
    more_ns = (many.wall_ns - few.wall_ns, many.reported_ns - few.reported_ns)
    return more_ns[0] / (2 * calls) / 1e6, more_ns[1] / (2 * calls) / 1e6


def _burst(arm: Arm, pool: _Pool, calls: int) -> Sample:
    # Without flushes a GPU would wait for the launches of short calls, which no sample shows.
    return arm.time(pool.slots(calls), cold=arm.device == "cuda")
