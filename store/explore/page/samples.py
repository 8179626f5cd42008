"""Draws timing sessions: the raw samples of every arm, by block."""

from __future__ import annotations

from collections.abc import Sequence

from store.explore.page.model import Chart, Row
from store.rendering import charts
from store.rendering.rows import group_rows

_MOST_CHARTS = 6
_MOST_SAMPLES = 60


def draw_sessions(rows: list[Row]) -> Sequence[Chart]:
    """Return one chart for each session and clock, newest first."""
    groups = list(group_rows(rows, ["session_id", "clock"]).values())
    return [_draw_session(arms) for arms in groups[:_MOST_CHARTS]]


def _draw_session(arms: Sequence[Row]) -> Chart:
    first = arms[0]
    series = [
        charts.Series(
            label=arm["arm"],
            x=[float(block) for block in arm["blocks"][:_MOST_SAMPLES]],
            y=[float(ms) for ms in arm["samples_ms"][:_MOST_SAMPLES]],
        )
        for arm in arms
    ]
    x = charts.Axis(label="block")
    y = charts.Axis(label="ms per call", scale="log")
    axes = f" {first['axes']}" if first["axes"] else ""
    disturbed = ", disturbed" if any(arm["disturbed"] for arm in arms) else ""
    reason = first["ranks_nothing"]
    standing = f"; ranks nothing: {reason}" if reason else disturbed
    clock = first["clock"] or "unknown"
    return Chart(
        svg=charts.draw_scatter("session", series, x, y),
        title=f"{first['device']}, clock {clock}, workload {first['workload']}{axes}{standing}",
    )
