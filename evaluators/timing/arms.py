"""The arms of a session: kernel, baselines, eager control and empty arms, each with its worker."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from evaluators.judging.baseline_workers import BaselineWorkers
from evaluators.timing.session import EAGER_CONTROL, EMPTY, EMPTY_KERNEL
from evaluators.worker.handle import Manner, Sample, WorkerHandle

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
    control.prepare_empty(0, launches=manner == "behind_gate")
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
