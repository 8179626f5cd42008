"""Agent runs of KernelBench v3 and KernelBench-Hard, and sessions of Claude Code."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from import_sources import add_task, count, import_source, kernel, query, write_json, write_lines

from store.errors import ImportFailed
from store.importers import claude_code, kernelbench_hard_runs, kernelbench_v3_runs
from store.importers.reading import sources


def v3_row(**changes: Any) -> dict[str, Any]:
    """Return one row of results.csv."""
    return {
        "model": "GPT-5.4",
        "gpu": "H100",
        "level": 1,
        "problem": "19_ReLU.py",
        "compiled": True,
        "correct": True,
        "speedup": 1.5,
        "ref_ms": 3.0,
        "sol_ms": 2.0,
        "turns": 7,
        "total_tokens": 1000,
        "estimated_cost_usd": 0.12,
        "op_type": "elementwise",
        "baseline_type": "compiled",
        "precision_used": "fp32",
        "run_dir": "batch_eval/1",
        "solution_link": "solutions/a.py.txt",
        "baseline_link": "level1/19_ReLU.py",
    } | changes


def write_v3(root: Path, *rows: dict[str, Any]) -> Path:
    """Write results.csv with the solution a.py.txt."""
    (root / "solutions").mkdir(parents=True, exist_ok=True)
    (root / "solutions/a.py.txt").write_text(kernel())
    with open(root / "results.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(v3_row()))
        writer.writeheader()
        writer.writerows(rows)
    return root


@pytest.mark.slow
def test_v3_rows_become_attempts_and_claims_of_their_gpu(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    task = add_task(lake, revision="v3")
    root = write_v3(
        tmp_path / "runs",
        v3_row(),
        v3_row(gpu="B200", problem="20_Other.py"),
        v3_row(correct=False, speedup="", sol_ms="", solution_link="", model="Gemini"),
    )
    import_source(lake, kernelbench_v3_runs, root, suite_revision="v3")
    attempts = query(
        lake, "SELECT policy_id, problem, task_id, kernel_id IS NULL FROM generations ORDER BY ALL"
    )
    assert attempts == [
        ("GPT-5.4", "level1/19_ReLU.py", task, False),
        ("GPT-5.4", "level1/20_Other.py", None, False),
        ("Gemini", "level1/19_ReLU.py", task, True),
    ]
    claims = query(
        lake,
        "SELECT gpu, metric, baseline, coalesce(speedup, value) AS figure FROM claims ORDER BY ALL",
    )
    assert claims == [
        ("B200", "baseline_latency_ms", "compile", 3.0),
        ("B200", "correct", None, 1.0),
        ("B200", "latency_ms", None, 2.0),
        ("B200", "speedup", "compile", 1.5),
        ("H100", "baseline_latency_ms", "compile", 3.0),
        ("H100", "latency_ms", None, 2.0),
        ("H100", "speedup", "compile", 1.5),
    ]
    assert query(lake, "SELECT evaluator, status FROM evaluations") == [
        ("kernelbench-v3-runs", "correct")
    ]
    again = import_source(lake, kernelbench_v3_runs, root, suite_revision="v3")
    assert again.rows == {}
    assert list(sources.detect(root)) == ["kernelbench-v3-runs"]


@pytest.mark.slow
def test_a_malformed_row_of_a_csv_is_named_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = tmp_path / "lake"
    for change, said in (
        ({"solution_link": "solutions/../../secret.txt"}, "there is no solutions/secret.txt"),
        ({"solution_link": "x" * 300}, "there is no solutions/xxx"),
        ({"speedup": "fast"}, "line 3 is left out: speedup is str 'fast', not a number"),
        ({"correct": "perhaps"}, "line 3 is left out: correct is str 'perhaps'"),
        ({"level": -1}, "level is float -1.0, not a whole number"),
    ):
        root = write_v3(tmp_path / "runs", v3_row(), v3_row(**change))
        assert import_source(lake, kernelbench_v3_runs, root).left_out == 1
        assert said in caplog.text
    (root / "results.csv").write_text("model,gpu\na,b,c\n")
    with pytest.raises(ImportFailed, match="has no column level"):
        import_source(lake, kernelbench_v3_runs, root)
    assert count(lake, "kernels") == 1


def event(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Return one line of a session of Claude Code."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"m{fields['uuid']}", "model": "claude-opus-4-7"}
        message["usage"] = {"input_tokens": 10, "output_tokens": 5}
    return {
        "type": kind,
        "sessionId": "s-1",
        "version": "2.1.0",
        "timestamp": "2026-05-01T10:00:00Z",
        "message": message,
    } | fields


def tool_use(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a block with a call."""
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}


