"""The candidate of a case: its worker process, the reference that judges it, and the evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from evaluators.judging.calls.input_seeds import Question
from evaluators.judging.case import Evidence, Policy
from evaluators.judging.comparison.departure import pair_outputs
from evaluators.judging.comparison.error_text import describe_largest_error
from evaluators.judging.comparison.outputs import compare
from evaluators.judging.comparison.result import Comparison
from evaluators.memory.tensors import tensors_of
from evaluators.references.choices import Choice
from evaluators.references.task import Reference, has_same_bits, join_answer
from evaluators.worker.handle import Failed, Parameter, WorkerHandle

STRIDED_SLOT = 1000
"""Slot of the inputs with gaps; its storage stays strided, so no other call may use it."""
_DEATHS = ("signal", "early_exit", "malformed_output")


class Candidate:
    """Calls a candidate and compares its answers. Methods raise Failed and ReferenceFailed."""

    def __init__(
        self, worker: WorkerHandle, reference: Reference, evidence: Evidence, policy: Policy
    ) -> None:
        self.worker = worker
        self.reference = reference
        self.evidence = evidence
        self.policy: Policy = policy
        self.known_state: list[str] = []
        """Parameters and buffers of the task that the candidate has by name and shape."""
        self.missing_parameters: list[str] = []
        """Parameters of the task that the candidate lacks, or cannot take from outside."""
        self.moving_state: list[str] = []
        """Parameters and buffers that the task's calls change, known after the verdict calls."""
        self.is_lost = False
        """Whether the last call that decides no verdict has ended or hung the worker process."""
        self.last_fault = ""
        """What is wrong with the answer of the last call that decides no verdict, if anything."""
        self.usual: list[float] = []
        """Root mean square of each tensor of an ordinary answer."""
        self._aside_s = 0.0

    def read_clock(self) -> float:
        """Return seconds of a clock that stops while other judges have the device."""
        return time.perf_counter() - self._aside_s

    def adopt_weights(self, parameters: Sequence[Parameter]) -> None:
        """Give the candidate the task's own weights where it has them by name and shape.

        parameters: those that the candidate's module lists.
        """
        state = self.reference.state()
        shapes = {parameter.name: parameter.shape for parameter in parameters}
        self.known_state = [name for name, v in state.items() if shapes.get(name) == tuple(v.shape)]
        self.missing_parameters = sorted(self.reference.parameters() - set(self.known_state))
        if not self.missing_parameters:
            try:
                self.restore_weights()
            except Failed as failed:
                # A module may name what cannot be written; it has its weights from the seed.
                if (failed.status, failed.reason) != ("crash", "exception"):
                    raise
                self.missing_parameters = self.known_state
        if self.missing_parameters:
            names = ", ".join(self.missing_parameters)
            self.note("parameters_renamed", f"no counterpart of {names:.200}")

    def note(self, flag: str, what: str) -> None:
        """Raise a flag that costs the candidate its rank, and note what shows it the first time."""
        if not any(note.startswith(f"{flag}: ") for note in self.evidence.notes):
            self.evidence.notes.append(f"{flag}: {what}")
        self.evidence.flags.add(flag)

    def restore_weights(self) -> None:
        """Give the candidate the task's own weights and buffers again."""
        state = self.reference.state()
        self.worker.adopt({name: state[name] for name in self.known_state})

    def call(
        self, slot: int, question: Question, *, first: bool = False, strided: bool = False
    ) -> Any:
        """Return the candidate's answer to a question, asked in a slot of its memory.

        The inputs that the task changes are a part of it.

        A judge that waits to time a kernel has the device first: the calls of a large task together
        take minutes.
        """
        self._aside_s += self.worker.step_aside()
        self.worker.require_room(question.expected.value)
        is_copied = self.reference.keeps_inputs
        self.worker.fill(slot, question.inputs, strided=strided, copied=is_copied)
        if self.reference.draws:
            self.worker.reseed(question.seed)
        output = self.worker.call(slot, first=first)
        changed = question.expected.changed
        return join_answer(output, self.worker.inputs(slot) if changed else [], changed)

    def compare(
        self, question: Question, output: Any, usual: Sequence[float] | None = None
    ) -> Comparison:
        """Compare an output with the expected one."""

        def read_choices() -> Sequence[Choice]:
            return self.reference.choices(question.inputs, question.seed)

        return compare(question.expected, output, self.policy, read_choices, usual)

    def try_call(
        self, question: Question, *, strided: bool = False, special: bool = False
    ) -> Comparison | None:
        """Make a call that decides no verdict; None where it fails.

        Args:
            question: What to ask.
            strided: With gaps in the memory of the inputs.
            special: Whether answers may be far smaller than usual ones.
        """
        output = self.try_output(STRIDED_SLOT if strided else 0, question, strided=strided)
        if output is None:
            return None
        comparison = self.compare(
            question, output[0], self.get_usual(question) if special else None
        )
        self.last_fault = comparison.message or ""
        return comparison

    def get_usual(self, question: Question) -> Sequence[float] | None:
        """Return the size of ordinary answers; None for an answer of another number of tensors."""
        return self.usual if len(self.usual) == len(question.expected.exact) else None

    def try_output(
        self, slot: int, question: Question, *, strided: bool = False
    ) -> tuple[Any] | None:
        """Return the output of a call that decides no verdict, in a tuple; None where it fails."""
        try:
            return (self.call(slot, question, strided=strided),)
        except Failed as failed:
            self.is_lost = failed.status == "timeout" or failed.reason in _DEATHS
            self.last_fault = f"the call fails: {failed.message}"
            return None

    def keeps_answer(self, before: tuple[Any] | None, question: Question) -> bool:
        """Whether the candidate answers a question by the same bits as the one before it.

        before: The output of the call before, in a tuple; None if it failed.
        """
        after = None if before is None else self.try_output(0, question)
        if before is None or after is None:
            return False
        numbers = pair_outputs(question.expected, after[0])
        shown = "; ".join(describe_largest_error(number) for number in numbers[:1])
        self.last_fault = f"no bit of the answer changes, though the task's does: {shown}"
        pairs = zip(tensors_of(before[0]), tensors_of(after[0]), strict=False)
        return all(has_same_bits(one, other) for one, other in pairs)

    def is_right(self, question: Question) -> bool:
        """Whether the candidate answers a question rightly; the call decides no verdict."""
        comparison = self.try_call(question)
        return comparison is not None and comparison.reason is None
