"""The measurement of a session: blocks of samples until the stopping rule ends it."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Mapping, Sequence

from evaluators.clock.rounds import EmptyRounds, RoundTime
from evaluators.device.host_load import read_load
from evaluators.judging.baseline_workers import BaselineWorkers
from evaluators.timing.arms import SessionArm, list_arms, set_calls
from evaluators.timing.checks import latency_check, noise_control
from evaluators.timing.checks.cpu_watch import CpuWatch
from evaluators.timing.checks.output_checks import OutputChecks
from evaluators.timing.input_pool import InputPool
from evaluators.timing.plan import CLOCKS, Plan, Sources, count_most_calls
from evaluators.timing.session import EMPTY, Session
from evaluators.timing.stopping_rule import should_stop
from evaluators.timing.warm_up import EMPTY_CALLS, warm_up
from evaluators.worker.handle import Failed, LaunchBlocked, Manner, Sample, WorkerHandle
from store.schema.clocks import Clock

_FEWEST_CHECKED = 3
"""Blocks of the first look whose outputs are checked, whatever is drawn."""
_FEWEST = 2
_FEWEST_BOUNDED = 7
"""Blocks of a clock after which a median has a confidence interval."""
_LONGER = 3.0
"""They may take this many times as long as planned."""


def measure(
    kernel: WorkerHandle, baselines: BaselineWorkers, sources: Sources, plan: Plan
) -> Session:
    """Time a kernel against every prepared baseline.

    Raises Failed: memorised_output or incorrect_numerical if a timed call gave a wrong answer,
    input_mutated if one changed its inputs, timer_mismatch if an answer is reported before it can
    exist, or any failure of the kernel's worker.
    """
    clocks = CLOCKS[kernel.device]
    if clocks[0] == "gpu":
        with contextlib.suppress(LaunchBlocked):
            return _measure(kernel, baselines, sources, plan, clocks)
        clocks = clocks[1:]
    return _measure(kernel, baselines, sources, plan, clocks)


def _measure(
    kernel: WorkerHandle,
    baselines: BaselineWorkers,
    sources: Sources,
    plan: Plan,
    clocks: Sequence[Clock],
) -> Session:
    draw = random.Random(secrets.randbits(64))
    pool = InputPool(sources.draw, (kernel, *baselines.workers))
    for _ in range(2):  # the first fill allocates, and does not tell what a further one takes
        pool.refill()
    checks = OutputChecks(kernel, baselines.main, sources, pool, draw)
    watch = CpuWatch(kernel)
    block = Block(baselines, kernel, sources, pool, draw, checks, watch)
    session = block.begin(clocks[0], plan)
    checked = set(draw.sample(range(plan.looks[0]), _FEWEST_CHECKED))
    begin = time.monotonic()
    for number in range(plan.looks[-1]):
        block.measure(session, is_checked=number in checked)
        is_over = should_stop(session, plan, time.monotonic() - begin)
        if is_over and not checks.has_checked:  # a session that is cut short
            block.measure(session, is_checked=True)
        if is_over:
            break
    for clock in clocks[1:] if plan.further_blocks else ():
        session.further.append(_measure_further(block, clock, plan, session))
    latency_check.reject_early_work(session)
    watch.reject_busy()
    if checks.is_unverified:
        session.flags.add("timed_outputs_unverified")
    if watch.uses_more_threads():
        session.flags.add("more_threads")
        session.mark_disturbed()
    if kernel.shares_device():
        session.flags.add("shares_device")
        session.mark_disturbed()
    if kernel.device == "cuda" and session.clock != "gpu":
        session.flags.add("timed_end_to_end")
    noise_control.mark_noise(session, plan.noise)
    return session


def _measure_further(block: Block, clock: Clock, plan: Plan, main: Session) -> Session:
    """Measure some blocks by another clock than the main session's."""
    session = block.begin(clock, plan, similar=[main, *main.further][-1])
    begin = time.monotonic()
    for number in range(plan.further_blocks):
        elapsed_s = time.monotonic() - begin
        fewest = _FEWEST_BOUNDED if elapsed_s < _LONGER * plan.further_s else _FEWEST
        if number >= fewest and elapsed_s > plan.further_s:
            break
        block.measure(session, is_checked=False)
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
        self._empty = EmptyRounds()
        self._has_gated = False
        self._is_frozen = True
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
        self._pool.begin(
            loops or 1,
            most_calls=count_most_calls(clock, manner),
            untimed=int(manner == "at_opening" or (manner == "in_burst" and self._pool.size > 1)),
        )
        self._pool.refill()
        if manner == "behind_gate":
            self._load_baseline_kernels()
        self._empty = EmptyRounds()
        self._is_frozen = manner != "at_opening"
        self._arms = list_arms(self._kernel, self._baselines, manner)
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
                similar=similar,
            )
            counts, empty = warm.loops, warm.empty
        if manner in ("behind_gate", "at_opening"):
            empty = empty or {EMPTY: self._time_empty(self._pool.refill(), cold=cold)}
            self._empty.add([one for sample in empty[EMPTY] for one in sample.rounds])
        if self._checks is not None:
            self._checks.follow_state()
        session = Session.of(counts, self._arms, clock)
        session.warm_up_ms = {
            name: [
                self._compute_elapsed_ns(name, sample) / session.inner_loops[name] / 1e6
                for sample in samples
            ]
            for name, samples in empty.items()
        }
        return session

    def _time_empty(self, slots: list[int], *, cold: bool) -> list[Sample]:
        return [self._arms[EMPTY].time(slots, cold=cold) for _ in range(EMPTY_CALLS)]

    def _choose_manner(self, clock: Clock) -> Manner:
        """Return how to time samples of a clock.

        On a processor, a candidate is frozen while its inputs are written. On a GPU, times from the
        opening of a gate are accurate to a few microseconds, but a candidate runs while its inputs
        are written and could begin early. They count only beside the clock `gpu`, which ranks, and
        which bounds a latency (`checks.latency_check`). They need a second set of inputs, for a
        call that is not timed.
        """
        if clock == "gpu":
            self._has_gated = True
            return "behind_gate"
        if self._pool.device == "cpu":
            return "in_burst"
        return "at_opening" if self._has_gated and self._pool.size > 1 else "end_to_end"

    def _load_baseline_kernels(self) -> None:
        """Call every baseline once outside the gate.

        The driver loads a GPU kernel's code at its first launch and waits for the GPU to do so,
        which would never be idle behind the gate. The candidate has been called before.
        """
        slots = self._pool.refill()
        for name in self._baselines.prepared:
            self._baselines.time(name, slots)

    def measure(self, session: Session, *, is_checked: bool) -> None:
        """Add a block to a session.

        is_checked: check calls of the kernel; otherwise a draw decides whether to.
        """
        slots = self._pool.refill()
        cold = session.clock != "throughput"
        for position, name in enumerate(self._draw.sample(list(self._arms), len(self._arms))):
            arm = self._arms[name]
            if arm.untimed:
                with self._watch_turn(arm):
                    arm.call_untimed(slots)
            with self._watch_turn(arm):
                sample = arm.time(slots, cold=cold)
            if name == "kernel":
                self._reject_early_report(sample, slots, cold=cold)
            elapsed_ns = self._compute_elapsed_ns(name, sample)
            if name == "kernel" and self._checks is not None:
                # Drawn after the call, while the kernel's worker is frozen.
                is_drawn = is_checked or self._draw.random() < self._checked_share
                calls = slots[:1] * arm.untimed + arm.select_slots(slots)
                elapsed_ns += self._checks.end_sample(sample, calls, is_drawn=is_drawn)
            session.add_sample(name, position, elapsed_ns)
        session.readings.append(self._sources.clocks())
        session.loads.append(read_load())
        session.subtract_overhead()

    def _watch_turn(self, arm: SessionArm) -> contextlib.AbstractContextManager[None]:
        """Watch a turn of an arm. A burst is one by itself: untimed calls make it no room."""
        return self._watch.watch(arm.worker) if self._watch else contextlib.nullcontext()

    def _compute_elapsed_ns(self, name: str, sample: Sample) -> int:
        if not sample.rounds:
            return sample.elapsed_ns
        elapsed_ns = self._empty.elapsed_ns(sample.rounds)
        if name == EMPTY:
            self._empty.add(sample.rounds)
        return elapsed_ns

    def _reject_early_report(self, sample: Sample, slots: list[int], *, cold: bool) -> None:
        def time_more() -> list[RoundTime]:
            return [one for empty in self._time_empty(slots, cold=cold) for one in empty.rounds]

        if self._is_frozen and self._empty.has_early_report(sample.rounds, time_more):
            message = "a call is reported as done before the GPU can have turned to it"
            raise Failed("rejected", "timer_mismatch", message)
