"""The judge's clock on a GPU: events of its own stream around calls that a worker has launched.

A round hands over fresh inputs, flushes the caches, lets one call through the gate, waits until it
is done, and copies the answer into memory of the judge. The call's time runs from the gate being
opened to the call being reported as done, between two events of the judge's own stream.

Contexts take turns on a GPU: it goes over to the worker's context and back in that time, which an
empty call takes as well and is taken off. Work that the worker hides elsewhere, on other streams or
in other contexts, before the gate is opened or after the report, needs two further turns in what
is left of the round. A round that takes so much longer than an empty one has it counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluators.clock.gate import Gate

_SPIN_S = 0.002
_POLL_S = 0.0002
_SOONEST = 0.9


class Unfinished(Exception):
    """A call that was let through is not done in time."""


@dataclass(frozen=True)
class Round:
    """What one call is given and what it leaves."""

    inputs: Sequence[tuple[Tensor, Tensor]]
    """Memory of the worker, and what the judge writes there."""
    outputs: Sequence[tuple[Tensor, Tensor]]
    """Memory of the judge, and where in the worker's memory the answer is."""


@dataclass(frozen=True)
class RoundTime:
    """Time of one round in nanoseconds."""

    call_ns: int
    """From the gate being opened to the call being reported as done."""
    rest_ns: int
    """Before that, while inputs are written and caches flushed, and after it, while the answer is
    copied."""


class EmptyRounds:
    """Rounds of a call that does nothing, which those of other calls are held against."""

    def __init__(self) -> None:
        self._least_call_ns = 0
        self._longest_rest_ns = 0

    def add(self, rounds: Sequence[RoundTime]) -> None:
        """Take note of further empty rounds."""
        calls_ns = [one.call_ns for one in rounds]
        known = [self._least_call_ns] if self._least_call_ns else []
        self._least_call_ns = min(calls_ns + known)
        self._longest_rest_ns = max(self._longest_rest_ns, *(one.rest_ns for one in rounds))

    def elapsed_ns(self, rounds: Sequence[RoundTime]) -> int:
        """Time of the calls of other rounds, with work that is hidden in the rest of a round.

        That takes two turns of the GPU, as long as an empty call. Half of it is no chance.
        """
        excess_ns = [one.rest_ns - self._longest_rest_ns for one in rounds]
        hidden_ns = sum(one for one in excess_ns if 2 * one > self._least_call_ns)
        return sum(one.call_ns for one in rounds) + hidden_ns

    def has_early_report(self, rounds: Sequence[RoundTime]) -> bool:
        """Whether a call is reported as done before the GPU can have turned to it and back.

        Nothing honest is done sooner than a call that does nothing: its report was there before it
        was let through.
        """
        return any(one.call_ns < _SOONEST * self._least_call_ns for one in rounds)


def time_rounds(
    gate: Gate, first: int, rounds: Sequence[Round], flushed: Tensor | None, limit_s: float
) -> list[RoundTime]:
    """Time calls that a worker has launched behind a gate, numbered from `first`.

    The worker may be frozen. `flushed` is written before each call, to push all else out of the
    caches.

    Raises:
        Unfinished: the calls are not done after `limit_s` seconds. All gates are open then.
    """
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in rounds]
    torch.cuda.synchronize()
    for number, (one, (begin, opened, done, end)) in enumerate(
        zip(rounds, events, strict=True), first
    ):
        begin.record()
        for theirs, ours in one.inputs:
            theirs.copy_(ours)
        if flushed is not None:
            flushed.add_(1)
        opened.record()
        gate.open(number)
        gate.wait_for_report(number)
        done.record()
        for ours, theirs in one.outputs:
            ours.copy_(theirs)
        end.record()
    _wait(events[-1][-1], gate, first + len(rounds) - 1, limit_s)
    return [
        RoundTime(
            call_ns=_ns_between(opened, done),
            rest_ns=_ns_between(begin, opened) + _ns_between(done, end),
        )
        for begin, opened, done, end in events
    ]


def _wait(last: torch.cuda.Event, gate: Gate, number: int, limit_s: float) -> None:
    begin = time.monotonic()
    while not last.query():
        waited_s = time.monotonic() - begin
        if waited_s > limit_s:
            gate.give_up(number)
            torch.cuda.synchronize()
            raise Unfinished
        time.sleep(0 if waited_s < _SPIN_S else _POLL_S)


def _ns_between(begin: torch.cuda.Event, end: torch.cuda.Event) -> int:
    return round(begin.elapsed_time(end) * 1e6)
