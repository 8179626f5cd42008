"""The tool make_prompt: the prompt that `pipelines run contrastive-batch` makes for one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_client import Agent, run_in_memory

from store.mcp.serving import AgentLimits

GOLDEN = Path(__file__).parent / "golden"


def test_the_prompt_is_that_of_the_pipeline(lake, make_job, rows_of) -> None:
    async def make(agent: Agent) -> list[dict[str, Any]]:
        return [
            await agent.call("make_prompt", task="relu"),
            await agent.call("make_prompt", task="relu", at=str(lake.snapshot)),
            await agent.call("make_prompt", task="cumsum", purpose="eval"),
            await agent.call("make_prompt", task="relu", strategy="none"),
        ]

    first, again, evaluation, alone = run_in_memory(lake.url, make)
    [row] = [row for row in rows_of(make_job(lake)) if row["task"] == "relu"]
    data = first["data"]
    assert data["messages"] == row["prompt"]
    assert data["prompt_id"] == row["prompt_id"]
    assert [one["kernel_id"] for one in data["exemplars"]] == row["exemplar_kernel_ids"]
    assert [one["speedup"] for one in data["exemplars"]] == row["exemplar_scores"]
    assert (first["snapshot"], again) == (lake.snapshot, first)
    golden = (GOLDEN / "evaluation.txt").read_text("utf-8")
    assert evaluation["data"]["messages"][0]["content"] + "\n" == golden
    assert (evaluation["data"]["purpose"], alone["data"]["exemplars"]) == ("eval", [])


@pytest.mark.slow
def test_a_prompt_that_cannot_be_made_is_explained(lake) -> None:
    async def make(agent: Agent) -> list[str]:
        return [
            await agent.fail("make_prompt", task="cumsum"),
            await agent.fail("make_prompt", task="no such task"),
            await agent.fail("make_prompt", task="relu", strategy="best"),
            await agent.fail("make_prompt", task="relu", at="never"),
        ]

    test_task, unknown, strategy, snapshot = run_in_memory(lake.url, make)
    assert "no prompt for cumsum with purpose train" in test_task
    assert "may be that of purpose eval" in test_task
    assert "no task" in unknown
    assert "Input should be 'bucket'" in strategy
    assert "not a tag, snapshot number" in snapshot

    async def make_long(agent: Agent) -> str:
        return await agent.fail("make_prompt", task="relu")

    text = run_in_memory(lake.url, make_long, AgentLimits(timeout=300, max_chars=500))
    assert "Ask for fewer exemplars" in text
