"""The area of a chart between its axes, with its grid, its marks and its legend, as SVG."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from store.commandline.escape import escape_text
from store.rendering.scales import Axis, Scale, fit_scale
from store.rendering.text import make_label

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
