"""One sample of a timing session, as a worker handle takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.clock.rounds import RoundTime


class LaunchBlocked(Exception):
    """Calls cannot be launched without waiting for the GPU, which waits for the judge."""


@dataclass(frozen=True)
class Sample:
    """One timed request."""

    elapsed_ns: int
    """Time of all calls together by the judge's clock, with the cost of passing values."""
    rounds: Sequence[RoundTime] = ()
    """The time of each call, where the calls were launched on a GPU beforehand."""
