"""Verdict calls: they draw from the task's own distribution under secret seeds, and decide.

They use fresh storage, refill the same storage without a change of the version counter, and change
everything except the corners at the same address, so memorized answers fail.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

import torch

from evaluators.judging.calls.input_variations import replace_interior
from evaluators.judging.case import Policy
from evaluators.judging.case_result import CaseResult
from evaluators.judging.comparison import (
    Comparison,
    compare,
    describe_change,
    describe_inputs,
    describe_largest_error,
    is_same_answer,
    is_whole,
    merge_comparisons,
    pair_outputs,
)
from evaluators.judging.tolerance import (
    compute_rms,
    explain_policy,
    is_below,
    rank_class,
)
from evaluators.memory.tensors import compute_fingerprint, layout, tensors_of
from evaluators.references.recorded_operations import Choice
from evaluators.references.task import (
    Expected,
    Reference,
    ReferenceFailed,
    call_seed,
    has_same_bits,
    join_answer,
)
from evaluators.worker.handle import Failed, Parameter, WorkerHandle

_SEED_BITS = 48


@dataclass(frozen=True)
class SeedProbe:
    """Inputs with the expected answer."""

    inputs: list[Any]
    expected: Expected
    seed: int
    """Seed of the random numbers of the call; the candidate may know it."""


def draw_seed() -> int:
    """Return a new secret seed of inputs."""
    return secrets.randbits(_SEED_BITS)


def draw_probe(
    reference: Reference,
    result: CaseResult,
    change: Callable[[list[Any]], list[Any]] | None = None,
) -> SeedProbe:
    """Return a probe under a new secret seed, which the result records.

    change: makes the inputs of the probe from those of the seed.

    Raises ReferenceFailed.
    """
    seed = draw_seed()
    result.seeds.append(seed)
    return repeat_probe(reference, seed, change)


def repeat_probe(
    reference: Reference, seed: int, change: Callable[[list[Any]], list[Any]] | None = None
) -> SeedProbe:
    """Return the probe of a seed; see `draw_probe`. Raises ReferenceFailed."""
    inputs = reference.inputs(seed)
    if change is not None:
        inputs = change(inputs)
    return SeedProbe(inputs, reference.answer(inputs, call_seed(seed)), call_seed(seed))


STRIDED_SLOT = 1000
"""Slot of the inputs with gaps; its storage stays strided, so no other call may use it."""
_DEATHS = ("signal", "early_exit", "malformed_output")


class Candidate:
    """Calls a candidate and compares its answers. Methods raise Failed and ReferenceFailed."""

    def __init__(
        self, worker: WorkerHandle, reference: Reference, result: CaseResult, policy: Policy
    ) -> None:
        self.worker = worker
        self.reference = reference
        self.result = result
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
        if not any(note.startswith(f"{flag}: ") for note in self.result.notes):
            self.result.notes.append(f"{flag}: {what}")
        self.result.flags.add(flag)

    def restore_weights(self) -> None:
        """Give the candidate the task's own weights and buffers again."""
        state = self.reference.state()
        self.worker.adopt({name: state[name] for name in self.known_state})

    def call(
        self, slot: int, probe: SeedProbe, *, first: bool = False, strided: bool = False
    ) -> Any:
        """Return the candidate's answer to a probe, asked in a slot of its memory.

        The inputs that the task changes are a part of it.

        A judge that waits to time a kernel has the device first: the calls of a large task together
        take minutes.
        """
        self._aside_s += self.worker.step_aside()
        self.worker.require_room(probe.expected.value)
        is_copied = self.reference.keeps_inputs
        self.worker.fill(slot, probe.inputs, strided=strided, copied=is_copied)
        if self.reference.draws:
            self.worker.reseed(probe.seed)
        output = self.worker.call(slot, first=first)
        changed = probe.expected.changed
        return join_answer(output, self.worker.inputs(slot) if changed else [], changed)

    def compare(
        self, probe: SeedProbe, output: Any, usual: Sequence[float] | None = None
    ) -> Comparison:
        """Compare an output with the expected one."""

        def read_choices() -> Sequence[Choice]:
            return self.reference.choices(probe.inputs, probe.seed)

        return compare(probe.expected, output, self.policy, read_choices, usual)

    def try_call(
        self, probe: SeedProbe, *, strided: bool = False, special: bool = False
    ) -> Comparison | None:
        """Make a call that decides no verdict; None where it fails.

        Args:
            probe: What to ask.
            strided: With gaps in the memory of the inputs.
            special: Whether answers may be far smaller than usual ones.
        """
        output = self.try_output(STRIDED_SLOT if strided else 0, probe, strided=strided)
        if output is None:
            return None
        comparison = self.compare(probe, output[0], self.get_usual(probe) if special else None)
        self.last_fault = comparison.message or ""
        return comparison

    def get_usual(self, probe: SeedProbe) -> Sequence[float] | None:
        """Return the size of ordinary answers; None for an answer of another number of tensors."""
        return self.usual if len(self.usual) == len(probe.expected.exact) else None

    def try_output(
        self, slot: int, probe: SeedProbe, *, strided: bool = False
    ) -> tuple[Any] | None:
        """Return the output of a call that decides no verdict, in a tuple; None where it fails."""
        try:
            return (self.call(slot, probe, strided=strided),)
        except Failed as failed:
            self.is_lost = failed.status == "timeout" or failed.reason in _DEATHS
            self.last_fault = f"the call fails: {failed.message}"
            return None

    def keeps_answer(self, before: tuple[Any] | None, probe: SeedProbe) -> bool:
        """Whether the candidate answers a probe by the same bits as the one before it.

        before: The output of the call before, in a tuple; None if it failed.
        """
        after = None if before is None else self.try_output(0, probe)
        if before is None or after is None:
            return False
        numbers = pair_outputs(probe.expected, after[0])
        shown = "; ".join(describe_largest_error(number) for number in numbers[:1])
        self.last_fault = f"no bit of the answer changes, though the task's does: {shown}"
        pairs = zip(tensors_of(before[0]), tensors_of(after[0]), strict=False)
        return all(has_same_bits(one, other) for one, other in pairs)

    def is_right(self, probe: SeedProbe) -> bool:
        """Whether the candidate answers a probe rightly; the call decides no verdict."""
        comparison = self.try_call(probe)
        return comparison is not None and comparison.reason is None


