"""Overview: headline speedups, contents, growth, newest records and commits."""

from __future__ import annotations

from collections.abc import Sequence

from store.explore.page import charts
from store.explore.page.model import Chart, Fact, Page, Panel, Row, View

PATH = "/"
MENU = (0, "Overview")
_FEWEST_TASKS = 3


async def build(view: View) -> Page:
    """Return the page."""
    head = await view.one("overview/head") or {}
    at = head.get("committed_at")
    return Page(
        title="Kernel history",
        facts=[
            Fact(name="Newest commit", text=f"{at:%Y-%m-%d %H:%M} UTC" if at else "none yet"),
            Fact(name="Commits", text=f"{head.get('commits', 0):,}"),
            Fact(name="Snapshot", text=str(view.snapshot)),
        ],
        panels=[
            Panel(name="holdings", template="holdings", table="none"),
            Panel(name="headline", draw=_draw_headline, is_required=True),
            Panel(name="growth", draw=_draw_growth, table="folded", rows=200),
            Panel(name="records", rows=10),
            Panel(name="tags", rows=10),
            Panel(name="commits", rows=10),
        ],
    )


def _draw_headline(rows: list[Row]) -> Sequence[Chart]:
    shown = [row for row in rows if row["p50"] is not None and row["n"] >= _FEWEST_TASKS]
    if not shown:
        return []
    medians = {f"{row['suite']} on {row['device']}": row for row in shown}
    return [Chart(svg=charts.draw_medians("headline", medians, " over eager"))]


def _draw_growth(rows: list[Row]) -> Sequence[Chart]:
    if len(rows) < 2:
        return []
    series = [
        charts.Series.of(rows, name, "snapshot_id", name)
        for name in ("kernels", "attempts", "evaluations")
    ]
    x, y = charts.Axis(label="snapshot"), charts.Axis(label="rows", from_zero=True)
    return [Chart(svg=charts.draw_lines("growth", series, x, y, kind="step"))]
