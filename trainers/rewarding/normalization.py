"""Z-scores over earlier steps, clipping, and advantages inside a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.rewarding.terms import Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]


def normalize_rewards(
    smoothed: Floats, groups: Sequence[str], epsilon: float
) -> tuple[Floats, int]:
    """Return (r - mean) / (std + epsilon) inside each group, and how many groups are flat.

    std is over n - 1, as in TRL. NaN means no reward: it is excluded from means and stays NaN. If
    all rewards of a group are equal, its advantages are 0.
    """
    import numpy as np

    known = np.flatnonzero(~np.isnan(smoothed))
    advantage = np.full(len(smoothed), np.nan)
    if not len(known):
        return advantage, 0
    _, codes = np.unique(np.asarray(groups, dtype=object)[known].astype(str), return_inverse=True)
    values = smoothed[known]
    # Sums in the order of the values do not depend on the order of the attempts.
    order = np.lexsort((values, codes))
    counts = np.bincount(codes)
    means = np.bincount(codes[order], values[order]) / counts
    squares = (values - means[codes]) ** 2
    deviations = np.bincount(codes[order], squares[order]) / np.maximum(counts - 1, 1)
    lowest = np.full(len(counts), np.inf)
    highest = np.full(len(counts), -np.inf)
    np.minimum.at(lowest, codes, values)
    np.maximum.at(highest, codes, values)
    flat = lowest == highest
    divisor = np.where(flat, np.inf, np.sqrt(deviations) + epsilon)
    advantage[known] = (values - means[codes]) / divisor[codes]
    return advantage, int(flat.sum())


@dataclass(frozen=True)
class Moments:
    """Number, mean and sum of squared deviations of the raw rewards of each step, ascending."""

    steps: Whole
    count: Floats
    mean: Floats
    squares: Floats

    def select_steps(self, first: int, last: int) -> Moments:
        """Return the steps from `first` up to, but not including, `last`."""
        import numpy as np

        a, b = np.searchsorted(self.steps, [first, last]).tolist()
        return Moments(self.steps[a:b], self.count[a:b], self.mean[a:b], self.squares[a:b])


def gather_moments(steps: Whole, raw: Floats) -> Moments:
    """Gather raw rewards, sorted by step and value, by step."""
    import numpy as np

    known, codes = np.unique(steps, return_inverse=True)
    count = np.bincount(codes, minlength=len(known)).astype(np.float64)
    mean = np.bincount(codes, raw, minlength=len(known)) / np.maximum(count, 1)
    squares = np.bincount(codes, (raw - mean[codes]) ** 2, minlength=len(known)).astype(np.float64)
    return Moments(known, count, mean, squares)


def combine_moments(moments: Moments, terms: Terms) -> tuple[float, float]:
    """Return mean and standard deviation over steps (Chan, Golub and LeVeque's combination)."""
    import numpy as np

    total = float(moments.count.sum())
    if not total:
        return terms.initial_mean, terms.initial_std
    mean = float((moments.count * moments.mean).sum() / total)
    between = moments.count * (moments.mean - mean) ** 2
    std = float(np.sqrt((moments.squares.sum() + between.sum()) / total))
    return mean, std


def find_window(step: int, terms: Terms) -> tuple[int, int]:
    """Return the range of steps (first, end) whose rewards give mean and standard deviation.

    They are the window before the last refresh; until the first refresh, all steps before this one.
    """
    if terms.refresh_every is None:
        return 0, 0
    refreshed = step // terms.refresh_every * terms.refresh_every
    return (max(0, refreshed - terms.window), refreshed) if refreshed else (0, step)


def smooth(raw: Floats, mean: Floats, std: Floats, terms: Terms) -> Floats:
    """Return raw rewards as clipped z-scores, if the terms request these."""
    import numpy as np

    smoothed = raw
    if terms.refresh_every is not None:
        smoothed = (raw - mean) / np.maximum(std, terms.least_std)
    return smoothed if terms.clip is None else np.clip(smoothed, -terms.clip, terms.clip)
