"""A trial of the host after a kernel has failed: whether code that is known to be right builds.

It runs in a worker like the kernel's, so it meets the same compilers, folders and limits.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from evaluators.judging.host import Need
from evaluators.references.task import ReferenceFailed
from evaluators.sandbox.launcher import Limits
from evaluators.worker.handle import Deadlines, Failed, Sizes, WorkerHandle
from store.errors import SandboxFailed

_FILE = "host_trial.py"
_BUILD = """
from torch.utils.cpp_extension import load_inline

load_inline("host_trial", {sources}, is_python_module=False, no_implicit_headers={brief})
"""
_CPP = 'cpp_sources="#include <Python.h>\\n#include <vector>\\nint host_trial() { return 1; }"'
_CUDA = (
    _CPP + ', cuda_sources="#include <cuda_runtime.h>\\n__global__ void fill(float* out)'
    ' { out[threadIdx.x] = 1.0f; }\\nvoid launch() { fill<<<1, 1>>>(nullptr); }"'
)
_COMPILE = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.compile(lambda x: torch.relu(x) * 2 + 1)(torch.ones(64, device=device))
"""
_TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def fill(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


out = torch.zeros(64, device="cuda")
fill[(1,)](out, BLOCK=64)
assert out.sum().item() == 64
"""
_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 30, open_files=1024, cpu_s=600)
_PATIENCE = Deadlines(import_s=60, build_s=240, first_call_s=60, call_s=60, total_s=300)


def find_build_fault(
    start: Callable[[Mapping[str, str], Sizes, Limits, Deadlines], WorkerHandle],
    need: Need,
    *,
    brief: bool,
) -> str | None:
    """Build code that is known to be right in a fresh worker; return what is wrong, if anything.

    Args:
        start: Starts a worker for a candidate's files; raises SandboxFailed.
        need: What to build.
        brief: Leave out PyTorch's headers, which take seconds, much memory and much disk.
    """
    token = secrets.token_hex(16)
    sources = _CUDA if need == "cuda" else _CPP
    text = {"compile": _COMPILE, "triton": _TRITON}.get(
        need, _BUILD.format(sources=sources, brief=brief)
    )
    # A file whose import fails leaves nothing in the build cache, so the next trial builds again.
    text += f"raise RuntimeError({token!r})\n"
    try:
        worker = start({_FILE: text}, Sizes(0, 64), _LIMITS, _PATIENCE)
    except SandboxFailed as failed:
        return f"no worker can be started: {failed.message}"
    try:
        worker.load(_FILE, "Model", {})
    except (Failed, ReferenceFailed) as failed:
        return None if token in str(failed) else str(failed)
    finally:
        worker.end()
    return "a file that raises an error is imported"
