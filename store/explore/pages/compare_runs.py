"""Two runs: success and speedup by step, best speedups by task, options that differ."""

from __future__ import annotations

from store.explore.page import charts
from store.explore.page.model import (
    CHART_ROWS,
    SQL,
    Page,
    Panel,
    Row,
    Told,
    View,
    group_rows,
    list_two,
)
from store.explore.page.tables import format_value
from store.explore.pages.run import find_run

PATH = "/compare/runs"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    choices = list_two("Run")
    given = [view.get("a"), view.get("b")]
    if not all(given):
        runs = Panel(
            name="runs",
            file=SQL / "runs" / "list.sql",
            values={"kind": None, "q": None},
            hidden=("open_runs",),
            rows=25,
            compares="runs",
        )
        intro = "Choose two rows, or give the ids of two runs or their first characters."
        return Page(title="Compare two runs", intro=intro, choices=choices, panels=[runs])
    a, b = [(await find_run(view, text or ""))["run_id"] for text in given]
    return Page(
        title=f"Runs {a[:8]} and {b[:8]}",
        choices=choices,
        values={"a": a, "b": b},
        panels=[
            Panel(name="curves", tell=_tell_curves, table="folded", rows=CHART_ROWS),
            Panel(name="tasks", tell=_tell_tasks, table="folded"),
            Panel(name="options"),
            Panel(name="sides"),
        ],
    )


def _tell_curves(rows: list[Row]) -> Told:
    shown = max(group_rows(rows, ["device"]).values(), key=len)
    sides = group_rows(shown, ["side"])
    told = [
        f"{side} ends at {format_value('share', mine[-1]['share'])}"
        for (side,), mine in sides.items()
    ]
    facets: list[tuple[charts.Axis, list[charts.Series]]] = []
    for key, axis in (
        ("share", charts.Axis(label="correct answers", scale="share")),
        ("geomean", charts.Axis(label="speedup over eager, geomean", scale="ratio")),
    ):
        series = [
            charts.Series.of(
                [row for row in mine if row[key] is not None], f"run {side}", "step", key
            )
            for (side,), mine in sides.items()
        ]
        if all(one.x for one in series):
            facets.append((axis, series))
    return (
        f"Of correct answers on {shown[0]['device']}, run {' and run '.join(told)}.",
        charts.draw_lines("two runs by step", facets, charts.Axis(label="step")) if facets else "",
    )


def _tell_tasks(rows: list[Row]) -> Told:
    both = [row for row in rows if row["ratio"] is not None]
    faster = sum(row["ratio"] > 1 for row in both)
    return f"B reached the faster kernel at {faster} of {len(both)} tasks that both solved.", ""
