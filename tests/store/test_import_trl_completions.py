"""Completions that TRL logged become attempts with their kernels and rewards."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from new_lakes import copy_starter_lake

import store
from store import ids
from store.errors import ImportFailed, UnknownName
from store.importers import trl_completions
from store.importers.reading.pieces import ImportSummary, run_import

ANSWER = """### Performance Analysis
Memory bound.

### Code Implementation
```python
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + {n}
```
"""


@pytest.fixture(scope="module")
def starter_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with the starter suite."""
    return copy_starter_lake(tmp_path_factory.mktemp("starter") / "lake")


def log(folder: Path, step: int, rows: list[dict[str, Any]]) -> Path:
    """Write a file as TRL does, by pandas."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame([{"step": step} | row for row in rows])
    frame.to_parquet(folder / f"completions_{step:05d}.parquet")
    return folder


def row(n: int = 1, **changes: Any) -> dict[str, Any]:
    """Return one completion in TRL's columns."""
    return {
        "prompt": [{"role": "user", "content": "Make it fast."}],
        "completion": [{"role": "assistant", "content": ANSWER.format(n=n)}],
        "speedup_reward": 0.5 * n,
        "advantage": float(n) - 1.5,
    } | changes


def import_source(url: str, source: Path, **options: Any) -> ImportSummary:
    """Import into a lake."""
    with store.writer(url, author="tests") as writer:
        return run_import(writer, trl_completions, source, trl_completions.Config(**options))


