"""Steps: wrong, correct, faster than eager, faster than torch.compile as well.

CUDA Agent (arXiv 2602.24286) gives -1, 1, 2 and 3, and calls a kernel faster above 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines import Baseline
from trainers.rewarding.scoring import Floats, Rows, Terms, assign_rewards, read_figures

VERSION = 4


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Options of milestone."""

    failure: float = -1.0
    """Raw reward of no kernel, a failing verdict, a withheld kernel, or another function."""
    correct: float = 1.0
    """Raw reward of a correct kernel that is no faster, or was not measured."""
    faster: float = 2.0
    """Raw reward of a kernel faster than the baseline."""
    fastest: float = 3.0
    """Raw reward of a kernel faster than both baselines."""
    second_baseline: Baseline = "compile"
    """Baseline to beat for the last step."""
    margin: float = 0.05
    """Share of the speedup above 1 that counts as faster."""


def raw(rows: Rows, config: Config) -> Floats:
    """Return the step that every attempt has reached."""
    # A value that was not measured (NaN) exceeds no bound.
    faster = read_figures(rows, f"{config.baseline}_speedup") > 1 + config.margin
    fastest = faster & (read_figures(rows, f"{config.second_baseline}_speedup") > 1 + config.margin)
    worth = np.where(fastest, config.fastest, np.where(faster, config.faster, config.correct))
    return assign_rewards(rows, worth, config)
