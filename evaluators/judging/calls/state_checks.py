"""Checks of state: parameters and buffers after verdict calls and after timed calls."""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.verdict_calls import CHEAP_BYTES
from evaluators.judging.comparison.outputs import compare
from evaluators.judging.comparison.structure import is_whole
from evaluators.judging.comparison.tolerance import compute_rms
from evaluators.references.task import Expected, has_same_bits
from evaluators.worker.handle import Failed, WorkerHandle

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
        self._evidence = candidate.evidence
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
            self._evidence.flags.add("timed_outputs_unverified")
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
                    self._evidence.flags.add("timed_outputs_unverified")
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
                self._evidence.flags.add("timed_outputs_unverified")
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
        """Return what the task's own module makes of a state in some calls."""
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
