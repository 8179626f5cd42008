"""The correctness protocol: weights, verdict calls, answers of timed calls, robustness calls.

Verdict calls draw from the task's own distribution under secret seeds, and decide. They use fresh
storage, refill the same storage without a change of the version counter, and change everything
except the corners at the same address, so memorized answers fail. Robustness calls vary inputs and
weights; they raise flags (`judging.flags`) and decide nothing.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

import torch

from evaluators.judging.case import Precision
from evaluators.judging.case_result import CaseResult
from evaluators.judging.comparison import (
    Comparison,
    compare,
    describe_change,
    describe_inputs,
    describe_largest_error,
    find_departure,
    find_lost_infinity,
    is_close,
    is_finite,
    is_same_answer,
    is_whole,
    merge_comparisons,
    name_failures,
    pair_outputs,
)
from evaluators.judging.flags import FLAGS
from evaluators.judging.input_variations import (
    ADD_ROUNDING,
    FRAGILE,
    SIGNS,
    SPECIAL,
    STEEP,
    Variation,
    name_tensors,
    replace_interior,
    take_step,
    vary_whole,
)
from evaluators.judging.tolerance import (
    EAGER_ERRORS_ALLOWED,
    compute_rms,
    explain_precision,
    get_tolerance,
    is_below,
    measure_algorithms,
    rank_class,
)
from evaluators.memory.tensors import (
    change_elements,
    compute_fingerprint,
    has_same_bits,
    lay_out,
    tensors_of,
)
from evaluators.references.operations import Choice, EagerError
from evaluators.references.task import Expected, Reference, ReferenceFailed, call_seed, join_answer
from evaluators.sandbox.failures import Failed
from evaluators.worker.handle import Parameter, WorkerHandle

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


def draw_probe(reference: Reference, result: CaseResult) -> SeedProbe:
    """Return a probe under a new secret seed, which the result records. Raises ReferenceFailed."""
    result.seeds.append(draw_seed())
    return repeat_probe(reference, result.seeds[-1])


def repeat_probe(reference: Reference, seed: int) -> SeedProbe:
    """Return the probe of a seed; see `draw_probe`. Raises ReferenceFailed."""
    return ask_reference(reference, reference.inputs(seed), seed)


def ask_reference(reference: Reference, inputs: list[Any], seed: int) -> SeedProbe:
    """Return inputs with the reference's answer, which are from a seed. Raises ReferenceFailed."""
    return SeedProbe(inputs, reference.answer(inputs, call_seed(seed)), call_seed(seed))


STRIDED_SLOT = 1000
"""Slot of the inputs with gaps; its storage stays strided, so no other call may use it."""
_DEATHS = ("signal", "early_exit", "malformed_output")


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

    def note_eager(self, comparison: Comparison | None) -> None:
        """Note the class of the eager reference in a call, and what ranks by it."""
        if comparison is not None:
            self.lowest_class = max(self.lowest_class, comparison.lowest_class, key=rank_class)
            self.eager_class = max(self.eager_class, comparison.eager_class, key=rank_class)

    def classify(self, result: CaseResult, precision: Precision) -> None:
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
            explained = explain_precision(
                worst, by_tf32=worst == "tf32" and precision != "allow_tf32"
            )
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
_MOST_TENSORS = 32
VISIBLE = 30.0
"""Change of an answer, in multiples of its tolerance, for a tensor that is changed alone."""
HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e6
_ROUNDING_ERRORS = 4.0
"""A move of the exact answer by as many of eager's largest errors is not rounding."""
_FEWEST_MOVED = 8
_SHARE_MOVED = 1 / 64
_LIMIT_S = 20.0
_MOST_ALONE = 6
"""Tensors of the inputs that are varied alone, at most."""
_MOST_ROUNDING_OF_USUAL = 0.02
"""Norm of the error over that of usual answers up to which it counts as rounding, for answers that
may be close to zero."""
_MOST_OF_DIFFERENCE = 0.1
"""Rounding errors are below this share of the difference between answers to different inputs."""
_MOST_GROWTH = 10.0
"""Rounding errors of timed calls are at most this many times as large as those of verdict calls."""


class EagerLost(ReferenceFailed):
    """Eager has not survived the inputs."""


