"""Checks of weights: answers under other weights than those of the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question, draw_seed
from evaluators.judging.comparison.structure import is_whole
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    compute_rms,
    get_tolerance,
)
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected, ReferenceFailed
from evaluators.worker.handle import Failed

_MOST_PARAMETERS = 32
_VISIBLE = 30.0
"""Change of an answer, in multiples of its tolerance, for a parameter that is changed alone."""
_HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e4


class WeightChecks:
    """Flags that depend on a candidate's weights."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._evidence = candidate.evidence

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
            if new.shape != old.shape:  # it depends on the numbers, so that no element has a pair
                return 0.0
            if not (bool(own.isfinite().all()) and bool(new.isfinite().all())):
                return 0.0
            limit = get_tolerance(own.dtype, self._candidate.policy)
            allowed = limit * (new.abs() + compute_rms(new))
            eager_error = float((own.to(new.device, new.dtype) - new).abs().amax())
            allowed += EAGER_ERRORS_ALLOWED * eager_error
            most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
        return most
