"""A case, which is one kernel with its task, and the evidence that an evaluator gathers on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from evaluators.judging.flags import NONEQUIVALENT
from store.code.entry_points import DEFAULT
from store.schema.clocks import Clock

Policy: TypeAlias = Literal["torch_default", "fp32_strict", "allow_tf32"]
"""Precision that a kernel and its baselines may compute float32 in.

torch_default: as PyTorch ships, where convolutions use TF32 on a GPU and products do not; a kernel
may round as much as eager then does. fp32_strict: float32 alone. allow_tf32: TF32 everywhere.
"""

Kernels: TypeAlias = Literal["any", "custom_required"]
"""any: a rewrite in PyTorch ranks. custom_required: such a rewrite is correct and does not rank."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One candidate with its task and workload, and their ids."""

    kernel_id: str
    task_id: str
    workload_id: str
    code: str
    path: str = "kernel.py"
    entry_point: str = DEFAULT
    other_files: tuple[tuple[str, str], ...] = ()
    """Path and text of further files of the kernel."""
    task_code: str
    axes: str = "{}"
    """JSON object: module-level names of the task, and the values that replace theirs."""
    best_speedup: float | None = None
    """Best speedup over eager measured so far for this task, workload and device, if any."""
    build: Mapping[str, Any] | None = None
    """Result of compiling it ahead: seconds, hit, failure."""
    weak: bool = False
    """Whether trivial answers pass the task, by an audit."""
    trusted: bool = False
    """Whether it is from the starter suite, a generated task's teacher, or the user's own file."""
    spreads: Mapping[Clock, float] | None = None
    """Spread of sessions on this device model by clock, where the lake has an estimate."""
    shape: Literal["answers", "timed"] | None = None
    """How it is judged where its workload is another shape of the task (`other_shapes`)."""
    elsewhere: bool = False
    """Whether another judge measures a surprising win again; until then it is unconfirmed."""


@dataclass(kw_only=True)
class Evidence:
    """What the calls have shown so far."""

    seeds: list[int] = field(default_factory=list)
    """Input seeds, secret until the verdict."""
    flags: set[str] = field(default_factory=set)
    comparison: Any = None
    """The worst Comparison so far, or the one that failed."""
    notes: list[str] = field(default_factory=list[str])
    """Lines for the row's log."""
    answers: list[str] = field(default_factory=list[str])
    """Fingerprints of the answers to the first questions."""
    eager_class: str | None = None
    """Lowest precision class of the eager reference in the calls that show the precision."""
    compared_as_function: bool = False
    """Whether every check for a different function has run to its end."""

    def is_equivalent(self) -> bool | None:
        """Whether the candidate computes the same function as the task's module.

        None where no flag denies it and not every check has run.
        """
        if self.flags & NONEQUIVALENT:
            return False
        return True if self.compared_as_function else None
