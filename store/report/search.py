"""Searches: the best speedups so far over attempts, one line for each arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.rendering.rows import group_rows
from store.report.page.section import Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Draw one chart for each search and device."""
    return Section(
        name="search",
        title="Search",
        exhibits=[
            draw_charts(
                ask(lake, "search_curve"),
                ("search", "device"),
                _draw_arms,
                split=("search", "device"),
            )
        ],
    )


def _draw_arms(name: str, rows: list[dict[str, Any]]) -> str:
    series = [
        charts.Series(
            label=f"{arm} ({mine[-1]['seeds']} seeds, {mine[-1]['tasks']} tasks)",
            x=[row["attempt"] for row in mine],
            y=[row["geomean"] for row in mine],
            low=[row["low"] for row in mine],
            high=[row["high"] for row in mine],
        )
        for (arm,), mine in group_rows(rows, ["arm"]).items()
    ]
    return charts.draw_lines(
        name,
        series,
        charts.Axis(label="attempts at each task"),
        charts.Axis(label="geomean of best so far", scale="ratio"),
    )
