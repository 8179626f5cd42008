"""One sample of a timing session, as a worker handle takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaluators.clock.rounds import RoundTime

Manner: TypeAlias = Literal["in_burst", "end_to_end", "behind_gate"]
"""How a sample is timed.

in_burst: From thawing the worker, which has the inputs of all calls, to freezing it; on a GPU, to
    its report that all streams are done.
end_to_end: On a GPU, from the request until the judge has the answers, by its processor.
behind_gate: On a GPU, calls are launched beforehand and run while the worker is frozen.
"""


class LaunchBlocked(Exception):
    """Calls cannot be launched without waiting for the GPU, which waits for the judge."""


@dataclass(frozen=True)
class Sample:
    """One timed request."""

    elapsed_ns: int
    """Time of all calls together by the judge's clock, with the cost of passing values."""
    kept: Sequence[int]
    """Slots of the calls whose outputs are kept, in the order of the outputs."""
    rounds: Sequence[RoundTime] = ()
    """The time of each call behind a gate, or that of a burst on a GPU."""
