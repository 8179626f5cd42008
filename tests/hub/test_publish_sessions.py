"""Lakes with agent sessions and foreign licenses: what publish refuses and hides, and pull."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub.server import TOKEN, HubServer
from hub.test_publish import tables
from import_sources import count, import_source, kernel, query, write_lines

import store
from store.errors import RowsRejected
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.importers import claude_code, kernelbot, sol_execbench
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "lab/sessions"
SECRET = "hf_" + "a" * 30
PRIVATE = ("/home/alice", "alice@lab.example", SECRET, "10.1.2.3", "session-of-alice")


def session(name: str = "session-of-alice", told: str = "ok") -> list[dict[str, Any]]:
    """Return a session of Claude Code that writes one kernel and reads private things."""
    about = {"sessionId": name, "timestamp": "2026-05-01T10:00:00Z"}
    written = {"file_path": "/home/alice/lab/solution.py", "content": kernel(len(name))}
    call = {"type": "tool_use", "id": "t1", "name": "Write", "input": written}
    asked = {"role": "user", "content": "Work in /home/alice/lab; ask alice@lab.example."}
    answer = {"role": "assistant", "id": "m1", "model": "model", "content": [call]}
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": told}]
    return [
        about | {"type": "user", "message": asked},
        about | {"type": "assistant", "message": answer},
        about | {"type": "user", "message": {"role": "user", "content": result}},
        about | {"type": "result", "subtype": "success", "total_cost_usd": 4.2},
    ]


@pytest.mark.slow
def test_a_session_leaves_without_what_is_private_and_comes_back(
    tmp_path: Path, server: HubServer, hub: Hub
) -> None:
    lake = tmp_path / "lake"
    told = f"wrote /home/alice/lab/a.py on 10.1.2.3 with {SECRET}"
    file = write_lines(tmp_path / "s.jsonl", session(told=told))
    import_source(lake, claude_code, file, license="MIT")
    options = Options(tag="v1", tables=("sessions", "session_steps", "tool_calls", "generations"))
    dry = publish(str(lake), REPO, options, hub=hub, dry_run=True)
    assert dry.tables["sessions"] == 1
    # A prompt is its exact text, because its id is a hash of it. The owner of the lake is told.
    homes = "texts that name a home folder, published as they are: prompts.messages 1"
    assert homes in dry.notices
    assert server.repos == {}
    publish(str(lake), REPO, options, hub=hub)
    files = server.files(REPO)
    rows = tables(files)
    assert "cost_usd" not in rows["sessions"].column_names
    assert rows["sessions"].column("name")[0].as_py().startswith("anon-")
    assert rows["sessions"].column("license").to_pylist() == ["MIT"]
    shown = str([rows[name].to_pylist() for name in ("sessions", "session_steps", "tool_calls")])
    for private in PRIVATE:
        assert private not in shown, private
    pulled = tmp_path / "pulled"
    pull(str(pulled), REPO, hub=hub)
    for table in ("sessions", "session_steps", "tool_calls", "generations", "kernels"):
        assert count(pulled, table) == count(lake, table), table
    joined = "FROM tool_calls JOIN session_steps USING (session_id, step)"
    assert query(pulled, f"SELECT tool, generation_id IS NULL {joined}") == [("Write", False)]
    assert integrity.check(Location.of(str(pulled))) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("license", "said"),
    [(None, "no license"), pytest.param("Proprietary", "Proprietary", marks=pytest.mark.slow)],
)
def test_sessions_without_a_fitting_license_stop_or_stay(
    license: str | None, said: str, tmp_path: Path, server: HubServer, hub: Hub
) -> None:
    lake = tmp_path / "lake"
    import_source(lake, claude_code, write_lines(tmp_path / "a.jsonl", session()), license=license)
    import_source(
        lake, claude_code, write_lines(tmp_path / "b.jsonl", session("open")), license="MIT"
    )
    names = ("sessions", "session_steps", "tool_calls", "kernels")
    with pytest.raises(RowsRejected, match=said) as told:
        publish(str(lake), REPO, Options(tag="v1", tables=names), hub=hub)
    assert "sessions" in str(told.value)
    apart = Options(tag="v1", tables=names, unlicensed="leave-out")
    done = publish(str(lake), REPO, apart, hub=hub)
    assert [done.tables[name] for name in names] == [1, 2, 1, 1]
    for name in ("session_steps", "tool_calls"):
        ids = tables(server.files(REPO))[name].column("session_id").to_pylist()
        [(allowed,)] = query(lake, "SELECT session_id FROM sessions WHERE license = 'MIT'")
        assert set(ids) == {allowed}


@pytest.mark.slow
def test_licenses_that_forbid_redistribution_stop_a_publication(
    tmp_path: Path, server: HubServer, hub: Hub
) -> None:
    lake = tmp_path / "lake"
    row = {"submission_id": 1, "code": kernel(), "problem_name": "relu", "score": 0.1}
    row |= {"passed": True, "runner": "H100", "user_name": "alice", "user_id": "17"}
    file = tmp_path / "submissions.parquet"
    pq.write_table(pa.Table.from_pylist([row]), file)
    import_source(lake, kernelbot, file)
    with pytest.raises(RowsRejected, match="Researcher-Reciprocity"):
        publish(str(lake), REPO, Options(tag="v1", tables=("kernels",)), hub=hub, dry_run=True)
    with pytest.raises(RowsRejected, match="Researcher-Reciprocity"):
        publish(str(lake), REPO, Options(tag="v1", tables=("claims",)), hub=hub, dry_run=True)
    assert query(lake, "SELECT count(*) FROM policies WHERE contains(name, 'alice')") == [(0,)]
    older = tmp_path / "older"
    import_source(older, kernelbot, file, license="MIT")
    options = Options(tag="v1", tables=("kernels", "claims"))
    assert publish(str(older), REPO, options, hub=hub, dry_run=True).tables["claims"] == 2
    assert sol_execbench.Config().license == "LicenseRef-NVIDIA-Evaluation-Dataset"
    assert server.repos == {}


_LOAD_TOKENS = """
import json, sys
from datasets import load_dataset
rows = load_dataset(sys.argv[1], "rollout_tokens", split="train", revision="v2")
names = {"ids": "completion_ids", "logprobs": "sampler_logprobs", "mask": "loss_mask"}
print(json.dumps([{key: row[name] for key, name in names.items()} for row in rows]))
"""


@pytest.mark.slow
def test_tokens_leave_only_if_they_are_asked_for_and_tell_nothing_that_was_removed(
    tmp_path: Path, server: HubServer, hub: Hub
) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    call = {"id": "c", "function": {"name": "cat", "arguments": "{}"}}
    talk = [
        {"role": "assistant", "content": "reads", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"key {SECRET}"},
        {"role": "assistant", "content": "done"},
    ]
    with store.run("r", lake=str(lake), license="MIT") as run:
        run.log_rollouts(
            [
                {"completion": talk, "completion_ids": [1, 2, 3]},
                {
                    "completion": talk[-1:],
                    "completion_ids": [4],
                    "sampler_logprobs": [-0.5],
                    "loss_mask": [True],
                },
            ]
        )
    plain = publish(str(lake), REPO, Options(tag="v1"), hub=hub)
    assert "rollout_tokens" not in plain.tables
    named = publish(str(lake), REPO, Options(tag="v2", tables=("rollout_tokens",)), hub=hub)
    assert named.tables["rollout_tokens"] == 1
    assert "left out: 1 of rollout_tokens" in named.notices
    pull(str(other), f"{REPO}@v2", hub=hub)
    assert query(other, "SELECT completion_ids FROM rollout_tokens") == [([4],)]
    loaded = subprocess.run(
        [sys.executable, "-c", _LOAD_TOKENS, REPO],
        env=os.environ | {
            "HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout) == [{"ids": [4], "logprobs": [-0.5], "mask": [True]}]
    assert integrity.check(Location.of(str(other))) == []