class CorrectnessProtocol:
    """Calls one candidate and compares its answers.

    Methods raise Failed where the candidate fails, and ReferenceFailed where the task does.
    """

    def __init__(
        self,
        worker: WorkerHandle,
        reference: Reference,
        result: CaseResult,
        precision: Precision,
        lacks_shared_memory: Callable[[Exception], bool] = lambda failed: False,
    ) -> None:
        """Begin with a worker that has loaded the candidate.

        lacks_shared_memory: Whether a failure may be due to memory that others hold. Calls that
            decide nothing raise it, too: it says nothing of the candidate.
        """
        self.worker = worker
        self.reference = reference
        self.result = result
        self.precision: Precision = precision
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
        self._lacks_shared_memory = lacks_shared_memory
        self._aside_s = 0.0
        self._classes = PrecisionRecord()
        result.comparison = Comparison()
        self._inputs: dict[int, tuple[list[Any], int]] = {}
        """Inputs and seed of the last verdict call of each slot."""
        self._previous: tuple[int, Any] | None = None
        """Slot and output of the previous call."""
        self._slots = 1
        self._repeated: SeedProbe | None = None
        """The probe of the previous call, if the next call repeats it."""
        self._followed: dict[str, torch.Tensor] = {}
        """What the task's own calls change, in the shapes and types of the task."""
        self._before: dict[str, torch.Tensor] | None = None
        """The candidate's values of these before the calls that come next."""
        self._can_follow: bool | None = None
        """Whether state and inputs determine the next state; None if not known yet."""
        self._usual_ns: list[int] = []
        """Times of reading the same state from eager."""
        self._has_rounded = False
        """Whether the answer of a timed call has been beyond its tolerance by rounding."""
        self._eager: WorkerHandle
        """The worker that runs eager, the task's own module, during the robustness calls."""
        self._is_complete = True
        """Whether every robustness call could be compared so far."""
        self._last_output: Any = None
        self._class_of_signs: str | None = None
        """Precision class that random signs have shown."""
        self._moving: dict[str, torch.Tensor] = {}
        """The task's values of what its calls change."""

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

        return compare(probe.expected, output, self.precision, read_choices, usual)

    def try_call(self, probe: SeedProbe) -> Comparison | None:
        """Make a call that decides no verdict; None where it fails."""
        output = self.try_output(0, probe)
        if output is None:
            return None
        comparison = self.compare(probe, output[0])
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
            if self._lacks_shared_memory(failed):
                raise
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

    # Verdict calls.

    def make_verdict_calls(self, first: SeedProbe, calls: int) -> None:
        """Make the calls that decide: `calls`, or five if a call is slow.

        After them, the module's state must equal that of the task's own module.
        """
        self.usual = [compute_rms(exact) for exact in first.expected.exact]
        elements = [t.numel() for t in tensors_of(first.expected.value) if not is_whole(t)]
        self._classes.has_few_elements = 0 < sum(elements) < _FEW_ELEMENTS
        rules = self.reference.rules
        if rules.tolerance is not None:
            self.result.notes.append(f"tolerance of the task: {rules.tolerance}")
        if rules.has_checker:
            self.result.notes.append("judged by the task's own checker")
        size = lay_out(first.inputs).end
        # Each slot is a copy of the inputs in the candidate's memory, and one in ours.
        self._slots = slots = 4 if size <= CHEAP_BYTES else 2 if size <= LARGE_BYTES else 1
        number = 0
        while number < calls:
            begin = self.read_clock()
            slot, kind = _PLAN[number % MOST_CALLS]
            slot %= slots
            last = self._inputs.get(slot)
            if number == 0:
                probe = first
            elif last is None or kind == "own":
                probe = draw_probe(self.reference, self.result)
            elif kind == "repeat":
                inputs, seed = last
                probe = SeedProbe(inputs, self.reference.answer(inputs, seed), seed)
            else:
                try:
                    probe = self._draw_within(last[0])
                except ReferenceFailed:
                    if not self.reference.is_alive:
                        raise
                    # Corners of other inputs may break what the module needs, such as a matrix
                    # that is positive definite.
                    probe = draw_probe(self.reference, self.result)
            self._decide(slot, probe, number, kind)
            number += 1
            is_repeated = _PLAN[number % MOST_CALLS][1] == "repeat" and slot in self._inputs
            self._repeated = probe if is_repeated else None
            # The first call may compile.
            if number > 1 and self.read_clock() - begin > _SLOW_CALL_S:
                calls = min(calls, _FEWEST_CALLS)
        self._inputs, self._previous, self._repeated = {}, None, None  # timing needs the memory
        self._compare_state()
        self._classes.classify(self.result, self.precision)

    def _draw_within(self, corners: list[Any]) -> SeedProbe:
        seed = draw_seed()
        self.result.seeds.append(seed)
        inputs = replace_interior(corners, self.reference.inputs(seed))
        return ask_reference(self.reference, inputs, seed)

    def _decide(self, slot: int, probe: SeedProbe, number: int, kind: _Kind) -> None:
        worker = self.worker
        sizes = [t.numel() * t.element_size() for t in tensors_of(probe.expected.value)]
        is_inspected = number < 3 or max(lay_out(probe.inputs).end, sum(sizes)) <= CHEAP_BYTES
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
            output = self.call(slot, probe, first=number == 0)
        except Failed as failed:
            is_error = (failed.status, failed.reason) == ("crash", "exception")
            if kind == "interior" and is_error and self._relies_on_structure(slot):
                self._leave_out(slot, number, failed.message)
                return
            raise
        comparison = self.compare(probe, output)
        if comparison.reason is not None and self._is_luck(slot, comparison):
            self.result.notes.append(f"only call {number + 1}: {comparison.message}")
            self._previous = None
            self._inputs[slot] = (probe.inputs, probe.seed)
            return
        comparison = self._ask_checker(probe, output, comparison)
        if kind == "interior" and comparison.reason is not None and self._relies_on_structure(slot):
            self._leave_out(slot, number, comparison.message)
            return
        if comparison.excused is not None and "accepted_by_task" not in self.result.flags:
            self.result.flags.add("accepted_by_task")
            note = f"beyond the judge's own tolerance in call {number + 1}: {comparison.excused}"
            self.result.notes.append(note)
        if comparison.reason is not None:
            self.result.comparison = comparison
            raise self._explain_failure(comparison, probe, output, number)
        self.result.comparison = merge_comparisons(self.result.comparison, comparison)
        if number < FINGERPRINTS:
            self.result.answers.append(compute_fingerprint(output))
        self._classes.verdict_classes.append(comparison.precision_class)
        self._classes.note_eager(comparison)
        if is_inspected and not self.reference.rules.scratch:
            now, changed = worker.inputs(slot), probe.expected.changed
            pairs = enumerate(pair_tensors(probe.inputs, now))
            if not all(has_same_bits(*pair) for n, pair in pairs if n not in changed):
                names = self.reference.rules.names
                change = describe_change(probe.inputs, now, names, changed)
                message = f"call {number + 1} has changed {change}"
                raise Failed("incorrect", "input_mutated", message)
        if self._repeated is not None:
            # Check whether the answer follows from the inputs, which came twice in a row.
            again = probe.expected.value
            if self.compare(self._repeated, again).reason is not None:
                self.reference.remembers = True
            elif not is_same_answer(probe.expected, self._repeated.expected.value, again):
                # For example, spectral_norm comes closer to a norm in every call.
                before, now = self.reference.state(), self.reference.current_state()
                self.reference.remembers |= any(
                    name in now and not has_same_bits(before[name], now[name]) for name in before
                )
            elif self._previous and not is_same_answer(probe.expected, self._previous[1], output):
                self.result.flags.add("nondeterministic")
        # A view of the inputs changes with them and is not flagged; if there is a second slot, the
        # inputs of the previous call are still in theirs.
        if (
            self._previous is not None
            and "reuses_output_buffer" not in self.result.flags
            and (self._previous[0] != slot or self._slots == 1)
        ):
            now = worker.output(0, before=True)
            if not all(has_same_bits(a, b) for a, b in pair_tensors(self._previous[1], now)):
                self.result.flags.add("reuses_output_buffer")
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
            probe = draw_probe(self.reference, self.result)
            output = self.call(slot, probe)
            if self.compare(probe, output).reason is not None:
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
                probe = self._draw_within(self.reference.inputs(draw_seed()))
                output = self.call(slot, probe)
            except ReferenceFailed:
                if not self.reference.is_alive:
                    raise
                continue
            except Failed as failed:
                if (failed.status, failed.reason) != ("crash", "exception"):
                    raise
                return True
            comparison = self.compare(probe, output)
            if self._ask_checker(probe, output, comparison).reason is not None:
                return True
        return False

    def _leave_out(self, slot: int, number: int, message: str | None) -> None:
        self.result.notes.append(
            f"call {number + 1} left out, on the values of two draws mixed: {message}"
        )
        self._previous = None
        self._inputs.pop(slot, None)

    def _explain_failure(
        self, comparison: Comparison, probe: SeedProbe, output: Any, number: int
    ) -> Failed:
        inputs = describe_inputs(probe.inputs, self.reference.rules.names)
        message = f"call {number + 1} on {inputs}: {comparison.message}"
        own, changed = list(tensors_of(probe.inputs)), probe.expected.changed
        if changed and comparison.reason == "incorrect_numerical":
            for number, after in zip(changed, output[1], strict=True):
                if has_same_bits(own[number], after):
                    left = f"the task changes input {number} in a call, and the kernel does not"
                    message = f"{left}: {message}"
                    break
        missing = self.missing_parameters
        if comparison.reason == "incorrect_numerical" and missing:
            state = self.reference.state()
            # Weights without effect: scales of one and summands of zero, or all alike.
            for scale, summand in ((1.0, 0.0), (0.0, 0.0), (1.0, 1.0)):
                self.reference.reset()
                self.reference.load(
                    {
                        name: torch.full_like(
                            state[name], summand if name.rpartition(".")[2] == "bias" else scale
                        )
                        for name in missing
                    }
                )
                without = self.reference.answer(probe.inputs, probe.seed)
                if compare(without, output, self.precision).reason is None:
                    names = ", ".join(missing)
                    message = f"the answer is the one without {names}: {message}"
                    return Failed("incorrect", "parameters_ignored", message)
            if not self.known_state:
                message += f"; the kernel has no parameters, and the task has {', '.join(missing)}"
        status = "rejected" if comparison.reason == "lazy_output" else "incorrect"
        return Failed(status, comparison.reason or "unspecified", message)

    # The state of the candidate's module beside that of the task's own.

    def _compare_state(self) -> None:
        """Flag parameters and buffers that differ from the task's own after the same calls."""
        before, current = self.reference.state(), self.reference.current_state()
        now = {name: value for name, value in current.items() if name in before}
        if current.keys() != before.keys():  # a call adds or removes buffers
            self.result.flags.add("timed_outputs_unverified")
        parameters = self.reference.parameters()
        changed = {name for name, value in now.items() if not has_same_bits(before[name], value)}
        self.moving_state = sorted(changed & {*self.known_state})
        wanted: dict[str, torch.Tensor] = {}
        large: dict[str, torch.Tensor] = {}
        lacking: list[str] = []
        room = CHEAP_BYTES
        # First what calls change, then buffers, then parameters.
        for name in sorted(
            now, key=lambda name: (name not in changed, name in parameters, now[name].nbytes)
        ):
            if name not in self.known_state:
                if name in changed - parameters and not _is_counter(name):
                    lacking.append(name)
            elif self.missing_parameters and name in parameters:
                continue
            elif now[name].nbytes <= room:
                room -= now[name].nbytes
                wanted[name] = now[name]
            else:
                large[name] = now[name]
                if name in changed:
                    self.result.flags.add("timed_outputs_unverified")
        # The answers of later calls show whether the candidate keeps what they depend on.
        if lacking and self.reference.shows_only_in_evaluation(lacking):
            names = ", ".join(lacking)
            self._note_difference(f"{names} changes in the task's own calls, and is not there")
        given = self._read(lambda: self.worker.current_state(wanted))
        if given is not None:
            self._compare_values(wanted, given, "the calls")
            self._followed = {name: value for name, value in wanted.items() if name in changed}
            # Of a large tensor, pieces at random.
            draw = random.Random(secrets.randbits(64))
            pieces = [
                (name, draw.randrange(value.numel() - _PIECE + 1), _PIECE)
                for name, value in large.items()
                for _ in range(_PIECES)
                if value.numel() >= _PIECE
            ]
            own: dict[str, list[torch.Tensor]] = {name: [] for name, _, _ in pieces}
            read: dict[str, list[torch.Tensor]] = {name: [] for name, _, _ in pieces}
            if values := self._read(lambda: self.worker.read_pieces(pieces)):
                for (name, start, count), value in zip(pieces, values, strict=True):
                    own[name].append(large[name].reshape(-1)[start : start + count])
                    read[name].append(value.to(large[name].dtype))
                self._compare_values(
                    {name: torch.cat(parts) for name, parts in own.items()},
                    {name: torch.cat(parts) for name, parts in read.items()},
                    "the calls",
                )

    def follow_state(self, calls: Sequence[list[Any]], eager: WorkerHandle) -> int:
        """Flag a state after timed calls that differs from the task's own after the same calls.

        It is read after every sample, so the candidate cannot tell which samples are checked. A
        module can put off updates until its state is read. Reading it that takes longer than it
        does from eager counts as time of the sample.

        calls: Inputs of the calls since the last time, to check them; empty otherwise.

        Returns the nanoseconds that count.
        """
        is_unverified = not self.reference.repeatable
        if not self._followed or is_unverified or self._can_follow is False:
            return 0
        begin_ns = time.perf_counter_ns()
        now = self._read(lambda: self.worker.current_state(self._followed))
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
            # A candidate that has set a buffer to NaN or to a huge sum need not update it any more:
            # calls may leave a value as it is that is far from the task's own.
            is_out_of_reach = False
            for name, own in self._followed.items() if self._can_follow else ():
                if _is_counter(name) or is_whole(own):
                    continue
                before, precision = self._before[name], self.precision
                if compare(_make_expected(wanted[name]), before, precision).reason is None:
                    wide = _widen(own)
                    distance = (_widen(before) - wide).abs()
                    limit = _FAR * (wide.abs() + compute_rms(wide))
                    is_out_of_reach |= not bool((distance <= limit).all())
            if self._can_follow and not is_out_of_reach:
                self._compare_values(wanted, now, "timed calls")
            else:
                self.result.flags.add("timed_outputs_unverified")
        self._before = now
        return max(0, read_ns - round(_MOST_USUAL * statistics.median(self._usual_ns)))

    def _update(
        self, state: Mapping[str, torch.Tensor], calls: Sequence[list[Any]]
    ) -> dict[str, torch.Tensor]:
        self.reference.load(state)
        for inputs in calls:
            self.reference.value(inputs)
        now = self.reference.current_state()
        return {name: now[name] for name in state if name in now}

    def _read(self, read: Callable[[], _State]) -> _State | None:
        try:
            return read()
        except Failed as failed:
            if (failed.status, failed.reason) != ("crash", "exception"):
                raise
            self._note_difference(f"it cannot be read: {failed.message}")
            return None

    def _compare_values(
        self, wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], when: str
    ) -> None:
        for name, value in wanted.items():
            if _is_counter(name):
                continue
            comparison = compare(_make_expected(value), given[name], self.precision)
            if comparison.reason is not None:
                self._note_difference(f"{name}: {comparison.message}", when)

    def _note_difference(self, difference: str, when: str = "the calls") -> None:
        self.note("state_differs", f"state after {when}: {difference}")

    # Answers of timed calls.

    def check_timed_output(self, inputs: list[Any], output: Any, inputs_now: Any) -> None:
        """Compare the output of a timed call, unless it depends on more than what was sent.

        Raises Failed: incorrect_numerical if answers of two calls are beyond the tolerance by their
        rounding errors, memorised_output for any other wrong answer, input_mutated for a change of
        the inputs that the task does not make. Rounding errors beyond the tolerance in a single
        call are luck, such as answers next to zero.
        """
        changed, rules = self.reference.changed or [], self.reference.rules
        if self.reference.repeatable:
            self._check_timed_answer(inputs, join_answer(output, inputs_now, changed))
        else:
            self.result.flags.add("timed_outputs_unverified")
        pairs = enumerate(pair_tensors(inputs, inputs_now))
        is_kept = all(has_same_bits(*pair) for n, pair in pairs if n not in changed)
        if not is_kept and not rules.scratch:
            change = describe_change(inputs, inputs_now, rules.names, changed)
            raise Failed("incorrect", "input_mutated", f"a timed call has changed {change}")

    def _check_timed_answer(self, inputs: list[Any], output: Any) -> None:
        eager = self.reference.value(inputs)
        self.worker.require_room(eager)
        if is_close(eager, output, self.precision, self.result.comparison.eager_error):
            return
        expected = self.reference.answer(inputs)
        comparison = compare(
            expected, output, self.precision, lambda: self.reference.choices(inputs)
        )
        if comparison.reason is None:
            return
        # Rounding errors may be beyond the tolerance in one call of many. They are then not much
        # larger than in the verdict calls, unless the candidate computes less precisely when it is
        # timed. An answer from an earlier call is as far from the expected one as any other.
        usual, largest = self.result.comparison.max_scaled_error, comparison.max_scaled_error
        is_rounding = False
        if usual is not None and largest is not None and largest <= max(1.0, _MOST_GROWTH * usual):
            other = draw_probe(self.reference, self.result).expected
            difference = compare(expected, other.value, self.precision).rel_l2_error
            error = comparison.rel_l2_error
            if error is not None and difference is not None:
                is_rounding = error < _MOST_OF_DIFFERENCE * difference
        named = describe_inputs(inputs, self.reference.rules.names)
        message = f"a timed call on {named} gave a wrong answer: {comparison.message}"
        if is_rounding and not self._has_rounded:
            self._has_rounded = True
            self.result.notes.append(message)
            return
        self.result.comparison = comparison
        if is_rounding:
            raise Failed("incorrect", "incorrect_numerical", message)
        raise Failed("rejected", "memorised_output", message)

    # Robustness calls: inputs and weights that the task does not promise. Honest kernels break on
    # some of them, so they raise flags (`judging.flags`) and decide no verdict.

    def make_robustness_calls(self, eager: WorkerHandle) -> bool:
        """Make the calls that raise flags and decide nothing, after all other calls.

        They check first whether the candidate is the same function, then its robustness. Inputs of
        other signs are always tried: a candidate that is slow on unexpected inputs must not use up
        the time of these checks.

        eager: Worker that runs the task's own module. On a GPU it tries the inputs first: inputs
            outside the task's promise may end the process that reads them, and that must not be the
            judge's process.

        Returns whether eager can still be used.
        """
        if self.reference.remembers:
            return True
        self._eager = eager
        try:
            if not self._try_variations(SIGNS, math.inf):
                return True
            end = self.read_clock() + _LIMIT_S
            with self._note_limit("one input alone"):
                self._is_complete &= self._vary_alone(end)
            if not self.missing_parameters and self.reference.state():
                with self._note_limit("other weights"):
                    self._perturb_all()
                    self._is_complete &= self._perturb_each(end)
                try:
                    self.restore_weights()
                except Failed:
                    return True
            is_complete = self._is_complete and self.read_clock() <= end
            self.result.compared_as_function = is_complete and not self.is_lost
            if self._try_variations(FRAGILE, end) and self._try_steep(end):
                self._try_variations(SPECIAL, end)
        except EagerLost:
            return False
        finally:
            self._last_output = None
            self._classes.classify(self.result, self.precision)
        return True

    def _try_variations(self, variations: Sequence[Variation], end: float) -> bool:
        """Try variations of the inputs; returns whether there are time and process for more."""
        for variation in variations:
            if self.read_clock() > end or self.is_lost:
                return False
            with self._note_limit(variation.flag):
                probe = self._draw_variation(variation)
                if probe is None:
                    continue
                comparison, departure = self._try(variation, probe)
                if variation.by_chance and comparison is not None and comparison.reason is None:
                    probe = self._draw_variation(variation) or probe
                    comparison, departure = self._try(variation, probe)
                if variation.tells_precision:
                    self._note_class(variation, comparison, probe)
                if comparison is not None and comparison.reason is None:
                    continue
                self.result.flags.add(variation.flag)
                fault = self.last_fault
                if variation in SIGNS and not self._is_rounding(probe, variation, comparison):
                    self._note_function(variation, fault)
                if departure is not None and self._departs_again(variation):
                    self._note_function(variation, departure)
                # The failure may have broken the process too; then further calls show nothing.
                if self.is_lost or not self.is_right(draw_probe(self.reference, self.result)):
                    if variation in SIGNS:
                        self._note_function(variation, fault)
                    return False
        return True

    @contextlib.contextmanager
    def _note_limit(self, calls: str) -> Generator[None]:
        """Note that calls end by a limit of the judge or a fault of the task, not of the kernel."""
        try:
            with name_failures():
                yield
        except EagerLost:
            raise
        except ReferenceFailed as failed:
            if self._lacks_shared_memory(failed):
                raise
            self.result.notes.append(f"{calls}: not tried, {failed}")
            self._is_complete = False

    def _try(self, variation: Variation, probe: SeedProbe) -> tuple[Comparison | None, str | None]:
        """Return the comparison of a varied call, None where it fails, and how it departs."""
        slot = STRIDED_SLOT if variation.strided else 0
        output = self.try_output(slot, probe, strided=variation.strided)
        if output is None:
            return None, None
        usual = self.get_usual(probe)
        comparison = self.compare(probe, output[0], usual if variation.special else None)
        self.last_fault = comparison.message or ""
        self._last_output = output[0]
        if not variation.departs:
            return comparison, None
        # What is left out may look like rounding where inputs are uneven, but not where they are of
        # one size: the candidate may round more than the precision allows, and the error be that.
        shown = max(self.result.comparison.precision_class, self._class_of_signs, key=rank_class)
        error = comparison.rel_l2_error
        rounds_more = is_below(shown, self._classes.lowest_class)
        if rounds_more and error is not None and error <= MOST_ROUNDING:
            return comparison, None
        precision, expected = self.precision, probe.expected
        if not variation.finite:
            lost = None if usual is None else find_lost_infinity(expected, output[0], usual)
            return comparison, lost
        # Rules of the task decide what is right, and a rounding step moves an answer far.
        if expected.rules.tolerance is not None or expected.check is not None or expected.rounds:
            return comparison, None
        departure = find_departure(expected, output[0], precision)
        if departure is not None and any(step is not None for step in expected.steps()):
            return comparison, None
        if departure is not None:
            noisy = ADD_ROUNDING(probe.inputs, draw_seed())
            moved = self.reference.answer(noisy, probe.seed).exact
            departure = find_departure(expected, output[0], precision, moved)
        return comparison, departure

    def _departs_again(self, variation: Variation) -> bool:
        probe = self._draw_variation(variation)
        return probe is not None and self._try(variation, probe)[1] is not None

    def _note_function(self, variation: Variation, fault: str) -> None:
        self.note("another_function", f"{FLAGS[variation.flag]}: {fault}")

    def _try_steep(self, end: float) -> bool:
        """Try inputs of steep scale, in which what is left out elsewhere dominates the answer.

        Returns whether there are time and process for more.
        """
        for variations in STEEP:
            # The second one is for a reference that overflows on the first.
            for variation in variations:
                if self.read_clock() > end or self.is_lost:
                    return False
                probe = self._draw_variation(variation)
                if probe is None:
                    continue
                departure = self._try(variation, probe)[1]
                if departure is not None and self._departs_again(variation):
                    self.result.flags.add(variation.flag)
                    self._note_function(variation, departure)
                break
        return not self.is_lost

    def _vary_alone(self, end: float) -> bool:
        """Vary one tensor of the inputs at a time, whole numbers and masks among them.

        A tensor may be constant, or its effect may be below the tolerance when all vary. Where the
        task's own draws vary a visible tensor, the verdict calls have shown that it is read.

        Returns whether there was time for all of them.
        """
        seed = draw_seed()
        own = self.reference.inputs(seed)
        tensors = list(tensors_of(own))
        chosen = [
            number
            for number, tensor in enumerate(tensors)
            if tensor.numel() > int(is_whole(tensor)) and (is_whole(tensor) or len(tensors) > 1)
        ]
        if not chosen:
            return True
        draws = [list(tensors_of(self.reference.inputs(draw_seed()))) for _ in range(2)]
        sizes = [size for tensor in tensors for size in tensor.shape]
        names = name_tensors(own)
        self.result.seeds.append(seed)
        probe = ask_reference(self.reference, own, seed)
        for number in sorted(random.sample(chosen, min(len(chosen), _MOST_ALONE))):
            if self.read_clock() > end or self.is_lost:
                return False
            tensor = tensors[number]
            others = [
                each[number]
                for each in draws
                if len(each) == len(tensors) and each[number].shape == tensor.shape
            ]
            is_drawn = not all(has_same_bits(tensor, other) for other in others)
            self._vary_one(probe, number, names[number], others, sizes, is_drawn=is_drawn)
        return True

    def _vary_one(
        self,
        probe: SeedProbe,
        number: int,
        name: str,
        others: Sequence[torch.Tensor],
        sizes: Sequence[int],
        *,
        is_drawn: bool,
    ) -> None:
        tensor = list(tensors_of(probe.inputs))[number]
        seed = draw_seed()
        may_fail = self.reference.device == "cpu"
        varied = tensor
        if is_whole(tensor):
            varied = vary_whole(tensor, others, sizes, seed, may_fail=may_fail)
        if varied is None:
            return
        probes: dict[float, SeedProbe] = {}

        def measure(times: float) -> float:
            value = varied if is_whole(tensor) else take_step(tensor, seed, times)
            inputs = change_elements(probe.inputs, lambda own: value if own is tensor else own)
            if self._ask_eager(inputs, probe.inputs) is None:
                return 0.0
            try:
                expected = self.reference.answer(inputs, probe.seed)
            except ReferenceFailed:
                if not self.reference.is_alive:
                    raise
                return 0.0
            probes[times] = replace(probe, inputs=inputs, expected=expected)
            return measure_visibility(probe.expected, expected, self.precision)

        times, visibility = amplify(measure, can_amplify=not is_whole(tensor))
        changed = probes.get(times)
        if not visibility > HARDLY_VISIBLE:
            if changed is not None and moves_beyond_rounding(probe.expected, changed.expected):
                before = self.try_output(0, probe)
                if self.keeps_answer(before, changed):
                    fault = self.last_fault
                    self.note("another_function", f"{name} varied alone: {fault}")
            return
        if is_drawn and visibility >= VISIBLE and times == 1.0 and not is_whole(tensor):
            return
        comparison = self.try_call(probes[times])
        if comparison is None and not is_whole(tensor):
            return  # an input of unusual size, beyond its range
        if comparison is None or comparison.reason is not None:
            error = None if comparison is None else comparison.max_scaled_error
            # What ignores an input is off by as much as the answer moves; rounding is not.
            if error is None or error > min(visibility, VISIBLE) / 2:
                fault = self.last_fault
                self.note("another_function", f"{name} varied alone: {fault}")

    def _is_rounding(
        self, probe: SeedProbe, variation: Variation, comparison: Comparison | None
    ) -> bool:
        """Whether a wrong answer differs from the right one by rounding alone.

        If the answer to special inputs may be close to zero, a small share of usual answers counts
        as rounding as well.
        """
        if comparison is None or comparison.rel_l2_error is None:
            return False
        size = sum(compute_rms(exact) for exact in probe.expected.exact)
        allowed = MOST_ROUNDING * size
        if variation.special:
            allowed = max(allowed, _MOST_ROUNDING_OF_USUAL * sum(self.usual))
        return comparison.rel_l2_error * size <= allowed

    def _note_class(
        self, variation: Variation, comparison: Comparison | None, probe: SeedProbe
    ) -> None:
        output = self._last_output
        few = self._classes.has_few_elements
        shown = classify_rounding(comparison, typical=variation.widens)
        self._classes.note_eager(comparison)
        # A single sum may be right by chance, or close to zero, where any error is large.
        if few or is_below(shown, self._classes.lowest_class):
            joint = self._compare_draws(variation, DRAWS_OF_FEW if few else 1)
            repeated = classify_rounding(joint, typical=variation.widens)
            # Of few elements, only the repetition counts, which combines several draws.
            classes = [name for name in (shown, repeated) if name is not None]
            shown = repeated if few else min(classes, key=rank_class, default=None)
        if variation in SIGNS:
            self._class_of_signs = shown
        self._classes.robustness_classes.append(shown)
        if is_below(shown, self._classes.lowest_class):
            numbers = pair_outputs(probe.expected, output)
            elements = "; ".join(describe_largest_error(number) for number in numbers[:1])
            self.result.notes.append(f"precision_below_policy: {shown}, such as {elements}")

    def _compare_draws(self, variation: Variation, draws: int) -> Comparison | None:
        wanted: list[list[torch.Tensor]] = []
        exact: list[list[torch.Tensor]] = []
        given: list[list[torch.Tensor]] = []
        inputs: list[Any] = []
        algorithms: list[EagerError | None] = []
        for _ in range(draws):
            probe = self._draw_variation(variation)
            if probe is None:
                return None
            output = self.try_output(0, probe)
            if output is None or self.compare(probe, output[0]).rel_l2_error is None:
                return None
            expected, answers = probe.expected, tensors_of(output[0])
            triples = list(zip(tensors_of(expected.value), expected.exact, answers, strict=True))
            numbers = [(w, x, g) for w, x, g in triples if x is not None and not is_whole(w)]
            sides = zip((wanted, exact, given), zip(*numbers, strict=True), strict=True)
            for side, tensors in sides:
                side.append(list(tensors))
            inputs = probe.inputs
            errors = zip(probe.expected.algorithms, triples, strict=False)
            algorithms = [e for e, (w, x, _) in errors if x is not None and not is_whole(w)]
        if len({len(tensors) for tensors in wanted}) != 1:
            return None  # the task answers in another number of tensors
        value, wide, answers = (
            [_join(tensors) for tensors in zip(*side, strict=True)]
            for side in (wanted, exact, given)
        )
        expected = Expected(value, list(wide), inputs, algorithms=algorithms)
        return compare(expected, answers, self.precision)

    def _draw_variation(self, variation: Variation) -> SeedProbe | None:
        """Return a probe on varied inputs; None if there is none or it shows nothing."""
        if variation.flag in self.reference.refused:
            return None
        seed = draw_seed()
        own = self.reference.inputs(seed)
        if variation.strided and lay_out(own).end > LARGE_BYTES:
            return None
        inputs = variation.change(own, seed)
        if all(
            a is b or (not variation.strided and has_same_bits(a, b))
            for a, b in pair_tensors(own, inputs)
        ):
            return None
        self.result.seeds.append(seed)
        eager_answers = self._ask_eager(inputs, own, strided=variation.strided)
        if eager_answers is None:
            self.reference.refused.add(variation.flag)
            return None
        try:
            probes = [(inputs, call_seed(seed))]
            measure_algorithms(self.reference, self.precision, variation.flag, probes)
            expected = self.reference.answer(inputs, call_seed(seed), variation.flag)
        except ReferenceFailed:
            return None
        probe = SeedProbe(inputs, expected, call_seed(seed))
        usual = self.get_usual(probe) if variation.special else None
        if self.reference.repeatable and any(
            self.compare(probe, output, usual).reason for output in eager_answers
        ):
            return None  # eager itself is as far off, at this precision
        # What can show that a candidate is wrong: the conversion of infinity to a whole number
        # depends on the machine.
        tensors = list(tensors_of(expected.value))
        if variation.finite:
            is_telling = all(map(is_finite, tensors))
        else:
            is_telling = not any(is_whole(t) and t.dtype != torch.bool for t in tensors)
        return probe if is_telling else None

    def _ask_eager(
        self, inputs: list[Any], own: list[Any], *, strided: bool = False
    ) -> list[Any] | None:
        """Return eager's answer to inputs on a GPU in a list; None where it fails on them.

        own: The task's own inputs, on which it is tried after it has failed.

        Raises EagerLost where it fails on these as well.
        """
        if self.reference.device != "cuda":
            return []
        changed = self.reference.changed or []
        for tried, is_strided in ((inputs, strided), (own, False)):
            slot = STRIDED_SLOT if is_strided else 0
            try:
                self._eager.fill(slot, tried, strided=is_strided)
                output = self._eager.call(slot)
                answer = join_answer(output, self._eager.inputs(slot) if changed else [], changed)
            except ReferenceFailed as failed:
                if self._lacks_shared_memory(failed):
                    raise
                continue
            return [answer] if tried is inputs else None
        raise EagerLost

    def _perturb_all(self) -> None:
        state = self.reference.perturb(draw_seed())
        self.reference.load(state)
        try:
            probe = draw_probe(self.reference, self.result)
            if not all(map(is_finite, tensors_of(probe.expected.value))):
                return
            self.worker.adopt({name: state[name] for name in self.known_state})
            is_right = self.is_right(probe)
            fault = self.last_fault
        except ReferenceFailed:
            return
        except Failed as failed:
            if self._lacks_shared_memory(failed):
                raise
            is_right, fault = False, failed.message
        finally:
            self.reference.reset()
        if not is_right:
            self.note("fails_perturbed_parameters", f"all parameters and buffers changed: {fault}")

    def _perturb_each(self, end: float) -> bool:
        """Change one parameter or buffer at a time, by enough to be visible in the answer.

        Next to large sums, the effect of a bias can be below the tolerance when all weights change
        together. Of many tensors, a random sample is changed.

        end: Moment of the candidate's clock at which to stop.

        Returns whether there was time for all of them.
        """
        own = self.reference.state()
        # Both sides begin each call with these: they are called another number of times.
        self._moving = {name: own[name] for name in self.moving_state}
        moved = self.reference.perturb(draw_seed())
        # Parameters that share their memory are one tensor.
        tied = {
            name: {other: own[other] for other in moved if moved[other] is moved[name]}
            for name in moved
            if name in self.known_state
        }
        names = sorted(name for name, group in tied.items() if name == min(group))
        try:
            self.worker.adopt({name: own[name] for name in self.known_state})
            probe = draw_probe(self.reference, self.result)
            for name in random.sample(names, min(len(names), _MOST_TENSORS)):
                if self.read_clock() > end or self.is_lost:
                    return False
                change = self._find_change(name, tied[name], moved[name])
                if change is not None and not self._follows(probe, tied[name], change):
                    self.note(
                        "fails_perturbed_parameters",
                        f"{name} changed alone: {self.last_fault}",
                    )
                    return True
        except (Failed, ReferenceFailed) as failed:
            if self._lacks_shared_memory(failed):
                raise
            return False
        finally:
            self.reference.reset()
        return True

    def _find_change(
        self, name: str, own: Mapping[str, torch.Tensor], moved: torch.Tensor
    ) -> Callable[[float], dict[str, torch.Tensor]] | None:
        """Return what changes some tied tensors by a multiple of a step; None if nothing can."""
        value = own[name]
        if is_whole(value):
            may_fail = self.reference.device == "cpu"
            varied = vary_whole(value, [], [], draw_seed(), may_fail=may_fail)
            return None if varied is None else lambda _: dict.fromkeys(own, varied)
        is_packed = value.element_size() == 1  # such as float8, which has no arithmetic
        wide, moved = (each.float() if is_packed else each for each in (value, moved))
        step = moved - wide
        # A running variance has no negative values.
        is_positive = name not in self.reference.parameters() and not (
            value.is_complex() or bool((wide < 0).any())
        )

        def change(times: float) -> dict[str, torch.Tensor]:
            changed = wide + times * step
            changed = changed.abs() if is_positive else changed
            return dict.fromkeys(own, changed.to(value.dtype))

        return change

    def _follows(
        self,
        probe: SeedProbe,
        own: Mapping[str, torch.Tensor],
        change: Callable[[float], dict[str, torch.Tensor]],
    ) -> bool:
        """Whether the candidate follows a change of some tensors, if the reference does."""
        precision = self.precision
        answers: dict[float, Expected] = {}

        def measure(times: float) -> float:
            self.reference.load(self._moving | change(times))
            answers[times] = self.reference.answer(probe.inputs, probe.seed)
            return measure_visibility(probe.expected, answers[times], precision)

        try:
            times, visibility = amplify(measure, can_amplify=not is_whole(next(iter(own.values()))))
            changed = replace(probe, expected=answers[times])
            is_visible = visibility > HARDLY_VISIBLE
            if not (is_visible or moves_beyond_rounding(probe.expected, changed.expected)):
                return True
            before = None if is_visible else self.try_output(0, probe)
            # The comparison may ask the reference for the rounding steps under these values.
            self.reference.load(self._moving | change(times))
            self.worker.adopt(self._moving | change(times))
            if is_visible:
                is_right = self.is_right(changed)
            else:
                is_right = not self.keeps_answer(before, changed)
        except ReferenceFailed:
            if not self.reference.is_alive:
                raise
            return True  # the task's module refuses these values
        finally:
            self.reference.load(own)
        if not self.is_lost:
            self.worker.adopt(own)
        return is_right


