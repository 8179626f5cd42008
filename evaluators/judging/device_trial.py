"""A trial of the device after a crash: whether a fresh worker can still use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from evaluators.references.task import ReferenceFailed
from evaluators.references.weight_seed import WEIGHT_SEED
from evaluators.sandbox.launcher import Limits
from evaluators.worker.handle import Deadlines, Failed, Sizes, WorkerHandle
from store.errors import SandboxFailed

_FILE = "task.py"
_PRODUCT = 1 << 28
_TRIAL = """
import torch


class Model:
    def __call__(self):
        ones = torch.ones(1 << 28, dtype=torch.float32, device="cuda").view(1 << 14, 1 << 14)
        return (ones[:4096, :1024] @ ones[:1024, :1024]).double().sum().view(1) / 16
"""
_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=256, cpu_s=60)
_PATIENCE = Deadlines(import_s=20, build_s=20, first_call_s=20, call_s=20, total_s=60)


def find_gpu_fault(
    start: Callable[[Mapping[str, str], Sizes, Limits, Deadlines], WorkerHandle],
) -> str | None:
    """Multiply matrices in a fresh worker; returns what is wrong with the GPU, if anything.

    This process also waits for its own work on the GPU: a fault of the device would have broken its
    context as well.

    start: starts a worker for a candidate's files; raises SandboxFailed.
    """
    try:
        worker = start({_FILE: _TRIAL}, Sizes(0, 64), _LIMITS, _PATIENCE)
    except SandboxFailed as failed:
        return f"no worker can use it: {failed.message}"
    try:
        worker.load(_FILE, "Model", {})
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
