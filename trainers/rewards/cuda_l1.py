"""CUDA-L1's rule: the speedup by its seven buckets, as a clipped z-score over earlier steps.

arXiv 2507.14111, section 2.4.4 and equation 6. The raw reward is view speedups_cuda_l1: the median
of 7 bucket means, rounded toward 1, or nothing where their variance is above 0.005. Of its further
rules the judge keeps the shared clock, the random order and the second measurement of surprising
wins (an unconfirmed one is disturbed, and has no figure); its window of 30 minutes is the judge's
own.

CUDA-L1 publishes k = 1.5 and the refresh every 100 iterations. It does not publish the reward of a
failure, the length of the window and the normalization of the first steps; the defaults here are
our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.rewarding.scoring import Floats, Rows, Terms, assign_rewards, read_figures

VERSION = 4


@dataclass(frozen=True, kw_only=True)
class Config(Terms):
    """Options of cuda-l1."""

    clip: float | None = 1.5
    """Bound of the smoothed reward on both sides (CUDA-L1: 1.5)."""
    refresh_every: int | None = 100
    """Steps between refreshes of mean and standard deviation (CUDA-L1: 100)."""


def raw(rows: Rows, config: Config) -> Floats:
    """Return the bucketed speedup of every attempt, in units of the baseline's speed."""
    return assign_rewards(rows, read_figures(rows, f"{config.baseline}_cuda_l1"), config)
