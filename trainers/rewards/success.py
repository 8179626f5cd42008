"""1 for a correct kernel, 0 for everything else: CUDA-L1's stage 2, where speed is ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.rewarding.rules import Terms, assign_rewards

if TYPE_CHECKING:
    import pyarrow as pa

    from trainers.rewarding.rules import Floats

VERSION = 3


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Options of success."""

    correct: float = 1.0
    """Raw reward of a correct kernel."""


def raw(rows: pa.Table, config: Config) -> Floats:
    """Return the reward of each verdict."""
    return assign_rewards(rows, config.correct, config)