def pair_tensors(one: Any, other: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the tensors of two values of one structure, pair by pair."""
    return zip(tensors_of(one), tensors_of(other), strict=False)


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == _COUNTER


def _make_expected(value: torch.Tensor) -> Expected:
    return Expected(value, [None if is_whole(value) else _widen(value)])


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def amplify(measure: Callable[[float], float], *, can_amplify: bool) -> tuple[float, float]:
    """Return by how much to multiply a step so that it is visible, and how visible it is then.

    measure: Returns the visibility of a multiple of the step.
    """
    visibility = measure(1.0)
    if not can_amplify or not 0 < visibility < VISIBLE:
        return 1.0, visibility
    times = min(_MOST_AMPLIFIED, 2 * VISIBLE / visibility)
    return times, measure(times)


def moves_beyond_rounding(before: Expected, after: Expected) -> bool:
    """Whether an answer moves by more than eager's rounding errors, in a share of its elements.

    A kernel whose answer keeps every bit then leaves out what has changed.
    """
    sides = [list(tensors_of(each.value)) for each in (before, after)]
    if [t.shape for t in sides[0]] != [t.shape for t in sides[1]]:
        return False
    for old, new, old_exact, new_exact in zip(*sides, before.exact, after.exact, strict=True):
        if old_exact is None or new_exact is None or is_whole(old) or not old.numel():
            continue
        if not (is_finite(old) and is_finite(new)):
            return False
        pairs = ((old, old_exact), (new, new_exact))
        errors = [float((own.to(x.device, x.dtype) - x).abs().amax()) for own, x in pairs]
        unit = torch.finfo(old.dtype).eps / 2 * float(new_exact.abs().amax())
        most = _ROUNDING_ERRORS * max(*errors, unit)
        moved = int(((new_exact - old_exact).abs() > most).sum())
        if moved >= max(_FEWEST_MOVED, _SHARE_MOVED * old.numel()):
            return True
    return False


def measure_visibility(before: Expected, after: Expected, precision: Precision) -> float:
    """Return the move of an answer in multiples of its tolerance; 0 where it is not finite.

    It is 0 as well for answers of different shapes, in which no element has a pair. A move of whole
    numbers is infinite.
    """
    shapes = [[tensor.shape for tensor in tensors_of(each.value)] for each in (before, after)]
    if shapes[0] != shapes[1]:
        return 0.0
    most = 0.0
    groups = zip(
        tensors_of(before.value), tensors_of(after.value), after.exact, before.exact, strict=True
    )
    for index, (first, own, new, old) in enumerate(groups):
        if new is None or old is None or is_whole(own):
            most = most if torch.equal(first, own) else math.inf
            continue
        if not (is_finite(own) and is_finite(new)):
            return 0.0
        limit = get_tolerance(own.dtype, precision)
        allowed = limit * (new.abs() + compute_rms(new))
        eager_error = float((own.to(new.device, new.dtype) - new).abs().amax())
        others = after.algorithms[index] if after.algorithms else None
        if others is not None:
            eager_error = max(eager_error, others.scaled * compute_rms(new))
        allowed += EAGER_ERRORS_ALLOWED * eager_error
        most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
    return most


def _join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
