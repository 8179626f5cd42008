"""The number of kernels in a prompt, and the constants of their draw."""

# No annotations from __future__: a Config in another module extends these classes, and its __init__
# would look for the names of these types there.
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipelines.contract.baselines import Baseline

Strategy: TypeAlias = Literal["bucket", "random", "none", "island", "top"]


@dataclass(frozen=True, kw_only=True)
class ExemplarOptions:
    """Options of everything that shows scored kernels in a prompt."""

    exemplars: int = 2
    """Number of kernels shown in a prompt (CUDA-L1: 2)."""
    temperature: float = 1.0
    """Temperature of the softmax over buckets, in units of speedup. Our choice; CUDA-L1 does not
    publish it."""
    bucket_width: float = 0.25
    """Width of a score bucket, in units of speedup. Our choice; CUDA-L1 does not publish it."""
    islands: int = 4
    """Number of islands that strategy island divides the kernels of a task into."""
    baseline: Baseline = "eager"
    """Baseline of the speedups shown."""


@dataclass(frozen=True, kw_only=True)
class DrawOptions(ExemplarOptions):
    """Options of a draw in SQL."""

    strategy: Strategy = "bucket"
    """bucket: draw by softmax over score buckets. island: the same within one of several islands
    of kernels. random: draw any kernels. top: show the fastest. none: show only the reference."""
    per_task: int | None = None
    """Number of prompts per task (default: 1, or as many as --limit needs)."""
