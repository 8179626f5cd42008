"""The correctness protocol: which calls a candidate gets, and what each of them decides.

Verdict calls draw from the task's own distribution under secret seeds. They fill storage afresh,
fill the same storage again without a version counter that tells, and change everything but the
corners under the same address: that is what memorised answers do not survive. After them the
module's state has to be that of the task's own module.

Robustness calls come last, on inputs and weights that the task does not promise: honest kernels
break on some of them, so they raise flags (`_case.FLAGS`) and decide no verdict. Two of them also
tell the precision. Errors of rounding average out in long sums of positive products; with random
signs, and where few inputs are of any size, they show.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from evaluators.judging.case import Evidence, Policy
from evaluators.judging.compare import (
    Comparison,
    class_rank,
    compare,
    is_below,
    repeats,
    root_mean_square,
    tolerance,
    worse,
)
from evaluators.memory.tensors import layout, tensors_of, with_gaps
from evaluators.references.choices import Choice
from evaluators.references.task import Expected, Reference, ReferenceFailed, call_seed, same_bits
from evaluators.worker.handle import Failed, Parameter, WorkerHandle

_Kind: TypeAlias = Literal["own", "interior", "repeat"]

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
_PLAN_CHANGES = next(n for n, (slot, _) in enumerate(_PLAN) if slot)
"""The first call on another slot than the first."""
_FEWEST_CALLS = 5
_SLOW_CALL_S = 1.0
_ROBUSTNESS_S = 10.0
_STRIDED_SLOT = 1000  # its storage stays strided, so no other call may use it
# What is looked at in every call where a look is cheap, and else in the first calls only.
_CHEAP_BYTES = 64 << 20
_LARGE_BYTES = 1 << 30
_MOST_POISON_BYTES = 512 << 20
_KEPT_ENDS = 8
_FEWEST_INTERIOR = 64
_DEATHS = ("signal", "early_exit", "malformed_output")
_SCALE = 40.0
_SHIFT = 2.5
_ONE_IN = 64
"""Of how many inputs one is far larger than the rest, or infinite, or NaN."""
_UNEVEN = 8.0
_FEWEST_UNEVEN = 16
_LEVELS_PER_RMS = 2
_FEW_ELEMENTS = 16
_DRAWS_OF_FEW = 5
"""How many answers of few elements tell the precision together."""
_MOST_ROUNDING = 0.25
"""Norm of the error over that of the answer up to which it is called rounding."""
_MOST_ROUNDING_OF_USUAL = 0.02
"""The same over the norm of usual answers, where the answer itself may be next to nothing."""
_COUNTER = "num_batches_tracked"
"""A count that no answer depends on, where the momentum is given; fused kernels leave it."""
_MOST_PARAMETERS = 32
_VISIBLE = 30.0
"""How many times its tolerance an answer moves by with a parameter that is tried alone."""
_HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e4
_STRUCTURAL_ZEROS = 1 / 8
"""Share of elements from which on zeros are taken for the structure of an input."""


@dataclass(frozen=True)
class Question:
    """Inputs with the answer that is wanted."""

    inputs: list[Any]
    expected: Expected
    seed: int
    """What the random numbers of the call follow from; the candidate may know it."""


def question(
    reference: Reference,
    evidence: Evidence,
    change: Callable[[list[Any]], list[Any]] | None = None,
) -> Question:
    """A question under a new secret seed, which is noted. Raises ReferenceFailed."""
    seed = secrets.randbits(48)
    evidence.seeds.append(seed)
    inputs = reference.inputs(seed)
    if change is not None:
        inputs = change(inputs)
    return Question(inputs, reference.answer(inputs, call_seed(seed)), call_seed(seed))


class Checks:
    """The calls of one candidate. Methods raise Failed for it and ReferenceFailed for the task."""

    def __init__(
        self, arm: WorkerHandle, reference: Reference, evidence: Evidence, policy: Policy
    ) -> None:
        self._arm = arm
        self._reference = reference
        self._evidence = evidence
        self._policy: Policy = policy
        self._held: dict[int, tuple[list[Any], int]] = {}
        self._known: list[str] = []
        self._missing: list[str] = []
        self._lost = False
        self._previous: tuple[int, Any] | None = None
        self._slots = 1
        self._repeated: Question | None = None
        self._usual: list[float] = []
        self._few = False
        self._classes: list[str | None] = []
        self._centred: list[str | None] = []
        evidence.comparison = Comparison()

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        """Give the candidate the task's own weights where it knows them by name and shape."""
        state = self._reference.state()
        shapes = {one.name: one.shape for one in parameters}
        self._known = [name for name, v in state.items() if shapes.get(name) == tuple(v.shape)]
        self._missing = sorted(self._reference.parameters() - set(self._known))
        if not self._missing:
            try:
                self._arm.adopt({name: state[name] for name in self._known})
            except Failed as failed:
                # A module may name what cannot be written; it has its weights from the seed.
                if (failed.status, failed.reason) != ("crash", "exception"):
                    raise
                self._missing = self._known
        if self._missing:
            self._evidence.flags.add("parameters_renamed")

    def verdict(self, first: Question, calls: int) -> None:
        """Make the calls that decide, `calls` of them or five where a call is slow."""
        size = layout(first.inputs)[1]
        self._usual = [root_mean_square(one) for one in first.expected.exact]
        answers = [t.numel() for t in tensors_of(first.expected.value) if not _is_whole(t)]
        self._few = 0 < sum(answers) < _FEW_ELEMENTS
        # Each slot is a copy of the inputs in the candidate's memory, and one in ours.
        self._slots = slots = 4 if size <= _CHEAP_BYTES else 2 if size <= _LARGE_BYTES else 1
        number = 0
        while number < calls:
            began = time.perf_counter()
            slot, kind = _PLAN[number % MOST_CALLS]
            asked = first if number == 0 else self._next(slot % slots, kind)
            self._decide(slot % slots, asked, number)
            number += 1
            self._repeated = asked if _PLAN[number % MOST_CALLS][1] == "repeat" else None
            # The first call may compile.
            if number > 1 and time.perf_counter() - began > _SLOW_CALL_S:
                calls = min(calls, _FEWEST_CALLS)
        self._compare_state()
        self._class_precision()

    def check_timed(self, inputs: list[Any], output: Any) -> None:
        """Compare the output of a timed call, unless it depends on more than what was sent."""
        if self._reference.mutates or not self._reference.repeatable:
            self._evidence.flags.add("timed_outputs_unverified")
            return
        expected = self._reference.answer(inputs)
        found = compare(expected, output, self._policy, lambda: self._reference.choices(inputs))
        if found.reason is not None:
            message = f"a timed call gave a wrong answer: {found.message}"
            raise Failed("rejected", "memorised_output", message)

    def robustness(self, probe: WorkerHandle) -> bool:
        """Make the calls that raise flags and decide nothing; the last ones of a candidate.

        `probe` runs the task's own module. On a GPU it tries the inputs first: those that the task
        does not promise may end the process that reads them, and that must not be ours. Returns
        whether the probe can still be used.
        """
        if self._reference.remembers:
            return True
        try:
            self._raise_flags(probe)
        except _ProbeLost:
            return False
        finally:
            self._class_precision()
        return True

    def _raise_flags(self, probe: WorkerHandle) -> None:
        """Check first whether it is the same function, then what it withstands.

        Inputs of other signs are tried whatever time that takes: a candidate that is slow on
        inputs that it does not expect must not use up what the other checks need.
        """
        if not self._vary(_SIGNS, probe, math.inf):
            return
        end = time.perf_counter() + _ROBUSTNESS_S
        complete = True
        if not self._missing and self._reference.parameters():
            self._perturb()
            complete = self._perturb_each(end)
            try:
                state = self._reference.state()
                self._arm.adopt({name: state[name] for name in self._known})
            except Failed:
                return
        self._evidence.compared_as_function = complete and not self._lost
        if self._vary(_FRAGILE, probe, end):
            self._vary(_SPECIAL, probe, end)

    def _vary(self, variations: Sequence[_Variation], probe: WorkerHandle, end: float) -> bool:
        """Try variations of the inputs; returns whether there are time and process for more."""
        for variation in variations:
            if time.perf_counter() > end:
                return False
            asked = self._asked(variation, probe)
            if asked is None:
                continue
            found = self._found(asked, variation)
            if variation.tells_precision:
                self._note_class(variation, probe, found)
            if found is None or found.reason is not None:
                self._evidence.flags.add(variation.flag)
                if variation in _SIGNS and not self._is_rounding(asked, variation, found):
                    self._evidence.flags.add("another_function")
                # What broke it may have broken the process too; then nothing more is to be seen.
                if self._lost or not self._withstands(question(self._reference, self._evidence)):
                    if variation in _SIGNS:
                        self._evidence.flags.add("another_function")
                    return False
        return True

    def _is_rounding(
        self, asked: Question, variation: _Variation, found: Comparison | None
    ) -> bool:
        """Whether a wrong answer differs from the right one by rounding alone.

        Where the answer to special inputs may be next to nothing, a small share of usual answers
        is rounding as well.
        """
        if found is None or found.rel_l2_error is None:
            return False
        own = sum(root_mean_square(one) for one in asked.expected.exact)
        allowed = _MOST_ROUNDING * own
        if variation.special:
            allowed = max(allowed, _MOST_ROUNDING_OF_USUAL * sum(self._usual))
        return found.rel_l2_error * own <= allowed

    def _note_class(
        self, variation: _Variation, probe: WorkerHandle, found: Comparison | None
    ) -> None:
        """Note the precision that an answer shows; None where the answer is another one."""
        shown = _rounding_class(found, variation)
        # One sum may be right by chance, or next to nothing, where any error is large.
        if self._few or (shown is not None and is_below(shown, self._policy)):
            together = self._together(variation, probe, _DRAWS_OF_FEW if self._few else 1)
            second = _rounding_class(together, variation)
            best = shown if second is None else min(shown or second, second, key=class_rank)
            shown = second if self._few else best
        self._centred.append(shown)

    def _together(
        self, variation: _Variation, probe: WorkerHandle, draws: int
    ) -> Comparison | None:
        """What comes of several draws of varied inputs as of one answer; None where one fails."""
        wanted: list[list[torch.Tensor]] = []
        exact: list[list[torch.Tensor]] = []
        given: list[list[torch.Tensor]] = []
        inputs: list[Any] = []
        for _ in range(draws):
            asked = self._asked(variation, probe)
            if asked is None:
                return None
            try:
                output = self._call(0, asked)
            except Failed as failed:
                self._lost = failed.status == "timeout" or failed.reason in _DEATHS
                return None
            if self._held_against(asked, output).rel_l2_error is None:
                return None
            triples = zip(
                tensors_of(asked.expected.value),
                asked.expected.exact,
                tensors_of(output),
                strict=True,
            )
            held = [(w, x, g) for w, x, g in triples if x is not None and not _is_whole(w)]
            for side, tensors in zip((wanted, exact, given), zip(*held, strict=True), strict=True):
                side.append(list(tensors))
            inputs = asked.inputs
        value, wide, output = (
            [torch.stack(tensors) for tensors in zip(*side, strict=True)]
            for side in (wanted, exact, given)
        )
        return compare(Expected(value, list(wide), inputs), output, self._policy)

    def _class_precision(self) -> None:
        """Set the precision class from the middle one of the verdict's calls and the worst after.

        What answers something else wherever signs are random and inputs uneven has no class
        that could be trusted.
        """
        classes = sorted(self._classes, key=class_rank)
        usual = classes[len(classes) // 2] if classes else None
        if usual is None:
            return
        worst = max([usual, *self._centred], key=class_rank)
        comparison: Comparison = self._evidence.comparison
        self._evidence.comparison = replace(comparison, precision_class=worst)
        unknown = bool(self._centred) and not any(self._centred)
        if unknown or is_below(worst, self._policy):
            self._evidence.flags.add("precision_below_policy")

    def _compare_state(self) -> None:
        """Flag parameters and buffers that are not what the calls have made of the task's own."""
        before, now = self._reference.state(), self._reference.current_state()
        names = [name for name in now if name.rpartition(".")[2] != _COUNTER]
        parameters = self._reference.parameters()
        wanted: dict[str, torch.Tensor] = {}
        room = _CHEAP_BYTES
        for name in sorted(names, key=lambda name: (name in parameters, now[name].nbytes)):
            if name not in self._known:
                if name not in parameters and not same_bits(before[name], now[name]):
                    self._note_state(f"{name} changes in the task's own calls, and is not there")
            elif now[name].nbytes <= room and not (self._missing and name in parameters):
                room -= now[name].nbytes
                wanted[name] = now[name]
        try:
            given = self._arm.current_state(wanted)
        except Failed as failed:
            if (failed.status, failed.reason) != ("crash", "exception"):
                raise
            self._note_state(f"it cannot be read: {failed.message}")
            return
        for name, value in wanted.items():
            exact = None if _is_whole(value) else value.to(_wide_type(value))
            found = compare(Expected(value, [exact]), given[name], self._policy)
            if found.reason is not None:
                self._note_state(f"{name}: {found.message}")

    def _note_state(self, what: str) -> None:
        if "state_differs" not in self._evidence.flags:
            self._evidence.notes.append(f"state after the calls: {what}")
        self._evidence.flags.add("state_differs")

    def _next(self, slot: int, kind: _Kind) -> Question:
        held = self._held.get(slot)
        if held is None or kind == "own":
            return question(self._reference, self._evidence)
        inputs, seed = held
        if kind == "interior":
            return question(self._reference, self._evidence, lambda new: _interior(inputs, new))
        return Question(inputs, self._reference.answer(inputs, seed), seed)

    def _decide(self, slot: int, asked: Question, number: int) -> None:
        sizes = [t.numel() * t.element_size() for t in tensors_of(asked.expected.value)]
        look = number < 3 or max(layout(asked.inputs)[1], sum(sizes)) <= _CHEAP_BYTES
        if sum(sizes) <= _MOST_POISON_BYTES:
            self._arm.poison([size for size in sizes if size])
        output = self._call(slot, asked, first=number == 0)
        found = self._held_against(asked, output)
        if found.reason is not None:
            self._evidence.comparison = found
            raise self._wrong(found, asked, output, number)
        self._evidence.comparison = worse(self._evidence.comparison, found)
        self._classes.append(found.precision_class)
        if look and not self._reference.mutates:
            now = self._arm.inputs(slot)
            if not all(same_bits(a, b) for a, b in _pairs(asked.inputs, now)):
                raise Failed("incorrect", "input_mutated", "the call has changed its inputs")
        if self._repeated is not None:
            self._compare_repeated(self._repeated, asked, output)
        self._look_back(slot)
        # Of large outputs the one before the first change of slots, and what a repeat needs.
        kept = look or number == _PLAN_CHANGES - 1
        self._previous = (slot, output) if kept else None
        self._held[slot] = (asked.inputs, asked.seed)

    def _look_back(self, slot: int) -> None:
        """Flag an output that this call has changed.

        A view of the inputs changes with them, and is no buffer: where there is another slot, the
        inputs of the call before are still in theirs.
        """
        if self._previous is None or "reuses_output_buffer" in self._evidence.flags:
            return
        before, output = self._previous
        if before == slot and self._slots > 1:
            return
        again = self._arm.output(0, before=True)
        if not all(same_bits(a, b) for a, b in _pairs(output, again)):
            self._evidence.flags.add("reuses_output_buffer")

    def _compare_repeated(self, before: Question, asked: Question, output: Any) -> None:
        """The same inputs have come twice in a row: does the answer follow from them?"""
        if self._held_against(before, asked.expected.value).reason is not None:
            self._reference.remembers = True
        elif self._previous and not repeats(asked.expected, self._previous[1], output):
            self._evidence.flags.add("nondeterministic")

    def _held_against(
        self, asked: Question, output: Any, usual: Sequence[float] | None = None
    ) -> Comparison:
        def choices() -> Sequence[Choice]:
            return self._reference.choices(asked.inputs, asked.seed)

        return compare(asked.expected, output, self._policy, choices, usual)

    def _call(
        self, slot: int, asked: Question, *, first: bool = False, strided: bool = False
    ) -> Any:
        self._arm.fill(slot, asked.inputs, strided=strided)
        if self._reference.draws:
            self._arm.reseed(asked.seed)
        return self._arm.call(slot, first=first)

    def _wrong(self, found: Comparison, asked: Question, output: Any, number: int) -> Failed:
        message = f"call {number + 1}: {found.message}"
        if found.reason == "incorrect_numerical" and self._missing:
            for neutral in _neutral(self._reference.state(), self._missing):
                self._reference.reset()
                self._reference.load(neutral)
                without = self._reference.answer(asked.inputs, asked.seed)
                if compare(without, output, self._policy).reason is None:
                    names = ", ".join(self._missing)
                    message = f"the answer is the one without {names}: {message}"
                    return Failed("incorrect", "parameters_ignored", message)
        return Failed("incorrect", found.reason or "unspecified", message)

    def _asked(self, variation: _Variation, probe: WorkerHandle) -> Question | None:
        """A question on varied inputs; None where there is none or the answer tells nothing."""
        flag = variation.flag
        if flag in self._reference.refused:
            return None
        seed = secrets.randbits(48)
        own = self._reference.inputs(seed)
        if variation.strided and layout(own)[1] > _LARGE_BYTES:
            return None
        changed = variation.change(own, seed)
        if all(
            a is b or (not variation.strided and same_bits(a, b)) for a, b in _pairs(own, changed)
        ):
            return None
        self._evidence.seeds.append(seed)
        eager: list[Any] = []
        if self._reference.device == "cuda":
            eager = _try(probe, changed, variation)
            if not eager:
                self._reference.refused.add(flag)
                if not _try(probe, own, None):
                    raise _ProbeLost
                return None
        try:
            expected = self._reference.answer(changed, call_seed(seed))
        except ReferenceFailed:
            return None
        usual = self._usual if variation.special else None
        if self._reference.repeatable and any(
            self._held_against(Question(changed, expected, call_seed(seed)), one, usual).reason
            for one in eager
        ):
            return None  # eager itself is as far off, at the precision that the policy allows
        answers = list(tensors_of(expected.value))
        if variation.finite:
            told = all(bool(t.isfinite().all()) for t in answers)
        else:  # which whole number an infinity becomes is the machine's matter
            told = not any(_is_whole(t) and t.dtype != torch.bool for t in answers)
        return Question(changed, expected, call_seed(seed)) if told else None

    def _found(self, asked: Question, variation: _Variation | None = None) -> Comparison | None:
        """What comes of a call that decides no verdict; None where it fails."""
        strided = variation is not None and variation.strided
        slot = _STRIDED_SLOT if strided else 0
        try:
            output = self._call(slot, asked, strided=strided)
        except Failed as failed:
            self._lost = failed.status == "timeout" or failed.reason in _DEATHS
            return None
        special = variation is not None and variation.special
        return self._held_against(asked, output, self._usual if special else None)

    def _withstands(self, asked: Question) -> bool:
        found = self._found(asked)
        return found is not None and found.reason is None

    def _perturb(self) -> None:
        """Ask under other weights: what was computed from the seed's weights fails."""
        state = self._reference.perturb(secrets.randbits(48))
        self._reference.load(state)
        try:
            asked = question(self._reference, self._evidence)
            finite = all(bool(t.isfinite().all()) for t in tensors_of(asked.expected.value))
            if not finite:
                return
            self._arm.adopt({name: state[name] for name in self._known})
            withstands = self._withstands(asked)
        except ReferenceFailed:
            return
        except Failed:
            withstands = False
        finally:
            self._reference.reset()
        if not withstands:
            self._evidence.flags.add("fails_perturbed_parameters")

    def _perturb_each(self, end: float) -> bool:
        """Change one parameter at a time, by as much as it takes to see it in the answer.

        Beside large sums a bias counts for less than the tolerance, whatever all weights together
        do. Returns whether there was time for all of them.
        """
        own = self._reference.state()
        moved = self._reference.perturb(secrets.randbits(48))
        try:
            self._arm.adopt({name: own[name] for name in self._known})
            asked = question(self._reference, self._evidence)
            for name in sorted(self._reference.parameters())[:_MOST_PARAMETERS]:
                if time.perf_counter() > end or self._lost:
                    return False
                # Those that share their memory are one tensor there.
                tied = {one: own[one] for one in moved if moved[one] is moved[name]}
                if not own[name].is_floating_point() or name != min(tied):
                    continue
                if not self._notices(asked, tied, moved[name] - own[name]):
                    self._evidence.flags.add("fails_perturbed_parameters")
                    return True
        except (Failed, ReferenceFailed):
            return False
        finally:
            self._reference.reset()
        return True

    def _notices(
        self, asked: Question, own: Mapping[str, torch.Tensor], step: torch.Tensor
    ) -> bool:
        """Whether the candidate follows a step of some parameters, where the reference does."""
        state, expected, visible = self._stepped(asked, own, step)
        if 0 < visible < _VISIBLE:
            amplified = min(_MOST_AMPLIFIED, 2 * _VISIBLE / visible)
            state, expected, visible = self._stepped(asked, own, amplified * step)
        self._reference.load(own)
        if not visible > _HARDLY_VISIBLE:
            return True
        self._arm.adopt(state)
        withstands = self._withstands(replace(asked, expected=expected))
        if not self._lost:
            self._arm.adopt(own)
        return withstands

    def _stepped(
        self, asked: Question, own: Mapping[str, torch.Tensor], step: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], Expected, float]:
        """Parameters after a step, what the reference answers with them, how visible that is."""
        state = {name: value + step for name, value in own.items()}
        self._reference.load(state)
        expected = self._reference.answer(asked.inputs, asked.seed)
        return state, expected, self._visible(asked.expected, expected)

    def _visible(self, before: Expected, after: Expected) -> float:
        """By how many times its tolerance an answer has moved; 0 where it is not finite."""
        most = 0.0
        triples = zip(tensors_of(after.value), after.exact, before.exact, strict=True)
        for own, new, old in triples:
            if new is None or old is None or _is_whole(own):
                continue
            if not (bool(own.isfinite().all()) and bool(new.isfinite().all())):
                return 0.0
            limit = tolerance(own.dtype, self._policy)
            allowed = limit * (new.abs() + root_mean_square(new))
            allowed += 4 * float((own.to(new.device, new.dtype) - new).abs().amax())
            most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
        return most


