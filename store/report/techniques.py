"""Techniques: speedups of the kernels that use each one, and techniques that help only together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.rendering.rows import group_rows
from store.report.page.section import Exhibit, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake

_FEWEST = 3
_MOST = 14


def build_section(lake: Lake) -> Section:
    """Run the queries and draw the charts."""
    answer, keys = ask(lake, "techniques"), ("device", "baseline")
    enough = [
        row
        for group in group_rows([row for row in answer.rows if row["n"] >= _FEWEST], keys).values()
        for row in group
        if len(group) >= _FEWEST
    ]
    return Section(
        name="techniques",
        title="Techniques",
        exhibits=[
            draw_charts(answer, keys, _medians, most=8, rows=enough, split=keys),
            Exhibit(answer=ask(lake, "technique_pairs"), split=()),
        ],
    )


def _medians(name: str, rows: list[dict[str, Any]]) -> str:
    most = sorted(sorted(rows, key=lambda row: -row["n"])[:_MOST], key=lambda row: -row["p50"])
    return charts.draw_intervals(
        name,
        [
            charts.Interval(
                label=f"{row['technique']} (n {row['n']})",
                low=row["p50_low"],
                middle=row["p50"],
                high=row["p50_high"],
            )
            for row in most
        ],
        charts.Axis(label="median speedup (95 % interval)", scale="ratio"),
    )
