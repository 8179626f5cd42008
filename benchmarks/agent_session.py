"""A scripted agent session over MCP: improve a starter kernel step by step.

Starts `evaluators mcp` over stdio and uses only its tools, as a coding agent would. What an agent
would think between two calls is fixed here, so that the session can be repeated:

    store --lake lake import starter
    python benchmarks/agent_session.py lake
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

TASK = "diag_matmul"
START = "diag_matmul/row_loop.py"
AUTHOR = "scripted-agent"
MODULE = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return {}
"""
STEPS = [
    (
        "multiply 64 rows at a time, because every row costs a call",
        "torch.cat([torch.diag(x) @ y for x, y in zip(a.split(64), b.split(64))])",
    ),
    ("multiply no matrices, because a diagonal only scales", "a * b"),
    ("scale the rows of b and not its columns", "a.unsqueeze(1) * b"),
]
"""What each step changes, and its result."""


async def run(lake: str, options: Sequence[str]) -> None:
    """Play the session and print it.

    Args:
        lake: Folder or URL of a lake with the starter tasks.
        options: Options of `evaluators mcp`.
    """
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "evaluators", "mcp", "--lake", lake, *options],
        env=dict(os.environ),
    )
    async with Client(command) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(tool, arguments)
            [content] = answer.content
            if answer.is_error:
                raise SystemExit(f"{tool}: {content.text}")
            return json.loads(content.text)["data"]

        await _improve(call)


async def _improve(call: Any) -> None:
    task = await call("show_task", task=TASK)
    print(f"task {task['name']}: {task['title']}, {len(task['code'].splitlines())} lines")
    sql = f"SELECT kernel_id FROM kernels WHERE path = '{START}'"
    parent = (await call("query", sql=sql))["rows"][0]["kernel_id"]
    print(f"start from kernel {parent[:12]}, {START}")
    attempt: dict[str, Any] = {}
    for number, (note, result) in enumerate(STEPS, start=1):
        code = MODULE.format(result)
        attempt = await call(
            "submit_kernel", task=TASK, code=code, author=AUTHOR, parent=parent, note=note
        )
        verdict = await _wait(call, attempt["generation_id"])
        print(f"step {number}: {note}")
        _print_verdict(attempt, verdict)
        parent = attempt["generation_id"]
    print("list_attempts, newest first")
    tried = await call("list_attempts", task=TASK, session=attempt["session"])
    for one in tried["attempts"]:
        before = one["parent_kernel_id"][:12]
        print(f"  {one['kernel_id'][:12]} from {before}: {one['status']}, {one['note']}")


async def _wait(call: Any, attempt: str) -> dict[str, Any]:
    """Return the verdict; ask again while the kernel is queued."""
    while (verdict := await call("get_verdict", attempt=attempt, wait_s=50))["state"] == "queued":
        pass
    return verdict


def _print_verdict(attempt: dict[str, Any], verdict: dict[str, Any]) -> None:
    reason = f" ({verdict['reason']})" if verdict["reason"] else ""
    print(f"  kernel {attempt['kernel_id'][:12]}: {verdict['status']}{reason}")
    if verdict["message"]:
        print(f"  {verdict['message'][:100]} …")
    for one in verdict["speedups"]:
        disturbed = ", disturbed" if one["disturbed"] else ""
        if one["unresolved"]:
            print(f"  {one['baseline']} is too short for the clock {one['clock']}")
            continue
        interval = f"[{one['speedup_low']}, {one['speedup_high']}]"
        print(f"  {one['speedup']}x over {one['baseline']} {interval}, {one['clock']}{disturbed}")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2:]))
