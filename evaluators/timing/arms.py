"""The arms of a session: kernel, baselines, eager control and empty arm, each with its worker."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

from evaluators.judging.baseline_workers import BaselineWorkers
from evaluators.timing.session import EAGER_CONTROL, EMPTY
from evaluators.worker.handle import Manner, Sample, WorkerHandle


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
    """One arm of a session: a worker, and how it is timed."""

    worker: WorkerHandle
    time: TimeSample


def list_arms(
    kernel: WorkerHandle | None, baselines: BaselineWorkers, manner: Manner
) -> dict[str, SessionArm]:
    """Return the arms of a session by name.

    manner: How to time their samples.
    """
    arms: dict[str, SessionArm] = {}
    if kernel is not None:
        arms["kernel"] = SessionArm(kernel, functools.partial(kernel.time, manner=manner))
    for name in baselines.prepared:
        time_sample = functools.partial(baselines.time, name, manner=manner)
        arms[name] = SessionArm(baselines.get_worker(name), time_sample)
    control = baselines.control
    arms[EAGER_CONTROL] = SessionArm(control, functools.partial(control.time, manner=manner))
    control.prepare_empty(0)
    time_empty = functools.partial(control.time, variant=EMPTY, manner=manner)
    arms[EMPTY] = SessionArm(control, time_empty)
    return arms
