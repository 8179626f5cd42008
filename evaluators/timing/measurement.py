"""The measurement of a session: blocks of samples until the stopping rule ends it."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.clock.rounds import EmptyRounds, RoundTime
from evaluators.device.host_load import read_load
from evaluators.judging.baseline_workers import BaselineWorkers
from evaluators.timing.arms import SessionArm, list_arms, set_calls
from evaluators.timing.checks import latency_check, noise_control
from evaluators.timing.checks.cpu_watch import CpuWatch
from evaluators.timing.checks.output_checks import OutputChecks
from evaluators.timing.input_pool import InputPool
from evaluators.timing.pinned_cores import PinnedCores
from evaluators.timing.plan import CLOCKS, Plan, Sources, count_most_calls
from evaluators.timing.session import EMPTY, EMPTY_KERNEL, Session
from evaluators.timing.stopping_rule import should_stop
from evaluators.timing.warm_up import EMPTY_CALLS, warm_up
from evaluators.worker.baselines import BASELINES
from evaluators.worker.handle import Failed, LaunchBlocked, Manner, Sample, WorkerHandle
from store.schema.clocks import Clock

_FEWEST_CHECKED = 3
"""Blocks of the first look whose outputs are checked, whatever is drawn."""
_FEWEST = 2
_FEWEST_BOUNDED = 7
"""Blocks of a clock after which a median has a confidence interval."""
_DRAWN = 2
"""Input sets that are drawn before a session, for each block of its first look."""
_LONGER = 3.0
"""They may take this many times as long as planned."""


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


def measure(
    kernel: WorkerHandle,
    baselines: BaselineWorkers,
    sources: Sources,
    plan: Plan,
    pool: InputPool,
) -> Session:
    """Time a kernel against every prepared baseline, with a pool of `prepare_pool`.

    Raises Failed: memorised_output or incorrect_numerical if a timed call gave a wrong answer,
    input_mutated if one changed its inputs, timer_mismatch if an answer is reported before it can
    exist, or any failure of the kernel's worker.
    """
    clocks = CLOCKS[kernel.device]
    if clocks[0] == "gpu":
        with contextlib.suppress(LaunchBlocked):
            return _measure(kernel, baselines, sources, plan, pool, clocks)
        clocks = clocks[1:]
    return _measure(kernel, baselines, sources, plan, pool, clocks)


def _measure(
    kernel: WorkerHandle,
    baselines: BaselineWorkers,
    sources: Sources,
    plan: Plan,
    pool: InputPool,
    clocks: Sequence[Clock],
) -> Session:
    draw = random.Random(secrets.randbits(64))
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
    further = clocks[1:] if plan.further_blocks else ()
    block.leave_out_compiled()
    on_gpu = kernel.device == "cuda" and bool(further)
    with PinnedCores([kernel, *baselines.workers] if on_gpu else []) as cores:
        for clock in further:
            session.further.append(_measure_further(block, clock, plan, session, cores))
    if not cores.has_held:
        session.flags.add("unpinned")
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


def _measure_further(
    block: Block, clock: Clock, plan: Plan, main: Session, cores: PinnedCores
) -> Session:
    """Measure some blocks by another clock than the main session's."""
    cores.choose()
    session = block.begin(clock, plan, similar=[main, *main.further][-1])
    begin = time.monotonic()
    for number in range(plan.further_blocks):
        elapsed_s = time.monotonic() - begin
        fewest = _FEWEST_BOUNDED if elapsed_s < _LONGER * plan.further_s else _FEWEST
        if number >= fewest and elapsed_s > plan.further_s:
            break
        cores.choose()
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
        self._empty: dict[str, EmptyRounds] = {}
        self._has_gated = False
        self._is_behind_gate = False
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
            untimed=int(manner == "in_burst" and self._pool.size > 1),
        )
        self._pool.refill()
        self._empty = {EMPTY: EmptyRounds(), EMPTY_KERNEL: EmptyRounds()}
        self._is_behind_gate = manner == "behind_gate"
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
                in_burst=manner == "in_burst",
                similar=similar,
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
                self._compute_elapsed_ns(name, sample) / session.inner_loops[name] / 1e6
                for sample in samples
            ]
            for name, samples in empty.items()
        }
        return session

    def leave_out_compiled(self) -> None:
        """Time no compiled baselines from here on, so that the device is held for less time.

        They compete on the device; what their launches cost is that of eager or of a graph.
        """
        prepared = {
            name: seconds
            for name, seconds in self._baselines.prepared.items()
            if not BASELINES[name].compiles
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
        which bounds a latency (`checks.latency_check`). They need a second set of inputs, for the
        calls that are not timed.
        """
        if clock == "gpu":
            self._has_gated = True
            return "behind_gate"
        can_burst = self._pool.device == "cpu" or (self._has_gated and self._pool.size > 1)
        return "in_burst" if can_burst else "end_to_end"

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
            # What is divided by the calls of a sample has as many.
            assert len(sample.kept) == session.inner_loops[name]
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
        has_own = name in ("kernel", EMPTY_KERNEL) and EMPTY_KERNEL in self._arms
        empty = self._empty[EMPTY_KERNEL if has_own else EMPTY]
        elapsed_ns = empty.elapsed_ns(sample.rounds)
        if name in (EMPTY, EMPTY_KERNEL):
            empty.add(sample.rounds)
        if name == EMPTY and self._is_behind_gate:
            elapsed_ns -= len(sample.rounds) * time_empty_kernel()
        return elapsed_ns

    def _reject_early_report(self, sample: Sample, slots: list[int], *, cold: bool) -> None:
        def time_more() -> list[RoundTime]:
            samples = self._time_empty(EMPTY, slots, cold=cold)
            return [one for sample in samples for one in sample.rounds]

        is_gated = self._is_behind_gate
        if is_gated and self._empty[EMPTY].has_early_report(sample.rounds, time_more):
            message = "a call is reported as done before the GPU can have turned to it"
            raise Failed("rejected", "timer_mismatch", message)
