"""Checks of weights: answers under other parameters and buffers than those of the seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question, draw_seed
from evaluators.judging.calls.input_variations import vary_whole
from evaluators.judging.case import Policy
from evaluators.judging.comparison.structure import is_finite, is_whole
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    compute_rms,
    get_tolerance,
)
from evaluators.memory.tensors import tensors_of
from evaluators.references.task import Expected, ReferenceFailed
from evaluators.worker.handle import Failed

_MOST_TENSORS = 32
VISIBLE = 30.0
"""Change of an answer, in multiples of its tolerance, for a tensor that is changed alone."""
HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e6
_ROUNDING_ERRORS = 4.0
"""A move of the exact answer by as many of eager's largest errors is not rounding."""
_FEWEST_MOVED = 8
_SHARE_MOVED = 1 / 64


class WeightChecks:
    """Flags that depend on a candidate's weights."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._evidence = candidate.evidence
        self._moving: dict[str, torch.Tensor] = {}

    def perturb_all(self) -> None:
        """Flag a candidate that is wrong under other weights than those of the seed."""
        state = self._reference.perturb(draw_seed())
        self._reference.load(state)
        try:
            question = draw_question(self._reference, self._evidence)
            if not all(map(is_finite, tensors_of(question.expected.value))):
                return
            self._candidate.worker.adopt(
                {name: state[name] for name in self._candidate.known_state}
            )
            is_right = self._candidate.is_right(question)
            fault = self._candidate.last_fault
        except ReferenceFailed:
            return
        except Failed as failed:
            is_right, fault = False, failed.message
        finally:
            self._reference.reset()
        if not is_right:
            self._note(f"all parameters and buffers changed: {fault}")

    def perturb_each(self, end: float) -> bool:
        """Change one parameter or buffer at a time, by enough to be visible in the answer.

        Next to large sums, the effect of a bias can be below the tolerance when all weights change
        together. Of many tensors, a random sample is changed.

        end: Moment of the candidate's clock at which to stop.

        Returns whether there was time for all of them.
        """
        own = self._reference.state()
        # Both sides begin each call with these: they are called another number of times.
        self._moving = {name: own[name] for name in self._candidate.moving_state}
        moved = self._reference.perturb(draw_seed())
        # Parameters that share their memory are one tensor.
        tied = {
            name: {other: own[other] for other in moved if moved[other] is moved[name]}
            for name in moved
            if name in self._candidate.known_state
        }
        names = sorted(name for name, group in tied.items() if name == min(group))
        try:
            self._candidate.worker.adopt({name: own[name] for name in self._candidate.known_state})
            question = draw_question(self._reference, self._evidence)
            for name in random.sample(names, min(len(names), _MOST_TENSORS)):
                if self._candidate.read_clock() > end or self._candidate.is_lost:
                    return False
                change = self._find_change(name, tied[name], moved[name])
                if change is not None and not self._follows(question, tied[name], change):
                    self._note(f"{name} changed alone: {self._candidate.last_fault}")
                    return True
        except (Failed, ReferenceFailed):
            return False
        finally:
            self._reference.reset()
        return True

    def _find_change(
        self, name: str, own: Mapping[str, torch.Tensor], moved: torch.Tensor
    ) -> Callable[[float], dict[str, torch.Tensor]] | None:
        """Return what changes some tied tensors by a multiple of a step; None if nothing can."""
        value = own[name]
        if is_whole(value):
            may_fail = self._reference.device == "cpu"
            varied = vary_whole(value, [], [], draw_seed(), may_fail=may_fail)
            return None if varied is None else lambda _: dict.fromkeys(own, varied)
        is_packed = value.element_size() == 1  # such as float8, which has no arithmetic
        wide, moved = (each.float() if is_packed else each for each in (value, moved))
        step = moved - wide
        # A running variance has no negative values.
        is_positive = name not in self._reference.parameters() and not (
            value.is_complex() or bool((wide < 0).any())
        )

        def change(times: float) -> dict[str, torch.Tensor]:
            changed = wide + times * step
            changed = changed.abs() if is_positive else changed
            return dict.fromkeys(own, changed.to(value.dtype))

        return change

    def _follows(
        self,
        question: Question,
        own: Mapping[str, torch.Tensor],
        change: Callable[[float], dict[str, torch.Tensor]],
    ) -> bool:
        """Whether the candidate follows a change of some tensors, if the reference does."""
        policy = self._candidate.policy
        answers: dict[float, Expected] = {}

        def measure(times: float) -> float:
            self._reference.load(self._moving | change(times))
            answers[times] = self._reference.answer(question.inputs, question.seed)
            return measure_visibility(question.expected, answers[times], policy)

        try:
            times, visibility = amplify(measure, can_amplify=not is_whole(next(iter(own.values()))))
            changed = replace(question, expected=answers[times])
            is_visible = visibility > HARDLY_VISIBLE
            if not (is_visible or moves_beyond_rounding(question.expected, changed.expected)):
                return True
            before = None if is_visible else self._candidate.try_output(0, question)
            # The comparison may ask the reference for the rounding steps under these values.
            self._reference.load(self._moving | change(times))
            self._candidate.worker.adopt(self._moving | change(times))
            if is_visible:
                is_right = self._candidate.is_right(changed)
            else:
                is_right = not self._candidate.keeps_answer(before, changed)
        except ReferenceFailed:
            if not self._reference.is_alive:
                raise
            return True  # the task's module refuses these values
        finally:
            self._reference.load(own)
        if not self._candidate.is_lost:
            self._candidate.worker.adopt(own)
        return is_right

    def _note(self, what: str) -> None:
        self._candidate.note("fails_perturbed_parameters", what)


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


def measure_visibility(before: Expected, after: Expected, policy: Policy) -> float:
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
        limit = get_tolerance(own.dtype, policy)
        allowed = limit * (new.abs() + compute_rms(new))
        eager_error = float((own.to(new.device, new.dtype) - new).abs().amax())
        others = after.algorithms[index] if after.algorithms else None
        if others is not None:
            eager_error = max(eager_error, others.scaled * compute_rms(new))
        allowed += EAGER_ERRORS_ALLOWED * eager_error
        most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
    return most
