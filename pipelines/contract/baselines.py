"""The baseline of speedups, and their source."""

from typing import Literal, TypeAlias

from store.schema.baselines import Baseline, describe_baseline

__all__ = ["Baseline", "Evidence", "describe_baseline"]

Evidence: TypeAlias = Literal["measured", "claimed"]
