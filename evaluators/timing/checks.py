"""Checks of a session: its noise, the load of the host, its times and outputs of timed calls."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.device.roofline import Floor
from evaluators.device.timing_conditions import is_contended
from evaluators.memory.values import tensors_of
from evaluators.sandbox.failures import Failed
from evaluators.timing.session import EAGER_CONTROL, InputPool, Session, Sources
from evaluators.worker.handle import Sample, WorkerHandle

_BUSY_SHARE = 0.1
_MORE_SHARE = 0.1
"""Share of its processor time that may exceed what its threads could use."""
_CPU_SLACK_NS = 2_000_000
# The driver of a GPU cleans up after thousands of launches.
_AFTER_SHARE = {"cuda": 0.05, "cpu": 0.0}


class CpuWatch:
    """Measures the processor time of the kernel's worker in its turns and in those of others."""

    def __init__(self, kernel: WorkerHandle) -> None:
        self._kernel = kernel
        # On a processor the judge writes inputs in a turn, while the worker is frozen.
        self._read_turn_ns = kernel.running_ns if kernel.device == "cpu" else time.perf_counter_ns
        self._own_ns = 0
        self._excess_ns = 0
        self._busy_ns = 0
        self._idle_ns = 0

    @contextlib.contextmanager
    def watch(self, worker: WorkerHandle) -> Generator[None]:
        """Count the processor time of the kernel's worker during a turn of this worker."""
        cpu_ns, begin_ns = self._kernel.cpu_ns(), time.perf_counter_ns()
        turn_ns = self._read_turn_ns()
        yield
        worked_ns = self._kernel.cpu_ns() - cpu_ns
        if worker is self._kernel:
            self._own_ns += worked_ns
            possible_ns = self._kernel.threads * (self._read_turn_ns() - turn_ns)
            self._excess_ns += max(0, worked_ns - possible_ns)
        else:
            self._busy_ns += worked_ns
            self._idle_ns += time.perf_counter_ns() - begin_ns

    def reject_busy(self) -> None:
        """Raise Failed if it worked while it was not called, beyond a share of its turns."""
        after_ns = _AFTER_SHARE[self._kernel.device] * self._own_ns
        if self._busy_ns > _BUSY_SHARE * self._idle_ns + after_ns:
            share = self._busy_ns / self._idle_ns
            message = f"worked on for {share:.0%} of the time in which it was not called"
            raise Failed("rejected", "timer_mismatch", message)

    def uses_more_threads(self) -> bool:
        """Whether its turns took more processor time than its threads can use.

        Each turn counts by itself: a turn in which it sleeps makes no room for the others.
        """
        return self._excess_ns > _MORE_SHARE * self._own_ns + _CPU_SLACK_NS


# The noise control of a session: A/A samples of eager, the load of the host, the resolution.
#
# Two eager arms in two processes take turns with the kernel. Their difference is not a property of
# any kernel. If it is large, the session contradicts itself: it is disturbed, and ranks no kernel.
# A session whose two arms scatter is wide: it is stored as noisy for older readers, and ranks by
# its lower bound.

_MOST_DROPPED = 0.2
_WIDE = math.log(1.10)


def mark_noise(session: Session, noise: float) -> None:
    """Mark a session and its further ones as disturbed if they may not rank, and as noisy if wide.

    noise: ratio of the two eager arms that counts as noise, above 1.
    """
    for measured in (session, *session.further):
        if session.disturbed or is_disturbed(measured, noise):
            measured.mark_disturbed()
        low, _, high = measured.bound_ratio("eager", EAGER_CONTROL)
        measured.noisy |= session.noisy or high - low > 2 * _WIDE
        if measured.is_unresolved("kernel") or measured.is_unresolved("eager"):
            measured.flags.add("below_resolution")
        measured.noisy |= measured.is_unresolved("eager")
    check_host_load(session)


def is_disturbed(session: Session, noise: float) -> bool:
    """Whether the two eager arms differ by more than `noise`, or too few blocks are left.

    A fifth of the blocks may be dropped, and a fifth of the samples be taken on a slowed core.
    """
    blocks = len(session.readings)
    if len(session.find_dropped_blocks()) > _MOST_DROPPED * blocks:
        return True
    if session.slowed > _MOST_DROPPED * blocks * len(session.raw_ms):
        return True
    bound = math.log(noise)
    low, _, high = session.bound_ratio("eager", EAGER_CONTROL)
    return low > bound or high < -bound


def check_host_load(session: Session) -> None:
    """Flag a session that shares its host, and distrust every clock that involves the host.

    A session with this flag ranks by no clock, not even by gpu (view speedups).
    """
    sessions = (session, *session.further)
    if not is_contended([load for measured in sessions for load in measured.loads]):
        return
    session.flags.add("contended")
    for measured in sessions:
        if measured.clock != "gpu":
            measured.mark_disturbed()


# Compares the latency of a kernel with what the same calls take on the GPU alone.
#
# While the inputs of a burst are written, the candidate's process is frozen, but work on the GPU
# that it has launched before is not, and could begin early. By the clock `gpu` the judge would
# notice that (`clock.rounds`). A call with its launches takes at least as long as without them.

_LEAST = 0.8
"""Of its time by the clock `gpu`, a call that is not launched beforehand takes at least this."""


