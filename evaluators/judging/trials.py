"""Trials after a failure: whether right code builds, and whether the device still works."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import torch

from evaluators.judging.host import Need
from evaluators.references.task import ReferenceFailed
from evaluators.references.weight_seed import WEIGHT_SEED
from evaluators.sandbox.launcher import Limits
from evaluators.worker.handle import Deadlines, Failed, Sizes, WorkerHandle
from store.errors import SandboxFailed

# A trial of the host after a kernel has failed: whether code that is known to be right builds.
#
# It runs in a worker like the kernel's, so it meets the same compilers, folders and limits.

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


_DEVICE_FILE = "task.py"
_PRODUCT = 1 << 28
_TRIAL = """
import torch


class Model:
    def __call__(self):
        ones = torch.ones(1 << 28, dtype=torch.float32, device="cuda").view(1 << 14, 1 << 14)
        return (ones[:4096, :1024] @ ones[:1024, :1024]).double().sum().view(1) / 16
"""
_DEVICE_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=256, cpu_s=60)
_DEVICE_PATIENCE = Deadlines(import_s=20, build_s=20, first_call_s=20, call_s=20, total_s=60)


def find_gpu_fault(
    start: Callable[[Mapping[str, str], Sizes, Limits, Deadlines], WorkerHandle],
) -> str | None:
    """Multiply matrices in a fresh worker; returns what is wrong with the GPU, if anything.

    This process also waits for its own work on the GPU: a fault of the device would have broken its
    context as well.

    start: starts a worker for a candidate's files; raises SandboxFailed.
    """
    try:
        worker = start({_DEVICE_FILE: _TRIAL}, Sizes(0, 64), _DEVICE_LIMITS, _DEVICE_PATIENCE)
    except SandboxFailed as failed:
        return f"no worker can use it: {failed.message}"
    try:
        worker.load(_DEVICE_FILE, "Model", {})
        worker.construct(WEIGHT_SEED, [])
        worker.fill(0, [])
        if int(worker.call(0, first=True)) != _PRODUCT:
            return "it multiplies matrices wrongly"
        torch.cuda.synchronize()
    except (Failed, ReferenceFailed, RuntimeError) as failed:
        return f"it does not answer: {failed}"
    finally:
        worker.end()
    return None
