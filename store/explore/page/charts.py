"""Draws charts as SVG that fills the width of its place; its colors are variables of the page.

Positions along the x axis are percentages and all others are pixels, so that texts and points keep
their size on a phone and on a wide screen. The style sheet `styles/charts.css` leaves the margins
for labels. The same rows give the same bytes. The charts contain no scripts, styles or ids.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from store.commandline.escape import escape_text
from store.explore.page.tables import TONES
from store.explore.page.texts import TIMES, make_label

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


_LEGEND_ROW, _LABEL_ROW, _TICK_ROW = 18, 20, 20
_PLOT, _FACET, SQUARE = 190, 110, 320
_GRID = 1000
MARGIN_LEFT, MARGIN_RIGHT = 46, 14
_FEWEST_OF_CENTER = 5
"""Number of points from which the middle of a series is no outlier."""
_DASHES = ("", "6 3", "2 3", "7 3 2 3", "10 4", "1 2", "4 4")
COLOURS = 7
"""Number of series that a chart shows; the style sheet has as many colors."""
_STANDALONE_WIDTH = 560
_ROOM = 0.028
"""Share of the width of a phone's chart that a digit takes."""
SHAPES = {
    "c2": "M-4 3 0-4 4 3z", "c3": "M-3-3h6v6h-6z", "c4": "M-4 0 0-4 4 0 0 4z",
    "c5": "M-4-3h8L0 4z", "c6": "M-4 0h8M0-4v8", "c7": "M-1-4h2v8h-2z",
    "bad": "M-3-3 3 3M3-3-3 3", "cheat": "M-4 3 0-4 4 3z", "open": "M-4 0 0-4 4 0 0 4z",
    "plain": "M-3-3h6v6h-6z",
}  # fmt: skip
"""A shape for each color, so that points are told apart without colors; others are circles."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line or cloud of points, with an interval for each point if low and high are given."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    links: Sequence[str] = ()
    """Address of each point."""
    notes: Sequence[str] = ()
    """Text of each point, shown when a reader points at it."""
    tone: str | None = None
    """Color, if the series has a meaning of its own (`store.explore.page.tables.TONES`)."""

    @staticmethod
    def of(
        rows: Sequence[dict[str, Any]],
        label: str,
        x: str,
        y: str,
        low: str | None = None,
        high: str | None = None,
        tone: str | None = None,
    ) -> Series:
        """Return the series of some columns of rows."""
        read = {"x": x, "y": y, "low": low, "high": high}
        columns = {end: [row[name] for row in rows] for end, name in read.items() if name}
        return Series(label=label, tone=tone, **columns)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """The area of a chart between its axes; its methods return SVG."""

    x: Scale
    y: Scale = field(default_factory=lambda: fit_scale(Axis(label=""), []))
    x_label: str
    """Empty for a chart above another one with the same x axis."""
    y_label: str | None = None
    """None for a chart of rows, which has no y axis."""
    height: int = _PLOT

    @classmethod
    def fit(cls, series: Sequence[Series], x: Axis, y: Axis, height: int = _PLOT) -> Plot:
        """Return the plot whose scales fit all values of some series."""
        # Intervals may leave the chart; points that stretch it too far are drawn at its edge.
        x_scale = fit_scale(x, [value for one in series for value in one.x])
        values = [value for one in series for value in [*one.y, *one.low, *one.high]]
        centers = [statistics.median(one.y) for one in series if len(one.y) >= _FEWEST_OF_CENTER]
        y_scale = fit_scale(y, values, centers)
        return cls(x=x_scale, y=y_scale, x_label=x.label, y_label=y.label, height=height)

    def top(self, value: float) -> str:
        """Return the y coordinate of a value in pixels."""
        return f"{(1 - self.y.place(value)) * self.height:.1f}"

    def draw_frame(self) -> str:
        """Return the grid with the names of its ticks."""
        parts: list[str] = []
        for value, name in self.x.ticks:
            at = percent(self.x.place(value))
            parts.append(f'<line x1="{at}" x2="{at}" y1="0" y2="{self.height}"/>')
            if self.x_label:
                parts.append(
                    f'<text class="tick" x="{at}" y="{self.height + 15}" text-anchor="middle">'
                    f"{escape(name)}</text>"
                )
        if self.y_label is not None:
            # A low chart has every second name.
            for value, name in self.y.ticks[:: 1 if self.height >= _PLOT else 2]:
                at = self.top(value)
                parts.append(f'<line x1="0" x2="100%" y1="{at}" y2="{at}"/>')
                parts.append(
                    f'<text class="tick" x="-7" y="{at}" dy="4" text-anchor="end">'
                    f"{escape(name)}</text>"
                )
        return f'<g class="grid">{"".join(parts)}</g>'

    def draw_mark(self, x: float | None = None, y: float | None = None) -> str:
        """Return a thin line at a value of an axis, or nothing beyond the limits."""
        if x is not None and not self.x.is_beyond(x):
            at = percent(self.x.place(x))
            return f'<line class="mark" x1="{at}" x2="{at}" y1="0" y2="{self.height}"/>'
        if y is not None and not self.y.is_beyond(y):
            return f'<line class="mark" x1="0" x2="100%" y1="{self.top(y)}" y2="{self.top(y)}"/>'
        return ""

    def draw_line(self, points: Sequence[tuple[float, float]], style: str, dash: str = "") -> str:
        """Return a line through points given in values."""
        path = " ".join(f"{self.x.place(x) * _GRID:.1f},{self.top(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return self._stretch(
            f'<polyline class="{style}" fill="none" points="{path}" '
            f'vector-effect="non-scaling-stroke"{dashes}/>'
        )

    def draw_path(self, number: int, one: Series, kind: Literal["line", "step"]) -> str:
        """Return the line of a series."""
        points = list(zip(one.x, one.y, strict=True))
        if kind == "step":
            corners = [(x, y) for (x, _), (_, y) in zip(points[1:], points[:-1], strict=True)]
            pairs = zip(points[1:], corners, strict=True)
            points = points[:1] + [point for there, corner in pairs for point in (corner, there)]
        return self.draw_line(points, f"line {_tone(number, one)}", _DASHES[number - 1])

    def draw_band(self, number: int, one: Series) -> str:
        """Return the area between the low and the high ends of a series."""
        there = list(zip(one.x, one.high, strict=True))
        back = list(zip(one.x, one.low, strict=True))[::-1]
        path = " ".join(f"{self.x.place(x) * _GRID:.1f},{self.top(y)}" for x, y in [*there, *back])
        return self._stretch(f'<polygon class="band {_tone(number, one)}" points="{path}"/>')

    def draw_points(self, number: int, one: Series, *, bars: bool) -> Iterator[str]:
        """Yield a group of the points of a series; outliers are triangles at the edge."""
        tone = _tone(number, one)
        yield f'<g class="points {tone}">'
        for at, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
            left = percent(self.x.place(x))
            mark = _draw_point(tone, left, self.top(y))
            if self.y.is_beyond(y):
                up = y > self.y.high
                mark = (
                    f'<svg class="far" x="{left}" y="{1 if up else self.height - 9}">'
                    f'<path d="{"M-5 8 0 0 5 8z" if up else "M-5 0 0 8 5 0z"}"/></svg>'
                )
            elif bars:
                low, high = self.top(one.low[at]), self.top(one.high[at])
                mark = f'<line x1="{left}" x2="{left}" y1="{low}" y2="{high}"/>{mark}'
            if one.links:
                yield link(one.links[at], one.notes[at] if one.notes else one.links[at], mark)
            elif one.notes:
                yield f"<g><title>{escape(one.notes[at])}</title>{mark}</g>"
            else:
                yield mark
        yield "</g>"

    def arrange(
        self, legend: Sequence[tuple[str, str]], parts: Sequence[str], *, lines: bool = False
    ) -> tuple[str, int]:
        """Return the chart with its legend and the labels of its axes, and its height.

        The legend has a label and a color for each series.
        """
        drawn, rows = _draw_legend(legend if len(legend) > 1 or lines else [], lines=lines)
        above = rows * _LEGEND_ROW + (_LABEL_ROW if self.y_label is not None else 4)
        total = above + self.height + (_TICK_ROW + _LABEL_ROW if self.x_label else 12)
        if self.y_label is not None:
            drawn += (
                f'<text class="label" x="-{MARGIN_LEFT - 2}" y="{above - 8}">'
                f"{escape(make_label(self.y_label))}</text>"
            )
        drawn += (
            f'<svg y="{above}" height="{self.height + _TICK_ROW}" overflow="visible">'
            f"{''.join(parts)}</svg>"
        )
        if self.x_label:
            drawn += (
                f'<text class="label" x="100%" y="{total - 6}" text-anchor="end">'
                f"{escape(make_label(self.x_label))}</text>"
            )
        return drawn, total

    def finish(
        self,
        name: str,
        legend: Sequence[tuple[str, str]],
        parts: Sequence[str],
        *,
        lines: bool = False,
        has_links: bool = False,
        square: bool = False,
    ) -> str:
        """Return the whole chart, with its legend and the labels of its axes."""
        drawn, total = self.arrange(legend, parts, lines=lines)
        described = " by ".join(filter(None, [self.y_label, self.x_label])) or name
        return _close(described, drawn, total, has_links=has_links, square=square)

    def _stretch(self, drawing: str) -> str:
        """Return a drawing on a grid of _GRID columns that is stretched to the chart's width."""
        return (
            f'<svg height="{self.height}" viewBox="0 0 {_GRID} {self.height}" '
            f'preserveAspectRatio="none">{drawing}</svg>'
        )