def test_completions_become_attempts_kernels_and_rewards(starter_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "grpo-run/completions"
    bad = row(2, completion=[{"role": "assistant", "content": "I cannot."}])
    source = log(folder, 1, [row(1), bad])
    log(folder, 2, [row(3, prompt="A text.", completion=ANSWER.format(n=3))])
    summary = import_source(starter_url, source, task="layer_norm")
    assert summary.rows["generations"] == 3
    with store.open(starter_url) as lake:
        found = lake.sql(
            "SELECT policy_id, sample_index, analysis, parse_error, kernel_id IS NOT NULL AS code, "
            "rewards.rule, rewards.step, rewards.raw, rewards.advantage "
            "FROM generations JOIN rewards USING (generation_id) "
            "WHERE policy_id = 'grpo-run' ORDER BY raw"
        ).rows()
        again = import_source(starter_url, source, task="layer_norm")
    assert [tuple(one.values()) for one in found] == [
        ("grpo-run", 0, "Memory bound.", None, True, "speedup_reward", 1, 0.5, -0.5),
        ("grpo-run", 1, None, "no code", False, "speedup_reward", 1, 1.0, 0.5),
        ("grpo-run", 0, "Memory bound.", None, True, "speedup_reward", 2, 1.5, 1.5),
    ]
    assert (again.files, again.skipped) == (0, 2)


@pytest.mark.slow
def test_the_task_is_that_of_the_prompt_or_of_the_column(starter_url: str, tmp_path: Path) -> None:
    with store.open(starter_url) as lake:
        task, other = (
            str(one["task_id"]) for one in lake.sql("FROM tasks ORDER BY task_id LIMIT 2").rows()
        )
    messages = [{"role": "user", "content": "Wärme it up."}]
    with store.writer(starter_url, author="tests") as writer:
        prompt = {
            "prompt_id": ids.prompt_id(messages),
            "messages": ids.messages_json(messages),
            "task_id": task,
        }
        writer.append({"prompts": [prompt]}, message="a prompt")
    nobody = [{"role": "user", "content": "Nobody knows this."}]
    unknown = row(9, prompt=nobody, task_id=None)
    source = log(
        tmp_path / "run", 7, [row(7, prompt=messages, task_id=None), row(8, task_id=other), unknown]
    )
    import_source(starter_url, source, policy="p")
    with store.open(starter_url) as lake:
        found = lake.sql(
            "SELECT task_id FROM generations JOIN rewards USING (generation_id) "
            "WHERE policy_id = 'p' ORDER BY raw"
        ).rows()
    assert [one["task_id"] for one in found] == [task, other]


@pytest.mark.slow
def test_what_is_no_log_is_refused(starter_url: str, tmp_path: Path) -> None:
    nobody = [{"role": "user", "content": "Nor this."}]
    source = log(tmp_path / "run", 1, [row(prompt=nobody)])
    with pytest.raises(
        ImportFailed, match="none of the completions is of a task that the lake has"
    ):
        import_source(starter_url, source)
    with pytest.raises(UnknownName, match="layer_nrm"):
        import_source(starter_url, source, task="layer_nrm")
    other = tmp_path / "other"
    other.mkdir()
    pl.DataFrame({"step": [1], "prompt": ["x"]}).write_parquet(other / "a.parquet")
    with pytest.raises(ImportFailed, match="has no column completion"):
        import_source(starter_url, other)
    odd = log(tmp_path / "odd", 1, [row(completion=3)])
    with pytest.raises(ImportFailed, match="row 0: completion is int, no text"):
        import_source(starter_url, odd, task="layer_norm")
    endless = log(tmp_path / "endless", 1, [row(step=float("inf"))])
    with pytest.raises(ImportFailed, match="step is float inf, not a whole number"):
        import_source(starter_url, endless, task="layer_norm")


@pytest.mark.slow
def test_a_tool_call_gives_the_kernel_and_extra_columns_are_claims(
    starter_url: str, tmp_path: Path
) -> None:
    code = ANSWER.partition("```python\n")[2].partition("```")[0].format(n=11)
    call = {"name": "write", "arguments": f'{{"path": "k.py", "content": {json.dumps(code)}}}'}
    completion = [
        {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
        {"role": "tool", "content": [{"type": "text", "text": "saved"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]
    one = row(completion=completion, passed=True, kernel_ms=0.5, answer_length=7, extra="x")
    source = log(tmp_path / "tool-run", 1, [one])
    import_source(starter_url, source, task="layer_norm")
    with store.open(starter_url) as lake:
        found = lake.sql(
            "SELECT code, completion, (SELECT count(*) FROM session_steps) AS steps, "
            "(SELECT string_agg(tool) FROM tool_calls) AS tools "
            "FROM generations JOIN kernels USING (kernel_id) WHERE policy_id = 'tool-run'"
        ).rows()
        rules = lake.sql(
            "SELECT rule, raw FROM rewards JOIN generations USING (generation_id) "
            "WHERE policy_id = 'tool-run' ORDER BY rule"
        ).rows()
        claims = lake.sql(
            "SELECT metric FROM claims WHERE policy_id = 'tool-run' ORDER BY 1"
        ).rows()
    assert [tuple(one.values()) for one in found] == [(code, "Done.", 3, "write")]
    assert [tuple(one.values()) for one in rules] == [("passed", 1.0), ("speedup_reward", 0.5)]
    assert [one["metric"] for one in claims] == ["reported_answer_length", "reported_kernel_ms"]


@pytest.mark.slow
def test_values_of_other_types_cost_neither_rows_nor_calls(
    starter_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def call(n: int, *, twice: bool = False, whole: bool = False) -> dict[str, Any]:
        """Return a completion whose call is a JSON text in part, or as a whole."""
        code = ANSWER.format(n=n).partition("```python\n")[2].removesuffix("```\n")
        arguments = json.dumps({"path": "kernel.py", "content": code})
        named = {"name": "write", "arguments": json.dumps(arguments) if twice else arguments}
        calls = json.dumps([{"function": named}] if whole else [{"function": json.dumps(named)}])
        return {"completion": json.dumps([{"role": "assistant", "tool_calls": calls}])}

    lost = {"speedup_reward": float("-inf"), "parts": [0.5, 1.0], "note": "slow"}
    first, second = (
        row(n, **more) | {"completion": ANSWER.format(n=n)}
        for n, more in ((20, {"exact": Decimal("1.5")}), (21, lost))
    )
    calls = [row(1, **call(22)), row(1, **call(23, twice=True, whole=True))]
    source = log(tmp_path / "odd", 1, [first, second, *calls])
    summary = import_source(starter_url, source, task="layer_norm")
    assert (summary.left_out, summary.rows["generations"], summary.rows["kernels"]) == (0, 4, 4)
    assert (summary.rows["rewards"], summary.rows["tool_calls"]) == (4, 2)
    assert "no numbers are not read: parts (list), note (str)" in caplog.text
