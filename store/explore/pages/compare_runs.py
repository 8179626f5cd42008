"""Two runs: success and speedup by step, best speedups by task, options that differ."""

from __future__ import annotations

from collections.abc import Sequence

from store.explore.page import charts
from store.explore.page.model import (
    CHART_ROWS,
    SQL,
    Chart,
    Choice,
    Page,
    Panel,
    Row,
    View,
    group_rows,
)
from store.explore.pages.run import find_run

PATH = "/compare/runs"
_MOST_DEVICES = 2


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    choices = [
        Choice(name="a", label="Run A", placeholder="first characters of an id"),
        Choice(name="b", label="Run B", placeholder="first characters of an id"),
    ]
    given = [view.get("a"), view.get("b")]
    if not all(given):
        runs = Panel(
            name="runs", file=SQL / "runs" / "list.sql", values={"kind": None, "q": None}, rows=25
        )
        intro = "Give the ids of two runs, or their first characters."
        return Page(title="Compare two runs", intro=intro, choices=choices, panels=[runs])
    a, b = [(await find_run(view, text or ""))["run_id"] for text in given]
    values = {"a": a, "b": b}
    return Page(
        title=f"Runs {a[:8]} and {b[:8]}",
        choices=choices,
        panels=[
            Panel(name="sides", values=values),
            Panel(name="curves", values=values, draw=_draw_curves, table="folded", rows=CHART_ROWS),
            Panel(name="tasks", values=values),
            Panel(name="options", values=values),
        ],
    )


def _draw_curves(rows: list[Row]) -> Sequence[Chart]:
    drawn: list[Chart] = []
    for (device,), mine in list(group_rows(rows, ["device"]).items())[:_MOST_DEVICES]:
        for title, key, axis in (
            ("Share of correct kernels", "share", charts.Axis(label="share", scale="share")),
            ("Speedup over eager", "geomean", charts.Axis(label="geomean", scale="ratio")),
        ):
            known = [row for row in mine if row[key] is not None]
            series = [
                charts.Series.of(rows, f"run {side}", "step", key)
                for (side,), rows in group_rows(known, ["side"]).items()
            ]
            if series:
                svg = charts.draw_lines(title, series, charts.Axis(label="step"), axis)
                drawn.append(Chart(svg=svg, title=f"{title}, {device}"))
    return drawn
