"""1 for a correct kernel, 0 for everything else: CUDA-L1's stage 2, where speed is ignored."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.rewarding.scoring import Floats, Rows, Terms, assign_rewards

VERSION = 4


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Options of success."""

    correct: float = 1.0
    """Raw reward of a correct kernel."""


def raw(rows: Rows, config: Config) -> Floats:
    """Return the reward of each verdict."""
    return assign_rewards(rows, config.correct, config)
