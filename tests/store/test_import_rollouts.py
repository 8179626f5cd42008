"""Rollouts of verifiers, and results of AgentKernelArena."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from import_sources import count, import_source, kernel, query, write_lines

from store.errors import ImportFailed
from store.importers import agent_kernel_arena, verifiers
from store.importers.reading import sources


def node(role: str, content: str | None, parent: int | None = None, **fields: Any) -> Any:
    """Return one message of a trace."""
    message = {"role": role, "content": content} | fields
    sampled = role == "assistant" and not fields.get("tool_call_id")
    above = {} if parent is None else {"parent": parent}
    return above | {"message": message, "sampled": sampled, "timestamp": 1_780_000_000.0}


def trace(**changes: Any) -> dict[str, Any]:
    """Return a trace: a first kernel, a tool's answer, and a second kernel."""
    call = {"id": "c1", "name": "run_tests", "arguments": '{"file": "a.py"}'}
    return {
        "version": 1,
        "id": "t1",
        "verifiers": {"version": "0.4.0"},
        "task": {"type": "KernelTask", "data": {"idx": 3, "name": "relu"}, "key": "k"},
        "agent": {"config": {"model": "some-model"}, "name": "agent"},
        "nodes": [
            node("developer", "You write kernels."),  # as OpenAI names it
            node("user", "Write a ReLU.", 0),
            node("assistant", f"```python\n{kernel(1)}```", 1, tool_calls=[call]),
            node("tool", "1 failed", 2, tool_call_id="c1"),
            node("assistant", f"```python\n{kernel(2)}```", 3, reasoning_content="Clamp."),
        ],
        "calls": [
            {"node": 2, "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.1}},
            {"node": 4, "usage": {"prompt_tokens": 5, "cached_input_tokens": 15}},
        ],
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "fast": None},
        "metrics": {"latency_ms": 2.5},
        "stop_condition": "agent_completed",
        "timing": {"start": 1_780_000_000.0},
    } | changes


def episode(*traces: dict[str, Any]) -> dict[str, Any]:
    """Return one line of traces.jsonl."""
    return {"id": "e1", "env": {"id": "kernels"}, "task": {}, "ok": True, "traces": list(traces)}


