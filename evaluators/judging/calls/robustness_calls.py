"""Robustness calls: inputs and weights that the task does not promise.

Honest kernels break on some of them, so they raise flags (`judging.flags`) and decide no verdict.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Sequence
from typing import Any

import torch

from evaluators.judging.calls.candidate import STRIDED_SLOT, Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question, draw_seed
from evaluators.judging.calls.input_variations import FRAGILE, SIGNS, SPECIAL, Variation
from evaluators.judging.calls.precision_record import (
    DRAWS_OF_FEW,
    MOST_ROUNDING,
    PrecisionRecord,
    classify_rounding,
    pick_class,
)
from evaluators.judging.calls.verdict_calls import LARGE_BYTES, pair_tensors
from evaluators.judging.calls.weight_checks import WeightChecks
from evaluators.judging.comparison.failures import name_failures
from evaluators.judging.comparison.outputs import compare
from evaluators.judging.comparison.precision_class import is_below
from evaluators.judging.comparison.result import Comparison
from evaluators.judging.comparison.structure import is_whole
from evaluators.judging.comparison.tolerance import compute_rms
from evaluators.memory.tensors import layout, tensors_of
from evaluators.references.task import Expected, ReferenceFailed, call_seed, has_same_bits
from evaluators.worker.handle import Failed, WorkerHandle

_LIMIT_S = 10.0
_MOST_ROUNDING_OF_USUAL = 0.02
"""Norm of the error over that of usual answers up to which it counts as rounding, for answers that
may be close to zero."""


class ProbeLost(ReferenceFailed):
    """The probe has not survived the inputs."""


class RobustnessCalls:
    """The calls that raise flags and decide nothing."""

    def __init__(
        self, candidate: Candidate, precision: PrecisionRecord, probe: WorkerHandle
    ) -> None:
        """Take the worker that runs the task's own module as the probe.

        On a GPU the probe tries the inputs first: inputs outside the task's promise may end the
        process that reads them, and that must not be the judge's process.
        """
        self._candidate = candidate
        self._reference = candidate.reference
        self._evidence = candidate.evidence
        self._precision = precision
        self._probe = probe
        self._is_complete = True
        """Whether every call could be compared so far."""

    def run(self) -> None:
        """Check first whether the candidate is the same function, then its robustness.

        Inputs of other signs are always tried: a candidate that is slow on unexpected inputs must
        not use up the time of these checks.

        Raises ProbeLost, ReferenceFailed.
        """
        if not self._try_variations(SIGNS, math.inf):
            return
        end = self._candidate.read_clock() + _LIMIT_S
        if not self._candidate.missing_parameters and self._reference.parameters():
            weights = WeightChecks(self._candidate)
            with self._note_limit("other weights"):
                weights.perturb_all()
                self._is_complete &= weights.perturb_each(end)
            try:
                self._candidate.restore_weights()
            except Failed:
                return
        self._evidence.compared_as_function = self._is_complete and not self._candidate.is_lost
        if self._try_variations(FRAGILE, end):
            self._try_variations(SPECIAL, end)

    def _try_variations(self, variations: Sequence[Variation], end: float) -> bool:
        """Try variations of the inputs; returns whether there are time and process for more."""
        for variation in variations:
            if self._candidate.read_clock() > end:
                return False
            with self._note_limit(variation.flag):
                if not self._try_variation(variation):
                    return False
        return True

    @contextlib.contextmanager
    def _note_limit(self, calls: str) -> Generator[None]:
        """Note that calls end by a limit of the judge or a fault of the task, not of the kernel."""
        try:
            with name_failures():
                yield
        except ProbeLost:
            raise
        except ReferenceFailed as failed:
            self._evidence.notes.append(f"{calls}: not tried, {failed}")
            self._is_complete = False

    def _try_variation(self, variation: Variation) -> bool:
        """Try a variation; returns whether the process can be used for more."""
        question = self._draw_variation(variation)
        if question is None:
            return True
        comparison = self._candidate.try_call(
            question, strided=variation.strided, special=variation.special
        )
        if variation.tells_precision:
            self._note_class(variation, comparison)
        if comparison is None or comparison.reason is not None:
            self._evidence.flags.add(variation.flag)
            if variation in SIGNS and not self._is_rounding(question, variation, comparison):
                self._evidence.flags.add("another_function")
            # The failure may have broken the process too; then further calls show nothing.
            if self._candidate.is_lost or not self._candidate.is_right(
                draw_question(self._reference, self._evidence)
            ):
                if variation in SIGNS:
                    self._evidence.flags.add("another_function")
                return False
        return True

    def _is_rounding(
        self, question: Question, variation: Variation, comparison: Comparison | None
    ) -> bool:
        """Whether a wrong answer differs from the right one by rounding alone.

        If the answer to special inputs may be close to zero, a small share of usual answers counts
        as rounding as well.
        """
        if comparison is None or comparison.rel_l2_error is None:
            return False
        size = sum(compute_rms(exact) for exact in question.expected.exact)
        allowed = MOST_ROUNDING * size
        if variation.special:
            allowed = max(allowed, _MOST_ROUNDING_OF_USUAL * sum(self._candidate.usual))
        return comparison.rel_l2_error * size <= allowed

    def _note_class(self, variation: Variation, comparison: Comparison | None) -> None:
        """Record the precision that an answer shows; None if the answer is wrong."""
        few = self._precision.has_few_elements
        shown = classify_rounding(comparison, typical=variation.widens)
        self._precision.note_eager(comparison)
        # A single sum may be right by chance, or close to zero, where any error is large.
        if few or is_below(shown, self._precision.lowest_class):
            joint = self._compare_draws(variation, DRAWS_OF_FEW if few else 1)
            repeated = classify_rounding(joint, typical=variation.widens)
            shown = pick_class(shown, repeated, has_few_elements=few)
        self._precision.robustness_classes.append(shown)

    def _compare_draws(self, variation: Variation, draws: int) -> Comparison | None:
        """Compare several draws of varied inputs as one answer; None where one fails."""
        wanted: list[list[torch.Tensor]] = []
        exact: list[list[torch.Tensor]] = []
        given: list[list[torch.Tensor]] = []
        inputs: list[Any] = []
        for _ in range(draws):
            question = self._draw_variation(variation)
            if question is None:
                return None
            output = self._candidate.try_output(0, question)
            if output is None or self._candidate.compare(question, output[0]).rel_l2_error is None:
                return None
            triples = zip(
                tensors_of(question.expected.value),
                question.expected.exact,
                tensors_of(output[0]),
                strict=True,
            )
            numbers = [(w, x, g) for w, x, g in triples if x is not None and not is_whole(w)]
            sides = zip((wanted, exact, given), zip(*numbers, strict=True), strict=True)
            for side, tensors in sides:
                side.append(list(tensors))
            inputs = question.inputs
        if len({len(tensors) for tensors in wanted}) != 1:
            return None  # the task answers in another number of tensors
        value, wide, answers = (
            [_join(tensors) for tensors in zip(*side, strict=True)]
            for side in (wanted, exact, given)
        )
        return compare(Expected(value, list(wide), inputs), answers, self._candidate.policy)

    def _draw_variation(self, variation: Variation) -> Question | None:
        """Return a question on varied inputs; None if there is none or it shows nothing."""
        if variation.flag in self._reference.refused:
            return None
        seed = draw_seed()
        own = self._reference.inputs(seed)
        if variation.strided and layout(own)[1] > LARGE_BYTES:
            return None
        inputs = variation.change(own, seed)
        if all(
            a is b or (not variation.strided and has_same_bits(a, b))
            for a, b in pair_tensors(own, inputs)
        ):
            return None
        self._evidence.seeds.append(seed)
        eager: list[Any] = []
        if self._reference.device == "cuda":
            eager = _try_probe(self._probe, inputs, variation)
            if not eager:
                self._reference.refused.add(variation.flag)
                if not _try_probe(self._probe, own, None):
                    raise ProbeLost
                return None
        try:
            expected = self._reference.answer(inputs, call_seed(seed))
        except ReferenceFailed:
            return None
        question = Question(inputs, expected, call_seed(seed))
        usual = self._candidate.usual if variation.special else None
        if self._reference.repeatable and any(
            self._candidate.compare(question, output, usual).reason for output in eager
        ):
            return None  # eager itself is as far off, at the precision that the policy allows
        return question if _tells_something(expected, variation) else None


def _tells_something(expected: Expected, variation: Variation) -> bool:
    """Whether an expected answer can show that a candidate is wrong."""
    answers = list(tensors_of(expected.value))
    if variation.finite:
        return all(bool(tensor.isfinite().all()) for tensor in answers)
    # The conversion of infinity to a whole number depends on the machine.
    return not any(is_whole(tensor) and tensor.dtype != torch.bool for tensor in answers)


def _try_probe(probe: WorkerHandle, inputs: list[Any], variation: Variation | None) -> list[Any]:
    """Return what the probe answers, as a list of one; an empty list where it fails."""
    strided = variation is not None and variation.strided
    slot = STRIDED_SLOT if strided else 0
    try:
        probe.fill(slot, inputs, strided=strided)
        return [probe.call(slot)]
    except ReferenceFailed:
        return []


def _join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors as one; of varying shapes, only their elements in a row."""
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
