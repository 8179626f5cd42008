"""The judge's own clock, held against what the worker of a GPU reports of its time.

A worker runs foreign code, which may have replaced its clock or its loop. What it cannot replace is
the wall clock of the judge, the processor time that the system counts for it, and how long the same
requests take eager's worker.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from evaluators._arm import Arm, Failed, Sample

if TYPE_CHECKING:
    from evaluators._timing import Session

_Slots = Callable[[int], list[int]]
"""Fill slots with fresh inputs and return those of a number of calls, in order."""

_TRIES = 6
_BURST_NS = 2_000_000
_RATIO = 1.25
_RATIO_NOISY = 10.0
_SLACK_MS = 0.005
# Two events of a GPU with no work between them are 1.5 µs apart on an H200.
_LEAST_SAMPLE_MS = 0.8e-3
_MOST_BURST_CALLS = 256
_FILL_RATIO = 1.5
_FILL_RATIO_BUSY = 5.0
_BUSY_SPREAD = 2.0  # eager's slow requests against its fastest
_FEWEST_FILLS = 3  # fewer may all have met a busy machine, or pages shared with a fork
_FILL_SLACK_NS = 100_000
_BUSY_SHARE = 0.1
_CPU_SLACK_NS = 2_000_000
# A GPU's driver clears away behind thousands of launches.
_AFTER_SHARE = {"cuda": 0.05, "cpu": 0.0}


class Watch:
    """Looks at the processor time of the kernel's worker while others have their turn."""

    def __init__(self, kernel: Arm) -> None:
        self._kernel = kernel
        self._own_ns = 0
        self._own_wall_ns = 0
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
            self._own_wall_ns += time.perf_counter_ns() - begin_ns
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

    def uses_more_threads(self, threads: float) -> bool:
        """Whether its turns took more processor time than a number of threads can."""
        return self._own_ns > threads * self._own_wall_ns + _CPU_SLACK_NS


class Fills:
    """Holds the filling of a GPU worker's inputs, which no clock of its own sees, against eager's.

    A worker whose loop has been replaced could compute then instead of when it is timed.
    """

    def __init__(self, kernel: Arm, eager: Arm) -> None:
        self._arms = (kernel, eager)
        self._from = [len(arm.walls_ns.get("fill", ())) for arm in self._arms]

    def refuse_hidden_work(self) -> bool:
        """Raise Failed where even the shortest such request takes much longer than eager's do.

        Returns whether a session is in doubt: it looks like that, but on a machine so busy that
        eager's own requests differ as much.
        """
        kernel_ns, eager_ns = (
            arm.walls_ns.get("fill", [])[start:]
            for arm, start in zip(self._arms, self._from, strict=True)
        )
        if min(len(kernel_ns), len(eager_ns)) < _FEWEST_FILLS:
            return False
        # Of ten or fewer the longest: a busy machine is no fault of the kernel.
        usual_ns = sorted(eager_ns)[int(0.9 * len(eager_ns))]
        if min(kernel_ns) <= _FILL_RATIO * usual_ns + _FILL_SLACK_NS:
            return False
        busy = usual_ns > _BUSY_SPREAD * min(eager_ns)
        if busy and min(kernel_ns) <= _FILL_RATIO_BUSY * usual_ns + _FILL_SLACK_NS:
            return True
        message = (
            f"works outside of its timed calls: filling its inputs takes {min(kernel_ns) / 1e6:.4g}"
            f" ms, and {usual_ns / 1e6:.4g} ms for eager"
        )
        raise Failed("rejected", "timer_mismatch", message)


def hold_against_wall_clock(
    kernel: Arm, eager: Arm, session: Session, slots: _Slots, walls_ms: Mapping[str, list[float]]
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

    Raises Failed: timer_mismatch, where the worker must have told too short a time.
    """
    reported_ms, eager_ms = (statistics.median(session.samples_ms[n]) for n in ("kernel", "eager"))
    wall_ms, eager_wall_ms = (statistics.median(walls_ms[name]) for name in ("kernel", "eager"))
    slack_ms = _SLACK_MS
    if reported_ms * session.inner_loops < _LEAST_SAMPLE_MS:
        message = f"reports {reported_ms:.4g} ms a call, and no clock of a GPU ticks so fast"
        raise Failed("rejected", "timer_mismatch", message)
    if wall_ms <= _RATIO * reported_ms + slack_ms:
        return
    if eager_ms - reported_ms <= _RATIO * (eager_wall_ms - wall_ms) + slack_ms:
        return
    calls = 1
    while calls < _MOST_BURST_CALLS and _burst(kernel, slots, calls).wall_ns < _BURST_NS:
        calls *= 4
    slopes = [_slopes_ms(eager, slots, calls) for _ in range(_TRIES)]
    flush_ms = max(0.0, statistics.median(wall - reported for wall, reported in slopes))
    ratio = _RATIO_NOISY if session.noisy else _RATIO
    slope_ms, told_alike = math.inf, False
    for _ in range(_TRIES):
        wall_slope_ms, told_ms = _slopes_ms(kernel, slots, calls)
        slope_ms = min(slope_ms, wall_slope_ms - flush_ms)
        if slope_ms <= ratio * reported_ms + slack_ms:
            return
        told_alike |= wall_slope_ms - flush_ms <= _RATIO * told_ms + slack_ms
    if told_alike and slope_ms <= _RATIO_NOISY * reported_ms + slack_ms:
        session.noisy = True
        session.flags.add("slower_in_bursts")
        return
    message = f"reports {reported_ms:.4g} ms a call where the judge's clock sees {slope_ms:.4g} ms"
    raise Failed("rejected", "timer_mismatch", message)


def _slopes_ms(arm: Arm, slots: _Slots, calls: int) -> tuple[float, float]:
    """Wall time and reported time of one more call, in milliseconds."""
    few, many = _burst(arm, slots, calls), _burst(arm, slots, 3 * calls)
    more_ns = (many.wall_ns - few.wall_ns, many.elapsed_ns - few.elapsed_ns)
    return more_ns[0] / (2 * calls) / 1e6, more_ns[1] / (2 * calls) / 1e6


def _burst(arm: Arm, slots: _Slots, calls: int) -> Sample:
    # Without flushes a GPU would wait for the launches of short calls, which no sample shows.
    return arm.time(slots(calls), cold=True)
