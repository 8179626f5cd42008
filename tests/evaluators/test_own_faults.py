"""Faults of the judge's own: one costs a call or a case, never the kernel, the judge or the run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluators.device.lock import DeviceLock
from evaluators.judge import Config, judge
from evaluators.judging import calls, comparison
from evaluators.judging.bench import Bench
from evaluators.judging.calls import CorrectnessProtocol
from evaluators.judging.case import Case, Precision
from evaluators.judging.comparison import ComparisonFailed
from evaluators.processes.process_tree import MACHINE_IS_SHORT
from evaluators.references.task import Expected, Reference
from evaluators.sandbox.failures import Failed
from evaluators.timing import candidate_process
from store.errors import HostUnfit, SandboxFailed

Judged = Callable[..., dict[str, Any]]


def fail(*_: Any, **__: Any) -> Any:
    # As torch does for types that it hardly supports.
    torch.ones(2).to(torch.float8_e4m3fn).neg()


def test_answers_that_torch_cannot_compare_are_a_limit_of_the_judge() -> None:
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(ComparisonFailed, match="limit comparison;"):
        comparison.compare(Expected(sparse, [sparse]), sparse)


@pytest.mark.slow
def test_a_comparison_that_fails_costs_its_case_alone(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "compare_numbers", fail)
        row = judge_code(right_candidate)
    assert (row["status"], row["reason"]) == ("evaluator_error", "comparison_failed"), row
    assert "Float8_e4m3fn" in row["message"]
    row = judge_code(right_candidate)
    assert row["status"] == "correct", row


@pytest.mark.slow
def test_an_unexpected_error_costs_its_case_alone_and_is_traced(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("evaluators.judging.calls.compute_fingerprint", fail)
        row = judge_code(right_candidate)
    assert (row["status"], row["reason"]) == ("evaluator_error", "internal"), row
    assert "Float8_e4m3fn" in row["message"]
    assert "Traceback" in row["log"]
    row = judge_code(right_candidate)
    assert row["status"] == "correct", row


@pytest.mark.slow
def test_an_error_in_a_robustness_call_ends_that_call_with_a_note(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = calls.measure_algorithms
    tried: list[str] = []

    def fail_at_first(reference: Reference, precision: Precision, kind: str, probes: Any) -> None:
        tried.append(kind)
        return fail() if len(tried) == 1 else genuine(reference, precision, kind, probes)

    monkeypatch.setattr(calls, "measure_algorithms", fail_at_first)
    row = judge_code(right_candidate)
    assert row["status"] == "correct"
    assert row["equivalent"] is None
    assert row["log"].count(": not tried, ") == 1
    assert len(tried) > 1


# ---- memory that judges share --------------------------------------------------------------------


class Neighbour:
    """Another judge of the device, which gives its memory up once somebody waits for it."""

    def __init__(self) -> None:
        self.holds_memory = True
        self._lock = DeviceLock.of_memory("cpu")
        self._held = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()
        self._held.wait()

    def _hold(self) -> None:
        with self._lock.hold_shared():
            self._held.set()
            while not self._lock.is_waited_for():
                time.sleep(0.01)
            self.holds_memory = False

    def close(self) -> None:
        with DeviceLock.of_memory("cpu").hold_exclusive():
            self._thread.join()
        self._lock.close()


@pytest.fixture
def neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neighbour]:
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(tmp_path))
    opened = Neighbour()
    yield opened
    opened.close()


@pytest.fixture
def sharing_bench(
    neighbour: Neighbour, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    memory = DeviceLock.of_memory("cpu")
    monkeypatch.setattr(bench, "_memory", memory)
    monkeypatch.setattr(bench, "has_memory_alone", False)
    yield bench
    bench._release_memory()
    memory.close()


def judge_beside(bench: Bench, code: str, task: str, *, robustness: bool = False) -> dict[str, Any]:
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task)
    bench.share_memory()
    config = Config(
        draw_shapes=0,
        import_s=120.0,
        call_s=120.0,
        timing_s=0.05,
        timing_limit_s=0.3,
        robustness=robustness,
        diagnosis=False,
    )
    return judge(case, bench, config)["evaluations"][0]


SHORTAGES = {
    "worker": SandboxFailed("a worker cannot be prepared: cuMemAlloc_v2: out of memory"),
    "machine": Failed("crash", "out_of_memory", f"used 9 bytes, and {MACHINE_IS_SHORT}"),
}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", SHORTAGES)
def test_a_case_that_lacks_memory_beside_another_judge_is_judged_again_alone(
    sharing_bench: Bench,
    neighbour: Neighbour,
    task: str,
    right_candidate: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    genuine = candidate_process.measure_candidate

    def measure_in_little_memory(*arguments: Any) -> list[dict[str, Any]]:
        rows = genuine(*arguments)
        if neighbour.holds_memory:
            raise SHORTAGES[name]
        return rows

    monkeypatch.setattr(candidate_process, "measure_candidate", measure_in_little_memory)
    row = judge_beside(sharing_bench, right_candidate, task)
    assert row["status"] == "correct", row
    assert "judged again alone" in row["log"]
    assert json.loads(row["parts_s"])["shortage"] > 0
    # It has the memory until another judge waits for it.
    assert sharing_bench.has_memory_alone
    waiting = Neighbour.__new__(Neighbour)
    thread = threading.Thread(target=waiting.__init__)
    thread.start()
    while sharing_bench.has_memory_alone:
        sharing_bench.yield_memory()
        time.sleep(0.01)
    thread.join()
    waiting.close()


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_memory_that_others_hold_makes_no_kernel_another_function(
    sharing_bench: Bench,
    neighbour: Neighbour,
    task: str,
    right_candidate: str,
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,
) -> None:
    """A kernel that lacks memory on other inputs alone as well, has failed on them."""
    genuine = CorrectnessProtocol.make_robustness_calls

    def call_in_little_memory(*_: Any, **__: Any) -> None:
        raise SHORTAGES["machine"]

    def make_robustness_calls(protocol: CorrectnessProtocol, eager: Any) -> bool:
        if neighbour.holds_memory or not ends:
            monkeypatch.setattr(protocol, "call", call_in_little_memory)
        return genuine(protocol, eager)

    monkeypatch.setattr(CorrectnessProtocol, "make_robustness_calls", make_robustness_calls)
    row = judge_beside(sharing_bench, right_candidate, task, robustness=True)
    assert row["status"] == "correct", row
    assert "judged again alone" in row["log"]
    assert row["equivalent"] is ends, row
    assert ("another_function" in row["flags"]) is not ends


def test_a_case_that_lacks_memory_alone_as_well_is_out_of_memory(
    sharing_bench: Bench, task: str, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack_memory(*_: Any) -> None:
        raise SHORTAGES["machine"]

    monkeypatch.setattr(candidate_process, "measure_candidate", lack_memory)
    row = judge_beside(sharing_bench, right_candidate, task)
    assert (row["status"], row["reason"]) == ("crash", "out_of_memory"), row
    # Where a training holds the memory of a GPU, nothing is said of the kernel.
    monkeypatch.setattr(sharing_bench, "_find_foreign_memory", lambda: 60 << 30)
    sharing_bench.has_memory_alone = False
    with pytest.raises(HostUnfit, match="other processes hold"):
        judge_beside(sharing_bench, right_candidate, task)


def test_a_kernel_that_exceeds_its_own_limit_is_judged_once(
    sharing_bench: Bench, neighbour: Neighbour, task: str, candidate: Callable[[str], str]
) -> None:
    row = judge_beside(sharing_bench, candidate("return x @ torch.empty(1 << 40)"), task)
    assert (row["status"], row["reason"]) == ("crash", "out_of_memory"), row
    assert neighbour.holds_memory
