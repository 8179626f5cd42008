"""One timing session: a kernel and its baselines measured in turns, block by block.

A block is one sample of every arm in random order on the same fresh inputs: the kernel, each
baseline, and eager once more in a process of its own. The two eager arms are the session's noise
control (`timing.checks.noise_control`).

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

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evaluators.device.fingerprint import Reading
from evaluators.device.host_load import Load
from evaluators.timing.intervals import bound_median, compute_log_ratios
from store.schema.clocks import RESOLVED, Clock

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
        return statistics.median(raw) if raw else None

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
