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
from store.explore.page.model import Row, group_rows
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
_PLOT = 190
_GRID = 1000
MARGIN_LEFT, MARGIN_RIGHT = 46, 14
_FEWEST_OF_CENTER = 5
"""Number of points from which the middle of a series is no outlier."""
_DASHES = ("", "6 3", "2 3", "7 3 2 3", "10 4", "", "4 4")


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

    @staticmethod
    def of(
        rows: Sequence[dict[str, Any]],
        label: str,
        x: str,
        y: str,
        low: str | None = None,
        high: str | None = None,
    ) -> Series:
        """Return the series of some columns of rows."""
        read = {"x": x, "y": y, "low": low, "high": high}
        columns = {end: [row[name] for row in rows] for end, name in read.items() if name}
        return Series(label=label, **columns)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """The area of a chart between its axes; its methods return SVG."""

    x: Scale
    y: Scale = field(default_factory=lambda: fit_scale(Axis(label=""), []))
    x_label: str
    y_label: str | None = None
    """None for a chart of rows, which has no y axis."""
    height: int = _PLOT

    @classmethod
    def fit(cls, series: Sequence[Series], x: Axis, y: Axis) -> Plot:
        """Return the plot whose scales fit all values of some series."""
        # Intervals may leave the chart; points that stretch it too far are drawn at its edge.
        x_scale = fit_scale(x, [value for one in series for value in one.x])
        values = [value for one in series for value in [*one.y, *one.low, *one.high]]
        centers = [statistics.median(one.y) for one in series if len(one.y) >= _FEWEST_OF_CENTER]
        y_scale = fit_scale(y, values, centers)
        return cls(x=x_scale, y=y_scale, x_label=x.label, y_label=y.label)

    def top(self, value: float) -> str:
        """Return the y coordinate of a value in pixels."""
        return f"{(1 - self.y.place(value)) * self.height:.1f}"

    def draw_frame(self) -> str:
        """Return the grid with the names of its ticks."""
        parts: list[str] = []
        for value, name in self.x.ticks:
            at = percent(self.x.place(value))
            parts.append(f'<line x1="{at}" x2="{at}" y1="0" y2="{self.height}"/>')
            parts.append(
                f'<text class="tick" x="{at}" y="{self.height + 15}" text-anchor="middle">'
                f"{escape(name)}</text>"
            )
        if self.y_label is not None:
            for value, name in self.y.ticks:
                at = self.top(value)
                parts.append(f'<line x1="0" x2="100%" y1="{at}" y2="{at}"/>')
                parts.append(
                    f'<text class="tick" x="-7" y="{at}" dy="4" text-anchor="end">'
                    f"{escape(name)}</text>"
                )
        return f'<g class="grid">{"".join(parts)}</g>'

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
        return self.draw_line(points, f"line c{number}", _DASHES[number - 1])

    def draw_band(self, number: int, one: Series) -> str:
        """Return the area between the low and the high ends of a series."""
        there = list(zip(one.x, one.high, strict=True))
        back = list(zip(one.x, one.low, strict=True))[::-1]
        path = " ".join(f"{self.x.place(x) * _GRID:.1f},{self.top(y)}" for x, y in [*there, *back])
        return self._stretch(f'<polygon class="band c{number}" points="{path}"/>')

    def draw_points(self, number: int, one: Series, *, bars: bool) -> Iterator[str]:
        """Yield a group of the points of a series; outliers are triangles at the edge."""
        yield f'<g class="points c{number}">'
        for at, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
            left = percent(self.x.place(x))
            mark = f'<circle cx="{left}" cy="{self.top(y)}" r="3"/>'
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

    def finish(
        self,
        name: str,
        labels: Sequence[str],
        parts: Sequence[str],
        *,
        lines: bool = False,
        has_links: bool = False,
    ) -> str:
        """Return the chart with its legend and the labels of its axes."""
        legend, rows = _draw_legend(labels if len(labels) > 1 or lines else [], lines=lines)
        above = rows * _LEGEND_ROW + (_LABEL_ROW if self.y_label is not None else 4)
        total = above + self.height + _TICK_ROW + _LABEL_ROW
        y_label = (
            f'<text class="label" x="-{MARGIN_LEFT - 2}" y="{above - 8}">'
            f"{escape(make_label(self.y_label))}</text>"
            if self.y_label is not None
            else ""
        )
        x_label = (
            f'<text class="label" x="100%" y="{total - 6}" text-anchor="end">'
            f"{escape(make_label(self.x_label))}</text>"
        )
        # Links inside role="img" would be hidden from assistive technology.
        role = "group" if has_links else "img"
        described = " by ".join(filter(None, [self.y_label, self.x_label])) or name
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" height="{total}" '
            f'role="{role}" aria-label="{escape(make_label(described))}">'
            f'{legend}{y_label}<svg y="{above}" height="{self.height + _TICK_ROW}" '
            f'overflow="visible">{"".join(parts)}</svg>{x_label}</svg>'
        )

    def _stretch(self, drawing: str) -> str:
        """Return a drawing on a grid of _GRID columns that is stretched to the chart's width."""
        return (
            f'<svg height="{self.height}" viewBox="0 0 {_GRID} {self.height}" '
            f'preserveAspectRatio="none">{drawing}</svg>'
        )