# The precision class of a candidate, from its verdict calls and its robustness calls.
#
# Two of the robustness calls show the precision. Rounding errors average out in long sums of
# positive products, but not with random signs or with few large inputs.

MOST_ROUNDING = 0.25
"""Norm of the error over that of the answer up to which it counts as rounding."""
DRAWS_OF_FEW = 5
"""Number of answers with few elements that show the precision together."""
_FEW_ELEMENTS = 16


@dataclass
class PrecisionRecord:
    """Precision classes of a candidate's calls."""

    verdict_classes: list[str | None] = field(default_factory=list[str | None])
    robustness_classes: list[str | None] = field(default_factory=list[str | None])
    """Classes of the calls that show the precision; None for a wrong answer."""
    eager_class: str | None = None
    """Lowest class of the eager reference in these calls."""
    lowest_class: str | None = None
    """The lowest class that ranks, by these calls."""
    has_few_elements: bool = False
    """Whether an answer has so few elements that it may be right by chance."""

    def measure_answer(self, answer: Any) -> None:
        """Record how many elements an answer of the task has."""
        sizes = [tensor.numel() for tensor in tensors_of(answer) if not is_whole(tensor)]
        self.has_few_elements = 0 < sum(sizes) < _FEW_ELEMENTS

    def note_eager(self, comparison: Comparison | None) -> None:
        """Note the class of the eager reference in a call, and what ranks by it."""
        if comparison is not None:
            self.lowest_class = max(self.lowest_class, comparison.lowest_class, key=rank_class)
            self.eager_class = max(self.eager_class, comparison.eager_class, key=rank_class)

    def classify(self, result: CaseResult, policy: Policy) -> None:
        """Set the precision class: the middle one of the verdict calls, or a worse one seen later.

        A candidate whose answers are wrong for random signs and uneven inputs has no trustworthy
        class.
        """
        classes = sorted(self.verdict_classes, key=rank_class)
        usual = classes[len(classes) // 2] if classes else None
        if usual is None:
            return
        worst = max([usual, *self.robustness_classes], key=rank_class)
        comparison: Comparison = result.comparison
        result.comparison = replace(comparison, precision_class=worst)
        result.eager_class = self.eager_class
        is_unknown = bool(self.robustness_classes) and not any(self.robustness_classes)
        flag = "precision_below_policy"
        if flag not in result.flags and (is_unknown or is_below(worst, self.lowest_class)):
            result.flags.add(flag)
            explained = explain_policy(worst, by_tf32=worst == "tf32" and policy != "allow_tf32")
            if explained is not None and not is_unknown:
                result.notes.append(f"precision: {explained}")


def classify_rounding(comparison: Comparison | None, *, typical: bool) -> str | None:
    """Return the precision class of an answer that is right except for rounding, else None.

    typical: take the class of typical elements alone.
    """
    if comparison is None or comparison.rel_l2_error is None:
        return None
    if comparison.rel_l2_error > MOST_ROUNDING:
        return None
    return comparison.typical_class if typical else comparison.precision_class


def pick_class(shown: str | None, repeated: str | None, *, has_few_elements: bool) -> str | None:
    """Return the class of a repeated call: the better one of the two.

    For answers of few elements, only the repetition counts, which combines several draws.
    """
    if has_few_elements:
        return repeated
    classes: Sequence[str] = [name for name in (shown, repeated) if name is not None]
    return min(classes, key=rank_class) if classes else None


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
        self._result = candidate.result
        self._precision = precision
        self._inputs: dict[int, tuple[list[Any], int]] = {}
        """Inputs and seed of the last call of each slot."""
        self._previous: tuple[int, Any] | None = None
        """Slot and output of the previous call."""
        self._slots = 1
        self._repeated: SeedProbe | None = None
        """The probe of the previous call, if the next call repeats it."""

    def run(self, first: SeedProbe, calls: int) -> None:
        """Make `calls` calls, or five where a call is slow. Raises Failed, ReferenceFailed."""
        rules = self._reference.rules
        if rules.tolerance is not None:
            self._result.notes.append(f"tolerance of the task: {rules.tolerance}")
        if rules.has_checker:
            self._result.notes.append("judged by the task's own checker")
        size = layout(first.inputs)[1]
        # Each slot is a copy of the inputs in the candidate's memory, and one in ours.
        self._slots = slots = 4 if size <= CHEAP_BYTES else 2 if size <= LARGE_BYTES else 1
        number = 0
        while number < calls:
            begin = self._candidate.read_clock()
            slot, kind = _PLAN[number % MOST_CALLS]
            slot %= slots
            probe = first if number == 0 else self._draw_next(slot, kind)
            self._decide(slot, probe, number, kind)
            number += 1
            is_repeated = _PLAN[number % MOST_CALLS][1] == "repeat" and slot in self._inputs
            self._repeated = probe if is_repeated else None
            # The first call may compile.
            if number > 1 and self._candidate.read_clock() - begin > _SLOW_CALL_S:
                calls = min(calls, _FEWEST_CALLS)

    def _draw_next(self, slot: int, kind: _Kind) -> SeedProbe:
        last = self._inputs.get(slot)
        if last is None or kind == "own":
            return draw_probe(self._reference, self._result)
        inputs, seed = last
        if kind == "interior":
            try:
                return self._draw_within(inputs)
            except ReferenceFailed:
                if not self._reference.is_alive:
                    raise
                # Corners of other inputs may break what the module needs, such as a matrix that is
                # positive definite.
                return draw_probe(self._reference, self._result)
        return SeedProbe(inputs, self._reference.answer(inputs, seed), seed)

    def _draw_within(self, corners: list[Any]) -> SeedProbe:
        return draw_probe(self._reference, self._result, lambda new: replace_interior(corners, new))

    def _decide(self, slot: int, probe: SeedProbe, number: int, kind: _Kind) -> None:
        worker = self._candidate.worker
        sizes = [t.numel() * t.element_size() for t in tensors_of(probe.expected.value)]
        is_inspected = number < 3 or max(layout(probe.inputs)[1], sum(sizes)) <= CHEAP_BYTES
        if sum(sizes) <= _MOST_POISON_BYTES:
            # A sum over a dimension needs memory of its own, as large as the others together.
            sums = {
                tensor.numel() * tensor.element_size() // length
                for tensor in tensors_of(probe.expected.value)
                for length in tensor.shape
                if length > 1
            }
            worker.poison([size for size in (*sizes, *sums) if size])
        try:
            output = self._candidate.call(slot, probe, first=number == 0)
        except Failed as failed:
            is_error = (failed.status, failed.reason) == ("crash", "exception")
            if kind == "interior" and is_error and self._relies_on_structure(slot):
                self._leave_out(slot, number, failed.message)
                return
            raise
        comparison = self._candidate.compare(probe, output)
        if comparison.reason is not None and self._is_luck(slot, comparison):
            self._result.notes.append(f"only call {number + 1}: {comparison.message}")
            self._previous = None
            self._inputs[slot] = (probe.inputs, probe.seed)
            return
        comparison = self._ask_checker(probe, output, comparison)
        if kind == "interior" and comparison.reason is not None and self._relies_on_structure(slot):
            self._leave_out(slot, number, comparison.message)
            return
        if comparison.excused is not None and "accepted_by_task" not in self._result.flags:
            self._result.flags.add("accepted_by_task")
            note = f"beyond the judge's own tolerance in call {number + 1}: {comparison.excused}"
            self._result.notes.append(note)
        if comparison.reason is not None:
            self._result.comparison = comparison
            raise self._explain_failure(comparison, probe, output, number)
        self._result.comparison = merge_comparisons(self._result.comparison, comparison)
        if number < FINGERPRINTS:
            self._result.answers.append(compute_fingerprint(output))
        self._precision.verdict_classes.append(comparison.precision_class)
        self._precision.note_eager(comparison)
        if is_inspected and not self._reference.rules.scratch:
            now, changed = worker.inputs(slot), probe.expected.changed
            pairs = enumerate(pair_tensors(probe.inputs, now))
            if not all(has_same_bits(*pair) for n, pair in pairs if n not in changed):
                names = self._reference.rules.names
                change = describe_change(probe.inputs, now, names, changed)
                message = f"call {number + 1} has changed {change}"
                raise Failed("incorrect", "input_mutated", message)
        if self._repeated is not None:
            # Check whether the answer follows from the inputs, which came twice in a row.
            again = probe.expected.value
            if self._candidate.compare(self._repeated, again).reason is not None:
                self._reference.remembers = True
            elif not is_same_answer(probe.expected, self._repeated.expected.value, again):
                # For example, spectral_norm comes closer to a norm in every call.
                self._reference.remembers |= self._has_state_changed()
            elif self._previous and not is_same_answer(probe.expected, self._previous[1], output):
                self._result.flags.add("nondeterministic")
        self._check_previous_output(slot)
        # Of large outputs, keep the one before the first change of slots, and what a repeat needs.
        is_kept = is_inspected or number == _PLAN_CHANGES - 1
        self._previous = (slot, output) if is_kept else None
        self._inputs[slot] = (probe.inputs, probe.seed)

    def _ask_checker(self, probe: SeedProbe, output: Any, own: Comparison) -> Comparison:
        """Return a comparison that is right, or wrong if the task's own checker says so."""
        if own.reason is not None or own.excused is not None or probe.expected.check is None:
            return own
        accepted, text = probe.expected.check(output)
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
            probe = draw_probe(self._reference, self._result)
            output = self._candidate.call(slot, probe)
            if self._candidate.compare(probe, output).reason is not None:
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
                probe = self._draw_within(self._reference.inputs(draw_seed()))
                output = self._candidate.call(slot, probe)
            except ReferenceFailed:
                if not self._reference.is_alive:
                    raise
                continue
            except Failed as failed:
                if (failed.status, failed.reason) != ("crash", "exception"):
                    raise
                return True
            comparison = self._candidate.compare(probe, output)
            if self._ask_checker(probe, output, comparison).reason is not None:
                return True
        return False

    def _leave_out(self, slot: int, number: int, message: str | None) -> None:
        """Note a call on mixed inputs, which break what the task promises of them."""
        self._result.notes.append(
            f"call {number + 1} left out, on the values of two draws mixed: {message}"
        )
        self._previous = None
        self._inputs.pop(slot, None)

    def _check_previous_output(self, slot: int) -> None:
        """Flag an output that this call has changed.

        A view of the inputs changes with them and is not flagged; if there is a second slot, the
        inputs of the previous call are still in theirs.
        """
        if self._previous is None or "reuses_output_buffer" in self._result.flags:
            return
        before, output = self._previous
        if before == slot and self._slots > 1:
            return
        now = self._candidate.worker.output(0, before=True)
        if not all(has_same_bits(a, b) for a, b in pair_tensors(output, now)):
            self._result.flags.add("reuses_output_buffer")

    def _has_state_changed(self) -> bool:
        before, now = self._reference.state(), self._reference.current_state()
        return any(name in now and not has_same_bits(before[name], now[name]) for name in before)

    def _explain_failure(
        self, comparison: Comparison, probe: SeedProbe, output: Any, number: int
    ) -> Failed:
        """Return the failure of a wrong answer; names the parameters that it ignores."""
        inputs = describe_inputs(probe.inputs, self._reference.rules.names)
        message = f"call {number + 1} on {inputs}: {comparison.message}"
        own, changed = list(tensors_of(probe.inputs)), probe.expected.changed
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
                without = self._reference.answer(probe.inputs, probe.seed)
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


_COUNTER = "num_batches_tracked"
"""A counter that no answer depends on if the momentum is given; fused kernels ignore it."""
_PIECES = 64
"""Pieces of a large tensor that are compared."""
_PIECE = 256
"""Elements of each."""
_State = TypeVar("_State")
_MOST_USUAL = 1.5
"""Reading a state may take this many times as long as it does from eager: processes differ."""
_FAR = 0.5
"""Relative distance from the task's own state within which a state may stay as it is."""


class StateChecks:
    """Compares the state of a candidate's module with that of the task's own."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._result = candidate.result
        self._followed: dict[str, torch.Tensor] = {}
        """What the task's own calls change, in the shapes and types of the task."""
        self._before: dict[str, torch.Tensor] | None = None
        """The candidate's values of these before the calls that come next."""
        self._can_follow: bool | None = None
        """Whether state and inputs determine the next state; None if not known yet."""
        self._usual_ns: list[int] = []
        """Times of reading the same state from eager."""

    def compare_after_verdict(self) -> None:
        """Flag parameters and buffers that differ from the task's own after the same calls."""
        before, current = self._reference.state(), self._reference.current_state()
        now = {name: value for name, value in current.items() if name in before}
        if current.keys() != before.keys():  # a call adds or removes buffers
            self._result.flags.add("timed_outputs_unverified")
        parameters = self._reference.parameters()
        changed = {name for name, value in now.items() if not has_same_bits(before[name], value)}
        self._candidate.moving_state = sorted(changed & {*self._candidate.known_state})
        wanted: dict[str, torch.Tensor] = {}
        large: dict[str, torch.Tensor] = {}
        lacking: list[str] = []
        room = CHEAP_BYTES
        # First what calls change, then buffers, then parameters.
        for name in sorted(
            now, key=lambda name: (name not in changed, name in parameters, now[name].nbytes)
        ):
            if name not in self._candidate.known_state:
                if name in changed - parameters and not _is_counter(name):
                    lacking.append(name)
            elif self._candidate.missing_parameters and name in parameters:
                continue
            elif now[name].nbytes <= room:
                room -= now[name].nbytes
                wanted[name] = now[name]
            else:
                large[name] = now[name]
                if name in changed:
                    self._result.flags.add("timed_outputs_unverified")
        # The answers of later calls show whether the candidate keeps what they depend on.
        if lacking and self._reference.shows_only_in_evaluation(lacking):
            names = ", ".join(lacking)
            self._note_difference(f"{names} changes in the task's own calls, and is not there")
        given = self._read(lambda: self._candidate.worker.current_state(wanted))
        if given is not None:
            self._compare(wanted, given, "the calls")
            self._followed = {name: value for name, value in wanted.items() if name in changed}
            self._compare_samples(large)

    def _compare_samples(self, large: Mapping[str, torch.Tensor]) -> None:
        """Compare secret pieces of tensors that are too large to be read whole."""
        draw = random.Random(secrets.randbits(64))
        pieces = [
            (name, draw.randrange(value.numel() - _PIECE + 1), _PIECE)
            for name, value in large.items()
            for _ in range(_PIECES)
            if value.numel() >= _PIECE
        ]
        values = self._read(lambda: self._candidate.worker.read_pieces(pieces))
        if not values:
            return
        wanted: dict[str, list[torch.Tensor]] = {name: [] for name, _, _ in pieces}
        given: dict[str, list[torch.Tensor]] = {name: [] for name, _, _ in pieces}
        for (name, start, count), value in zip(pieces, values, strict=True):
            wanted[name].append(large[name].reshape(-1)[start : start + count])
            given[name].append(value.to(large[name].dtype))
        self._compare(
            {name: torch.cat(parts) for name, parts in wanted.items()},
            {name: torch.cat(parts) for name, parts in given.items()},
            "the calls",
        )

    def follow(self, calls: Sequence[list[Any]], eager: WorkerHandle) -> int:
        """Flag a state after timed calls that differs from the task's own after the same calls.

        It is read after every sample, so the candidate cannot tell which samples are checked. A
        module can put off updates until its state is read. Reading it that takes longer than it
        does from eager counts as time of the sample.

        Args:
            calls: Inputs of the calls since the last time, to check them; empty otherwise.
            eager: A worker that runs the task's own module.

        Returns the nanoseconds that count.
        """
        is_unverified = not self._reference.repeatable
        if not self._followed or is_unverified or self._can_follow is False:
            return 0
        begin_ns = time.perf_counter_ns()
        now = self._read(lambda: self._candidate.worker.current_state(self._followed))
        read_ns = time.perf_counter_ns() - begin_ns
        begin_ns = time.perf_counter_ns()
        eager.current_state(self._followed)
        self._usual_ns.append(time.perf_counter_ns() - begin_ns)
        if now is not None and self._before is not None and calls:
            wanted = self._update(self._before, calls)
            if self._can_follow is None:
                again = self._update(self._before, calls)
                self._can_follow = wanted.keys() == now.keys() and all(
                    has_same_bits(wanted[name], again[name]) for name in wanted
                )
            if self._can_follow and not self._is_out_of_reach(self._before, wanted):
                self._compare(wanted, now, "timed calls")
            else:
                self._result.flags.add("timed_outputs_unverified")
        self._before = now
        return max(0, read_ns - round(_MOST_USUAL * statistics.median(self._usual_ns)))

    def _is_out_of_reach(
        self, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
    ) -> bool:
        """Whether calls leave a value as it is that is far from the task's own.

        A candidate that has set a buffer to NaN or to a huge sum need not update it any more.

        Args:
            before: The candidate's values before some calls.
            after: What the task's own module makes of them in these calls.
        """
        for name, own in self._followed.items():
            if _is_counter(name) or is_whole(own):
                continue
            moved = compare(_make_expected(after[name]), before[name], self._candidate.policy)
            if moved.reason is None:
                wide = _widen(own)
                difference = (_widen(before[name]) - wide).abs()
                if not bool((difference <= _FAR * (wide.abs() + compute_rms(wide))).all()):
                    return True
        return False

    def _update(
        self, state: Mapping[str, torch.Tensor], calls: Sequence[list[Any]]
    ) -> dict[str, torch.Tensor]:
        self._reference.load(state)
        for inputs in calls:
            self._reference.value(inputs)
        now = self._reference.current_state()
        return {name: now[name] for name in state if name in now}

    def _read(self, read: Callable[[], _State]) -> _State | None:
        """Return the candidate's state; None where its own code refuses to give it."""
        try:
            return read()
        except Failed as failed:
            if (failed.status, failed.reason) != ("crash", "exception"):
                raise
            self._note_difference(f"it cannot be read: {failed.message}")
            return None

    def _compare(
        self, wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], when: str
    ) -> None:
        for name, value in wanted.items():
            if _is_counter(name):
                continue
            comparison = compare(_make_expected(value), given[name], self._candidate.policy)
            if comparison.reason is not None:
                self._note_difference(f"{name}: {comparison.message}", when)

    def _note_difference(self, difference: str, when: str = "the calls") -> None:
        self._candidate.note("state_differs", f"state after {when}: {difference}")


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == _COUNTER


def _make_expected(value: torch.Tensor) -> Expected:
    return Expected(value, [None if is_whole(value) else _widen(value)])


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)
