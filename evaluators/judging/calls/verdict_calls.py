"""Verdict calls: they draw from the task's own distribution under secret seeds, and decide.

They use fresh storage, refill the same storage without a change of the version counter, and change
everything except the corners at the same address, so memorized answers fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question, draw_seed
from evaluators.judging.calls.input_variations import replace_interior
from evaluators.judging.calls.precision_record import PrecisionRecord
from evaluators.judging.comparison.error_text import describe_change, describe_inputs
from evaluators.judging.comparison.outputs import compare, is_same_answer
from evaluators.judging.comparison.result import Comparison, merge_comparisons
from evaluators.memory.tensors import compute_fingerprint, layout, tensors_of
from evaluators.references.task import ReferenceFailed, has_same_bits
from evaluators.worker.handle import Failed

_Kind: TypeAlias = Literal["own", "interior", "repeat"]
"""own: new inputs. interior: new inputs within the corners of the last ones. repeat: the same."""

_PLAN: Sequence[tuple[int, _Kind]] = (
    (0, "own"),
    (0, "own"),
    (0, "interior"),
    (0, "repeat"),
    (1, "own"),
    (1, "own"),
    (2, "own"),
    (1, "interior"),
    (0, "own"),
    (3, "own"),
    (2, "own"),
    (3, "interior"),
    (1, "own"),
    (0, "interior"),
    (2, "interior"),
    (3, "own"),
    (1, "own"),
    (2, "own"),
    (0, "own"),
    (3, "own"),
    (1, "interior"),
    (2, "own"),
)
"""Slot and kind of every verdict call. A slot used for the first time is fresh storage."""
MOST_CALLS = len(_PLAN)
"""Number of verdict calls before the plan repeats."""
FINGERPRINTS = 2
"""Number of first calls, on new inputs each, whose answers leave a fingerprint."""
CHEAP_BYTES = 64 << 20
"""Up to this size, inputs and outputs are checked in every call; above, only in the first calls."""
LARGE_BYTES = 1 << 30
_PLAN_CHANGES = next(n for n, (slot, _) in enumerate(_PLAN) if slot)
"""The first call on a second slot."""
_FEWEST_CALLS = 5
_SLOW_CALL_S = 1.0
_FURTHER_DRAWS = 2
"""Calls that decide whether a wrong number of large relative errors is luck."""
_DRAWS_OF_STRUCTURE = 4
"""Draws that show whether a kernel relies on what mixed inputs break; a few may not show it."""
_MOST_POISON_BYTES = 512 << 20
_MOST_CHECKER_TEXT = 500


class VerdictCalls:
    """The calls that decide whether a candidate is correct."""

    def __init__(self, candidate: Candidate, precision: PrecisionRecord) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._evidence = candidate.evidence
        self._precision = precision
        self._inputs: dict[int, tuple[list[Any], int]] = {}
        """Inputs and seed of the last call of each slot."""
        self._previous: tuple[int, Any] | None = None
        """Slot and output of the previous call."""
        self._slots = 1
        self._repeated: Question | None = None
        """The question of the previous call, if the next call repeats it."""

    def run(self, first: Question, calls: int) -> None:
        """Make `calls` calls, or five where a call is slow. Raises Failed, ReferenceFailed."""
        rules = self._reference.rules
        if rules.tolerance is not None:
            self._evidence.notes.append(f"tolerance of the task: {rules.tolerance}")
        if rules.has_checker:
            self._evidence.notes.append("judged by the task's own checker")
        size = layout(first.inputs)[1]
        # Each slot is a copy of the inputs in the candidate's memory, and one in ours.
        self._slots = slots = 4 if size <= CHEAP_BYTES else 2 if size <= LARGE_BYTES else 1
        number = 0
        while number < calls:
            begin = self._candidate.read_clock()
            slot, kind = _PLAN[number % MOST_CALLS]
            slot %= slots
            question = first if number == 0 else self._draw_next(slot, kind)
            self._decide(slot, question, number, kind)
            number += 1
            is_repeated = _PLAN[number % MOST_CALLS][1] == "repeat" and slot in self._inputs
            self._repeated = question if is_repeated else None
            # The first call may compile.
            if number > 1 and self._candidate.read_clock() - begin > _SLOW_CALL_S:
                calls = min(calls, _FEWEST_CALLS)

    def _draw_next(self, slot: int, kind: _Kind) -> Question:
        last = self._inputs.get(slot)
        if last is None or kind == "own":
            return draw_question(self._reference, self._evidence)
        inputs, seed = last
        if kind == "interior":
            try:
                return self._draw_within(inputs)
            except ReferenceFailed:
                if not self._reference.is_alive:
                    raise
                # Corners of other inputs may break what the module needs, such as a matrix that is
                # positive definite.
                return draw_question(self._reference, self._evidence)
        return Question(inputs, self._reference.answer(inputs, seed), seed)

    def _draw_within(self, corners: list[Any]) -> Question:
        return draw_question(
            self._reference, self._evidence, lambda new: replace_interior(corners, new)
        )

    def _decide(self, slot: int, question: Question, number: int, kind: _Kind) -> None:
        """Make one call and judge its answer."""
        worker = self._candidate.worker
        sizes = [t.numel() * t.element_size() for t in tensors_of(question.expected.value)]
        is_inspected = number < 3 or max(layout(question.inputs)[1], sum(sizes)) <= CHEAP_BYTES
        if sum(sizes) <= _MOST_POISON_BYTES:
            # A sum over a dimension needs memory of its own, as large as the others together.
            sums = {
                tensor.numel() * tensor.element_size() // length
                for tensor in tensors_of(question.expected.value)
                for length in tensor.shape
                if length > 1
            }
            worker.poison([size for size in (*sizes, *sums) if size])
        try:
            output = self._candidate.call(slot, question, first=number == 0)
        except Failed as failed:
            is_error = (failed.status, failed.reason) == ("crash", "exception")
            if kind == "interior" and is_error and self._relies_on_structure(slot):
                self._leave_out(slot, number, failed.message)
                return
            raise
        comparison = self._candidate.compare(question, output)
        if comparison.reason is not None and self._is_luck(slot, comparison):
            self._evidence.notes.append(f"only call {number + 1}: {comparison.message}")
            self._previous = None
            self._inputs[slot] = (question.inputs, question.seed)
            return
        comparison = self._ask_checker(question, output, comparison)
        if kind == "interior" and comparison.reason is not None and self._relies_on_structure(slot):
            self._leave_out(slot, number, comparison.message)
            return
        if comparison.excused is not None and "accepted_by_task" not in self._evidence.flags:
            self._evidence.flags.add("accepted_by_task")
            note = f"beyond the judge's own tolerance in call {number + 1}: {comparison.excused}"
            self._evidence.notes.append(note)
        if comparison.reason is not None:
            self._evidence.comparison = comparison
            raise self._explain_failure(comparison, question, output, number)
        self._evidence.comparison = merge_comparisons(self._evidence.comparison, comparison)
        if number < FINGERPRINTS:
            self._evidence.answers.append(compute_fingerprint(output))
        self._precision.verdict_classes.append(comparison.precision_class)
        self._precision.note_eager(comparison)
        if is_inspected and not self._reference.rules.scratch:
            now, changed = worker.inputs(slot), question.expected.changed
            pairs = enumerate(pair_tensors(question.inputs, now))
            if not all(has_same_bits(*pair) for n, pair in pairs if n not in changed):
                names = self._reference.rules.names
                change = describe_change(question.inputs, now, names, changed)
                message = f"call {number + 1} has changed {change}"
                raise Failed("incorrect", "input_mutated", message)
        if self._repeated is not None:
            self._compare_repeated(self._repeated, question, output)
        self._check_previous_output(slot)
        # Of large outputs, keep the one before the first change of slots, and what a repeat needs.
        is_kept = is_inspected or number == _PLAN_CHANGES - 1
        self._previous = (slot, output) if is_kept else None
        self._inputs[slot] = (question.inputs, question.seed)

    def _ask_checker(self, question: Question, output: Any, own: Comparison) -> Comparison:
        """Return a comparison that is right, or wrong if the task's own checker says so."""
        if own.reason is not None or own.excused is not None or question.expected.check is None:
            return own
        accepted, text = question.expected.check(output)
        if accepted:
            return own
        message = f"the task's own checker refuses the output: {text[:_MOST_CHECKER_TEXT]}"
        return replace(own, reason="incorrect_numerical", message=message)

    def _is_luck(self, slot: int, comparison: Comparison) -> bool:
        """Whether only the number of large relative errors is wrong, and only in this call.

        Where sums cancel, answers are next to zero, and chance decides how many of them have large
        relative errors. Other calls then do not repeat it.
        """
        if comparison.max_scaled_error is None or comparison.max_scaled_error > 1:
            return False
        for _ in range(_FURTHER_DRAWS):
            question = draw_question(self._reference, self._evidence)
            output = self._candidate.call(slot, question)
            if self._candidate.compare(question, output).reason is not None:
                return False
        return True

    def _relies_on_structure(self, slot: int) -> bool:
        """Whether the kernel also fails on new inputs within corners that it has never seen.

        It then relies on what the task promises of its inputs, such as symmetry, sorted values or
        rows that sum to one, which other corners break. A kernel that remembers answers by the
        corners of their inputs is right on them.
        """
        for _ in range(_DRAWS_OF_STRUCTURE):
            try:
                question = self._draw_within(self._reference.inputs(draw_seed()))
                output = self._candidate.call(slot, question)
            except ReferenceFailed:
                if not self._reference.is_alive:
                    raise
                continue
            except Failed as failed:
                if (failed.status, failed.reason) != ("crash", "exception"):
                    raise
                return True
            comparison = self._candidate.compare(question, output)
            if self._ask_checker(question, output, comparison).reason is not None:
                return True
        return False

    def _leave_out(self, slot: int, number: int, message: str | None) -> None:
        """Note a call on mixed inputs, which break what the task promises of them."""
        self._evidence.notes.append(
            f"call {number + 1} left out, on the values of two draws mixed: {message}"
        )
        self._previous = None
        self._inputs.pop(slot, None)

    def _check_previous_output(self, slot: int) -> None:
        """Flag an output that this call has changed.

        A view of the inputs changes with them and is not flagged; if there is a second slot, the
        inputs of the previous call are still in theirs.
        """
        if self._previous is None or "reuses_output_buffer" in self._evidence.flags:
            return
        before, output = self._previous
        if before == slot and self._slots > 1:
            return
        now = self._candidate.worker.output(0, before=True)
        if not all(has_same_bits(a, b) for a, b in pair_tensors(output, now)):
            self._evidence.flags.add("reuses_output_buffer")

    def _compare_repeated(self, before: Question, question: Question, output: Any) -> None:
        """Check whether the answer follows from the inputs, which came twice in a row."""
        again = question.expected.value
        if self._candidate.compare(before, again).reason is not None:
            self._reference.remembers = True
        elif not is_same_answer(question.expected, before.expected.value, again):
            # For example, spectral_norm comes closer to a norm in every call.
            self._reference.remembers |= self._has_state_changed()
        elif self._previous and not is_same_answer(question.expected, self._previous[1], output):
            self._evidence.flags.add("nondeterministic")

    def _has_state_changed(self) -> bool:
        before, now = self._reference.state(), self._reference.current_state()
        return any(name in now and not has_same_bits(before[name], now[name]) for name in before)

    def _explain_failure(
        self, comparison: Comparison, question: Question, output: Any, number: int
    ) -> Failed:
        """Return the failure of a wrong answer; names the parameters that it ignores."""
        inputs = describe_inputs(question.inputs, self._reference.rules.names)
        message = f"call {number + 1} on {inputs}: {comparison.message}"
        own, changed = list(tensors_of(question.inputs)), question.expected.changed
        if changed and comparison.reason == "incorrect_numerical":
            for number, after in zip(changed, output[1], strict=True):
                if has_same_bits(own[number], after):
                    left = f"the task changes input {number} in a call, and the kernel does not"
                    message = f"{left}: {message}"
                    break
        missing = self._candidate.missing_parameters
        if comparison.reason == "incorrect_numerical" and missing:
            for neutral in _iterate_neutral_weights(self._reference.state(), missing):
                self._reference.reset()
                self._reference.load(neutral)
                without = self._reference.answer(question.inputs, question.seed)
                if compare(without, output, self._candidate.policy).reason is None:
                    names = ", ".join(missing)
                    message = f"the answer is the one without {names}: {message}"
                    return Failed("incorrect", "parameters_ignored", message)
            if not self._candidate.known_state:
                message += f"; the kernel has no parameters, and the task has {', '.join(missing)}"
        status = "rejected" if comparison.reason == "lazy_output" else "incorrect"
        return Failed(status, comparison.reason or "unspecified", message)


def pair_tensors(one: Any, other: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the tensors of two values of one structure, pair by pair."""
    return zip(tensors_of(one), tensors_of(other), strict=False)


def _iterate_neutral_weights(
    state: Mapping[str, torch.Tensor], names: Sequence[str]
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield weights with which parameters have no effect: scales of one, summands of zero."""

    def fill_bias(name: str) -> float:
        return 0.0 if name.rpartition(".")[2] == "bias" else 1.0

    yield {name: torch.full_like(state[name], fill_bias(name)) for name in names}
    yield {name: torch.full_like(state[name], 0.0) for name in names}
    yield {name: torch.full_like(state[name], 1.0) for name in names}
