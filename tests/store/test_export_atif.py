"""Agent sessions and multi-turn attempts as ATIF trajectories, which our importer reads again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from store.errors import ExportRefused
from store.exporters import atif
from store.exporters.writing.run import OfRun, export
from store.importers import atif as importer
from store.importers.reading.pieces import run_import

TASK, RUN, POLICY = b.task(), b.run("agents", "training"), b.policy("some-model")
MAIN = {
    "policy_id": POLICY["policy_id"], "run_id": RUN["run_id"], "source": "tests",
    "created_at": b.at(1), "license": "MIT",
}  # fmt: skip
SESSIONS = [
    MAIN | {"session_id": "s1", "name": "first", "harness": "mini-swe-agent 1.0",
            "problem": "relu", "outcome": "success", "prompt_tokens": 30, "completion_tokens": 7},
    # Neither harness nor problem is known, and the steps came later.
    MAIN | {"session_id": "s2", "name": "first/sub", "parent_session_id": "s1",
            "created_at": b.at(0)},
    MAIN | {"session_id": "s3", "name": "..", "harness": "claude-code"},
]  # fmt: skip
STEPS = [
    {"session_id": "s1", "step": 0, "role": "system", "content": "Be quick."},
    {"session_id": "s1", "step": 1, "role": "user", "content": "Write </script> é\u2028."},
    {"session_id": "s1", "step": 2, "role": "assistant", "reasoning": "A clamp.",
     "model": "some-model", "prompt_tokens": 12, "completion_tokens": 5},
    {"session_id": "s1", "step": 3, "role": "tool", "content": "a result without a call"},
    {"session_id": "s1", "step": 4, "role": "assistant", "content": "Once more.", "parent_step": 1},
    {"session_id": "s2", "step": 0, "role": "user", "content": "Look.", "model": "a-template",
     "prompt_tokens": 3},
    {"session_id": "s3", "step": 0, "role": "assistant", "content": "Done."},
]  # fmt: skip
CALLS = [
    {"session_id": "s1", "step": 2, "call_index": 0, "tool": "write_file",
     "arguments": '{"path": "a.py", "n": [1, null]}', "result": "ok", "is_error": False},
    {"session_id": "s1", "step": 2, "call_index": 1, "tool": "Bash",
     "arguments": '{"command":"ls"}', "result": "a.py", "is_error": True},
    {"session_id": "s1", "step": 2, "call_index": 2, "tool": "Bash", "arguments": "not JSON"},
    {"session_id": "s1", "step": 2, "call_index": 3, "tool": "stop"},
    {"session_id": "s1", "step": 3, "call_index": 0, "tool": "observation", "result": "late"},
    {"session_id": "s2", "step": 0, "call_index": 0, "tool": "Read", "arguments": '{"a": 1}',
     "result": "text", "is_error": False},
]  # fmt: skip
MESSAGES = [{"role": "user", "content": "Make it fast."}]
SECOND = [*MESSAGES, {"role": "assistant", "content": "a"}, {"role": "user", "content": "faster"}]


def make_prompt(messages: list[dict[str, str]]) -> b.Row:
    text = store.ids.messages_json(messages)
    return {"prompt_id": store.ids.prompt_id(messages), "messages": text, "created_at": b.START}


def make_turn(turn: int, prompt: list[dict[str, str]], text: str) -> b.Row:
    """Return one attempt of a trajectory of several."""
    return b.generation(
        POLICY, TASK, minute=turn, run_id=RUN["run_id"], trajectory_id="t", turn=turn,
        completion=text, prompt_id=store.ids.prompt_id(prompt), source="tests",
    )  # fmt: skip


TURNS = [make_turn(0, MESSAGES, "a"), make_turn(1, SECOND, "b"), make_turn(2, MESSAGES, "c")]
TOKENS = b.rollout_tokens(
    TURNS[1], [7, 8], prompt_ids=[1, 2, 3], sampler_logprobs=[-0.5, -0.25], advantage=1.0
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with two sessions, a subagent and an attempt of three turns."""
    url = str(tmp_path_factory.mktemp("atif") / "lake")
    with store.writer(url, author="tests") as writer:
        rows = {
            "tasks": [TASK], "policies": [POLICY], "runs": [RUN], "sessions": SESSIONS,
            "session_steps": [{"created_at": b.at(1), **step} for step in STEPS],
            "tool_calls": CALLS, "prompts": [make_prompt(MESSAGES), make_prompt(SECOND)],
            "generations": TURNS, "rollout_tokens": [TOKENS], "task_labels": [b.label(TASK)],
        }  # fmt: skip
        writer.append(rows, "sessions")
    with store.open(url) as opened:
        yield opened