class _ProbeLost(Exception):
    """The process that tries inputs first has not survived them."""


def _try(probe: WorkerHandle, inputs: list[Any], variation: _Variation | None) -> list[Any]:
    """What eager's worker answers, as a list of one; an empty list where it fails."""
    strided = variation is not None and variation.strided
    slot = _STRIDED_SLOT if strided else 0
    try:
        probe.fill(slot, inputs, strided=strided)
        return [probe.call(slot)]
    except ReferenceFailed:
        return []


def _rounding_class(found: Comparison | None, variation: _Variation) -> str | None:
    """The precision class of an answer that is right but for rounding."""
    if found is None or found.rel_l2_error is None or found.rel_l2_error > _MOST_ROUNDING:
        return None
    return found.typical_class if variation.widens else found.precision_class


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _wide_type(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


@dataclass(frozen=True)
class _Variation:
    """A way to vary inputs."""

    flag: str
    """What is raised where the candidate's answer is wrong."""
    change: Callable[[list[Any], int], list[Any]]
    """Makes varied inputs from inputs and a seed."""
    tells_precision: bool = False
    widens: bool = False
    """Whether some inputs lie beyond their usual range, and the answers to them tell nothing of
    the precision: a kernel may know the range."""
    special: bool = False
    """Whether answers may be far smaller than usual ones; the mean of centred inputs is nothing."""
    finite: bool = True
    """Whether the reference's answer has to be finite for the variation to be tried."""
    strided: bool = False


_Change: TypeAlias = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _floating(change: _Change) -> Callable[[list[Any], int], list[Any]]:
    """A change of all inputs by one of each floating tensor."""

    def changed(value: Any, draws: dict[torch.device, torch.Generator], seed: int) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.is_floating_point() or not value.numel():
                return value
            if value.device not in draws:
                # Under the seed of the inputs the draws would be those that the inputs come from.
                own_seed = call_seed(seed + 1)
                draws[value.device] = torch.Generator(value.device).manual_seed(own_seed)
            return change(value, draws[value.device])
        if isinstance(value, list | tuple):
            return type(value)(changed(item, draws, seed) for item in value)
        return value

    return lambda inputs, seed: changed(inputs, {}, seed)


def _some(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """One in 64 elements, and always one of them."""
    shape = tensor.shape
    drawn = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return (drawn < 1 / _ONE_IN) | (drawn == drawn.min())


def _with_random_signs(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    shape = tensor.shape
    drawn = torch.rand(shape, generator=draws, device=tensor.device, dtype=torch.float32)
    return torch.where(drawn < 0.5, tensor, -tensor)


def _centred(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _moved(tensor, -tensor.mean())


def _shifted(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    return _moved(tensor, torch.tensor(_SHIFT, dtype=tensor.dtype, device=tensor.device))


def _moved(tensor: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Add a step, but keep zeros where many elements are zero.

    A triangular or diagonal matrix keeps its structure, which a task may promise.
    """
    zeros = tensor == 0
    if int(zeros.sum()) < _STRUCTURAL_ZEROS * tensor.numel():
        return tensor + step
    return torch.where(zeros, tensor, tensor + step)


def _uneven(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """One in 64 elements 8 times as large and the others 8 times as small.

    The norm stays, and a sum has few terms that count: errors do not average out.
    """
    if tensor.numel() < _FEWEST_UNEVEN:
        return tensor
    return torch.where(_some(tensor, draws), tensor * _UNEVEN, tensor / _UNEVEN)


def _rearranged(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """The same values with all but the ends in another order."""
    flat = tensor.reshape(-1).clone()
    if flat.numel() < _FEWEST_INTERIOR:
        return tensor
    inner = flat[_KEPT_ENDS:-_KEPT_ENDS]
    inner.copy_(inner.flip(0))
    return flat.view(tensor.shape)


def _constant(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Rows of equal elements, of so few digits that sums of them are exact."""
    first = tensor[..., :1] if tensor.dim() else tensor
    return first.bfloat16().to(tensor.dtype).expand_as(tensor).clone()


def _coarse(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    step = root_mean_square(tensor - tensor.mean()) / _LEVELS_PER_RMS
    return (tensor / step).round() * step if step else tensor


def _infinite(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    signed = torch.where(tensor < 0, -torch.inf, torch.inf).to(tensor.dtype)
    return torch.where(_some(tensor, draws), signed, tensor)


def _unknown(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    return torch.where(_some(tensor, draws), torch.full_like(tensor, torch.nan), tensor)


def _without_rows(inputs: list[Any], _: int) -> list[Any]:
    """Tensors of as many rows as the first one without any."""
    rows = next((t.shape[0] for t in tensors_of(inputs) if t.dim()), 0)

    def emptied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value[:0] if value.dim() and value.shape[0] == rows else value
        if isinstance(value, list | tuple):
            return type(value)(emptied(item) for item in value)
        return value

    return emptied(inputs)


_SIGNS = (
    _Variation("fails_random_signs", _floating(_with_random_signs), tells_precision=True),
    _Variation("fails_signed", _floating(_centred), special=True),
    _Variation("fails_positive", _floating(lambda tensor, _: tensor.abs())),
    _Variation("fails_shifted", _floating(_shifted)),
)
"""Inputs as large as usual: what answers them otherwise is another function, or rounds."""
_FRAGILE = (
    _Variation("fails_uneven", _floating(_uneven), tells_precision=True, widens=True),
    _Variation("fails_scaled", _floating(lambda tensor, _: tensor * _SCALE)),
    _Variation("fails_equal_corners", _floating(_rearranged)),
    _Variation("fails_noncontiguous", lambda inputs, _: with_gaps(inputs), strided=True),
)
_SPECIAL = (
    _Variation("fails_zeros", _floating(lambda tensor, _: torch.zeros_like(tensor)), special=True),
    _Variation("fails_constants", _floating(_constant), special=True),
    _Variation("fails_ties", _floating(_coarse), special=True),
    _Variation("fails_infinities", _floating(_infinite), special=True, finite=False),
    _Variation("fails_nan", _floating(_unknown), special=True, finite=False),
    _Variation("fails_empty_rows", _without_rows, special=True),
)


def _pairs(one: Any, other: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(tensors_of(one), tensors_of(other), strict=False)


def _interior(old: Any, new: Any) -> Any:
    """New values within old corners and ends, for every floating tensor that has an interior."""
    if isinstance(new, torch.Tensor):
        if not new.is_floating_point() or new.shape != old.shape:
            return new
        if new.numel() < _FEWEST_INTERIOR:
            return new
        kept = new.clone(memory_format=torch.contiguous_format)
        corners = tuple(slice(None, None, max(1, size - 1)) for size in new.shape)
        kept[corners] = old[corners]
        for ends in (slice(None, _KEPT_ENDS), slice(-_KEPT_ENDS, None)):
            kept.view(-1)[ends] = old.reshape(-1)[ends]
        return kept
    if isinstance(new, list | tuple):
        return type(new)(_interior(a, b) for a, b in zip(old, new, strict=True))
    return new


def _neutral(
    state: Mapping[str, torch.Tensor], names: Sequence[str]
) -> Iterator[dict[str, torch.Tensor]]:
    """The ways in which parameters do nothing: scales of one, summands of nothing."""

    def filled(value: Callable[[str], float]) -> dict[str, torch.Tensor]:
        return {name: torch.full_like(state[name], value(name)) for name in names}

    yield filled(lambda name: 0.0 if name.rpartition(".")[2] == "bias" else 1.0)
    yield filled(lambda _: 0.0)
    yield filled(lambda _: 1.0)
