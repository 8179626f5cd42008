"""Draws charts as SVG. Their colors are variables of the page, for its light and its dark style.

A chart is drawn 270 points wide, so that its text is readable on a phone, and scales to the space
it gets. The same rows give the same bytes: there are no dates and no random ids.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from store.report.page.text import TIMES, make_label

if TYPE_CHECKING:
    from collections.abc import Generator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale: TypeAlias = Literal["plain", "ratio", "share"]

# Colours that stand for variables of the page while matplotlib draws.
_TEXT, _MUTED, _RULE = "#010101", "#010102", "#010103"
_SERIES = tuple(f"#0102{number:02x}" for number in range(1, 8))
_VARIABLES = {_TEXT: "--text", _MUTED: "--muted", _RULE: "--rule"} | {
    colour: f"--c{number}" for number, colour in enumerate(_SERIES, start=1)
}
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.5, 1.5)), (0, (8, 2)), "-", "--")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_WIDTH = 3.75
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_FINE_TICKS = (0.25, 0.5, 0.8, 1, 1.25, 1.6, 2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Label, scale and ticks of an axis."""

    label: str
    """With the unit."""
    scale: Scale = "plain"
    """ratio: logarithmic, read as 2x; share: from 0 to 100 %."""
    ticks: Sequence[str] | None = None
    """Names of the positions 0, 1, 2 …, for an axis that is not to scale."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line or cloud of points, with an interval for each point if low and high are given."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


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
    """Draw lines; `step` keeps a value until the next one, `mark_x` marks a position."""
    with _open_drawing(name) as (figure, axes, done):
        handles: list[Artist] = []
        for number, one in enumerate(series[: len(_SERIES)]):
            colour = _SERIES[number]
            if one.low:
                axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.16, linewidth=0)
            handles += axes.plot(
                one.x, one.y, color=colour, linestyle=_DASHES[number], linewidth=1.4,
                drawstyle="steps-post" if kind == "step" else None,
                marker="" if kind == "step" or len(one.x) > 30 else _MARKERS[number], markersize=3,
            )  # fmt: skip
        if mark_x is not None:
            axes.axvline(mark_x, color=_MUTED, linewidth=0.8)
        _scales(axes, x, y, series)
        _legend(figure, handles, [one.label for one in series])
    return done[0]


def draw_scatter(name: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Draw points on two logarithmic axes of ratios, with the line where both are equal.

    `low` and `high` are the ends of y's interval.
    """
    with _open_drawing(name, height=3.6) as (figure, axes, done):
        ends = _find_limits([value for one in series for value in [*one.x, *one.y] if value > 0])
        axes.plot(ends, ends, color=_MUTED, linewidth=0.8)
        handles: list[Artist] = []
        for number, one in enumerate(series[: len(_SERIES)]):
            colour = _SERIES[number]
            if one.low:
                axes.vlines(one.x, one.low, one.high, color=colour, linewidth=0.7, alpha=0.6)
            handles.append(
                axes.scatter(
                    one.x,
                    one.y,
                    s=11,
                    color=colour,
                    alpha=0.75,
                    linewidth=0,
                    marker=_MARKERS[number],
                )
            )
        _scales(axes, x, y, series)
        for limits in (axes.set_xlim, axes.set_ylim):
            limits(*ends)
        axes.set_aspect("equal")
        _legend(figure, handles, [one.label for one in series])
    return done[0]


def draw_intervals(name: str, rows: Sequence[Interval], x: Axis) -> str:
    """Draw each row as an interval with its middle on its own line, first row on top."""
    with _open_drawing(name, height=0.75 + 0.19 * len(rows)) as (_, axes, done):
        places = range(len(rows))
        axes.hlines(
            places, [row.low for row in rows], [row.high for row in rows],
            color=_SERIES[0], linewidth=1.6, alpha=0.6,
        )  # fmt: skip
        axes.plot([row.middle for row in rows], places, "o", color=_SERIES[0], markersize=3.5)
        axes.axvline(1, color=_MUTED, linewidth=0.8)
        axes.set_yticks(places, [make_label(row.label) for row in rows])
        axes.invert_yaxis()
        ends = [value for row in rows for value in (row.low, row.middle, row.high)]
        _scale(axes, "x", x, ends)
        axes.tick_params(axis="y", length=0)
    return done[0]


def draw_bars(name: str, rows: Sequence[Bar], x: Axis) -> str:
    """Draw stacked horizontal bars, first row on top; parts have the same color in all rows."""
    parts = list(dict.fromkeys(part for row in rows for part in row.parts))
    with _open_drawing(name, height=1.15 + 0.3 * len(rows)) as (figure, axes, done):
        start = [0.0] * len(rows)
        handles: list[Any] = []
        for part, colour in zip(parts, _SERIES, strict=False):
            widths = [row.parts.get(part, 0.0) for row in rows]
            handles.append(
                axes.barh(
                    range(len(rows)), widths, left=start, height=0.62, color=colour, alpha=0.85
                )
            )
            start = [a + b for a, b in zip(start, widths, strict=True)]
        axes.set_yticks(range(len(rows)), [make_label(row.label) for row in rows])
        axes.invert_yaxis()
        _scale(axes, "x", x, start)
        axes.tick_params(axis="y", length=0)
        _legend(figure, handles, parts)
    return done[0]


