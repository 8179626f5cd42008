"""One timing session: a kernel and its baselines measured in turns, block by block.

A block is one sample of every arm in random order on the same fresh inputs: the kernel, each
baseline, and eager once more in a process of its own. The two eager arms are the session's noise
control (`timing.checks.mark_noise`).

The judge's own clock times a sample. A burst has enough calls for some milliseconds, after a few
that are not timed. It runs from the moment before a worker is thawed with fresh inputs in its
memory to the moment at which everything it has started is frozen again, or on a GPU to its report
that all streams are done. Its answer is what its memory then contains. By the clock `gpu`, calls
are launched behind a gate, their worker is frozen, and the judge times from opening the gate to the
report that the call is done (`clock.rounds`). A kernel whose launches wait for the GPU is timed end
to end by the judge's processor, as all arms are then. Which calls of a sample are checked is drawn
afterwards. An empty arm returns a ready answer. Its time is the cost of passing inputs and outputs,
which is subtracted from every sample.

A session stops early if every baseline is known well enough (`timing.stopping_rule`). A short
session by each further clock follows, with the same arms except compiled baselines.
"""

from __future__ import annotations

import functools
import math
import secrets
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from evaluators.device.fingerprint import Reading
from evaluators.device.timing_conditions import Load
from evaluators.judging.bench import BaselineWorkers
from evaluators.memory.tensors import LaidOut, lay_out
from evaluators.memory.values import tensors_of
from evaluators.timing.intervals import bound_median, compute_log_ratios, read_fallback_spreads
from evaluators.worker.handle import Manner, Sample, WorkerHandle
from store.ids import uuid7
from store.schema.clocks import RESOLVED, Clock

CLOCKS: dict[str, tuple[Clock, ...]] = {
    "cuda": ("gpu", "latency", "throughput"),
    "cpu": ("throughput", "latency"),
}
"""The clocks of each kind of device. The first one that can time the kernel decides when the
session ends, and ranks."""
_MOST_CALLS = {"cpu": 256, "cuda": 128}
"""Timed calls of a sample, at most. On a GPU the first calls of a burst take 80 to 200 µs longer in
all, which is at most 5 % of 128 calls of 30 µs; more calls would hold the device for longer."""


def count_most_calls(device: str, clock: Clock, manner: Manner) -> int:
    """Return how many calls one sample of a clock can have, at most."""
    return _MOST_CALLS[device] if clock == "throughput" or manner == "in_burst" else 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how finely to measure."""

    looks: Sequence[int] = (20, 40, 80, 160)
    """Numbers of blocks after which the intervals are examined; the last is the maximum."""
    half_width: float
    """Half-width of a log ratio's interval that is narrow enough to stop."""
    budget_s: float
    """Stop after this time, if the session has the blocks of the first look."""
    limit_s: float
    """Stop after this time with any number of blocks."""
    sample_ms: float
    """Calls are repeated inside one sample until eager, or in a burst each arm, takes this long."""
    noise: float = 1.05
    """Ratio of the two eager arms that counts as noise, above 1."""
    further_blocks: int = 7
    """Blocks of each clock beside the one that decides when a session ends; 0 reads no other."""
    checked_share: float = 1 / 8
    """Share of the samples whose answers are compared, besides three of the first look."""
    further_s: float = 0.5
    """Stop such a clock after this time if it has seven blocks; three times as long, if two."""
    spreads: Mapping[Clock, float] = field(default_factory=read_fallback_spreads)
    """Spread of sessions by clock; by default that of a GPU without an estimate."""


@dataclass(frozen=True)
class Sources:
    """Where a session's inputs and expected outputs come from."""

    draw: Callable[[Sequence[int]], list[list[Any]]]
    """Returns the input sets of secret seeds."""
    check: Callable[[list[Any], Any, Any], None] | None
    """Takes the inputs of a call, its output and its inputs after it, and raises Failed if the
    output is not the answer; None if it cannot be checked."""
    clocks: Callable[[], Reading | None]
    """Reads the state of the device."""
    follow_state: Callable[[Sequence[list[Any]], WorkerHandle], int] | None = None
    """Checks the state of the kernel's module after calls; see `CorrectnessProtocol`."""


