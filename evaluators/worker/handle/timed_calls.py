"""Timed calls of one worker: in a burst, end to end, or behind a gate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from evaluators.clock.gate import Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds
from evaluators.device.cache_flush import flush_caches
from evaluators.memory.frozen_memory import Place
from evaluators.sandbox.failures import Failed, Stage
from evaluators.sandbox.worker_process import Late, Meanwhile
from evaluators.worker.handle.inbox import Inbox
from evaluators.worker.handle.outputs import OutputReader, read_outputs, read_places
from evaluators.worker.handle.sample import LaunchBlocked, Manner, Sample

_LAUNCH_S = 2.0
"""How long launching the calls of one sample may take before they count as waiting for the GPU."""
Answers: TypeAlias = list[list[dict[str, Any]]]
"""Descriptions of the outputs of the last request, and of the one before it."""
Timed: TypeAlias = tuple[Sample, Answers, Mapping[int, Any] | None, list[Place]]
"""A sample, the descriptions of its outputs, and the outputs. Those of a burst are not read yet. On
a processor, or where they need not be checked, they are not described either, and there are only
their places."""


class Ask(Protocol):
    """Sends a request to the worker and returns its answer."""

    def __call__(
        self,
        do: str,
        stage: Stage,
        late: Late | None = None,
        meanwhile: Meanwhile | None = None,
        **fields: Any,
    ) -> Any:
        """Raises Failed, or ReferenceFailed for a trusted worker."""
        ...


@dataclass(frozen=True)
class Request:
    """Calls to time."""

    slots: list[int]
    """The slots to call the module on, in order."""
    variant: str | None
    """A prepared way of running a trusted module."""
    cold: bool
    """Whether to flush the caches: before each call or, in a burst, before the first, and then to
    make each call alone."""
    copies: bool
    """Whether to copy each output before the next call."""
    describes: bool
    """Whether a burst on a GPU ends with a description of its outputs, so that they can be checked.
    Otherwise they are described when they are asked for."""


class TimedCalls:
    """Times calls of one worker by the judge's clock, in one of three manners.

    in_burst: The judge writes all inputs while the worker is frozen. A sample begins before it is
    thawed and contains all between its calls. The calls are made in a row or, cold, each when the
    judge has the report of the one before. A sample ends when all processes of the worker are
    frozen again. On a GPU it ends when the judge has the report that all streams are done, and what
    the rest takes longer than that of an empty call counts as well (`EmptyRounds`).
    end_to_end: A sample begins before its inputs are written, and ends when the judge has the
    answers.
    behind_gate: Calls are launched first, and each is timed while the worker is frozen.
    """

    def __init__(
        self,
        ask: Ask,
        inbox: Inbox,
        outputs: OutputReader,
        gate: Gate | None,
        *,
        flushed: torch.Tensor | None,
        call_s: float,
        read_interval_ns: Callable[[], tuple[int, int]],
        pass_turn: Callable[[Callable[[], bool]], bool],
        blame_task: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Without a gate, calls are on a processor.

        flushed: Memory to read for a flush.
        read_interval_ns: Returns when the last request began, and when the worker was frozen.
        pass_turn: Lets the worker make the next call once it has reported one.
        """
        self._ask = ask
        self._inbox = inbox
        self._outputs = outputs
        self._gate = gate
        self._flushed = flushed
        self._call_s = call_s
        self._read_interval_ns = read_interval_ns
        self._pass_turn = pass_turn
        self._blame_task = blame_task
        self._passed = 0
        """Number of the last time that the gate was passed."""

    def time(self, request: Request, manner: Manner) -> Timed:
        """Make and time calls. Raises LaunchBlocked where launching has to wait for the GPU."""
        if self._gate is None:
            return self._time_in_burst(request)
        if manner == "behind_gate":
            return self._time_behind_gate(request, self._gate)
        if manner == "in_burst":
            return self._time_in_burst_on_gpu(request, self._gate)
        return self._time_end_to_end(request)

    def _time_in_burst(self, request: Request) -> Timed:
        slots = request.slots
        self._write_inputs(slots, cold=request.cold)

        def pass_turns(is_over: Callable[[], bool]) -> None:
            for _ in slots[1:]:
                if not self._pass_turn(is_over):
                    return

        answer = self._ask(
            "time",
            "call",
            meanwhile=pass_turns if request.cold else None,
            slots=slots,
            variant=request.variant,
            copies=request.copies,
            alone=request.cold,
        )
        begin_ns, end_ns = self._read_interval_ns()
        with self._blame_task():
            places = read_places(answer, len(slots))
        return Sample(end_ns - begin_ns, slots), [[], []], None, places

    def _time_in_burst_on_gpu(self, request: Request, gate: Gate) -> Timed:
        slots, first = request.slots, self._passed + 1
        last = self._passed = first + (len(slots) - 1 if request.cold else 0)
        self._write_inputs(slots, cold=request.cold)
        done_ns: list[int] = []

        def follow_calls(is_over: Callable[[], bool]) -> None:
            told_ns = gate.follow_calls(first, last, is_over)
            gate.open_now(last)
            if told_ns is not None:
                done_ns.append(told_ns)

        gate.open_now(first)
        answer = self._ask(
            "call_in_burst",
            "call",
            meanwhile=follow_calls,
            slots=slots,
            first=first,
            variant=request.variant,
            copies=request.copies,
            alone=request.cold,
            describes=request.describes,
        )
        begin_ns, end_ns = self._read_interval_ns()
        with self._blame_task():
            answers = [read_outputs(answer, len(slots) if request.describes else 0), []]
            if not done_ns:
                raise Failed("rejected", "timer_mismatch", "a call has not reported its end")
        call_ns = done_ns[0] - begin_ns
        times = [RoundTime(call_ns, rest_ns=end_ns - done_ns[0])]
        places: list[Place] = [] if request.describes else [([], [])] * len(slots)
        return Sample(call_ns, slots, times), answers, None, places

    def _time_end_to_end(self, request: Request) -> Timed:
        slots = request.slots
        begin_ns = time.perf_counter_ns()
        self._write_inputs(slots, cold=request.cold)
        self._ask("time", "call", slots=slots, variant=request.variant, copies=request.copies)
        with self._blame_task():
            answer = self._ask("describe", "call", calls=list(range(len(slots))))
            answers = [read_outputs(answer, len(slots)), []]
            taken = dict(enumerate(self._outputs.read_all(answers[0])))
        return Sample(time.perf_counter_ns() - begin_ns, slots), answers, taken, []

    def _write_inputs(self, slots: list[int], *, cold: bool) -> None:
        self._inbox.write(slots)
        if cold and self._flushed is not None:
            flush_caches(self._flushed)
        if self._gate is not None:
            torch.cuda.synchronize()

    def _time_behind_gate(self, request: Request, gate: Gate) -> Timed:
        first, slots = self._passed + 1, request.slots
        last = self._passed = self._passed + len(slots)
        late: list[bool] = []

        def open_gate() -> None:
            late.append(True)
            gate.open_now(last)

        try:
            answer = self._ask(
                "launch",
                "call",
                late=(_LAUNCH_S, open_gate),
                slots=slots,
                first=first,
                variant=request.variant,
            )
            if late:
                self._ask("settle", "call")
                raise LaunchBlocked
            with self._blame_task():
                answers = [read_outputs(answer, len(slots)), []]
                taken = [self._outputs.prepare(output) for output in answers[0]]
            rounds = [
                Round(self._inbox.pair_staged(slot), copies)
                for slot, (_, copies) in zip(slots, taken, strict=True)
            ]
            flushed = self._flushed if request.cold else None
            times = time_rounds(gate, first, rounds, flushed, self._call_s)
        except Unfinished:
            self._ask("settle", "call")
            message = f"not done after {self._call_s:g} s"
            raise Failed("timeout", "call_timeout", message) from None
        finally:
            gate.open_now(last)
        self._inbox.unstage(slots)
        elapsed_ns = sum(round_time.call_ns for round_time in times)
        values = {number: value for number, (value, _) in enumerate(taken)}
        return Sample(elapsed_ns, slots, times), answers, values, []
