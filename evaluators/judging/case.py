"""What an evaluator is given, one kernel and its task, and what it may note about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from evaluators.judging.flags import NONEQUIVALENT

Policy: TypeAlias = Literal["fp32_strict", "allow_tf32"]
"""fp32_strict: no precision below the task's own. allow_tf32: float32 may be computed in TF32."""

Kernels: TypeAlias = Literal["any", "custom_required"]
"""any: a rewrite in PyTorch is a kernel too. custom_required: it is right, and is not ranked."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One candidate, the task and workload that it is judged on, and their identities."""

    kernel_id: str
    task_id: str
    workload_id: str
    code: str
    path: str = "kernel.py"
    entry_point: str = "ModelNew"
    other_files: tuple[tuple[str, str], ...] = ()
    """Path and text of further files of the kernel."""
    task_code: str
    axes: str = "{}"
    """JSON object of module-level names of the task and the values that replace them."""
    best_speedup: float | None = None
    """Best speedup over eager measured so far at this task, workload and device; None for none."""
    build: Mapping[str, Any] | None = None
    """What compiling it ahead has shown: seconds, hit, failure."""
    weak: bool = False
    """Whether an audit has found answers without work that pass the task."""
    trusted: bool = False
    """Whether it is the starter suite's, a generated task's teacher's, or one's own file."""
    elsewhere: bool = False
    """Whether somebody else measures a surprising win again; until then it is unconfirmed."""


@dataclass(kw_only=True)
class Evidence:
    """What correctness calls have shown so far."""

    seeds: list[int] = field(default_factory=list)
    """Input seeds, secret until the verdict."""
    flags: set[str] = field(default_factory=set)
    comparison: Any = None
    """The worst Comparison so far, or the one that failed."""
    notes: list[str] = field(default_factory=list[str])
    """Lines for the row's log."""
    compared_as_function: bool = False
    """Whether every check that tells another function has run to its end."""

    def is_equivalent(self) -> bool | None:
        """Whether the candidate is the function that the task's module is.

        None where no flag says otherwise, but not every check has run.
        """
        if self.flags & NONEQUIVALENT:
            return False
        return True if self.compared_as_function else None