def tool_result(number: int, text: str, is_error: bool = False) -> dict[str, Any]:
    """Return a block with the result of a call."""
    return {
        "type": "tool_result",
        "tool_use_id": f"t{number}",
        "content": [{"type": "text", "text": text}],
        "is_error": is_error,
    }


def session() -> list[dict[str, Any]]:
    """Return a session: write a kernel, check it, edit it, fail to edit it."""
    path = "/workspace/solution.py"
    return [
        event("user", "Write solution.py.", uuid="1"),
        event(
            "assistant",
            [
                {"type": "thinking", "thinking": "A clamp."},
                {"type": "text", "text": "I write it."},
            ],
            uuid="2",
            parentUuid="1",
        ),
        event(
            "assistant",
            [tool_use(1, "Write", file_path=path, content=kernel(1))],
            uuid="2b",
            parentUuid="2",
        )
        | {
            "message": {
                "id": "m2",
                "role": "assistant",
                "model": "claude-opus-4-7",
                "content": [tool_use(1, "Write", file_path=path, content=kernel(1))],
            }
        },
        event("user", [tool_result(1, "ok")], uuid="3"),
        event("assistant", [tool_use(2, "Bash", command="python check.py")], uuid="4"),
        event("user", [tool_result(2, "FAIL", is_error=True)], uuid="5"),
        event(
            "assistant",
            [tool_use(3, "Edit", file_path=path, old_string="# 1", new_string="# 2")],
            uuid="6",
        ),
        event("user", [tool_result(3, "ok")], uuid="7"),
        event(
            "assistant",
            [tool_use(4, "Edit", file_path=path, old_string="absent", new_string="x")],
            uuid="8",
        ),
        event("user", [tool_result(4, "String not found", is_error=True)], uuid="9"),
        {"type": "result", "subtype": "success", "total_cost_usd": 0.5, "session_id": "s-1"},
    ]


