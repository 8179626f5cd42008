"""Verdicts by one policy that hold for another one, so that nothing is judged or timed twice.

Two policies are alike if they compare answers by the same rule, as torch_default and fp32_strict
do where eager computes in full float32. They then differ in one flag of a GPU, TF32 in
convolutions. A verdict by one holds for the other if the flag changes neither the answers of eager
nor those of the candidate, bit by bit. Eager tells this in its own worker, and the candidate in a
fresh process under the other flag, which answers the first questions of the verdict again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evaluators.judging.case import Case, Evidence, Policy

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.sandbox.launcher import Limits
    from evaluators.worker.handle import Deadlines

ALIKE: frozenset[Policy] = frozenset({"torch_default", "fp32_strict"})
"""Policies that compare answers by the same rule where eager computes in full float32."""
_MOST = 512


@dataclass(frozen=True, kw_only=True)
class KnownVerdict:
    """A correct verdict, and what tells whether it holds for another policy."""

    policy: Policy
    options: Any
    """The evaluator's other options, which have to be the same."""
    tables: Mapping[str, list[dict[str, Any]]]
    """The rows."""
    seeds: list[int]
    """Input seeds of the first questions."""
    answers: list[str]
    """Fingerprints of the answers to them."""


@dataclass
class KnownVerdicts:
    """Verdicts on kernels, for the task that they were judged on."""

    _by_case: dict[tuple[str, ...], KnownVerdict] = field(
        default_factory=dict[tuple[str, ...], KnownVerdict]
    )

    def add(self, case: Case, known: KnownVerdict) -> None:
        """Add the verdict on a kernel; forget the oldest one where there are many."""
        while len(self._by_case) >= _MOST:
            del self._by_case[next(iter(self._by_case))]
        self._by_case[_key(case)] = known

    def find(self, case: Case, policy: Policy, options: Any) -> KnownVerdict | None:
        """Return the verdict on a kernel that may hold for a policy, or None."""
        known = self._by_case.get(_key(case))
        if known is None or known.policy == policy or known.options != options:
            return None
        return known if {known.policy, policy} <= ALIKE else None


def _key(case: Case) -> tuple[str, ...]:
    return case.task_id, case.workload_id, case.kernel_id, case.code


def is_same_by_flags(
    known: KnownVerdict,
    case: Case,
    bench: Bench,
    policy: Policy,
    limits: Limits,
    deadlines: Deadlines,
) -> bool:
    """Whether the flags of a policy change neither eager's answers nor the candidate's.

    False as well where the task or the candidate fails: judging it in full says how.
    """
    from evaluators.references.task import ReferenceFailed
    from evaluators.sandbox.failures import Failed
    from store.errors import SandboxFailed

    try:
        with bench.lock.hold_shared():
            if bench.open_reference(case.task_code, json.loads(case.axes)).depends_on_tf32():
                return False
            return _answer_again(known, case, bench, policy, limits, deadlines) == known.answers
    except (Failed, ReferenceFailed, SandboxFailed):
        return False


def _answer_again(
    known: KnownVerdict,
    case: Case,
    bench: Bench,
    policy: Policy,
    limits: Limits,
    deadlines: Deadlines,
) -> list[str]:
    """Return fingerprints of a fresh process's answers to the first questions of a verdict."""
    from evaluators.judging.baseline_workers import Sizes
    from evaluators.judging.calls.candidate import Candidate
    from evaluators.judging.calls.input_seeds import repeat_question
    from evaluators.memory.tensors import compute_fingerprint
    from evaluators.references.weight_seed import WEIGHT_SEED

    reference = bench.open_reference(case.task_code, json.loads(case.axes))
    reference.reset()
    first, *others = known.seeds[: len(known.answers)]
    question = repeat_question(reference, first)
    sizes = Sizes.of(question.inputs, question.expected.value, reference.least_bytes)
    patient = replace(deadlines, first_call_s=deadlines.total_s, call_s=deadlines.total_s)
    files = {case.path: case.code, **dict(case.other_files)}
    worker = bench.start_candidate(files, sizes, limits, patient, policy)
    try:
        candidate = Candidate(worker, reference, Evidence(), policy)
        worker.load(case.path, case.entry_point, {})
        places = reference.places_tensors
        parameters = worker.construct(WEIGHT_SEED, reference.arguments, places=places)
        candidate.adopt_weights(parameters)
        found = [compute_fingerprint(candidate.call(0, question, first=True))]
        for seed in others:
            question = repeat_question(reference, seed)
            found.append(compute_fingerprint(candidate.call(0, question)))
        return found
    finally:
        worker.end()