def is_slowed_by_gate(session: Session) -> bool:
    """Whether the kernel's time by the clock `gpu` exceeds all the time that a burst leaves it.

    Calls on several streams wait for each other behind the gate for more than a millisecond. Early
    work is no explanation where even the time from the writing of the inputs is too short for it.
    Raises Failed if early work is one. Eager's ratio of the two clocks counts for the kernel as
    well: other work on the GPU may slow one of them down. False without both clocks.
    """
    latencies = [one for one in session.further if one.clock == "latency"]
    if session.clock != "gpu" or not latencies:
        return False
    [latency] = latencies
    eager_ms, kernel_ms = (
        (_median(latency, arm), _median(session, arm)) for arm in ("eager", "kernel")
    )
    usual = min(1.0, eager_ms[0] / eager_ms[1])
    margin_ms = session.compute_least("kernel") + latency.compute_least("kernel")
    least_ms = _LEAST * usual * kernel_ms[1]
    if kernel_ms[0] + margin_ms >= least_ms:
        return False
    early_ms = statistics.median(latency.early_ms) if latency.early_ms else 0.0
    if latency.early_ms and kernel_ms[0] + margin_ms + early_ms < least_ms:
        return True
    message = (
        f"a call takes {kernel_ms[0]:.4f} ms with its launches and {kernel_ms[1]:.4f} ms "
        "without: its work begins before the call"
    )
    raise Failed("rejected", "timer_mismatch", message)


def _median(session: Session, arm: str) -> float:
    return statistics.median(session.samples_ms[arm])


_FLOOR_SHARE = 0.9


def check_floor(session: Session, floor: Floor) -> None:
    """Raise Failed if the kernel is faster than the memory of the device allows.

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


_MOST_CALLS = 4  # of one sample
_MOST_LATE = 0.25


@dataclass(frozen=True)
class _CheckedCall:
    """A timed call that is checked."""

    number: int
    """Among the calls whose outputs are kept."""
    inputs: list[Any]
    inputs_now: Any
    """Its inputs as they are after the sample."""


class KeptAnswers:
    """Answers of timed calls, to be compared when the device need not be held alone any more."""

    def __init__(self, check: Callable[[list[Any], Any, Any], None], most_bytes: int) -> None:
        """Keep answers for `check` (`Sources.check`), up to this many bytes in all."""
        self._check = check
        self._most_bytes = self._left_bytes = most_bytes
        self._kept: list[tuple[list[Any], Any, Any]] = []

    def keep(self, inputs: list[Any], output: Any, inputs_now: Any) -> None:
        """Keep the answer of a call; compare all if they take too much memory. Raises Failed."""
        self._kept.append((inputs, output, inputs_now))
        tensors = itertools.chain.from_iterable(map(tensors_of, self._kept[-1]))
        self._left_bytes -= sum(tensor.nbytes for tensor in tensors)
        if self._left_bytes < 0:
            self.compare()

    def compare(self) -> None:
        """Compare what is kept, in the order of the calls. Raises Failed."""
        kept, self._kept, self._left_bytes = self._kept, [], self._most_bytes
        for answer in kept:
            self._check(*answer)


class OutputChecks:
    """Checks calls of timed samples, drawn after a sample, while the worker is frozen."""

    def __init__(
        self,
        kernel: WorkerHandle,
        eager: WorkerHandle,
        sources: Sources,
        pool: InputPool,
        draw: random.Random,
    ) -> None:
        self._kernel = kernel
        self._eager = eager
        self._sources = sources
        self._pool = pool
        self._draw = draw
        self.has_checked = False
        """Whether a sample of the session has been checked; samples of the warm-up do not count."""
        self._checked = 0
        """Samples that have been checked, with those of the warm-up."""
        self._late = 0

    @property
    def is_unverified(self) -> bool:
        """Whether too many samples have answers that could not be captured when the clock stopped.

        One may: an answer is captured by the layout of the last described one.
        """
        return self._late > max(min(1, self._checked - 1), _MOST_LATE * self._checked)

    def follow_state(self, calls: Sequence[list[Any]] = ()) -> int:
        """Check the state after the calls with these inputs, or only note it if there are none.

        Returns the nanoseconds that count as time of the last sample.
        """
        if self._sources.follow_state is None:
            return 0
        return self._sources.follow_state(calls, self._eager)

    def end_sample(self, sample: Sample, slots: Sequence[int], *, is_drawn: bool) -> int:
        """Check the kernel's last sample if it is drawn, and read the state of its module.

        The state is read after every sample and before the kernel can tell whether it is drawn.

        slots: The slots of all its calls.

        Returns the nanoseconds that count as time of the sample. Raises Failed.
        """
        if not is_drawn:
            return self.follow_state()
        self.has_checked = True
        captured = self._capture(sample)
        late_ns = self.follow_state([self._pool.sets[slot] for slot in slots])
        self._compare(captured)
        return late_ns

    def check(self, sample: Sample) -> None:
        """Check some calls of the kernel's last sample. Raises Failed."""
        self._compare(self._capture(sample))

    def _capture(self, sample: Sample) -> list[_CheckedCall]:
        """Draw calls; read their outputs and inputs before the worker gets another request."""
        if self._sources.check is None:
            return []
        slots = sample.kept
        calls = self._draw.sample(range(len(slots)), min(len(slots), _MOST_CALLS))
        self._kernel.capture_outputs(calls)
        return [
            _CheckedCall(call, self._pool.sets[slots[call]], self._kernel.inputs(slots[call]))
            for call in calls
        ]

    def _compare(self, checked: Sequence[_CheckedCall]) -> None:
        if self._sources.check is None:
            return
        outputs = self._kernel.timed_outputs([call.number for call in checked])
        for call, (output, _) in zip(checked, outputs, strict=True):
            self._sources.check(call.inputs, output, call.inputs_now)
        self._checked += 1
        self._late += not all(is_captured for _, is_captured in outputs)
