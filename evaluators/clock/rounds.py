"""The judge's clock on a GPU: it watches calls that a worker has launched behind a gate.

A round writes fresh inputs, flushes the caches, opens the gate for one call, waits for its report,
and copies the answer into memory of the judge. The call's time runs from opening the gate, on the
judge's stream, to the report on the worker's, as the processor of the judge sees both.

Contexts take turns on a GPU: within that time it switches to the worker's context. An empty call
that launches a kernel without work takes this switch as well. What it takes longer than its kernel
by CUDA events is subtracted (`empty_kernel`). The switch back is no part of a call's time, since
it would write back what the call has left in the caches. Work that the worker hides on other
streams or in other contexts, before the gate opens or after the report, needs two further switches
in the rest of the round. A rest that is that much longer than an empty round's counts as time of
the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluators.clock.gate import Gate
from evaluators.device.timing_conditions import flush_caches

_SOONEST = 0.9
_TRIALS = 8
"""How often further empty rounds are timed before a call counts as early."""


class Unfinished(Exception):
    """A call behind an open gate is not done in time."""


@dataclass(frozen=True)
class Round:
    """Memory to copy before and after one call."""

    inputs: Sequence[tuple[Tensor, Tensor]]
    """Pairs of the worker's memory and what the judge writes there."""
    outputs: Sequence[tuple[Tensor, Tensor]]
    """Pairs of the judge's memory and the answer in the worker's memory."""


@dataclass(frozen=True)
class RoundTime:
    """Time of one round in nanoseconds."""

    call_ns: int
    """From opening the gate to the report that the call is done. For a burst: from thawing the
    worker to the report that all streams are done."""
    rest_ns: int
    """Before that, writing inputs and flushing caches; and after it, copying the answer. For a
    burst: after the reports of all calls and streams, until the worker is frozen."""


class EmptyRounds:
    """Rounds of a call that does nothing, as a baseline for other rounds."""

    def __init__(self) -> None:
        self._least_call_ns = 0
        self._longest_rest_ns = 0

    def add(self, rounds: Sequence[RoundTime]) -> None:
        """Add empty rounds."""
        calls_ns = [one.call_ns for one in rounds]
        known = [self._least_call_ns] if self._least_call_ns else []
        self._least_call_ns = min(calls_ns + known)
        self._longest_rest_ns = max(self._longest_rest_ns, *(one.rest_ns for one in rounds))

    def elapsed_ns(self, rounds: Sequence[RoundTime]) -> int:
        """Return the time of the calls of other rounds, and of work hidden in the rest of a round.

        Hidden work takes two switches of the GPU, and an empty call takes one. An excess of more
        than half of that counts, since noise does not explain it.
        """
        excess_ns = [one.rest_ns - self._longest_rest_ns for one in rounds]
        hidden_ns = sum(one for one in excess_ns if 2 * one > self._least_call_ns)
        return sum(one.call_ns for one in rounds) + hidden_ns

    def has_early_report(
        self, rounds: Sequence[RoundTime], time_more: Callable[[], Sequence[RoundTime]]
    ) -> bool:
        """Whether a call is reported as done before the GPU can have switched to it and back.

        No honest call is faster than an empty one: such a report was written before the gate
        opened. Other work on the GPU makes empty calls longer, so an honest call can be faster than
        the first of them. Before a call counts as early, `time_more` times further empty rounds.
        """
        for trials_left in reversed(range(_TRIALS + 1)):
            if all(one.call_ns >= _SOONEST * self._least_call_ns for one in rounds):
                return False
            if trials_left:
                self.add(time_more())
        return True


def time_rounds(
    gate: Gate, first: int, rounds: Sequence[Round], flushed: Tensor | None, limit_s: float
) -> list[RoundTime]:
    """Time calls that a worker has launched behind a gate, numbered from `first`.

    The worker may be frozen. `flushed` is read before each call, to flush the caches.

    Raises:
        Unfinished: the calls are not done after `limit_s` seconds. All gates are open then.
    """
    times: list[RoundTime] = []
    torch.cuda.current_stream().synchronize()
    for number, one in enumerate(rounds, first):
        begin_ns = time.perf_counter_ns()
        for theirs, ours in one.inputs:
            theirs.copy_(ours)
        if flushed is not None:
            flush_caches(flushed)
        gate.open(number)
        watched = gate.watch_call(number, limit_s)
        if watched is None:
            gate.open_now(first + len(rounds) - 1)
            raise Unfinished
        opened_ns, done_ns = watched
        for ours, theirs in one.outputs:
            ours.copy_(theirs)
        torch.cuda.current_stream().synchronize()
        rest_ns = (opened_ns - begin_ns) + (time.perf_counter_ns() - done_ns)
        times.append(RoundTime(done_ns - opened_ns, rest_ns))
    return times
