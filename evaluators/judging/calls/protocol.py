"""The face of the correctness protocol: weights, verdict calls, timed outputs, robustness calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluators.judging.calls.candidate import Candidate
from evaluators.judging.calls.input_seeds import Question, draw_question
from evaluators.judging.calls.precision_record import PrecisionRecord
from evaluators.judging.calls.robustness_calls import ProbeLost, RobustnessCalls
from evaluators.judging.calls.state_checks import StateChecks
from evaluators.judging.calls.verdict_calls import VerdictCalls, pair_tensors
from evaluators.judging.case import Evidence, Policy
from evaluators.judging.comparison.closeness import is_close
from evaluators.judging.comparison.error_text import describe_change, describe_inputs
from evaluators.judging.comparison.outputs import compare
from evaluators.judging.comparison.result import Comparison
from evaluators.judging.comparison.tolerance import compute_rms
from evaluators.references.task import Expected, Reference, has_same_bits, join_answer
from evaluators.worker.handle import Failed, Parameter, WorkerHandle

_MOST_OF_DIFFERENCE = 0.1
"""Rounding errors are below this share of the difference between answers to different inputs."""
_MOST_GROWTH = 10.0
"""Rounding errors of timed calls are at most this many times as large as those of verdict calls."""


class CorrectnessProtocol:
    """The calls of one candidate.

    Methods raise Failed where the candidate fails, and ReferenceFailed where the task does.
    """

    def __init__(
        self, worker: WorkerHandle, reference: Reference, evidence: Evidence, policy: Policy
    ) -> None:
        self._candidate = Candidate(worker, reference, evidence, policy)
        self._reference = reference
        self._evidence = evidence
        self._policy: Policy = policy
        self._precision = PrecisionRecord()
        self._state_checks = StateChecks(self._candidate)
        self._has_rounded = False
        """Whether the answer of a timed call has been beyond its tolerance by rounding."""
        evidence.comparison = Comparison()

    def adopt_weights(self, parameters: Sequence[Parameter]) -> None:
        """Give the candidate the task's own weights where it has them by name and shape.

        parameters: those that the candidate's module lists.
        """
        self._candidate.adopt_weights(parameters)

    def make_verdict_calls(self, first: Question, calls: int) -> None:
        """Make the calls that decide: `calls`, or five if a call is slow.

        After them, the module's state must equal that of the task's own module.
        """
        self._candidate.usual = [compute_rms(exact) for exact in first.expected.exact]
        self._precision.measure_answer(first.expected.value)
        VerdictCalls(self._candidate, self._precision).run(first, calls)
        self._state_checks.compare_after_verdict()
        self._precision.classify(self._evidence, self._policy)

    def check_timed_output(self, inputs: list[Any], output: Any, inputs_now: Any) -> None:
        """Compare the output of a timed call, unless it depends on more than what was sent.

        Args:
            inputs: Its inputs as they were sent.
            output: What it returned.
            inputs_now: Its inputs after it.

        Raises Failed: incorrect_numerical if answers of two calls are beyond the tolerance by their
        rounding errors, memorised_output for any other wrong answer, input_mutated for a change of
        the inputs that the task does not make. Rounding errors beyond the tolerance in a single
        call are luck, such as answers next to zero.
        """
        changed, rules = self._reference.changed or [], self._reference.rules
        self._check_timed_answer(inputs, join_answer(output, inputs_now, changed))
        pairs = enumerate(pair_tensors(inputs, inputs_now))
        is_kept = all(has_same_bits(*pair) for n, pair in pairs if n not in changed)
        if not is_kept and not rules.scratch:
            change = describe_change(inputs, inputs_now, rules.names, changed)
            raise Failed("incorrect", "input_mutated", f"a timed call has changed {change}")

    def _check_timed_answer(self, inputs: list[Any], output: Any) -> None:
        if not self._reference.repeatable:
            self._evidence.flags.add("timed_outputs_unverified")
            return
        eager = self._reference.value(inputs)
        self._candidate.worker.require_room(eager)
        if is_close(eager, output, self._policy, self._evidence.comparison.eager_error):
            return
        expected = self._reference.answer(inputs)
        comparison = compare(
            expected, output, self._policy, lambda: self._reference.choices(inputs)
        )
        if comparison.reason is not None:
            is_rounding = self._has_rounding_errors(expected, comparison)
            named = describe_inputs(inputs, self._reference.rules.names)
            message = f"a timed call on {named} gave a wrong answer: {comparison.message}"
            if is_rounding and not self._has_rounded:
                self._has_rounded = True
                self._evidence.notes.append(message)
                return
            self._evidence.comparison = comparison
            if is_rounding:
                raise Failed("incorrect", "incorrect_numerical", message)
            raise Failed("rejected", "memorised_output", message)

    def follow_state(self, calls: Sequence[list[Any]], eager: WorkerHandle) -> int:
        """Compare the module's state with the task's own after timed calls.

        To be called after every timed sample, so that nothing tells a sample that is checked.

        Args:
            calls: Inputs of the calls since the last time, to check them; empty otherwise.
            eager: A worker that runs the task's own module.

        Returns the nanoseconds of the request that belong to the sample before it.
        """
        return self._state_checks.follow(calls, eager)

    def _has_rounding_errors(self, expected: Expected, comparison: Comparison) -> bool:
        """Whether the errors of a wrong answer may be due to rounding.

        Rounding errors may be beyond the tolerance in one call of many. They are then not much
        larger than in the verdict calls, unless the candidate computes less precisely when it is
        timed. An answer from an earlier call is as far from the expected one as any other.
        """
        usual, largest = self._evidence.comparison.max_scaled_error, comparison.max_scaled_error
        if usual is None or largest is None or largest > max(1.0, _MOST_GROWTH * usual):
            return False
        other = draw_question(self._reference, self._evidence).expected
        difference = compare(expected, other.value, self._policy).rel_l2_error
        error = comparison.rel_l2_error
        if error is None or difference is None:
            return False
        return error < _MOST_OF_DIFFERENCE * difference

    def make_robustness_calls(self, probe: WorkerHandle) -> bool:
        """Make the calls that raise flags and decide nothing, after all other calls.

        probe: worker that runs the task's own module; on a GPU it tries the inputs first.

        Returns whether the probe can still be used.
        """
        if self._reference.remembers:
            return True
        try:
            RobustnessCalls(self._candidate, self._precision, probe).run()
        except ProbeLost:
            return False
        finally:
            self._precision.classify(self._evidence, self._policy)
        return True
