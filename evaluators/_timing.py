"""One timing session: kernel and eager baseline measured by turns, block by block.

A block is one cold sample of each of three arms in random order: the kernel, the eager baseline,
and the eager baseline once more in a process of its own. The two baselines are the session's noise
control: where their ratio is not 1, nothing else measured beside them can be trusted either.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators._arm import Arm, Failed, Sample
from evaluators._intervals import interval, log_ratios
from evaluators._reference import ReferenceFailed
from evaluators._tensors import to_device

_WARM_UP_CALLS = 3
_MOST_LOOPS = 64
_MOST_SETS = 16
_SUPPLY_NS = 8_000_000
_SLOW_SAMPLE_MS = 20.0
_OUTSIDE_TRIES = 6
_OUTSIDE_BURST_NS = 2_000_000
_OUTSIDE_RATIO = 1.25
_OUTSIDE_RATIO_NOISY = 10.0
_OUTSIDE_SLACK_MS = 0.01
_MOST_BURST_CALLS = 256
_BUSY_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how finely to measure."""

    looks: Sequence[int]
    """Numbers of blocks after which the interval is looked at; the last is the end."""
    half_width: float
    """Half-width of the log ratio's interval that is narrow enough to stop."""
    budget_s: float
    """Stop past this time, at the first look's number of blocks or above."""
    limit_s: float
    """Stop past this time whatever the number of blocks."""
    sample_ms: float
    """Calls are repeated inside one sample until the slower arm takes so long."""
    noise: float
    """Ratio of the two baselines that counts as noise, above 1."""


@dataclass
class Session:
    """Samples of a session, one per block and arm, in milliseconds per call."""

    inner_loops: int
    kernel_ms: list[float] = field(default_factory=list)
    eager_ms: list[float] = field(default_factory=list)
    again_ms: list[float] = field(default_factory=list)
    positions: dict[str, list[int]] = field(
        default_factory=lambda: {"kernel": [], "eager": [], "again": []}
    )
    clocks: list[tuple[int, int]] = field(default_factory=list)
    noisy: bool = False


@dataclass(frozen=True)
class Sources:
    """Where a session's inputs and expected outputs come from."""

    inputs: Callable[[int], list[Any]]
    """Inputs of a secret seed."""
    check: Callable[[list[Any], Any], None]
    """Raises Failed where an output is not the answer to the inputs."""
    clocks: Callable[[], tuple[int, int] | None]
    """Clock and temperature of the device."""


def measure(kernel: Arm, eager: Arm, again: Arm, sources: Sources, plan: Plan) -> Session:
    """Time a kernel against the eager baseline.

    Raises Failed: timer_mismatch where the kernel's own times do not hold against the judge's
    clock or it works on after it has returned, memorised_output where a timed call gave a wrong
    answer, and whatever the kernel's worker fails with.
    """
    draw = random.Random(secrets.randbits(64))
    arms = {"kernel": kernel, "eager": eager, "again": again}
    pool = _Pool(sources.inputs, tuple(arms.values()))
    pool.refill()
    kernel_ns, eager_ns = [statistics.median(_warm_up(arm, pool)) for arm in arms.values()][:2]
    session = Session(_inner_loops(kernel_ns, eager_ns, plan.sample_ms))
    pool.resize(session.inner_loops)
    verified = set(draw.sample(range(plan.looks[0]), min(4, plan.looks[0])))
    busy_ns = idle_ns = 0
    begin = time.monotonic()
    for block in range(plan.looks[-1]):
        slots = pool.refill()
        for position, name in enumerate(draw.sample(list(arms), 3)):
            arm = arms[name]
            cpu_ns, turn_ns = kernel.cpu_ns(), time.perf_counter_ns()
            arm.flush()
            sample = arm.time(slots)
            if arm is not kernel:
                busy_ns += kernel.cpu_ns() - cpu_ns
                idle_ns += time.perf_counter_ns() - turn_ns
            _keep(session, name, position, sample)
            if name == "kernel" and (block in verified or draw.random() < 0.1):
                sources.check(pool.held[slots[-1]], arm.output(0))
        clock = sources.clocks()
        if clock is not None:
            session.clocks.append(clock)
        if _enough(session, plan, time.monotonic() - begin):
            break
    if busy_ns > _BUSY_SHARE * idle_ns:
        message = f"worked on for {busy_ns / idle_ns:.0%} of the time in which it was not called"
        raise Failed("rejected", "timer_mismatch", message)
    session.noisy = _noisy(session, plan.noise)
    _hold_against_outside_clock(kernel, session, pool)
    return session


