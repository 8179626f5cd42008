"""A case, which is one kernel with its task and workload, and the options of the judge."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from store.code.entry_points import DEFAULT
from store.errors import FlywheelError
from store.schema.baselines import Baseline
from store.schema.clocks import Clock

Precision: TypeAlias = Literal["torch_default", "fp32_strict", "allow_tf32"]
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
    precision: str | None = None
    """Precision of the verdict; None for that of the evaluator's options."""
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
    """Number of the lake's own evaluations of the kernel by this precision on this device model."""
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
        if "policy" in fields:  # of a service's queue, from a version before 0.6.0
            known.setdefault("precision", fields["policy"])
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

MOST_SHAPES = 16
"""Other shapes of a task, at most."""


def parse_axes(text: str, option: str = "--axes") -> dict[str, Any]:
    """Return the values of NAME=VALUE,NAME=VALUE, which are JSON. Raises FlywheelError.

    >>> parse_axes("M=256, SHAPE=[3,4]")
    {'M': 256, 'SHAPE': [3, 4]}
    """
    values: dict[str, Any] = {}
    for part in re.split(r",(?=[^\],]*=)", text):
        name, _, value = part.strip().partition("=")
        try:
            values[name] = json.loads(value)
        except ValueError as error:
            raise FlywheelError(
                f"{option}: the value of {name!a:.40} is no number", "Write NAME=VALUE."
            ) from error
    return values


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long to measure, and what a candidate may use."""

    precision: tuple[Precision, ...] = ("torch_default",)
    """Precision of float32 for kernel and baselines. torch_default: as PyTorch ships, with TF32 in
    convolutions on a GPU. fp32_strict: no TF32. allow_tf32: TF32 everywhere, with its tolerance.
    Repeat it for a verdict under each; a kernel whose answers do not change is judged once."""
    protocol: Literal["full", "training"] = "full"
    """training: a short verdict for rewards: at most 8 calls, 20 blocks by one clock, eager as the
    only baseline, no robustness checks, no profile, 20 seconds for the first call and 90 for a
    build. It never ranks, and a full verdict overrules it."""
    draw_shapes: int = 3
    """Also judge a correct kernel at N other shapes, drawn from the numbers that set the sizes of
    the task's inputs; 0: none. If they take more than about 30 % of the verdict's time, the judge
    leaves out the largest. The protocol training checks answers at one shape."""
    axes: tuple[str, ...] = ()
    """Judge at this shape instead of drawn ones, such as ROWS=1,COLS=1000. Repeat it for several
    shapes."""
    kernels: Kernels = "any"
    """custom_required: do not rank kernels that spend all of their time in library kernels."""
    calls: int = 22
    """Number of correctness calls; five if a call takes more than a second."""
    robustness: bool = True
    """Also test inputs and weights that the task would not generate, and flag failures."""
    diagnosis: bool = True
    """Profile a correct kernel for its bottleneck and its share of time outside library kernels."""
    timing_s: float = 0.5
    """Stop timing after this many seconds and at least 20 blocks, even if an interval is still too
    wide."""
    timing_limit_s: float = 6.0
    """Stop timing a kernel after this many seconds in any case."""
    blocks: int = 160
    """Maximum number of blocks in a session (at least 20)."""
    half_width: float | None = None
    """Stop when the half-width of every speedup's interval, as a log ratio, is below this (default:
    0.03 on a CPU, 0.01 on a GPU)."""
    baselines: tuple[Baseline, ...] | None = None
    """Baselines to time; eager always runs (default: all on a GPU by the full protocol, otherwise
    only eager; a CPU can also run compile)."""
    rank_unfrozen: bool = False
    """Rank kernels that you did not import even if the judge can stop workers only by signals,
    which a process that is just forking may escape (see `evaluators doctor`)."""
    import_s: float = 30.0
    """Time limit in seconds for importing or constructing a candidate while no compiler runs."""
    build_s: float = 180.0
    """Time limit in seconds for importing or constructing a candidate in total."""
    first_call_s: float = 60.0
    """Time limit in seconds for the first call while no compiler runs."""
    call_s: float = 5.0
    """Time limit in seconds for each further call, or 50 times the reference's time if longer."""
    total_s: float = 600.0
    """Time limit in seconds for the whole evaluation."""
    memory_gb: float = 8.0
    """Maximum address space in GB of a candidate on the CPU, besides that of torch itself."""
    file_mb: float = 256.0
    """Maximum size in MB of a file that a candidate writes, including its printed output."""

    def __post_init__(self) -> None:
        """Refuse counts, times and sizes that are not positive numbers, and axes without values."""
        if not 0 <= self.draw_shapes <= MOST_SHAPES or len(self.axes) > MOST_SHAPES:
            raise FlywheelError(f"more than {MOST_SHAPES} shapes, or fewer than 0", "Give fewer.")
        for text in self.axes:
            parse_axes(text)
        for name, value in asdict(self).items():
            if name == "draw_shapes":
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and not 0 < value < math.inf:
                option = name.replace("_", "-")
                raise FlywheelError(f"--{option} {value} is out of range", "Give more than 0.")