def _draw_legend(labels: Sequence[str], *, lines: bool) -> tuple[str, int]:
    """Return the legend and its number of rows: as many columns as fit on a phone."""
    # An empty name would leave a mark without text.
    names = [make_label(label) or "no name" for label in labels]
    if not names:
        return "", 0
    longest = max(map(len, names))
    columns = 3 if longest <= 12 else 2 if longest <= 20 else 1
    parts: list[str] = []
    for at, name in enumerate(names):
        left, y = f"{100 * (at % columns) / columns:g}%", (at // columns) * _LEGEND_ROW + 12
        mark = (
            f'<line x1="0" x2="18" y1="-4" y2="-4" stroke-dasharray="{_DASHES[at]}"/>'
            if lines
            else '<rect x="4" width="10" y="-9" height="10"/>'
        )
        parts.append(
            f'<svg x="{left}" y="{y}" overflow="visible"><g class="key c{at + 1}">{mark}</g>'
            f'<text x="24">{escape(name)}</text></svg>'
        )
    inside = "".join(parts)
    legend = f'<svg class="legend" x="-{MARGIN_LEFT - 2}" overflow="visible">{inside}</svg>'
    return legend, -(-len(names) // columns)


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


COLOURS = 7
"""Number of series that a chart shows; the style sheet has as many colors."""
_STANDALONE_WIDTH = 560


@dataclass(frozen=True, kw_only=True)
class Interval:
    """One row of a chart of intervals."""

    label: str
    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row of a chart of stacked bars: a width for each part."""

    label: str
    parts: dict[str, float] = field(default_factory=dict[str, float])


def draw_lines(
    name: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    kind: Literal["line", "step"] = "line",
    mark_x: float | None = None,
) -> str:
    """Draw lines with bands; `step` keeps a value until the next one, the mark is a thin line."""
    shown = series[:COLOURS]
    plot = Plot.fit(shown, x, y)
    parts = [plot.draw_frame(), *_draw_marks(plot, mark_x)]
    for number, one in enumerate(shown, start=1):
        if one.low:
            parts.append(plot.draw_band(number, one))
        parts.append(plot.draw_path(number, one, kind))
        if kind == "line" and len(one.x) <= 40:
            parts += plot.draw_points(number, one, bars=False)
    return plot.finish(name, [one.label for one in shown], parts, lines=True)


def draw_scatter(
    name: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    diagonal: bool = False,
    mark_y: float | None = None,
) -> str:
    """Draw points, each with its interval in y and its link; `diagonal` marks where x equals y."""
    shown = series[:COLOURS]
    plot = Plot.fit(shown, x, y)
    parts = [plot.draw_frame(), *_draw_marks(plot, None, mark_y)]
    if diagonal:
        low, high = max(plot.x.low, plot.y.low), min(plot.x.high, plot.y.high)
        if low < high:
            parts.append(plot.draw_line([(low, low), (high, high)], "mark"))
    for number, one in enumerate(shown, start=1):
        parts += plot.draw_points(number, one, bars=bool(one.low))
    has_links = any(one.links for one in shown)
    return plot.finish(name, [one.label for one in shown], parts, has_links=has_links)


def draw_intervals(name: str, rows: Sequence[Interval], x: Axis) -> str:
    """Draw each row as an interval with its middle, below its label; first row on top."""
    scale = fit_scale(x, [value for row in rows for value in (row.low, row.middle, row.high)])
    row_height = 34
    plot = Plot(x=scale, x_label=x.label, height=row_height * len(rows))
    parts = [plot.draw_frame(), *_draw_marks(plot, 1.0 if x.scale == "ratio" else None)]
    for place, row in enumerate(rows):
        y = place * row_height + 25
        marks = (
            f'<line x1="{percent(scale.place(row.low))}" x2="{percent(scale.place(row.high))}" '
            f'y1="{y}" y2="{y}"/><circle cx="{percent(scale.place(row.middle))}" cy="{y}" r="4"/>'
        )
        text = f'<text class="row" x="0" y="{y - 9}">{escape(make_label(row.label))}</text>'
        parts.append(f"{text}<g class='c1 bar'>{marks}</g>")
    return plot.finish(name, [], parts)


def draw_bars(name: str, rows: Sequence[Bar], x: Axis) -> str:
    """Draw stacked horizontal bars below their labels; parts have one color in all rows."""
    names = list(dict.fromkeys(part for row in rows for part in row.parts))[:COLOURS]
    totals = [sum(row.parts.get(part, 0) for part in names) for row in rows]
    scale = fit_scale(Axis(label=x.label, scale=x.scale, from_zero=True), totals)
    row_height = 40
    plot = Plot(x=scale, x_label=x.label, height=row_height * len(rows))
    parts = [plot.draw_frame()]
    for place, row in enumerate(rows):
        y, start = place * row_height, 0.0
        parts.append(f'<text class="row" x="0" y="{y + 14}">{escape(make_label(row.label))}</text>')
        for number, part in enumerate(names, start=1):
            width = row.parts.get(part, 0.0)
            if width:
                left, right = scale.place(start), scale.place(start + width)
                parts.append(
                    f'<rect class="c{number}" x="{percent(left)}" y="{y + 20}" '
                    f'width="{percent(right - left)}" height="14">'
                    f"<title>{escape(f'{part}: {width:,g}')}</title></rect>"
                )
            start += width
    return plot.finish(name, names, parts)


def make_standalone(svg: str, style: str) -> str:
    """Return a chart as a separate file of a fixed width, with its style and a background."""
    height = int(svg.partition('height="')[2].partition('"')[0])
    inside = svg.partition(">")[2].removesuffix("</svg>")
    width = _STANDALONE_WIDTH
    plot_width = width - MARGIN_LEFT - MARGIN_RIGHT
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 8}" '
        f'class="standalone"><style>{style}</style>'
        '<rect class="ground" width="100%" height="100%"/>'
        f'<svg class="chart" x="{MARGIN_LEFT}" y="4" width="{plot_width}" height="{height}" '
        f'overflow="visible">{inside}</svg></svg>\n'
    )


def _draw_marks(plot: Plot, mark_x: float | None, mark_y: float | None = None) -> Iterator[str]:
    if mark_x is not None and not plot.x.is_beyond(mark_x):
        at = percent(plot.x.place(mark_x))
        yield f'<line class="mark" x1="{at}" x2="{at}" y1="0" y2="{plot.height}"/>'
    if mark_y is not None and not plot.y.is_beyond(mark_y):
        at = plot.top(mark_y)
        yield f'<line class="mark" x1="0" x2="100%" y1="{at}" y2="{at}"/>'


# Charts of a run by step, each of the rows of one question of the report.

_STEP = Axis(label="step")


def draw_reward(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the mean reward by step, with a band of one standard deviation."""
    mean = Series.of(
        rows, f"mean of attempts ({_counts(rows, 'n')} a point)", "step", "reward_mean"
    )
    spread = [row["reward_std"] for row in rows]
    band = replace(
        mean,
        low=[a - b for a, b in zip(mean.y, spread, strict=True)],
        high=[a + b for a, b in zip(mean.y, spread, strict=True)],
    )
    return draw_lines(name, [band], _STEP, Axis(label="reward"))


def draw_success(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the share of judged attempts that are correct, with its interval."""
    label = f"correct ({_counts(rows, 'attempts')} attempts a point)"
    series = Series.of(rows, label, "step", "share", "share_low", "share_high")
    axis = Axis(label="share of judged attempts", scale="share")
    return draw_lines(name, [series], _STEP, axis)


def draw_speedup(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the speedups over eager by step: geometric mean, median and largest."""
    labels = {
        "geomean": f"geomean ({_counts(rows, 'timed')} timed a point)",
        "median_of_steps": "median",
        "max": "largest",
    }
    series = [Series.of(rows, label, "step", key) for key, label in labels.items()]
    return draw_lines(name, series, _STEP, Axis(label="speedup", scale="ratio"))


def draw_metric(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw one metric of the trainer by step."""
    metric = rows[0]["metric"]
    unit = " (nats per token)" if metric.rpartition("/")[2] == "entropy" else ""
    series = Series.of(rows, metric, "step", "value")
    return draw_lines(name, [series], _STEP, Axis(label=f"{metric[:40]}{unit}"))


def draw_best(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the geometric mean of the best speedups so far, one line for each baseline."""
    last = max(row["step"] for row in rows)
    series = [
        Series.of(
            [*mine, mine[-1] | {"step": last}],
            f"{baseline} ({mine[-1]['tasks with a speedup']} of {mine[-1]['tasks']} tasks)",
            "step",
            "geomean_at_least_1",
        )
        for (baseline,), mine in group_rows(rows, ["baseline"]).items()
    ]
    axis = Axis(label="geomean of best so far", scale="ratio")
    return draw_lines(name, series, _STEP, axis, kind="step")


def _counts(rows: Sequence[dict[str, Any]], name: str) -> str:
    """Return the number of rows behind a point, as one number or as a range."""
    counts = [row[name] for row in rows]
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


# Charts of several kernels.


def draw_shares(name: str, groups: Mapping[str, Sequence[Row]]) -> str:
    """Draw the distribution of speedups of each group of rows, with the number of its kernels."""
    series = [
        Series.of(rows, f"{label} (n {rows[0]['n']})", "speedup", "share")
        for label, rows in groups.items()
    ]
    x = Axis(label="speedup over the baseline", scale="ratio")
    y = Axis(label="share of kernels", scale="share")
    return draw_lines(name, series, x, y, kind="step", mark_x=1)


def draw_fast_p(name: str, groups: Mapping[str, Sequence[Row]]) -> str:
    """Draw the share of tasks with a kernel more than p times as fast, for each group of rows."""
    places = sorted({row["p"] for rows in groups.values() for row in rows})
    series = [
        Series(
            label=label,
            x=[places.index(row["p"]) for row in rows],
            y=[row["share"] for row in rows],
        )
        for label, rows in groups.items()
    ]
    x = Axis(label="p (not to scale)", ticks=[f"{p:g}" for p in places])
    return draw_lines(name, series, x, Axis(label="share of tasks with speedup > p", scale="share"))


def draw_medians(name: str, rows: Mapping[str, Row], baseline: str = "") -> str:
    """Draw median speedups with their intervals, one for each label."""
    intervals = [
        Interval(
            label=f"{label} (n {row['n']})",
            low=row["p50_low"],
            middle=row["p50"],
            high=row["p50_high"],
        )
        for label, row in rows.items()
    ]
    axis = Axis(label=f"median speedup{baseline}, 95 % interval", scale="ratio")
    return draw_intervals(name, intervals, axis)


def draw_statuses(name: str, rows: Sequence[Row], counted: str) -> str:
    """Draw a bar for each device, with a part for each status; `counted` has the numbers."""
    # A chart with one status has no legend.
    only = f", all {rows[0]['status']}" if len({row["status"] for row in rows}) == 1 else ""
    bars = [
        Bar(label=f"{device}{only}", parts={row["status"]: row[counted] for row in mine})
        for (device,), mine in group_rows(rows, ["device"]).items()
    ]
    return draw_bars(name, bars, Axis(label=counted))


def draw_claims(name: str, rows: Sequence[Row], claimed_for: str, measured_on: str) -> str:
    """Draw the claimed and the measured speedup of each row."""
    series = [
        Series.of(
            mine,
            f"{outcome} (n {len(mine)})",
            *("claimed", "measured", "measured_low", "measured_high"),
        )
        for (outcome,), mine in group_rows(rows, ["outcome"]).items()
    ]
    x = Axis(label=f"speedup claimed{claimed_for}", scale="ratio")
    y = Axis(label=f"speedup measured{measured_on}", scale="ratio")
    return draw_scatter(name, series, x, y, diagonal=True)
