"""The correctness protocol: which calls a candidate gets, and what each of them decides.

Verdict calls draw from the task's own distribution under secret seeds. They fill storage afresh,
fill the same storage again without a version counter that tells, and change everything but the
corners under the same address: that is what memorised answers do not survive. Robustness calls come
last, on inputs and weights that the task does not promise: honest kernels break on some of them, so
they raise flags (`_case.FLAGS`) and decide nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from evaluators._arm import Arm, Failed, Parameter
from evaluators._case import Evidence, Policy
from evaluators._compare import Comparison, compare, repeats, worse
from evaluators._reference import Expected, Reference, ReferenceFailed, call_seed, same_bits
from evaluators._tensors import layout, tensors_of, with_gaps

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

    def __init__(self, arm: Arm, reference: Reference, evidence: Evidence, policy: Policy) -> None:
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

    def check_timed(self, inputs: list[Any], output: Any) -> None:
        """Compare the output of a timed call, unless it depends on more than what was sent."""
        if self._reference.mutates or not self._reference.repeatable:
            self._evidence.flags.add("timed_outputs_unverified")
            return
        found = compare(self._reference.answer(inputs), output, self._policy)
        if found.reason is not None:
            message = f"a timed call gave a wrong answer: {found.message}"
            raise Failed("rejected", "memorised_output", message)

    def robustness(self, probe: Arm) -> bool:
        """Make the calls that raise flags and decide nothing; the last ones of a candidate.

        `probe` runs the task's own module. On a GPU it tries the inputs first: those that the task
        does not promise may end the process that reads them, and that must not be ours. Returns
        whether the probe can still be used.
        """
        try:
            if not self._reference.remembers:
                self._raise_flags(probe)
        except _ProbeLost:
            return False
        return True

    def _raise_flags(self, probe: Arm) -> None:
        end = time.perf_counter() + _ROBUSTNESS_S
        for flag, asked, strided in self._variants(probe):
            if not self._withstands(asked, strided=strided):
                self._evidence.flags.add(flag)
                # What broke it may have broken the process too; then nothing more is to be seen.
                if self._lost or not self._withstands(question(self._reference, self._evidence)):
                    return
            if time.perf_counter() > end:
                return
        if not self._missing and self._reference.parameters():
            self._perturbed()

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
        found = compare(asked.expected, output, self._policy)
        if found.reason is not None:
            self._evidence.comparison = found
            raise self._wrong(found, asked, output, number)
        self._evidence.comparison = worse(self._evidence.comparison, found)
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
        if compare(before.expected, asked.expected.value).reason is not None:
            self._reference.remembers = True
        elif self._previous and not repeats(asked.expected, self._previous[1], output):
            self._evidence.flags.add("nondeterministic")

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

    def _variants(self, probe: Arm) -> Iterator[tuple[str, Question, bool]]:
        """Inputs that the task does not promise, where the reference's answer to them is finite."""
        for flag, change in _CHANGES.items():
            asked = self._asked(flag, lambda own, change=change: _each_floating(change, own), probe)
            if asked is not None:
                yield flag, asked, False
        asked = self._asked("fails_noncontiguous", with_gaps, probe, strided=True)
        if asked is not None:
            yield "fails_noncontiguous", asked, True

    def _asked(
        self, flag: str, change: Callable[[Any], Any], probe: Arm, *, strided: bool = False
    ) -> Question | None:
        """A question on changed inputs; None where there is none or the answer is not finite."""
        if flag in self._reference.refused:
            return None
        seed = secrets.randbits(48)
        own = self._reference.inputs(seed)
        if strided and layout(own)[1] > _LARGE_BYTES:
            return None
        changed = change(own)
        if all(a is b or (not strided and same_bits(a, b)) for a, b in _pairs(own, changed)):
            return None
        self._evidence.seeds.append(seed)
        if self._reference.device == "cuda" and not _takes(probe, changed, strided=strided):
            self._reference.refused.add(flag)
            if not _takes(probe, own):
                raise _ProbeLost
            return None
        try:
            expected = self._reference.answer(changed, call_seed(seed))
        except ReferenceFailed:
            return None
        finite = all(bool(t.isfinite().all()) for t in tensors_of(expected.value))
        return Question(changed, expected, call_seed(seed)) if finite else None

    def _withstands(self, asked: Question, *, strided: bool = False) -> bool:
        slot = _STRIDED_SLOT if strided else 0
        try:
            output = self._call(slot, asked, strided=strided)
        except Failed as failed:
            self._lost = failed.status == "timeout" or failed.reason in _DEATHS
            return False
        return compare(asked.expected, output, self._policy).reason is None

    def _perturbed(self) -> None:
        """Ask under other weights: what was computed from the seed's weights fails."""
        state = self._reference.perturbed(secrets.randbits(48))
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


class _ProbeLost(Exception):
    """The process that tries inputs first has not survived them."""


def _takes(probe: Arm, inputs: list[Any], *, strided: bool = False) -> bool:
    slot = _STRIDED_SLOT if strided else 0
    try:
        probe.fill(slot, inputs, strided=strided)
        probe.call(slot)
    except ReferenceFailed:
        return False
    return True


def _rearranged(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with all but the ends in another order."""
    flat = tensor.reshape(-1).clone()
    if flat.numel() < _FEWEST_INTERIOR:
        return tensor
    inner = flat[_KEPT_ENDS:-_KEPT_ENDS]
    inner.copy_(inner.flip(0))
    return flat.view(tensor.shape)


_CHANGES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fails_scaled": lambda tensor: tensor * _SCALE,
    "fails_signed": lambda tensor: tensor - tensor.mean(),
    "fails_positive": torch.abs,
    "fails_shifted": lambda tensor: tensor + _SHIFT,
    "fails_equal_corners": _rearranged,
}


def _each_floating(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() and value.numel() else value
    if isinstance(value, list | tuple):
        return type(value)(_each_floating(change, item) for item in value)
    return value


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