_SUPPLY_NS = {"cpu": 20_000_000, "cuda": 40_000_000}
"""Nanoseconds that renewing all sets of a block may take."""
_BATCH_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
_MOST_TENSORS = 1024
"""Tensors that the answer to one request describes, at most: a message has 128 KiB."""
_MOST_AHEAD = 32
"""Input sets that are drawn with one request, at most, beyond those of the present block."""


def spare_memory(device: str) -> int:
    """Return the bytes of inputs, or of answers, that a session keeps aside, at most."""
    return min(4 << 30, torch.cuda.mem_get_info()[0] // 16) if device == "cuda" else 1 << 28


class InputPool:
    """Input sets that every worker holds, one for each call of a sample.

    All are replaced by fresh ones before every block: a kernel could recognize inputs that it has
    seen before, and keep their answers.
    """

    def __init__(
        self,
        draw: Callable[[Sequence[int]], list[list[Any]]],
        workers: Sequence[WorkerHandle],
    ) -> None:
        """`draw` returns the input sets of some seeds."""
        self._draw = draw
        self._workers = workers
        self.device = workers[0].device
        """Kind of device of all of them."""
        self.calls = 1
        """Timed calls of a sample."""
        self._untimed = 0
        self._most_calls = 1
        self._batch = 1
        self._cost_ns = 0.0
        self._drawing_ns = 0.0
        self._ahead: deque[list[Any]] = deque()
        self.sets: dict[int, list[Any]] = {}
        """The inputs of each slot, on the judge's side."""

    @property
    def size(self) -> int:
        """Sets that every worker can hold."""
        return min(worker.slots for worker in self._workers)

    def count_affordable(self) -> int:
        """Return how many calls a sample can have, with a set each that is renewed every block."""
        renewed = int(_SUPPLY_NS[self.device] / max(1.0, self._cost_ns))
        return max(1, min(renewed, self.count_held()))

    def count_held(self) -> int:
        """Return how many calls a sample can have, with a set each that every worker holds."""
        described = min(worker.reply_calls for worker in self._workers)
        return max(1, min(self._most_calls, self.size - self._untimed, described))

    def count_drawn_at_once(self, most: int) -> int:
        """Return how many sets, up to a number, are drawn with one request and held."""
        return min(most, self._batch, self.size)

    def begin(self, calls: int, *, most_calls: int = 1, untimed: int = 0) -> None:
        """Hold a set for each of `calls` timed calls, and for calls before them.

        most_calls: Timed calls of a sample, at most.
        untimed: Further calls at the beginning of a sample.
        """
        self.calls = calls
        self._most_calls = most_calls
        self._untimed = untimed

    def refill(self) -> list[int]:
        """Renew every set; returns the slots of one sample."""
        slots = list(range(self.calls + self._untimed))
        filling_ns = 0
        for slot in slots:
            if not self._ahead:
                self._draw_ahead(len(slots) - slot)
            begin = time.perf_counter_ns()
            self.sets[slot] = self._ahead.popleft()
            laid_out: LaidOut | None = None
            for worker in self._workers:
                laid_out = worker.fill(slot, self.sets[slot], known=laid_out)
            filling_ns += time.perf_counter_ns() - begin
        drawing_ns = 0.0 if self._ahead else self._drawing_ns
        self._cost_ns = drawing_ns + filling_ns / len(slots)
        tensors = len(list(tensors_of(self.sets[0])))
        each_bytes = max(1, lay_out(self.sets[0]).end)
        most = min(_BATCH_BYTES[self.device] // each_bytes, _MOST_TENSORS // max(1, tensors))
        self._batch = max(1, most)
        return slots

    def stage(self, worker: WorkerHandle) -> None:
        """Have the sets written again, as they were drawn, for a worker that was called on them."""
        for slot in range(self.calls + self._untimed):
            if not worker.has_staged(slot):
                worker.fill(slot, self.sets[slot])

    def draw_ahead(self, sets: int) -> None:
        """Prepare this many sets of inputs for later blocks, or fewer where memory is short."""
        each_bytes = max(1, lay_out(self.sets[0]).end)
        sets = min(sets, spare_memory(self.device) // each_bytes)
        while (missing := sets - len(self._ahead)) > 0:
            self._draw_ahead(missing)

    def _draw_ahead(self, needed: int) -> None:
        """Draw sets with one request: those still needed, and small ones also for later blocks."""
        count = min(self._batch, max(needed, _MOST_AHEAD))
        begin = time.perf_counter_ns()
        self._ahead.extend(self._draw([secrets.randbits(48) for _ in range(count)]))
        self._drawing_ns = (time.perf_counter_ns() - begin) / count


EAGER_CONTROL = "eager_control"
"""The arm of the noise control: eager in a process of its own. Its ratios to eager are stored."""
EMPTY = "empty"
"""The arm that does nothing; its time is subtracted from every sample."""
EMPTY_KERNEL = "empty_kernel"
"""The same with as many calls as a sample of the kernel, where that differs from other arms."""
_LOW_CLOCK = 0.9
_LEAST_RESOLUTION_MS = 1e-6
_ENOUGH_EMPTY = 20
"""Samples of the empty arm that need none of the warm-up beside them."""


@dataclass
class Session:
    """Samples of a session, one per block and arm, in milliseconds per call."""

    inner_loops: dict[str, int]
    """Calls of a sample, by arm."""
    clock: Clock
    samples_ms: dict[str, list[float]]
    """By arm: kernel, each baseline, and the eager control, without the cost of passing values."""
    raw_ms: dict[str, list[float]] = field(default_factory=dict)
    """The same with that cost, and the empty arms if there are any."""
    positions: dict[str, list[int]] = field(default_factory=dict)
    """Place of each arm in the random order of each block."""
    warm_up_ms: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Times of the empty arms in the warm-up, per call. They count in a session of few blocks."""
    readings: list[Reading | None] = field(default_factory=list)
    """Clocks after each block; None if the device does not report them."""
    loads: list[Load] = field(default_factory=list)
    """Load of the host after each block."""
    early_ms: list[float] = field(default_factory=list)
    """Time in which the kernel's samples in bursts on a GPU had inputs before their first call, for
    each of their calls."""
    slowed: int = 0
    """Number of samples whose core was slowed down at every try."""
    further: list[Session] = field(default_factory=list)
    """Times of the same arms by other clocks."""
    disturbed: bool = False
    """Whether it ranks nothing: it contradicts itself, or its host or device was taken away."""
    noisy: bool = False
    """Whether it is disturbed, wide or unresolved."""
    flags: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, inner_loops: int | Mapping[str, int], arms: Iterable[str], clock: Clock) -> Session:
        """Return a session without blocks. A single number of calls holds for all arms."""
        names = list(arms)
        timed = [name for name in names if name not in (EMPTY, EMPTY_KERNEL)]
        loops = dict.fromkeys(names, inner_loops) if isinstance(inner_loops, int) else inner_loops
        return cls(
            dict(loops),
            clock,
            {name: [] for name in timed},
            {name: [] for name in names},
            {name: [] for name in names},
        )

    def add_sample(self, arm: str, position: int, elapsed_ns: int) -> None:
        """Add the sample of an arm; `subtract_overhead` removes the cost of passing values."""
        self.raw_ms[arm].append(elapsed_ns / self.inner_loops[arm] / 1e6)
        self.positions[arm].append(position)

    def mark_disturbed(self) -> None:
        """Let the session rank nothing."""
        self.disturbed = self.noisy = True

    def is_unresolved(self, arm: str) -> bool:
        """Whether an arm is too short for the clock: samples at the least that they count as."""
        return statistics.median(self.samples_ms[arm]) <= self.compute_least(arm)

    def subtract_overhead(self) -> None:
        """Derive the samples from the measured times and the overhead of the session so far.

        A sample below the resolution of the clock counts as the resolution: an arm is never
        credited with a speed that was not measured.
        """
        for arm in self.samples_ms:
            overhead_ms, least_ms = self.compute_overhead(arm) or 0.0, self.compute_least(arm)
            self.samples_ms[arm] = [max(raw - overhead_ms, least_ms) for raw in self.raw_ms[arm]]

    def compute_least(self, arm: str) -> float:
        """Return the shortest time of a call of an arm that the clock can measure, in ms."""
        return RESOLVED * (self.compute_resolution(arm) or 0.0)

    def compute_overhead(self, arm: str) -> float | None:
        """Return the cost of passing values to an arm, in ms per call; None without empty arm."""
        raw = self._list_empty_ms(arm)
        return max(0.0, statistics.median(raw)) if raw else None

    def compute_resolution(self, arm: str) -> float | None:
        """Return the uncertainty of that cost: half of the interval of its median."""
        raw = self._list_empty_ms(arm)
        if not raw:
            return None
        low, _, high = bound_median(raw)
        bounds = (low, high) if math.isfinite(high - low) else (min(raw), max(raw))
        return max((bounds[1] - bounds[0]) / 2, _LEAST_RESOLUTION_MS)

    def compute_medians(self) -> dict[str, float]:
        """Return the median time of a call of each arm, with the cost of passing values, in ms."""
        return {arm: statistics.median(raw) for arm, raw in self.raw_ms.items() if raw}

    def compute_call_medians(self) -> dict[str, float]:
        """Return the median time of a call of each arm, without that cost, in ms."""
        return {arm: statistics.median(samples) for arm, samples in self.samples_ms.items()}

    def _list_empty_ms(self, arm: str) -> list[float]:
        """Return times of an empty arm; one outlier among few would hide every other figure."""
        name = EMPTY_KERNEL if arm == "kernel" and EMPTY_KERNEL in self.raw_ms else EMPTY
        raw = self.raw_ms.get(name, [])
        return raw if len(raw) >= _ENOUGH_EMPTY else [*self.warm_up_ms.get(name, ()), *raw]

    @property
    def baselines(self) -> list[str]:
        """The arms that the kernel is compared with."""
        return [name for name in self.samples_ms if name not in ("kernel", EAGER_CONTROL)]

    def find_dropped_blocks(self) -> set[int]:
        """Return the blocks in which the device was slowed down, for all arms alike.

        The hardware held its clocks down, or the clock of the multiprocessors was below 90 % of its
        median over the session.
        """
        clocks = [reading.sm_mhz for reading in self.readings if reading is not None]
        usual = statistics.median(clocks) if clocks else 0
        return {
            block
            for block, reading in enumerate(self.readings)
            if reading is not None and (reading.slowed or reading.sm_mhz < _LOW_CLOCK * usual)
        }

    def list_kept_blocks(self) -> list[int]:
        """Return the blocks that count: those not dropped, or all where none would be left."""
        blocks = list(range(len(self.readings)))
        dropped = self.find_dropped_blocks()
        return [block for block in blocks if block not in dropped] or blocks

    def bound_ratio(self, over: str, under: str = "kernel") -> tuple[float, float, float]:
        """Return the interval of the log of over / under, over the kept blocks."""
        blocks = self.list_kept_blocks()
        upper, lower = self.samples_ms[over], self.samples_ms[under]
        ratios = compute_log_ratios([upper[b] for b in blocks], [lower[b] for b in blocks])
        return bound_median(ratios)

    def compute_control_ratios(self) -> list[float]:
        """Return eager over eager in its second process, kept blocks alone."""
        eager, control = self.samples_ms["eager"], self.samples_ms[EAGER_CONTROL]
        return [eager[block] / control[block] for block in self.list_kept_blocks()]


_MOST_UNTIMED = 4
_UNTIMED_MS = 1.0
_LONG_MS = 20.0


class TimeSample(Protocol):
    """Times one call per slot named."""

    def __call__(self, slots: list[int], *, cold: bool = False, copies: bool = False) -> Sample:
        """Return the sample.

        Args:
            slots: The slots to call it on, in order.
            cold: Flush the caches of a GPU before each call.
            copies: Copy each output before the next call, within the sample.
        """
        ...


@dataclass(frozen=True)
class SessionArm:
    """One arm of a session: a worker, and how it is timed.

    A sample in a burst has as many calls as fill its time, and a few untimed calls precede it.
    Their inputs are in the first slot, and the judge writes the others after them.
    """

    worker: WorkerHandle
    take: TimeSample
    calls: int | None = None
    """Timed calls of a sample, on the last of the slots; None for a call on every slot."""
    untimed: int = 0
    """Untimed calls before it, on the first slot."""

    def call_untimed(self, slots: list[int]) -> None:
        """Make the untimed calls of a sample."""
        if self.untimed:
            self.take(slots[:1] * self.untimed)

    def time(self, slots: list[int], *, cold: bool = False) -> Sample:
        """Time the calls of a sample."""
        return self.take(self.select_slots(slots), cold=cold)

    def select_slots(self, slots: list[int]) -> list[int]:
        """Return the slots of the timed calls."""
        return slots if self.calls is None else slots[-self.calls :]


def set_calls(
    arms: dict[str, SessionArm], calls: Mapping[str, int], call_ms: Mapping[str, float]
) -> None:
    """Set how many timed and untimed calls the samples of some arms in bursts have.

    call_ms: Time of a call of each arm. What a call takes longer after a pause is a small part of
        a long one, which has no untimed calls.
    """
    for name, count in calls.items():
        untimed = max(1, min(_MOST_UNTIMED, math.floor(_UNTIMED_MS / max(call_ms[name], 1e-3))))
        is_long = call_ms[name] > _LONG_MS
        arms[name] = replace(arms[name], calls=count, untimed=0 if is_long else untimed)


def list_arms(
    kernel: WorkerHandle | None, baselines: BaselineWorkers, manner: Manner
) -> dict[str, SessionArm]:
    """Return the arms of a session by name.

    manner: How to time their samples.
    """
    calls = 1 if manner == "in_burst" else None
    arms: dict[str, SessionArm] = {}
    if kernel is not None:
        arms["kernel"] = SessionArm(kernel, functools.partial(kernel.time, manner=manner), calls)
    for name in baselines.prepared:
        take = functools.partial(baselines.time, name, manner=manner)
        arms[name] = SessionArm(baselines.get_worker(name), take, calls)
    control = baselines.control
    take = functools.partial(control.time, manner=manner, describes=False)
    arms[EAGER_CONTROL] = SessionArm(control, take, calls)
    control.prepare_empty(0, launches=manner != "end_to_end" and control.device == "cuda")
    take_empty = functools.partial(take, variant=EMPTY)
    if manner != "in_burst":
        arms[EMPTY] = SessionArm(control, take_empty)
        return arms
    # Without inputs of its own, so that none have to be written.
    arms[EMPTY] = SessionArm(control, functools.partial(_repeat_first, take_empty), calls)
    if kernel is not None:  # its answers are described as well
        described = functools.partial(_repeat_first, take_empty, describes=True)
        arms[EMPTY_KERNEL] = SessionArm(control, described, calls)
    return arms


def _repeat_first(take: TimeSample, slots: list[int], **how: bool) -> Sample:
    return take(slots[:1] * len(slots), **how)


def iterate_timing_rows(session: Session, shared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a session without evaluation_id, those of the clock that ranks first.

    shared: Columns that all rows of a case have.
    """
    session_id = uuid7()
    for measured in (session, *session.further):
        blocks = measured.list_kept_blocks()
        readings = [measured.readings[block] for block in blocks]
        known = [reading for reading in readings if reading is not None]
        clocks = known if len(known) == len(blocks) else []
        for arm in ("kernel", *measured.baselines):
            yield {
                **shared,
                "session_id": session_id,
                "clock": measured.clock,
                "inner_loops": measured.inner_loops[arm],
                "noisy": measured.noisy,
                "confirmed": False,
                "disturbed": measured.disturbed,
                "unresolved": measured.is_unresolved(arm),
                "overhead_ms": measured.compute_overhead(arm),
                "resolution_ms": measured.compute_resolution(arm),
                "timing_id": uuid7(),
                "arm": arm,
                "samples_ms": [measured.samples_ms[arm][block] for block in blocks],
                "blocks": blocks,
                "positions": [measured.positions[arm][block] for block in blocks],
                "cache": "warm" if measured.clock == "throughput" else "cold",
                "sm_clock_mhz": [reading.sm_mhz for reading in clocks] or None,
                "temperature_c": [reading.temperature_c for reading in clocks] or None,
                "control_ratios": measured.compute_control_ratios() if arm == "kernel" else None,
            }


def mark_disturbed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of sessions that rank nothing."""
    return [{**row, "noisy": True, "disturbed": True} for row in rows]