def make_standalone(svg: str, colours: str) -> str:
    """Return a chart as a separate file, with the style of its colors and a background."""
    start = svg.index(">") + 1
    ground = '<rect width="100%" height="100%" style="fill: var(--ground)"/>'
    opened = svg[: start - 1].replace("<svg", '<?xml version="1.0" encoding="UTF-8"?>\n<svg', 1)
    return f"{opened}><style>{colours}</style>{ground}{svg[start:]}"


@contextmanager
def _open_drawing(name: str, height: float = 2.75) -> Generator[tuple[Figure, Axes, list[str]]]:
    """Yield a figure, its axes, and a list that gets the SVG when the context ends."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    done: list[str] = []
    settings: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        # Labels hold text from the lake: no markup is read in them.
        "text.parse_math": False,
        "text.usetex": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 7.5,
        "axes.edgecolor": _MUTED,
        "axes.linewidth": 0.6,
        "axes.labelcolor": _TEXT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.unicode_minus": False,
        "text.color": _TEXT,
        "xtick.color": _MUTED,
        "xtick.labelcolor": _TEXT,
        "ytick.color": _MUTED,
        "ytick.labelcolor": _TEXT,
        "grid.color": _RULE,
        "grid.linewidth": 0.5,
    }
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        cast("dict[str, Any]", matplotlib.rcParams).update(settings)
        # A script that the font lacks is measured by boxes and drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.grid(visible=True)
        yield figure, axes, done
        buffer = io.BytesIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    done.append(_apply_theme(buffer.getvalue().decode(), name))


def _apply_theme(svg: str, name: str) -> str:
    """Return the drawing with variables for colors, and without ids that it does not use."""
    svg = svg[svg.index("<svg") :].strip()
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r'(<\w+) id="([^"]*)"', lambda tag: tag[0] if tag[2] in used else tag[1], svg)
    svg = re.sub(r"<style.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = svg.replace("font-family: 'DejaVu Sans', sans-serif; ", "")
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box is not None
    root = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box[1]}" role="img" aria-labelledby="{name}-title" '
        'style="stroke-linejoin: round; font-family: inherit">'
    )
    svg = re.sub(r"<svg[^>]*>", lambda _: root, svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(f": {colour}", f": var({variable})")
    return svg


def _scales(axes: Axes, x: Axis, y: Axis, series: Sequence[Series]) -> None:
    _scale(axes, "x", x, [value for one in series for value in one.x])
    _scale(axes, "y", y, [value for one in series for value in [*one.y, *one.low, *one.high]])


def _scale(axes: Axes, which: Literal["x", "y"], axis: Axis, values: Sequence[float]) -> None:
    """Set the scale, the ticks and the label of an axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    mine: Any = axes.xaxis if which == "x" else axes.yaxis
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    mine.set_label_text(make_label(axis.label))
    if axis.ticks is not None:
        mine.set_ticks(range(len(axis.ticks)), list(axis.ticks))
    elif axis.scale == "ratio":
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = _find_limits([value for value in values if value > 0])
        limits(low, high)
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        if len(ticks) < 3:
            ticks = [tick for tick in _FINE_TICKS if low <= tick <= high]
        if len(ticks) > 7:
            ticks = [tick for tick in ticks if f"{tick:e}"[0] == "1"]
        mine.set_major_locator(FixedLocator(ticks))
        mine.set_minor_locator(NullLocator())
        mine.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{TIMES}"))
    elif axis.scale == "share":
        limits(0, 1.02)
        mine.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        mine.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    else:
        mine.set_major_locator(MaxNLocator(6, integer=all(float(v).is_integer() for v in values)))
        mine.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _find_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of a logarithmic axis around the values and 1, with a margin."""
    low, high = min([*values, 1 / 1.25]), max([*values, 1.25])
    return low / 1.12, high * 1.12


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Draw the legend above the chart, in as many columns as fit."""
    # Given by hand: a name that begins with an underscore would be left out.
    labels = [make_label(name) or "no name" for name in names[: len(handles)]]
    if not labels:
        return
    longest = max(map(len, labels))
    columns = 3 if longest <= 14 else 2 if longest <= 30 else 1
    lines_over = -(-len(labels) // columns) - 2
    if lines_over > 0:
        figure.set_figheight(figure.get_figheight() + 0.14 * lines_over)
    figure.legend(
        handles, labels, loc="outside upper left", frameon=False, ncols=columns,
        handlelength=2.2, columnspacing=1.0, borderaxespad=0.2, labelspacing=0.25,
    )  # fmt: skip