@pytest.mark.slow
def test_a_trace_is_a_session_and_its_rewards_are_claims(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    file = write_lines(tmp_path / "run/traces.jsonl", [episode(trace(), trace(id="t2"))])
    import_source(lake, verifiers, file.parent, license="Apache-2.0")
    assert query(
        lake,
        "SELECT name, harness, problem, policy_id, outcome, prompt_tokens, cost_usd, license "
        "FROM sessions ORDER BY name",
    )[0] == (
        *("t1", "verifiers 0.4.0 kernels", "relu", "some-model", "agent_completed"),
        *(30, 0.1, "Apache-2.0"),
    )
    steps = query(
        lake,
        "SELECT step, role, session_steps.prompt_tokens, generation_id IS NULL FROM session_steps "
        "JOIN sessions USING (session_id) WHERE name = 't1' ORDER BY step",
    )
    assert steps == [
        (0, "system", None, True),
        (1, "user", None, True),
        (2, "assistant", 10, False),
        (3, "assistant", 20, False),
    ]
    assert query(lake, "SELECT DISTINCT tool, arguments, result FROM tool_calls") == [
        ("run_tests", '{"file": "a.py"}', "1 failed")
    ]
    claims = query(
        lake,
        "SELECT metric, value, contains(code, '# 2') FROM claims JOIN kernels USING (kernel_id) "
        "WHERE quote = 'trace t1' ORDER BY ALL",
    )
    assert claims == [("reported_latency_ms", 2.5, True), ("reward_correct", 0.5, True)]
    assert query(lake, "SELECT count(*) FROM generations WHERE parent_generation_id NOT NULL") == [
        (2,)
    ]
    assert import_source(lake, verifiers, file.parent, license="Apache-2.0").rows == {}
    assert list(sources.detect(file)) == ["verifiers"]


def test_objects_as_json_texts_and_calls_without_a_name_are_read(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    arguments = json.dumps({"path": "solution.py", "content": kernel(3)})
    call = {"id": "c1", "type": "function", "function": json.dumps({"arguments": [arguments]})}
    named = {"id": "c2", "function": "run_tests", "arguments": {}}
    calls = json.dumps([call, named])
    nodes = [*trace()["nodes"][:2], node("assistant", None, 1, tool_calls=calls)]
    changes = {"version": "1", "nodes": nodes, "task": json.dumps(trace()["task"])}
    rewards = json.dumps({"correct": 0.5})
    episodes = [episode(trace(**changes, rewards=rewards))]
    summary = import_source(lake, verifiers, write_lines(tmp_path / "traces.jsonl", episodes))
    assert summary.left_out == 0
    assert query(lake, "SELECT contains(code, '# 3') FROM kernels") == [(True,)]
    assert query(lake, "SELECT tool FROM tool_calls ORDER BY call_index")[1] == ("run_tests",)
    assert query(lake, "SELECT metric, value, problem FROM claims ORDER BY ALL") == [
        ("reported_latency_ms", 2.5, "relu"),
        ("reward_correct", 0.5, "relu"),
    ]


@pytest.mark.slow
def test_answers_in_a_prompt_are_no_attempts_and_other_versions_are_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shown = node("assistant", f"```python\n{kernel(1)}```", 1) | {"sampled": False}
    nodes = [*trace()["nodes"][:2], shown, node("assistant", f"```python\n{kernel(2)}```", 2)]
    import_source(
        lake, verifiers, write_lines(tmp_path / "traces.jsonl", [episode(trace(nodes=nodes))])
    )
    assert query(lake, "SELECT contains(code, '# 2') FROM kernels") == [(True,)]
    assert query(lake, "SELECT json_array_length(messages) FROM prompts") == [(3,)]
    later = write_lines(tmp_path / "later.jsonl", [episode(trace(id="t9", version=2))])
    with pytest.raises(ImportFailed, match=r"later\.jsonl, line 1, traces 0: version is 2, not 1"):
        import_source(lake, verifiers, later)
    assert count(lake, "sessions") == 1
    ended = write_lines(tmp_path / "ended.jsonl", [episode(trace(id="t3", nodes=[]))])
    with pytest.raises(ImportFailed, match=r"traces 0: it has rewards and no messages"):
        import_source(lake, verifiers, ended)


RESULT = {
    "task_name": "hip2hip/gpumode/GELU",
    "pass_compilation": True,
    "pass_correctness": True,
    "base_execution_time": 1.82,
    "best_optimized_execution_time": 1.15,
    "speedup_ratio": 1.58,
    "benchmark_method_consistent": False,
    "optimization_summary": "Optimized by claude_code using centralized evaluator",
    "score": 278.0,
}


def write_result(root: Path, **changes: Any) -> Path:
    """Write one workspace with its result."""
    folder = root / "workspace_MI300_claude_code/run_20260818/hip2hip_GELU_20260818"
    (folder / "hip").mkdir(parents=True, exist_ok=True)
    (folder / "hip/gelu.hip").write_text("__global__ void gelu(float* x) {}\n")
    others = ["hip/gelu.hip", "x" * 300]
    task = {"source_file_path": others, "target_file_path": "hip/gelu.hip"}
    (folder / "config.yaml").write_text(yaml.safe_dump(task))
    (folder / "task_result.yaml").write_text(yaml.safe_dump(RESULT | changes))
    return root / "workspace_MI300_claude_code"


@pytest.mark.slow
def test_a_result_has_the_kernel_of_its_workspace(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_result(tmp_path)
    import_source(lake, agent_kernel_arena, root)
    attempts = "SELECT policy_id, problem, path FROM generations JOIN kernels USING (kernel_id)"
    assert query(lake, attempts) == [
        ("agent-kernel-arena/claude_code", "hip2hip/gpumode/GELU", "hip/gelu.hip")
    ]
    claims = query(
        lake,
        "SELECT metric, value, gpu, contains(quote, 'different methods') FROM claims ORDER BY 1",
    )
    assert claims == [
        ("correct", 1.0, "MI300", False),
        ("latency_ms", 1.15, "MI300", False),
        ("original_latency_ms", 1.82, "MI300", False),
        ("reported_score", 278.0, "MI300", False),
        ("speedup_over_original", 1.58, "MI300", True),
    ]
    assert import_source(lake, agent_kernel_arena, root).rows == {}
    assert list(sources.detect(root)) == ["agent-kernel-arena"]


def test_a_missing_time_is_no_claim(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    root = write_result(
        tmp_path, pass_correctness=False, best_optimized_execution_time=0.0, speedup_ratio=0.0
    )
    import_source(lake, agent_kernel_arena, root)
    assert query(lake, "SELECT metric, value FROM claims ORDER BY ALL") == [
        ("correct", 0.0),
        ("original_latency_ms", 1.82),
        ("reported_score", 278.0),
    ]


def test_a_task_has_its_kernel_and_the_references_beside_it(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_result(tmp_path)
    result = next(root.rglob("task_result.yaml"))
    result.unlink()
    for name, code in (("gelu_ref.hip", "__global__ void ref() {}\n"), ("use.cu", "int main();")):
        (result.parent / "hip" / name).write_text(code)
    import_source(lake, agent_kernel_arena, root)
    assert query(lake, "SELECT path FROM kernels ORDER BY 1") == [
        ("hip/gelu.hip",),
        ("hip/gelu_ref.hip",),
    ]


def test_an_answer_with_tokens_is_an_attempt(tmp_path: Path) -> None:
    lake, sampled = tmp_path / "lake", {"token_ids": [3, 4, 5], "mask": [False, True, True]}
    say = node("assistant", "no kernel", 0) | sampled | {"logprobs": [-0.5, -0.25]}
    bad = node("assistant", f"```python\n{kernel(1)}```", 1) | sampled | {"logprobs": ["x"]}
    nodes = [node("user", "?"), say, bad]
    file = write_lines(tmp_path / "traces.jsonl", [episode(trace(nodes=nodes, calls=[]))])
    import_source(lake, verifiers, file)
    tokens = "completion_ids, loss_mask, sampler_logprobs, kernel_id IS NULL"
    join = "FROM generations LEFT JOIN rollout_tokens USING (generation_id) ORDER BY turn"
    assert query(lake, f"SELECT {tokens} {join}") == [
        ([3, 4, 5], [False, True, True], [0.0, -0.5, -0.25], True),
        (None, None, None, False),
    ]
    # The results are about the last attempt with a kernel.
    assert query(
        lake, "SELECT count(DISTINCT kernel_id), count(*) FILTER (kernel_id IS NULL) FROM claims"
    ) == [(1, 0)]


@pytest.mark.slow
def test_yaml_that_expands_or_leaves_the_workspace_is_refused(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_result(tmp_path)
    result = next(root.rglob("task_result.yaml"))
    task = result.with_name("config.yaml")
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    for file, text, message in (
        (result, "\n".join(lines), "aliases are not read"),
        (result, "task_name: !!python/object/apply:os.system [x]", "is not YAML"),
        (result, "[" * 5_000, "is not YAML"),
        (result, "- a list", "a mapping is expected"),
        (task, "target_file_path: ../../secret.py", "leaves the workspace"),
    ):
        before = file.read_text()
        file.write_text(text)
        with pytest.raises(ImportFailed, match=message):
            import_source(lake, agent_kernel_arena, root)
        file.write_text(before)
    assert count(lake, "kernels") == 0
