"""Timed calls of one worker: in a burst, end to end, behind a gate, or when the gate opens."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from evaluators.clock.gate import Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds
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
Timed: TypeAlias = tuple[Sample, Answers, list[Any] | None, list[Place]]
"""A sample, the descriptions of its outputs, and the outputs. On a processor these are neither
described nor read yet, and there are only their places."""


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
    """Whether to flush the caches of a GPU before each call, or those of a processor before the
    first, and then to make each call alone."""
    copies: bool
    """Whether to copy each output before the next call."""


class TimedCalls:
    """Times calls of one worker by the judge's clock, in one of four manners.

    in_burst: The judge writes all inputs while the worker is frozen. A sample begins before it is
    thawed, ends when all of its processes are frozen again, and contains all between its calls. The
    calls are made in a row or, cold, each when the judge has the report of the one before.
    end_to_end: A sample begins before its inputs are written, and ends when the judge has the
    answers.
    behind_gate: Calls are launched first, and each is timed while the worker is frozen.
    at_opening: The worker makes its calls as soon as the gate opens. The first call is not timed,
    since it finds the processor in another state than the later ones. If the caches are flushed,
    each of these is timed alone; otherwise they are timed in a row, and all outputs are kept.
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
        read_wall_ns: Callable[[], int],
        pass_turn: Callable[[Callable[[], bool]], bool],
        blame_task: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Without a gate, calls are on a processor.

        flushed: Memory to write for a flush.
        read_wall_ns: Returns the time of the last request, until the worker was frozen.
        pass_turn: Lets the worker make the next call once it has reported one.
        """
        self._ask = ask
        self._inbox = inbox
        self._outputs = outputs
        self._gate = gate
        self._flushed = flushed
        self._call_s = call_s
        self._read_wall_ns = read_wall_ns
        self._pass_turn = pass_turn
        self._blame_task = blame_task
        self._passed = 0
        """Number of the last time that the gate was passed."""

    def time(self, request: Request, manner: Manner) -> Timed:
        """Make and time calls. Raises LaunchBlocked where launching has to wait for the GPU."""
        if self._gate is None:
            return self._time_in_burst(request)
        if manner == "behind_gate":
            return self._time_behind_gate(request)
        if manner == "at_opening":
            return self._time_at_opening(request)
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
        elapsed_ns = self._read_wall_ns()
        with self._blame_task():
            return Sample(elapsed_ns, slots), [[], []], None, read_places(answer, len(slots))

    def _time_end_to_end(self, request: Request) -> Timed:
        slots = request.slots
        begin_ns = time.perf_counter_ns()
        self._write_inputs(slots, cold=request.cold)
        self._ask("time", "call", slots=slots, variant=request.variant, copies=request.copies)
        with self._blame_task():
            answer = self._ask("describe", "call", calls=list(range(len(slots))))
            answers = [read_outputs(answer, len(slots)), []]
            taken = self._outputs.read_all(answers[0])
        return Sample(time.perf_counter_ns() - begin_ns, slots), answers, taken, []

    def _write_inputs(self, slots: list[int], *, cold: bool) -> None:
        for slot in slots:
            self._inbox.write(slot)
        if cold and self._flushed is not None:
            self._flushed.add_(1)
        if self._gate is not None:
            torch.cuda.synchronize()

    def _time_at_opening(self, request: Request) -> Timed:
        gate, first, slots = self._gate, self._passed + 1, request.slots
        assert gate is not None
        groups = [[slot] for slot in slots] if request.cold else [slots[:1], slots[1:]]
        last = self._passed = self._passed + len(groups)
        times: list[RoundTime] = []

        def time_groups(is_over: Callable[[], bool]) -> None:
            for number, group in enumerate(groups, first):
                self._write_inputs(group, cold=request.cold)
                taken_ns = gate.time_opening(number, is_over)
                if taken_ns is None:
                    break
                times.append(RoundTime(*taken_ns))
            gate.let_pass(last)

        answer = self._ask(
            "call_at_opening",
            "call",
            meanwhile=time_groups,
            groups=groups,
            first=first,
            variant=request.variant,
            copies=request.copies,
        )
        with self._blame_task():
            answers = [read_outputs(answer, len(groups[-1])), []]
            if len(times) < len(groups):
                raise Failed("rejected", "timer_mismatch", "a call has not reported its end")
            taken = self._outputs.read_all(answers[0])
        rounds = times[1:]
        return Sample(sum(one.call_ns for one in rounds), groups[-1], rounds), answers, taken, []

    def _time_behind_gate(self, request: Request) -> Timed:
        gate, first, slots = self._gate, self._passed + 1, request.slots
        assert gate is not None
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
        return Sample(elapsed_ns, slots, times), answers, [value for value, _ in taken], []