def _close(
    described: str, drawn: str, height: int, *, has_links: bool = False, square: bool = False
) -> str:
    # Links inside role="img" would be hidden from assistive technology.
    role, style = "group" if has_links else "img", "chart square" if square else "chart"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{style}" height="{height}" '
        f'role="{role}" aria-label="{escape(make_label(described))}">{drawn}</svg>'
    )


def _tone(number: int, one: Series) -> str:
    return one.tone or f"c{number}"


def _draw_point(tone: str, left: str, top: str) -> str:
    if tone not in SHAPES:
        return f'<circle cx="{left}" cy="{top}" r="3.5"/>'
    return f'<svg class="shape" x="{left}" y="{top}"><path d="{SHAPES[tone]}"/></svg>'


def _draw_legend(legend: Sequence[tuple[str, str]], *, lines: bool) -> tuple[str, int]:
    """Return the legend and its number of rows: as many columns as fit on a phone."""
    # An empty name would leave a mark without text.
    names = [make_label(label) or "no name" for label, _ in legend]
    if not names:
        return "", 0
    longest = max(map(len, names))
    columns = 3 if longest <= 12 else 2 if longest <= 20 else 1
    parts: list[str] = []
    for at, name in enumerate(names):
        left, y = f"{100 * (at % columns) / columns:g}%", (at // columns) * _LEGEND_ROW + 12
        tone = legend[at][1]
        mark = (
            f'<line x1="0" x2="18" y1="-4" y2="-4" stroke-dasharray="{_DASHES[at]}"/>'
            if lines
            else f'<g class="points">{_draw_point(tone, "9", "-4")}</g>'
        )
        parts.append(
            f'<svg x="{left}" y="{y}" overflow="visible"><g class="key {tone}">{mark}</g>'
            f'<text x="24">{escape(name)}</text></svg>'
        )
    inside = "".join(parts)
    drawn = f'<svg class="legend" x="-{MARGIN_LEFT - 2}" overflow="visible">{inside}</svg>'
    return drawn, -(-len(names) // columns)


def link(address: str, note: str, drawing: str) -> str:
    """Return a drawing as a link, with a text that is shown when a reader points at it."""
    # Not a stop of the tab key: the table of the same rows has the same links.
    return f'<a href="{escape(address)}" tabindex="-1"><title>{escape(note)}</title>{drawing}</a>'


def percent(share: float) -> str:
    """Return a position along the x axis as a coordinate."""
    return f"{100 * share:.2f}%"


def escape(text: str) -> str:
    """Return a foreign text as one line of SVG text."""
    import markupsafe

    return str(markupsafe.escape(" ".join(escape_text(text).split())))


@dataclass(frozen=True, kw_only=True)
class Interval:
    """One row of a chart of intervals; without a middle, the heading of the rows after it."""

    label: str
    low: float | None = None
    middle: float | None = None
    high: float | None = None
    samples: Sequence[float] = ()
    """Values that the row summarizes, drawn as small dots."""
    text: str = ""
    """The figures of the row, at its right end."""
    tone: str = "c1"


def draw_lines(
    name: str,
    facets: Sequence[tuple[Axis, Sequence[Series]]],
    x: Axis,
    *,
    kind: Literal["line", "step"] = "line",
    mark_x: float | None = None,
) -> str:
    """Draw lines with bands, facets below each other over one x axis, which the last one names.

    `step` keeps a value until the next one, and the mark is a thin line.
    """
    scale = fit_scale(x, [value for _, many in facets for one in many for value in one.x])
    drawn, top = "", 0
    for place, (y, series) in enumerate(facets, start=1):
        shown = series[:COLOURS]
        plot = Plot.fit(shown, x, y, _PLOT if len(facets) == 1 else _FACET)
        plot = replace(plot, x=scale, x_label=x.label if place == len(facets) else "")
        parts = [plot.draw_frame(), plot.draw_mark(mark_x)]
        for number, one in enumerate(shown, start=1):
            if one.low:
                parts.append(plot.draw_band(number, one))
            parts.append(plot.draw_path(number, one, kind))
            if kind == "line" and len(one.x) <= 40:
                parts += plot.draw_points(number, one, bars=False)
        has_legend = len(facets) == 1 or len(shown) > 1
        inside, height = plot.arrange(_list_legend(shown), parts, lines=has_legend)
        drawn += f'<svg y="{top}" height="{height}" overflow="visible">{inside}</svg>'
        top += height
    described = f"{facets[0][0].label} by {x.label}" if len(facets) == 1 else name
    return _close(described, drawn, top)


def _list_legend(series: Sequence[Series]) -> list[tuple[str, str]]:
    return [(one.label, _tone(number, one)) for number, one in enumerate(series, start=1)]


def draw_points(
    name: str, series: Sequence[Series], x: Axis, y: Axis, *, square: bool = False
) -> str:
    """Draw points, each with its interval in y and its link.

    In a square, both axes have one scale, and the diagonal is where they are equal.
    """
    shown = series[:COLOURS]
    plot = Plot.fit(shown, x, y, SQUARE if square else _PLOT)
    parts: list[str] = []
    if square:
        both = [value for one in shown for value in [*one.x, *one.y]]
        scale = fit_scale(x, both, [statistics.median(both)])
        plot = replace(plot, x=scale, y=scale)
        parts = [plot.draw_line([(scale.low, scale.low), (scale.high, scale.high)], "mark")]
    parts.insert(0, plot.draw_frame())
    for number, one in enumerate(shown, start=1):
        parts += plot.draw_points(number, one, bars=bool(one.low))
    has_links = any(one.links for one in shown)
    return plot.finish(name, _list_legend(shown), parts, has_links=has_links, square=square)


def draw_race(
    name: str,
    best: Sequence[Series],
    tries: Sequence[Series],
    failed: Sequence[float],
    x: Axis,
    y: Axis,
) -> str:
    """Draw attempts in their order, the best so far of each author, and failures at the foot."""
    lines, points = best[:COLOURS], tries[:COLOURS]
    plot = Plot.fit([*lines, *points], x, y, SQUARE)
    plot = replace(plot, x=fit_scale(x, [*failed, *(at for one in lines for at in one.x)]))
    parts = [plot.draw_frame(), plot.draw_mark(y=1.0)]
    for number, (line, tried) in enumerate(zip(lines, points, strict=True), start=1):
        parts += plot.draw_points(number, tried, bars=False)
        parts.append(plot.draw_path(number, line, "step"))
    for at in failed:
        left = percent(plot.x.place(at))
        parts.append(
            f'<line class="failed bad" x1="{left}" x2="{left}" y1="{plot.height - 9}" '
            f'y2="{plot.height}"/>'
        )
    return plot.finish(name, _list_legend(lines), parts, lines=True, has_links=True)


def draw_intervals(name: str, rows: Sequence[Interval], x: Axis) -> str:
    """Draw each row as an interval with its middle, below its label; first row on top."""
    values = [
        value
        for row in rows
        for value in (row.low, row.middle, row.high, *row.samples)
        if value is not None
    ]
    scale = fit_scale(x, values, [row.middle for row in rows if row.middle is not None])
    row_height = 34
    plot = Plot(x=scale, x_label=x.label, height=row_height * len(rows))
    parts = [plot.draw_frame(), plot.draw_mark(1.0 if x.scale == "ratio" else None)]
    for place, row in enumerate(rows):
        y = place * row_height + 25
        style = "row" if row.middle is not None else "row heading"
        parts.append(
            f'<text class="{style}" x="0" y="{y - 9}">{escape(make_label(row.label))}</text>'
        )
        if row.middle is None:
            continue
        # The line shows which label a mark belongs to.
        parts.append(f'<line class="lane" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        marks = "".join(
            f'<circle class="sample" cx="{percent(scale.place(value))}" cy="{y}" r="2.5"/>'
            for value in row.samples
        )
        if row.low is not None and row.high is not None:
            ends = (percent(scale.place(end)) for end in (row.low, row.high))
            marks += '<line x1="{}" x2="{}" y1="{y}" y2="{y}"/>'.format(*ends, y=y)
        marks += _draw_point("c1", percent(scale.place(row.middle)), str(y))
        parts.append(f'<g class="{row.tone} bar">{marks}</g>')
        if row.text:
            parts.append(
                f'<text class="row figure" x="100%" y="{y - 9}" text-anchor="end">'
                f"{escape(row.text)}</text>"
            )
    return plot.finish(name, [], parts)


def draw_bars(name: str, rows: Sequence[tuple[str, Mapping[str, float]]], x: Axis) -> str:
    """Draw stacked bars, each a label and the widths of its parts; a part has one color in all."""
    names = list(dict.fromkeys(part for _, bar in rows for part in bar))[:COLOURS]
    tones = [TONES.get(part, f"c{number}") for number, part in enumerate(names, start=1)]
    totals = [sum(bar.get(part, 0) for part in names) for _, bar in rows]
    scale = fit_scale(replace(x, from_zero=True), totals)
    row_height = 40
    plot = Plot(x=scale, x_label=x.label, height=row_height * len(rows))
    parts = [plot.draw_frame()]
    for place, (label, bar) in enumerate(rows):
        y, start = place * row_height, 0.0
        parts.append(f'<text class="row" x="0" y="{y + 14}">{escape(make_label(label))}</text>')
        for tone, part in zip(tones, names, strict=True):
            width = bar.get(part, 0.0)
            if width:
                left, right = scale.place(start), scale.place(start + width)
                parts.append(
                    f'<rect class="{tone} part" x="{percent(left)}" y="{y + 20}" '
                    f'width="{percent(right - left)}" height="15">'
                    f"<title>{escape(f'{part}: {width:,g}')}</title></rect>"
                )
                # The number stands in a part that has room for it, so that it needs no color.
                if right - left > _ROOM * len(f"{width:,g}"):
                    parts.append(
                        f'<text class="inside" x="{percent((left + right) / 2)}" y="{y + 32}" '
                        f'text-anchor="middle">{width:,.4g}</text>'
                    )
            start += width
    return plot.finish(name, list(zip(names, tones, strict=True)), parts)


def make_standalone(svg: str, style: str) -> str:
    """Return a chart as a separate file of a fixed width, with its style and a background."""
    head, _, inside = svg.partition(">")
    height = int(head.partition('height="')[2].partition('"')[0])
    plot_width = SQUARE if "square" in head else _STANDALONE_WIDTH - MARGIN_LEFT - MARGIN_RIGHT
    width = plot_width + MARGIN_LEFT + MARGIN_RIGHT
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 8}" '
        f'class="standalone"><style>{style}</style>'
        '<rect class="ground" width="100%" height="100%"/>'
        f'<svg class="chart" x="{MARGIN_LEFT}" y="4" width="{plot_width}" height="{height}" '
        f'overflow="visible">{inside.removesuffix("</svg>")}</svg></svg>\n'
    )
