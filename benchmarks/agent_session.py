"""A scripted agent session over MCP: improve a starter kernel for layer_norm step by step.

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

TASK = "layer_norm"
START = "layer_norm/var_mean.py"
AUTHOR = "scripted-agent"
MODULE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
"""
CPP = """\
import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r'''
#include <math.h>
extern "C" void run(const float* __restrict x, const float* __restrict weight,
                    const float* __restrict bias, float* __restrict out,
                    long rows, long cols, long threads, float eps) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; ++r) {
    const float* from = x + r * cols;
    float* to = out + r * cols;
    float sum = 0, square = 0;
    for (long c = 0; c < cols; ++c) sum += from[c];
    const float mean = sum / cols;
    for (long c = 0; c < cols; ++c) square += (from[c] - mean) * (from[c] - mean);
    const float inverse = 1.0f / sqrtf(square / cols + eps);
    for (long c = 0; c < cols; ++c) to[c] = (from[c] - mean) * inverse * weight[c] + bias[c];
  }
}
'''


def build():
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cpp").write_text(SOURCE)
        flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-fopenmp"]
        subprocess.run(["g++", *flags, "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernel.so")).run


RUN = build()
RUN.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_float]
RUN.restype = None
"""
STEPS = [
    (
        "fuse scale and shift into one addcmul",
        MODULE
        + """\
        variance, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        normal = (x - mean) * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias, normal, self.weight)
""",
    ),
    (
        "call the native layer_norm, which reads x once",
        MODULE + "        return F.layer_norm(x, x.shape[-1:], eps=self.eps)\n",
    ),
    (
        "pass weight and bias too: without them, every output was off",
        MODULE + "        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)\n",
    ),
    (
        "a C++ loop that handles a row while it is in cache",
        CPP
        + MODULE
        + """\
        x = x.contiguous()
        out = torch.empty_like(x)
        tensors = (x, self.weight, self.bias, out)
        sizes = (*x.shape, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes, self.eps)
        return out
""",
    ),
]
"""What each step changes, and its kernel."""


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
    for number, (note, code) in enumerate(STEPS, start=1):
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
        noisy = ", noisy" if one["noisy"] else ""
        interval = f"[{one['speedup_low']}, {one['speedup_high']}]"
        print(f"  {one['speedup']}x over {one['baseline']} {interval}, {one['clock']}{noisy}")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2:]))
