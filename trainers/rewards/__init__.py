"""Reward rules, one file each: what an attempt is worth, by the rows that are stored about it.

A rule of the user's own imports what it needs from here.
"""

from pipelines import Baseline
from trainers.rewarding.scoring import Terms, assign_rewards, read_figures

__all__ = ["Baseline", "Terms", "assign_rewards", "read_figures"]
