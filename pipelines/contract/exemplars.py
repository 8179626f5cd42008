"""The number of kernels in a prompt, and the constants of their draw."""

# No annotations from __future__: a Config in another module extends these classes, and its __init__
# would look for the names of these types there.
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from pipelines.contract.baselines import Baseline
from store.schema.clocks import Clock

Strategy: TypeAlias = Literal["bucket", "random", "none", "island", "top", "shuffled"]


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
    clock: Clock | None = None
    """Clock of the speedups shown, which the prompt then names (default: the clock that ranks:
    gpu on a GPU, throughput on a processor). Published speedups have no clock."""


@dataclass(frozen=True, kw_only=True)
class DrawOptions(ExemplarOptions):
    """Options of a draw in SQL."""

    strategy: Strategy = "bucket"
    """bucket: draw by softmax over score buckets. island: the same within one of several islands
    of kernels. random: draw any kernels. top: show the fastest. none: show only the reference.
    shuffled: like bucket, with the scores of a prompt shuffled among its kernels, as a control."""
    per_task: int | None = None
    """Number of prompts per task (default: 1, or as many as --limit needs)."""


@dataclass(frozen=True, kw_only=True)
class Improvements(ExemplarOptions):
    """Options of a choice of improvements."""

    margin: float = 1.1
    """Minimum ratio between the lower bound of the answer's speedup and the upper bound of each
    exemplar's."""
    per_task: int = 4
    """Maximum number of answers per task."""
    strategy: Literal["bucket", "island", "random", "top"] = "bucket"
    """How exemplars are drawn among the slower kernels; as in contrastive-batch."""
    device: str | None = None
    """Device whose speedups count (default: the one that this lake measured last, else the one
    with the most)."""
    policy: str | None = None
    """Id or name of the policy that wrote the answers (default: all)."""
    round: int | None = None
    """Round in which the policy wrote the answers (default: all)."""


def copy_exemplar_options(options: ExemplarOptions) -> dict[str, Any]:
    """Return the options of exemplars alone, as arguments of another class that extends them."""
    return {field.name: getattr(options, field.name) for field in fields(ExemplarOptions)}