class _Pool:
    """Input sets that lie in both workers; some are replaced by fresh ones before every block."""

    def __init__(self, inputs: Callable[[int], list[Any]], arms: tuple[Arm, ...]) -> None:
        self._inputs = inputs
        self._arms = arms
        self._size = 1
        self._fresh = 1
        self._next = 0
        self._loops = 1
        self._cost_ns = 0
        self.held: dict[int, list[Any]] = {}
        """What each slot holds, on the judge's side."""

    def resize(self, loops: int) -> None:
        """Hold a set per inner loop up to a limit, and renew as many as is cheap."""
        self._loops = loops
        self._size = min(loops, _MOST_SETS)
        self._fresh = max(1, min(self._size, _SUPPLY_NS // max(1, self._cost_ns)))
        for slot in range(1, self._size):
            self._fill(slot)

    def refill(self) -> list[int]:
        """Renew the next sets; returns the slots of one sample, the renewed ones last."""
        renewed = [(self._next + step) % self._size for step in range(self._fresh)]
        self._next = (self._next + self._fresh) % self._size
        for slot in renewed:
            self._fill(slot)
        return [(renewed[-1] - step) % self._size for step in range(self._loops)][::-1]

    def slots(self, calls: int) -> list[int]:
        """So many slots in turn."""
        return [step % self._size for step in range(calls)]

    def _fill(self, slot: int) -> None:
        begin = time.perf_counter_ns()
        self.held[slot] = self._inputs(secrets.randbits(48))
        on_host = to_device(self.held[slot], "cpu")
        for arm in self._arms:
            arm.fill(slot, on_host)
        self._cost_ns = time.perf_counter_ns() - begin


def _warm_up(arm: Arm, pool: _Pool) -> list[int]:
    return [arm.time(pool.slots(1)).reported_ns for _ in range(_WARM_UP_CALLS)]


def _inner_loops(kernel_ns: float, eager_ns: float, sample_ms: float) -> int:
    """Calls per sample, the same for both arms, so that both find the caches equally cold."""
    slow_ms, fast_ms = max(kernel_ns, eager_ns) / 1e6, max(min(kernel_ns, eager_ns) / 1e6, 1e-3)
    wanted = max(sample_ms / max(slow_ms, 1e-3), sample_ms / 10 / fast_ms)
    affordable = _SLOW_SAMPLE_MS / max(slow_ms, 1e-3)
    return max(1, min(math.ceil(wanted), math.floor(affordable), _MOST_LOOPS))


def _keep(session: Session, name: str, position: int, sample: Sample) -> None:
    per_call_ms = sample.reported_ns / session.inner_loops / 1e6
    if not sample.reported_ns > 0:
        message = f"a call is reported to take {sample.reported_ns} ns"
        if name != "kernel":
            raise ReferenceFailed(f"the eager baseline cannot be timed: {message}")
        raise Failed("rejected", "timer_mismatch", message)
    getattr(session, f"{name}_ms").append(per_call_ms)
    session.positions[name].append(position)


def _enough(session: Session, plan: Plan, elapsed_s: float) -> bool:
    blocks = len(session.kernel_ms)
    if elapsed_s > plan.limit_s:
        return True
    if blocks < plan.looks[0]:
        return False
    if elapsed_s > plan.budget_s:
        return True
    if blocks not in plan.looks:
        return False
    low, _, high = interval(log_ratios(session.eager_ms, session.kernel_ms))
    return high - low <= 2 * plan.half_width


def _noisy(session: Session, noise: float) -> bool:
    """Whether the two baselines differ, or differ so erratically that nothing can be said."""
    low, _, high = interval(log_ratios(session.eager_ms, session.again_ms))
    bound = math.log(noise)
    return low > bound or high < -bound or high - low > 2 * math.log(1 + 4 * (noise - 1))


def _hold_against_outside_clock(kernel: Arm, session: Session, pool: _Pool) -> None:
    """Compare the kernel's reported time with the slope of the judge's own wall clock.

    Two bursts of n and 3n calls differ by 2n calls and by nothing else, so messages, wake-ups and
    synchronisation cancel out. A busy machine can only make the slope too steep, and not every
    time, so the flattest of several tries counts. A session that failed its noise control cannot be
    ranked anyway: there only a gross mismatch is held against the kernel.
    """
    calls = 1
    while calls < _MOST_BURST_CALLS and _wall_ns(kernel, pool, calls) < _OUTSIDE_BURST_NS:
        calls *= 4
    reported_ms = statistics.median(session.kernel_ms)
    ratio = _OUTSIDE_RATIO_NOISY if session.noisy else _OUTSIDE_RATIO
    slope_ms = math.inf
    for _ in range(_OUTSIDE_TRIES):
        slope_ms = min(slope_ms, _slope_ms(kernel, pool, calls))
        if slope_ms <= ratio * reported_ms + _OUTSIDE_SLACK_MS:
            return
    message = f"reports {reported_ms:.4g} ms a call where the judge's clock sees {slope_ms:.4g} ms"
    raise Failed("rejected", "timer_mismatch", message)


def _slope_ms(arm: Arm, pool: _Pool, calls: int) -> float:
    """Wall time of one more call, in milliseconds."""
    return (_wall_ns(arm, pool, 3 * calls) - _wall_ns(arm, pool, calls)) / (2 * calls) / 1e6


def _wall_ns(arm: Arm, pool: _Pool, calls: int) -> int:
    return arm.time(pool.slots(calls)).wall_ns
