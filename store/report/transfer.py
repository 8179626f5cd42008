"""Transfer: the same kernels on two devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.rendering.rows import group_rows
from store.report.page.section import Exhibit, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries and draw the charts."""
    return Section(
        name="transfer",
        title="Across GPUs",
        exhibits=[
            draw_charts(ask(lake, "transfer_points"), ("device_a", "device_b"), _points),
            Exhibit(answer=ask(lake, "transfer"), split=()),
        ],
    )


def _points(name: str, rows: list[dict[str, Any]]) -> str:
    series = [
        charts.Series(
            label=f"{baseline} (n {mine[0]['n']})",
            x=[row["speedup_a"] for row in mine],
            y=[row["speedup_b"] for row in mine],
            low=[row["speedup_b_low"] for row in mine],
            high=[row["speedup_b_high"] for row in mine],
        )
        for (baseline,), mine in group_rows(rows, ["baseline"]).items()
    ]
    first = rows[0]
    return charts.draw_scatter(
        name,
        series,
        charts.Axis(label=f"speedup on {first['device_a']}", scale="ratio"),
        charts.Axis(label=f"speedup on {first['device_b']}", scale="ratio"),
        diagonal=True,
    )
