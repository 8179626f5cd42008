"""Summary: the figures that matter most, medians over each baseline, and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.report.page.section import Exhibit, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries and draw the charts."""
    return Section(
        name="summary",
        title="Summary",
        exhibits=[
            Exhibit(answer=ask(lake, "summary"), are_tiles=True),
            draw_charts(ask(lake, "medians"), ("suite", "device"), _medians, most=4),
            draw_charts(ask(lake, "verdicts"), (), _verdicts),
        ],
    )


def _medians(name: str, rows: list[dict[str, Any]]) -> str:
    intervals = [
        charts.Interval(
            label=f"{row['baseline']} (n {row['n']})",
            low=row["p50_low"],
            middle=row["p50"],
            high=row["p50_high"],
        )
        for row in rows
    ]
    axis = charts.Axis(label="median speedup (95 % interval)", scale="ratio")
    return charts.draw_intervals(name, intervals, axis)


def _verdicts(name: str, rows: list[dict[str, Any]]) -> str:
    devices: dict[str, charts.Bar] = {}
    for row in rows:
        bar = devices.setdefault(row["device"], charts.Bar(label=row["device"]))
        bar.parts[row["status"]] = bar.parts.get(row["status"], 0) + row["verdicts"]
    return charts.draw_bars(name, list(devices.values())[:16], charts.Axis(label="verdicts"))
