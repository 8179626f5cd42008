"""Faults of the judge's own: one costs a call or a case, never the kernel, the judge or the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from evaluators.judging.calls import robustness_calls
from evaluators.judging.comparison import outputs
from evaluators.judging.comparison.failures import ComparisonFailed
from evaluators.references.task import Expected

Judged = Callable[..., dict[str, Any]]


def fail(*_: Any, **__: Any) -> Any:
    # As torch does for types that it hardly supports.
    torch.ones(2).to(torch.float8_e4m3fn).neg()


def test_answers_that_torch_cannot_compare_are_a_limit_of_the_judge() -> None:
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(ComparisonFailed, match="limit comparison;"):
        outputs.compare(Expected(sparse, [sparse]), sparse)


def test_a_comparison_that_fails_costs_its_case_alone(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "compare_numbers", fail)
        row = judge_code(right_candidate)
    assert (row["status"], row["reason"]) == ("evaluator_error", "comparison_failed"), row
    assert "Float8_e4m3fn" in row["message"]
    assert judge_code(right_candidate)["status"] == "correct"


def test_an_unexpected_error_costs_its_case_alone_and_is_traced(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("evaluators.judging.calls.verdict_calls.compute_fingerprint", fail)
        row = judge_code(right_candidate)
    assert (row["status"], row["reason"]) == ("evaluator_error", "internal"), row
    assert "Float8_e4m3fn" in row["message"]
    assert "Traceback" in row["log"]
    assert judge_code(right_candidate)["status"] == "correct"


def test_an_error_in_a_robustness_call_ends_that_call_with_a_note(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = robustness_calls.has_same_bits
    calls: list[int] = []

    def fail_at_first(*values: Any) -> bool:
        calls.append(1)
        return fail() if len(calls) == 1 else genuine(*values)

    monkeypatch.setattr(robustness_calls, "has_same_bits", fail_at_first)
    row = judge_code(right_candidate)
    assert row["status"] == "correct"
    assert row["equivalent"] is None
    assert row["log"].count(": not tried, ") == 1
    assert len(calls) > 1
