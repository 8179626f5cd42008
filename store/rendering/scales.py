"""Scales of charts: from values to positions along an axis, and the ticks between."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from store.rendering.text import TIMES

Kind: TypeAlias = Literal["plain", "ratio", "share", "log"]

_RATIO_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MEDIUM_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7)
_FINE_TICKS = (0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.6, 2, 3, 4)
_FEWEST_TICKS, _MOST_TICKS = 3, 6
_CLOSEST = 0.11
_LEAST_SPREAD = 0.25
_FAR = 4.0
"""A value is an outlier beyond this many times the spread of the middle half."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Label, scale and ticks of an axis."""

    label: str
    """With the unit."""
    scale: Kind = "plain"
    """ratio: logarithmic, read as 2x; log: logarithmic; share: from 0 to 100 %."""
    ticks: Sequence[str] | None = None
    """Names of the positions 0, 1, 2 …, for an axis that is not to scale."""
    from_zero: bool = False
    """Whether the axis must include 0."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis with its limits; places values from 0 (low end) to 1 (high end)."""

    low: float
    high: float
    is_log: bool
    ticks: Sequence[tuple[float, str]]

    def place(self, value: float) -> float:
        """Return the position of a value; values beyond a limit are placed at it.

        >>> Scale(low=1, high=100, is_log=True, ticks=()).place(10)
        0.5
        """
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)

    def is_beyond(self, value: float) -> bool:
        """Whether a value is outside the limits."""
        return not self.low <= value <= self.high


def fit_scale(axis: Axis, values: Sequence[float], centers: Sequence[float] = ()) -> Scale:
    """Return the scale of an axis for values; outliers of logarithmic axes do not stretch it.

    `centers` are values that are no outliers, such as the median of each series.
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if axis.ticks is not None:
        high = max(len(axis.ticks) - 1, 1)
        ticks = [(float(at), name) for at, name in enumerate(axis.ticks)]
        return Scale(low=-0.03 * high, high=1.03 * high, is_log=False, ticks=ticks)
    if axis.scale == "share":
        shares = [(at, f"{100 * at:.0f} %") for at in (0, 0.25, 0.5, 0.75, 1)]
        return Scale(low=0.0, high=1.0, is_log=False, ticks=shares)
    if axis.scale in ("ratio", "log"):
        return _fit_log(axis, [value for value in finite if value > 0], centers)
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if axis.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    whole = all(value.is_integer() for value in finite)
    return Scale(low=low, high=high, is_log=False, ticks=_list_even_ticks(low, high, whole=whole))


def _fit_log(axis: Axis, values: Sequence[float], centers: Sequence[float]) -> Scale:
    low, high = _find_log_limits(values, centers, around_one=axis.scale == "ratio")
    if axis.scale == "ratio":
        inside: list[float] = []
        for choice in (_RATIO_TICKS, _MEDIUM_TICKS, _FINE_TICKS):
            if len(inside) < _FEWEST_TICKS:
                inside = [tick for tick in choice if low <= tick <= high]
        if len(inside) > _MOST_TICKS + 1:
            inside = [tick for tick in inside if f"{tick:e}"[0] == "1"]
        ticks = [(tick, f"{tick:g}{TIMES}") for tick in inside]
    else:
        ticks = [(tick, f"{tick:g}") for tick in _list_log_ticks(low, high)]
    scale = Scale(low=low, high=high, is_log=True, ticks=())
    # Names of ticks that are closer than this would touch on a phone.
    apart: list[tuple[float, str]] = []
    for tick in sorted(ticks, key=lambda tick: tick[0] != 1):  # 1 stays
        if all(abs(scale.place(tick[0]) - scale.place(one[0])) > _CLOSEST for one in apart):
            apart.append(tick)
    return replace(scale, ticks=sorted(apart))


def _find_log_limits(
    values: Sequence[float], centers: Sequence[float], *, around_one: bool
) -> tuple[float, float]:
    """Return limits around the values without their outliers, with a margin."""
    logs = sorted(math.log(value) for value in values)
    if around_one:
        logs = sorted([*logs, math.log(0.8), math.log(1.25)])
    if not logs:
        return 0.5, 2.0
    low, high = logs[0], logs[-1]
    if len(logs) >= 8:
        first, _, third = statistics.quantiles(logs, n=4)
        spread = max(third - first, _LEAST_SPREAD)
        inside = [math.log(value) for value in centers if value > 0]
        low = min(max(low, first - _FAR * spread), *inside, third)
        high = max(min(high, third + _FAR * spread), *inside, first)
        if around_one:
            low, high = min(low, math.log(0.8)), max(high, math.log(1.25))
    margin = max(0.04 * (high - low), 0.02)
    return math.exp(low - margin), math.exp(high + margin)


def _list_log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between the limits, or even steps if few fit."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [float(f"{tick:.6g}") for tick in ticks if low <= tick <= high]
        if len(inside) >= 3:
            return inside[:: -(-len(inside) // (_MOST_TICKS + 2))]
    return [tick for tick, _ in _list_even_ticks(low, high, whole=False)]


def _list_even_ticks(low: float, high: float, *, whole: bool) -> list[tuple[float, str]]:
    """Return at most _MOST_TICKS round values between the limits."""
    raw = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Rounded, so that no tick is called 0.30000000000000004.
    return [(float(f"{at * step:.10g}"), f"{at * step:,.6g}") for at in range(first, last + 1)]