def read_rows(lake: store.Lake) -> list[list[dict[str, Any]]]:
    """Return sessions, steps and calls, without what only this lake gives them."""
    named = "(SELECT session_id, name AS session FROM sessions)"
    return [
        lake.sql(query).rows()
        for query in (
            "SELECT sessions.name, policies.name AS model, problem, harness, outcome, "
            "prompt_tokens, completion_tokens, parents.name AS parent, sessions.created_at "
            "FROM sessions INNER JOIN policies USING (policy_id) "
            "LEFT JOIN (SELECT session_id AS parent_session_id, name FROM sessions) AS parents "
            "USING (parent_session_id) ORDER BY ALL",
            f"SELECT * EXCLUDE (session_id, generation_id) FROM session_steps "
            f"INNER JOIN {named} USING (session_id) ORDER BY session, step",
            f"SELECT * EXCLUDE (session_id) FROM tool_calls "
            f"INNER JOIN {named} USING (session_id) ORDER BY session, step, call_index",
        )
    ]


def test_sessions_come_back_without_loss(lake: store.Lake, tmp_path: Path) -> None:
    counts = export(lake, atif, tmp_path / "out", OfRun())
    assert counts == {"sessions": 2, "subagents": 1, "multi-turn attempts": 1, "steps": 12}
    again = str(tmp_path / "again")
    with store.writer(again, author="tests") as writer:
        run_import(writer, importer, tmp_path / "out", importer.Config())
    with store.open(again) as opened:
        stored = read_rows(opened)
        assert opened.sql(
            "SELECT completion, prompt_ids, completion_ids, sampler_logprobs FROM rollout_tokens "
            "JOIN generations USING (generation_id)"
        ).rows() == [
            {"completion": "b", "prompt_ids": [1, 2, 3], "completion_ids": [7, 8],
             "sampler_logprobs": [-0.5, -0.25]}
        ]  # fmt: skip
        export(opened, atif, tmp_path / "twice", OfRun())
    trajectory = [[row for row in rows if "t" in (row.get("name"), row.get("session"))]
                  for rows in stored]  # fmt: skip
    for rows, others in zip(stored, trajectory, strict=True):
        rows[:] = [row for row in rows if row not in others]
    assert stored == read_rows(lake)
    [session], steps, calls = trajectory
    assert (session["problem"], calls) == ("level1/1", [])
    # The second prompt continues the conversation, and the third is its beginning again.
    assert [(step["role"], step["content"]) for step in steps] == [
        ("user", "Make it fast."), ("assistant", "a"), ("user", "faster"), ("assistant", "b"),
        ("assistant", "c"),
    ]  # fmt: skip
    # What was imported is exported as it was.
    first, second = (
        {one["session_id"]: one for one in map(read_document, sorted(folder.glob("*/*.json")))}
        for folder in (tmp_path / "out", tmp_path / "twice")
    )
    for name in ("first", "..", "t"):
        assert first[name]["steps"] == second[name]["steps"]


def read_document(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


def test_tokens_of_turns_are_in_their_metrics(lake: store.Lake, tmp_path: Path) -> None:
    export(lake, atif, tmp_path / "out", OfRun(run="agents"))
    [file] = (tmp_path / "out").glob("*-t/trajectory.json")
    assert read_document(file)["steps"][3]["metrics"] == {
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [7, 8],
        "logprobs": [-0.5, -0.25],
    }
    calls = read_document(tmp_path / "out/000000-first/trajectory.json")["steps"][2]["tool_calls"]
    assert [one["arguments"] for one in calls[1:]] == [{"command": "ls"}, {}, {}]
    names = {one.name for one in (tmp_path / "out").iterdir()}
    assert names == {".flywheel.json", "000000-first", "000001-", "000002-t"}


def test_the_package_atif_validates_what_is_written(lake: store.Lake, tmp_path: Path) -> None:
    package = pytest.importorskip("atif", reason="the package atif is not installed")
    export(lake, atif, tmp_path / "out", OfRun())
    files = sorted((tmp_path / "out").glob("*/trajectory.json"))
    assert len(files) == 3
    for file in files:
        package.Trajectory.model_validate_json(file.read_text("utf-8"))


@pytest.mark.slow
def test_a_run_without_sessions_is_refused(lake: store.Lake, tmp_path: Path) -> None:
    with store.writer(lake.url, author="tests") as writer:
        writer.append({"runs": [b.run("empty", "training")]}, "a run")
    with (
        store.open(lake.url) as opened,
        pytest.raises(ExportRefused, match="has no agent session"),
    ):
        export(opened, atif, tmp_path / "out", OfRun(run="empty"))
    assert not (tmp_path / "out").exists()
