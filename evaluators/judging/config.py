"""Options of the judge."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from evaluators.judging.case import Kernels, Policy
from store.errors import FlywheelError
from store.schema.baselines import Baseline

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

    policy: tuple[Policy, ...] = ("torch_default",)
    """Precision of float32 for kernel and baselines. torch_default: as PyTorch ships, with TF32 in
    convolutions on a GPU. fp32_strict: no TF32. allow_tf32: TF32 everywhere, with its tolerance.
    Repeat it for a verdict under each; a kernel whose answers do not change is judged once."""
    protocol: Literal["full", "training"] = "full"
    """training: a short verdict for rewards, with at most 8 calls, 20 blocks by one clock, 20
    seconds for the first call and 90 for a build, against eager, and without robustness checks and
    profile. It never ranks, and the full protocol overrules it."""
    draw_shapes: int = 3
    """Also judge a correct kernel at N other shapes, drawn from the numbers that set the sizes of
    the task's inputs, in about 30 % of the verdict's time: the largest are left out first. 0: none.
    The protocol training judges the answers at one shape."""
    axes: tuple[str, ...] = ()
    """Judge at this shape instead of drawn ones, such as --axes ROWS=1,COLS=1000; repeat it for
    several shapes."""
    kernels: Kernels = "any"
    """custom_required: do not rank kernels that spend all of their time in library kernels."""
    calls: int = 22
    """Number of correctness calls; five if a call takes more than a second."""
    robustness: bool = True
    """Also test inputs and weights that the task would not generate, and flag failures."""
    diagnosis: bool = True
    """Profile a correct kernel for its bottleneck and its share of time outside library kernels."""
    timing_s: float = 1.0
    """After this many seconds, stop timing once the session has at least 20 blocks, even if an
    interval is still too wide."""
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
    """Rank kernels that you did not import, even where the judge can stop workers only by signals:
    a process that forks at that moment may keep running there (see `evaluators doctor`)."""
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
