"""The plan of a session: how long to measure, by which clocks, and where inputs come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators.device.fingerprint import Reading
from evaluators.timing.intervals import read_fallback_spreads
from evaluators.worker.handle import Manner, WorkerHandle
from store.schema.clocks import Clock

CLOCKS: dict[str, tuple[Clock, ...]] = {
    "cuda": ("gpu", "latency", "throughput"),
    "cpu": ("throughput", "latency"),
}
"""The clocks of each kind of device. The first one that can time the kernel decides when the
session ends, and ranks."""
_MOST_CALLS = 256


def count_most_calls(clock: Clock, manner: Manner) -> int:
    """Return how many calls one sample of a clock can have, at most."""
    return _MOST_CALLS if clock == "throughput" or manner == "in_burst" else 1


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
