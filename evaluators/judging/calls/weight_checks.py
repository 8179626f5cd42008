"""Checks of weights: the state after the verdict calls, and answers under other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question, draw_seed
from evaluators.judging.calls.verdict_calls import CHEAP_BYTES
from evaluators.judging.comparison.outputs import compare
from evaluators.judging.comparison.structure import is_whole
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    compute_rms,
    get_tolerance,
)
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected, ReferenceFailed, has_same_bits
from evaluators.worker.handle import Failed

_COUNTER = "num_batches_tracked"
"""A counter that no answer depends on if the momentum is given; fused kernels ignore it."""
_MOST_PARAMETERS = 32
_VISIBLE = 30.0
"""Change of an answer, in multiples of its tolerance, for a parameter that is changed alone."""
_HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e4


class WeightChecks:
    """Flags that depend on a candidate's weights and buffers."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._evidence = candidate.evidence

    def compare_state(self) -> None:
        """Flag parameters and buffers that differ from the task's own after the same calls."""
        before, now = self._reference.state(), self._reference.current_state()
        names = [name for name in now if name.rpartition(".")[2] != _COUNTER]
        parameters = self._reference.parameters()
        wanted: dict[str, torch.Tensor] = {}
        room = CHEAP_BYTES
        for name in sorted(names, key=lambda name: (name in parameters, now[name].nbytes)):
            if name not in self._candidate.known_state:
                if name not in parameters and not has_same_bits(before[name], now[name]):
                    self._note_state(f"{name} changes in the task's own calls, and is not there")
            elif now[name].nbytes <= room and not (
                self._candidate.missing_parameters and name in parameters
            ):
                room -= now[name].nbytes
                wanted[name] = now[name]
        try:
            given = self._candidate.worker.current_state(wanted)
        except Failed as failed:
            if (failed.status, failed.reason) != ("crash", "exception"):
                raise
            self._note_state(f"it cannot be read: {failed.message}")
            return
        for name, value in wanted.items():
            exact = None if is_whole(value) else value.to(_get_wide_type(value))
            comparison = compare(Expected(value, [exact]), given[name], self._candidate.policy)
            if comparison.reason is not None:
                self._note_state(f"{name}: {comparison.message}")

    def perturb_all(self) -> None:
        """Flag a candidate that is wrong under other weights than those of the seed."""
        state = self._reference.perturb(draw_seed())
        self._reference.load(state)
        try:
            question = draw_question(self._reference, self._evidence)
            if not all(bool(t.isfinite().all()) for t in tensors_of(question.expected.value)):
                return
            self._candidate.worker.adopt(
                {name: state[name] for name in self._candidate.known_state}
            )
            is_right = self._candidate.is_right(question)
        except ReferenceFailed:
            return
        except Failed:
            is_right = False
        finally:
            self._reference.reset()
        if not is_right:
            self._evidence.flags.add("fails_perturbed_parameters")

    def perturb_each(self, end: float) -> bool:
        """Change one parameter at a time, by enough to be visible in the answer.

        Next to large sums, the effect of a bias can be below the tolerance when all weights change
        together.

        end: Moment of the candidate's clock at which to stop.

        Returns whether there was time for all of them.
        """
        own = self._reference.state()
        moved = self._reference.perturb(draw_seed())
        try:
            self._candidate.worker.adopt({name: own[name] for name in self._candidate.known_state})
            question = draw_question(self._reference, self._evidence)
            for name in sorted(self._reference.parameters())[:_MOST_PARAMETERS]:
                if self._candidate.read_clock() > end or self._candidate.is_lost:
                    return False
                # Parameters that share their memory are one tensor.
                tied = {other: own[other] for other in moved if moved[other] is moved[name]}
                if not own[name].is_floating_point() or name != min(tied):
                    continue
                if not self._follows_step(question, tied, moved[name] - own[name]):
                    self._evidence.flags.add("fails_perturbed_parameters")
                    return True
        except (Failed, ReferenceFailed):
            return False
        finally:
            self._reference.reset()
        return True

    def _note_state(self, difference: str) -> None:
        if "state_differs" not in self._evidence.flags:
            self._evidence.notes.append(f"state after the calls: {difference}")
        self._evidence.flags.add("state_differs")

    def _follows_step(
        self, question: Question, own: Mapping[str, torch.Tensor], step: torch.Tensor
    ) -> bool:
        """Whether the candidate follows a step of some parameters, if the reference does."""
        state, expected, visibility = self._take_step(question, own, step)
        if 0 < visibility < _VISIBLE:
            amplified = min(_MOST_AMPLIFIED, 2 * _VISIBLE / visibility)
            state, expected, visibility = self._take_step(question, own, amplified * step)
        self._reference.load(own)
        if not visibility > _HARDLY_VISIBLE:
            return True
        self._candidate.worker.adopt(state)
        is_right = self._candidate.is_right(replace(question, expected=expected))
        if not self._candidate.is_lost:
            self._candidate.worker.adopt(own)
        return is_right

    def _take_step(
        self, question: Question, own: Mapping[str, torch.Tensor], step: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], Expected, float]:
        """Return parameters after a step, the reference's answer, and how visible the step is."""
        state = {name: value + step for name, value in own.items()}
        self._reference.load(state)
        expected = self._reference.answer(question.inputs, question.seed)
        return state, expected, self._measure_visibility(question.expected, expected)

    def _measure_visibility(self, before: Expected, after: Expected) -> float:
        """Return the move of an answer in multiples of its tolerance; 0 where it is not finite."""
        most = 0.0
        triples = zip(tensors_of(after.value), after.exact, before.exact, strict=True)
        for own, new, old in triples:
            if new is None or old is None or is_whole(own):
                continue
            if not (bool(own.isfinite().all()) and bool(new.isfinite().all())):
                return 0.0
            limit = get_tolerance(own.dtype, self._candidate.policy)
            allowed = limit * (new.abs() + compute_rms(new))
            eager_error = float((own.to(new.device, new.dtype) - new).abs().amax())
            allowed += EAGER_ERRORS_ALLOWED * eager_error
            most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
        return most


def _get_wide_type(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64
