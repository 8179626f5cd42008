"""A case: one kernel with its task and workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

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
    """One kernel to judge on one task, from the query that finds it to the rows that it becomes."""

    kernel_id: str
    task_id: str
    workload_id: str
    code: str = ""
    """Text of the kernel; empty where the texts are not read yet (`read_cases`)."""
    path: str = "kernel.py"
    entry_point: str = DEFAULT
    other_files: tuple[tuple[str, str], ...] = ()
    """Path and text of further files of the kernel."""
    task_code: str = ""
    axes: str = "{}"
    """JSON object: module-level names of the task, and the values that replace theirs."""
    policy: str | None = None
    """Policy of the verdict; None for that of the evaluator's options."""
    protocol: str | None = None
    """Protocol of the verdict; None for that of the evaluator's options."""
    best_speedup: float | None = None
    """Best speedup over eager measured so far for this task, workload and device, if any."""
    compiles: bool = False
    """Whether it is worth to compile it ahead."""
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
    sessions: Literal["both", "first", "second"] = "both"
    """Which sessions of a surprising win to measure. first: another judge measures the second one,
    and until then the win is unconfirmed. second: the case is such a follow-up of another judge's
    win, and has a verdict already."""
    earlier: int = 0
    """Number of the lake's own evaluations of the kernel by this policy on this device model."""
    request_id: str = ""
    """What the one that asked for the verdict calls it, if anything."""

    @property
    def task_key(self) -> tuple[str, str]:
        """What judges and baselines are prepared for: task_id and workload_id."""
        return self.task_id, self.workload_id

    @property
    def files(self) -> dict[str, str]:
        """Every file of the kernel, by its path."""
        return {self.path: self.code, **dict(self.other_files)}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Case:
        """Return the case in a row of a query, or in what `write` has returned.

        Other columns are left out, as are fields of other versions. Absent fields have defaults.
        """
        known = {name: fields[name] for name in _FIELDS & fields.keys()}
        files: Sequence[Any] = known.get("other_files") or ()
        known["other_files"] = tuple(
            (file["path"], file["code"]) if isinstance(file, Mapping) else (file[0], file[1])
            for file in files
        )
        return cls(**known)

    def write(self) -> dict[str, Any]:
        """Return the fields as JSON values, for `read`."""
        return {**vars(self), "other_files": [list(file) for file in self.other_files]}


_FIELDS = frozenset(field.name for field in fields(Case))
