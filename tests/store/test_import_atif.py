"""Agent trajectories in ATIF, as Harbor writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_sources import count, import_source, kernel, query, write_json

from store.errors import ImportFailed
from store.importers import atif
from store.importers.reading import sources


def trajectory(**changes: Any) -> dict[str, Any]:
    """Return a trajectory with one written kernel."""
    write = {
        "tool_call_id": "c1",
        "function_name": "write_file",
        "arguments": {"path": "solution.py", "content": kernel(1)},
    }
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s-1",
        "agent": {"name": "mini-swe-agent", "version": "1.0", "model_name": "some-model"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Write it."},
            {
                "step_id": 2,
                "source": "agent",
                "message": [{"type": "text", "text": "Here."}, {"type": "image", "source": {}}],
                "reasoning_content": "A clamp.",
                "timestamp": "2026-05-01T10:00:00Z",
                "tool_calls": [write],
                "observation": {"results": [{"source_call_id": "c1", "content": "ok"}]},
                "metrics": {"prompt_tokens": 10, "completion_tokens": 5},
            },
            {"step_id": 3, "source": "user", "message": "old", "is_copied_context": True},
        ],
        "final_metrics": {"total_prompt_tokens": 10, "total_cost_usd": 0.1},
    } | changes


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("version", ["ATIF-v1.2", "ATIF-v1.8"])
def test_a_trajectory_is_a_session_with_steps_calls_and_attempts(
    tmp_path: Path, version: str
) -> None:
    lake = tmp_path / "lake"
    inner = trajectory(trajectory_id="sub", session_id=None)
    document = trajectory(schema_version=version, subagent_trajectories=[inner])
    write_json(tmp_path / "job/agent/trajectory.json", document)
    import_source(lake, atif, tmp_path / "job", problem="relu")
    sessions = query(
        lake,
        "SELECT name, harness, problem, cost_usd, parent_session_id IS NULL FROM sessions "
        "ORDER BY name",
    )
    assert sessions == [
        ("s-1", "mini-swe-agent 1.0", "relu", 0.1, True),
        ("s-1/sub", "mini-swe-agent 1.0", "relu", 0.1, False),
    ]
    steps = query(lake, "SELECT DISTINCT step, role, content FROM session_steps ORDER BY step")
    assert steps == [(0, "user", "Write it."), (1, "assistant", "Here.\n[image]")]
    assert query(lake, "SELECT DISTINCT tool, result FROM tool_calls") == [("write_file", "ok")]
    assert count(lake, "generations") == 2
    assert import_source(lake, atif, tmp_path / "job", problem="relu").rows == {}
    assert list(sources.detect(tmp_path / "job")) == ["atif"]


def test_another_version_is_refused(tmp_path: Path) -> None:
    file = write_json(tmp_path / "trajectory.json", trajectory(schema_version="ATIF-v9"))
    with pytest.raises(ImportFailed, match="schema_version is 'ATIF-v9'"):
        import_source(tmp_path / "lake", atif, file)
    assert count(tmp_path / "lake", "sessions") == 0


@pytest.mark.slow
def test_a_trial_of_harbor_has_its_task_kernels_and_rewards(tmp_path: Path) -> None:
    lake, job = tmp_path / "lake", tmp_path / "checkout/results/jobs/model/sample1"
    code = kernel(7)
    keys = {"keystrokes": f"cat > /app/solution.py <<'PY'\n{code}PY\npython3 t.py\n"}
    call = {"tool_call_id": "c1", "function_name": "bash_command", "arguments": keys}
    steps = [{"step_id": 1, "source": "agent", "message": "Try.", "tool_calls": [call]}]
    write_json(job / "relu/trajectory.json", trajectory(steps=steps))
    reward = {"reward": 1, "correct": True, "speedup_vs_eager": 2.5, "metric": "cosine"}
    write_json(job / "relu/reward.json", reward | {"error": None})
    nothing = [{"step_id": 1, "source": "agent", "message": "I cannot."}]
    write_json(job / "gelu/agent/trajectory.json", trajectory(session_id="s-2", steps=nothing))
    write_json(job / "gelu/result.json", {"task_name": "gelu_full", "exception_info": None})
    (job / "gelu/verifier").mkdir()
    (job / "gelu/verifier/reward.txt").write_text("0\n")
    (tmp_path / "checkout/README.md").write_text("A benchmark.")
    assert list(sources.detect(tmp_path / "checkout")) == ["atif"]
    summary = import_source(lake, atif, tmp_path / "checkout")
    assert (summary.left_out, summary.unread) == (0, 1)
    assert query(lake, "SELECT problem FROM sessions ORDER BY 1") == [("gelu_full",), ("relu",)]
    assert query(lake, "SELECT code FROM kernels") == [(code,)]
    claims = query(
        lake, "SELECT problem, metric, coalesce(value, speedup) FROM claims ORDER BY ALL"
    )
    assert claims == [
        ("gelu_full", "reward_reward", 0.0),
        ("relu", "correct", 1.0),
        ("relu", "reward_reward", 1.0),
        ("relu", "speedup", 2.5),
    ]
