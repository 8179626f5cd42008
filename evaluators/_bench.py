"""The place where kernels are judged: one device, two nurseries, and the task at hand.

The trusted nursery runs the eager baseline, the other one candidates; neither sees the other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from evaluators import _device
from evaluators._arm import Arm, Patience
from evaluators._reference import WEIGHT_SEED, Reference
from evaluators._sandbox import Limits, Nursery

_TASK_FILE = "task.py"


@dataclass(frozen=True)
class Sizes:
    """Shared memory that the inputs and outputs of one call need, in bytes."""

    inputs: int
    outputs: int


class Bench:
    """One device with warm processes. Use as a context manager. Raises DeviceUnavailable."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.row = _device.fingerprint(device)
        """The `devices` row of this bench."""
        self.clocks = _device.Clocks(device)
        self._threads = _device.threads()
        torch.set_num_threads(self._threads)
        if device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        self._trusted = Nursery(self._threads)
        self._untrusted = Nursery(self._threads)
        self._task: tuple[str, str] | None = None
        self._reference: Reference | None = None
        self._baseline: Arm | None = None
        self._baseline_sizes = Sizes(0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the bench."""
        self._trusted.close()
        self._untrusted.close()

    @property
    def sandbox_level(self) -> str:
        """Isolation in force, as it is written into every row."""
        return " ".join(self._untrusted.limits)

    def reference(self, code: str, axes: Mapping[str, Any]) -> Reference:
        """The task's reference, built once as long as the task stays. Raises ReferenceFailed."""
        key = (code, repr(sorted(axes.items())))
        if self._reference is None or self._task != key:
            self._task, self._reference = None, None
            self.end_baseline()
            self._reference = Reference(code, axes, self.device)
            self._task = key
        return self._reference

    def candidate(
        self, files: Mapping[str, str], sizes: Sizes, limits: Limits, patience: Patience
    ) -> Arm:
        """Start the worker of one candidate. Raises SandboxFailed."""
        if not self._untrusted.alive:
            self._untrusted.close()
            self._untrusted = Nursery(self._threads)
        return self._start(self._untrusted, files, sizes, limits, patience)

    def baseline(
        self, code: str, axes: Mapping[str, Any], sizes: Sizes, limits: Limits, patience: Patience
    ) -> Arm:
        """The worker that runs the task's own module. Raises Failed, SandboxFailed."""
        reference = self.reference(code, axes)
        if self._baseline is None or self._baseline_sizes != sizes:
            self.end_baseline()
            arm = self._start(self._trusted, {_TASK_FILE: code}, sizes, limits, patience)
            self._baseline, self._baseline_sizes = arm, sizes
            arm.load(_TASK_FILE, "Model", axes)
            arm.construct(WEIGHT_SEED, reference.arguments)
        return self._baseline

    def end_baseline(self) -> None:
        """End the baseline's worker, so that the next session starts a new one."""
        if self._baseline is not None:
            arm, self._baseline = self._baseline, None
            arm.end()

    def _start(
        self,
        nursery: Nursery,
        files: Mapping[str, str],
        sizes: Sizes,
        limits: Limits,
        patience: Patience,
    ) -> Arm:
        setting = {
            "device": self.device,
            "threads": self._threads,
            "flush_bytes": _device.flush_bytes(self.device),
        }
        return Arm(
            nursery,
            files,
            setting=setting,
            limits=limits,
            patience=patience,
            inbox_bytes=sizes.inputs,
            outbox_bytes=sizes.outputs,
        )
