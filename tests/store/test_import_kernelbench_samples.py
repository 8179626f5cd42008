"""Samples of KernelBench's authors, in the layout of their dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_sources import add_task, count, import_source, kernel, query, write_json

from store.importers import kernelbench_samples
from store.importers.reading import sources

JUDGED = {
    "compiled": True,
    "correct": True,
    "runtime": 0.5,
    "metadata": {"hardware": "NVIDIA L40S"},
}


def write_sample(root: Path, place: str, code: str, **result: Any) -> Path:
    """Write kernel.json of one sample."""
    value = {"kernel": code, "model_name": "m", "eval_result": {"eval_0": JUDGED | result}}
    return write_json(root / place / "kernel.json", value)


def write_log(root: Path, place: str, *turns: tuple[str, dict[str, Any]]) -> Path:
    """Write log.json of a refinement."""
    value: dict[str, Any] = {"metadata": {"problem": "19_ReLU.py"}}
    for number, (code, result) in enumerate(turns, start=1):
        value[str(number)] = {"context": "…", "kernel_code": code, "eval_result": result}
    return write_json(root / place / "log.json", value)


def test_samples_become_attempts_verdicts_and_claims(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-samples"
    task = add_task(lake)
    folder = "baseline_eval/level1/openai-o1/problem_19"
    write_sample(root, f"{folder}/sample_0", kernel())
    write_sample(root, "repeated_sampling/level1/openai-o1/problem_19/sample_0", kernel(1))
    write_sample(
        root, "baseline_eval/level1/openai-o1/problem_20/sample_0", kernel(2), correct=False
    )
    summary = import_source(lake, kernelbench_samples, root)
    assert summary.rows["kernels"] == 3
    attempts = query(
        lake,
        "SELECT policy_id, problem, task_id FROM generations ORDER BY problem, sample_index",
    )
    assert attempts == [
        ("openai-o1", "level1/19", task),
        ("openai-o1", "level1/19", task),
        ("openai-o1", "level1/20", None),
    ]
    # A sample of a problem that the lake does not know has its kernel, and no verdict.
    verdicts = query(lake, "SELECT evaluator, status FROM evaluations")
    assert verdicts == [("kernelbench", "correct")] * 2
    claims = query(
        lake, "SELECT metric, value, gpu, license, kernel_id IS NULL FROM claims ORDER BY metric"
    )
    assert claims == [
        ("correct", 0.0, "L40S", "Apache-2.0", False),
        ("latency_ms", 0.5, "L40S", "Apache-2.0", False),
        ("latency_ms", 0.5, "L40S", "Apache-2.0", False),
    ]
    assert count(lake, "timings") == 0


@pytest.mark.slow
def test_samples_without_the_tasks_of_their_revision_give_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-samples"
    add_task(lake)
    write_sample(root, "baseline_eval/level1/openai-o1/problem_19/sample_0", kernel())
    import_source(lake, kernelbench_samples, root, suite_revision="v0.2")
    assert "no tasks of KernelBench v0.2. The attempts get no task" in caplog.text
    assert query(lake, "SELECT problem, task_id FROM generations") == [("level1/19", None)]


@pytest.mark.slow
def test_turns_of_a_refinement_are_a_trajectory(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-samples"
    add_task(lake)
    place = "iterative_refinement/level1/eval_result_last_only/deepseek-R1/problem_19/sample_0"
    failed = {"compiled": False, "correctness": False, "metadata": {"compilation_error": "no"}}
    passed = {"compiled": True, "correctness": True, "runtime": 2.0, "metadata": {}}
    write_log(root, place, (kernel(1), failed), ("", failed), (kernel(3), passed))
    import_source(lake, kernelbench_samples, root)
    chain = query(
        lake,
        "SELECT child.turn, parent.turn AS parent_turn, child.policy_id, child.parse_error "
        "FROM generations AS child LEFT JOIN generations AS parent "
        "ON parent.generation_id = child.parent_generation_id ORDER BY ALL",
    )
    assert chain == [
        (1, None, "deepseek-R1", None),
        (2, 1, "deepseek-R1", "the file has no code"),
        (3, 2, "deepseek-R1", None),
    ]
    assert count(lake, "(SELECT DISTINCT trajectory_id FROM generations)") == 1
    found = query(lake, "SELECT status, reason FROM evaluations ORDER BY ALL")
    assert found == [("compile_error", "unspecified"), ("correct", None)]


@pytest.mark.slow
def test_a_second_import_adds_nothing_and_any_folder_inside_is_the_same_source(
    tmp_path: Path,
) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-samples"
    write_sample(root, "baseline_eval/level1/openai-o1/problem_19/sample_0", kernel())
    import_source(lake, kernelbench_samples, root)
    again = import_source(lake, kernelbench_samples, root)
    assert (again.files, again.skipped, again.rows) == (0, 1, {})
    inside = import_source(lake, kernelbench_samples, root / "baseline_eval")
    assert inside.rows.get("generations", 0) == inside.rows.get("claims", 0) == 0


MALFORMED = {
    '{"kernel": "x",': "Expecting property name",
    '{"kernel": 5}': "kernel is int 5, not a text",
    '{"kernel": "a", "kernel": "b"}': "'kernel' twice",
    '{"kernel": "x", "eval_result": ' + "[" * 200 + "]" * 200 + "}": "deeper than 100",
    '{"kernel": ' + "[" * 100_000 + "}": "nested too deeply",
    '{"kernel": "a\\u0000b"}': "zero byte or a lone surrogate",
    '{"kernel": "a\\ud800b"}': "zero byte or a lone surrogate",
    '{"kernel": "x", "eval_result": {"correct": "maybe"}}': "not true or false",
    '{"kernel": ' + "9" * 5_000 + "}": "Exceeds the limit",
    "[]": "an object is expected",
}


@pytest.mark.slow
def test_a_malformed_sample_costs_itself_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-samples"
    folder = "baseline_eval/level1/openai-o1"
    write_sample(root, f"{folder}/problem_1/sample_0", kernel())
    bad = write_sample(root, f"{folder}/problem_2/sample_0", kernel())
    for text, said in MALFORMED.items():
        bad.write_text(text)
        assert import_source(lake, kernelbench_samples, root).left_out == 1
        assert said in caplog.text
        assert "problem_2/sample_0/kernel.json" in caplog.text
        caplog.clear()
    assert count(lake, "kernels") == 1


def test_the_layout_is_recognized(tmp_path: Path) -> None:
    root = tmp_path / "kernelbench-samples"
    write_sample(root, "baseline_eval/level1/openai-o1/problem_19/sample_0", kernel())
    for path in (root, root / "baseline_eval", root / "baseline_eval/level1/openai-o1"):
        found = sources.detect(path)
        assert list(found) == ["kernelbench-samples"], path
