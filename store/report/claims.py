"""Claims: published speedups beside those measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.report.page.section import Exhibit, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries and draw the charts."""
    return Section(
        name="claims",
        title="Claims and measurements",
        exhibits=[
            Exhibit(answer=ask(lake, "claimed"), split=("source", "revision")),
            Exhibit(answer=ask(lake, "claims_checked"), split=("source", "device")),
            draw_charts(ask(lake, "claims_points"), ("source", "gpu", "device"), _points),
            Exhibit(answer=ask(lake, "claims_fallen"), split=()),
            Exhibit(answer=ask(lake, "published_stages"), split=("stated_by",)),
            Exhibit(answer=ask(lake, "case_studies"), split=()),
        ],
    )


def _points(name: str, rows: list[dict[str, Any]]) -> str:
    series: list[charts.Series] = []
    # All three, so that each keeps its colour over the charts.
    same_gpu = rows[0]["gpu"].lower() == rows[0]["device"].lower()
    apart = ("exceeded", "falls") if same_gpu else ("faster here", "slower here")
    for outcome in ("holds", *apart):
        mine = [row for row in rows if row["outcome"] == outcome]
        series.append(
            charts.Series(
                label=f"{outcome} (n {mine[0]['n'] if mine else 0})",
                x=[row["claimed"] for row in mine],
                y=[row["measured"] for row in mine],
                low=[row["measured_low"] for row in mine],
                high=[row["measured_high"] for row in mine],
            )
        )
    first = rows[0]
    return charts.draw_scatter(
        name,
        series,
        charts.Axis(label=f"speedup claimed for {first['gpu']}", scale="ratio"),
        charts.Axis(label=f"speedup measured on {first['device']}", scale="ratio"),
        diagonal=True,
    )
