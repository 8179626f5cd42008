"""What speedups are relative to, and where they come from."""

from typing import Literal, TypeAlias

from store.schema.baselines import Baseline, describe_baseline

__all__ = ["Baseline", "Evidence", "describe_baseline"]

Evidence: TypeAlias = Literal["measured", "claimed"]