def test_a_session_becomes_steps_calls_and_a_chain_of_attempts(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    task = add_task(lake)
    file = write_lines(tmp_path / "traces/s-1.jsonl", session())
    import_source(lake, claude_code, file, task="level1/19", license="MIT")
    assert query(lake, "SELECT name, harness, outcome, cost_usd, policy_id FROM sessions") == [
        ("s-1", "claude-code 2.1.0", "success", 0.5, "claude-opus-4-7")
    ]
    steps = query(
        lake,
        "SELECT step, role, content, reasoning, generation_id IS NOT NULL FROM session_steps "
        "ORDER BY step",
    )
    assert steps == [
        (0, "user", "Write solution.py.", None, False),
        (1, "assistant", "I write it.", "A clamp.", True),
        (2, "assistant", None, None, False),
        (3, "assistant", None, None, True),
        (4, "assistant", None, None, False),
    ]
    calls = query(lake, "SELECT step, tool, result, is_error FROM tool_calls ORDER BY step")
    assert calls == [
        (1, "Write", "ok", False),
        (2, "Bash", "FAIL", True),
        (3, "Edit", "ok", False),
        (4, "Edit", "String not found", True),
    ]
    chain = query(
        lake,
        "SELECT turn, parent_generation_id IS NULL, task_id, contains(code, '# 1') AS first, "
        "contains(code, '# 2') AS second, generations.license, prompt_id IS NULL AS unasked "
        "FROM generations JOIN kernels USING (kernel_id) ORDER BY turn",
    )
    assert chain == [
        (0, True, task, True, False, "MIT", False),
        (1, False, task, False, True, "MIT", False),
    ]
    again = import_source(
        lake, claude_code, tmp_path / "traces/s-1.jsonl", task="level1/19", license="MIT"
    )
    assert again.rows == {}
    assert list(sources.detect(file)) == ["claude-code"]


@pytest.mark.slow
def test_a_line_that_is_cut_off_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_lines(tmp_path / "s.jsonl", session())
    file.write_text(file.read_text()[:-60])
    assert import_source(tmp_path / "lake", claude_code, file).left_out == 1
    assert "s.jsonl, line 11 is left out" in caplog.text
    assert count(tmp_path / "lake", "sessions") == 1


ANNOTATION = """run_id: r1
model: claude-opus-4-7
harness: claude
problem: 01_fp8_gemm
peak_fraction: 0.4
verdict: {verdict}
summary: >
  It casts to bf16.
quotes:
  - file: solution.py
    lines: [3, 5]
    label: the cast
    text: x.to(torch.bfloat16)
  - file: transcript.jsonl
    lines: [12]
    text: I will cast
implication: >
  The number is not one of fp8.
"""


def write_run(root: Path, name: str, verdict: str | None, **result: Any) -> None:
    """Write one run of KernelBench-Hard."""
    about = {
        "problem": "01_fp8_gemm",
        "harness": "claude",
        "model": "claude-opus-4-7",
        "reasoning_effort": "max",
        "has_solution": True,
        "correct": True,
        "peak_fraction": 0.4,
        "elapsed_seconds": 1200,
    } | result
    write_json(root / "runs" / name / "result.json", about)
    (root / "runs" / name / "solution.py").write_text(kernel(len(name)))
    write_lines(root / "runs" / name / "transcript.jsonl", session())
    if verdict is not None:
        (root / "annotations").mkdir(exist_ok=True)
        text = ANNOTATION.replace("{verdict}", verdict)
        (root / "annotations" / f"{name}.yaml").write_text(text)


@pytest.mark.slow
def test_hard_runs_have_sessions_and_annotations_become_findings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench-hard-runs"
    write_run(root, "r1", "rubric_leak")
    write_run(root, "run2", "clean", peak_fraction=None, correct=False)
    write_run(root, "run-3", None, harness="codex")
    import_source(lake, kernelbench_hard_runs, root)
    assert query(lake, "SELECT class, line, quote, detector FROM findings ORDER BY line") == [
        ("rubric_leak", 3, "x.to(torch.bfloat16)", "kernelbench-hard-annotation"),
        ("rubric_leak", None, "I will cast", "kernelbench-hard-annotation"),
    ]
    bodies = query(lake, "SELECT kind, body FROM analyses ORDER BY body")
    assert [body.partition("\n")[0] for _, body in bodies] == [
        "verdict: clean",
        "verdict: rubric_leak",
    ]
    claims = query(lake, "SELECT metric, value, gpu, problem FROM claims ORDER BY ALL")
    assert claims == [
        ("correct", 0.0, "RTX PRO 6000", "01_fp8_gemm"),
        ("correct", 1.0, "RTX PRO 6000", "01_fp8_gemm"),
        ("correct", 1.0, "RTX PRO 6000", "01_fp8_gemm"),
        ("peak_fraction", 0.4, "RTX PRO 6000", "01_fp8_gemm"),
        ("peak_fraction", 0.4, "RTX PRO 6000", "01_fp8_gemm"),
    ]
    # The transcript of codex has another form.
    assert query(lake, "SELECT name FROM sessions ORDER BY ALL") == [("r1",), ("run2",)]
    assert import_source(lake, kernelbench_hard_runs, root).rows == {}
    assert list(sources.detect(root)) == ["kernelbench-hard-runs"]
    (root / "annotations/r1.yaml").write_text("verdict: [")
    assert import_source(lake, kernelbench_hard_runs, root).left_out == 1
    assert "r1.yaml is not YAML" in caplog.text


@pytest.mark.slow
def test_hard_runs_of_the_website_are_found_by_their_names(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", tmp_path / "kernelbench.com"
    runs = [f"20260618_04170{n}_codex_gpt-5_5_0{n}_topk" for n in (1, 2)]
    for place, name in enumerate(runs):
        file = root / f"public/runs/h100/{name}_solution.py.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(kernel(place))
    about = {"run_id": runs[0], "problem": "01_topk", "harness": "codex", "model": "gpt-5.5"}
    about |= {"gpu": "h100", "correct": True, "peak_fraction": 0.25}
    write_json(root / f"public/data/rundetail/h100/{runs[0]}.json", about)
    assert list(sources.detect(root)) == ["kernelbench-hard-runs"]
    summary = import_source(lake, kernelbench_hard_runs, root)
    assert (summary.left_out, summary.unread) == (0, 0)
    assert query(lake, "SELECT policy_id, problem FROM generations ORDER BY ALL") == [
        ("gpt-5.5", "01_topk"),
        ("gpt-5_5", "02_topk"),
    ]
    assert query(lake, "SELECT metric, value, gpu FROM claims ORDER BY ALL") == [
        ("correct", 1.0, "H100"),
        ("peak_fraction", 0.25, "H100"),
    ]
