"""The logarithm of the paired speedup: twice as fast and half as fast weigh the same.

The speedup is that of view speedups: the median of ratios paired by block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainers.rewarding.scoring import Floats, Rows, Terms, assign_rewards, read_figures

VERSION = 4


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Options of log-speedup."""

    failure: float = -1.5
    """Raw reward of no kernel, a failing verdict, a withheld kernel, or another function."""
    clip: float | None = 1.5
    """Bound of the smoothed reward on both sides: 1.5 is a speedup of 4.48."""


def raw(rows: Rows, config: Config) -> Floats:
    """Return the natural logarithm of every attempt's speedup."""
    return assign_rewards(rows, np.log(read_figures(rows, f"{config.baseline}_speedup")), config)
