"""The place where kernels are judged: one device, three nurseries, and the task at hand.

One nursery runs candidates, two run the eager baseline, one worker each. Two, because the noise of
a session is what two processes differ by that do the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from evaluators import _device
from evaluators._arm import Arm, Patience
from evaluators._reference import WEIGHT_SEED, Reference
from evaluators._sandbox import Limits, Nursery
from store.errors import SandboxFailed

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
        self._trusted: list[Nursery] = []
        self._untrusted: Nursery | None = None
        self._task: tuple[str, str] | None = None
        self._reference: Reference | None = None
        self._baselines: list[Arm] = []
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
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        for nursery in self._trusted:
            nursery.close()
        if self._untrusted is not None:
            self._untrusted.close()

    @property
    def sandbox_level(self) -> str:
        """Isolation in force, as it is written into every row."""
        return " ".join(self._untrusted.limits) if self._untrusted is not None else ""

    def reference(self, code: str, axes: Mapping[str, Any]) -> Reference:
        """The task's reference, built once as long as the task stays. Raises ReferenceFailed."""
        key = (code, repr(sorted(axes.items())))
        if self._reference is None or self._task != key:
            self._task, self._reference = None, None
            self.end_baselines()
            self._reference = Reference(code, axes, self.device)
            self._task = key
        return self._reference

    def candidate(
        self, files: Mapping[str, str], sizes: Sizes, limits: Limits, patience: Patience
    ) -> Arm:
        """Start the worker of one candidate. Raises SandboxFailed."""
        if not self._trusted:
            # All at once, at the first candidate: they import torch side by side.
            self._trusted = [Nursery(self._threads) for _ in range(2)]
        if self._untrusted is None or not self._untrusted.alive:
            if self._untrusted is not None:
                self._untrusted.close()
            self._untrusted = Nursery(self._threads)
        return self._start(self._untrusted, files, sizes, limits, patience)

    def baselines(
        self, code: str, axes: Mapping[str, Any], sizes: Sizes, limits: Limits, patience: Patience
    ) -> tuple[Arm, Arm]:
        """Two workers that run the task's own module. Raises ReferenceFailed, SandboxFailed."""
        reference = self.reference(code, axes)
        if not self._baselines or self._baseline_sizes != sizes:
            self.end_baselines()
            for nursery in self._trusted:
                arm = self._start(nursery, {_TASK_FILE: code}, sizes, limits, patience)
                self._baselines.append(arm)
                arm.load(_TASK_FILE, "Model", axes)
                arm.construct(WEIGHT_SEED, reference.arguments)
            self._baseline_sizes = sizes
        first, second = self._baselines
        return first, second

    def end_baselines(self) -> None:
        """End the baselines' workers, so that the next session starts new ones."""
        while self._baselines:
            self._baselines.pop().end()

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
        arm = Arm(
            nursery,
            files,
            setting=setting,
            limits=limits,
            patience=patience,
            inbox_bytes=sizes.inputs,
            outbox_bytes=sizes.outputs,
            trusted=nursery is not self._untrusted,
        )
        arm.prepare()
        return arm
