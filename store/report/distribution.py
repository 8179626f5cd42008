"""Distribution of speedups over kernels, and fast_p over tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from store.rendering import charts
from store.rendering.rows import group_rows
from store.report.page.section import Exhibit, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries and draw the charts."""
    return Section(
        name="distribution",
        title="Distribution",
        exhibits=[
            draw_charts(ask(lake, "ecdf"), ("suite", "device"), _ecdf),
            Exhibit(answer=ask(lake, "quantiles"), split=("suite", "device")),
            draw_charts(ask(lake, "fast_p"), ("suite", "device"), _make_drawing("baseline")),
            draw_charts(ask(lake, "fast_p_policies"), ("suite", "device"), _make_drawing("policy")),
        ],
    )


def _ecdf(name: str, rows: list[dict[str, Any]]) -> str:
    series = [
        charts.Series(
            label=f"{baseline} (n {mine[0]['n']})",
            x=[row["speedup"] for row in mine],
            y=[row["share"] for row in mine],
        )
        for (baseline,), mine in group_rows(rows, ["baseline"]).items()
    ]
    return charts.draw_lines(
        name,
        series,
        charts.Axis(label="speedup over the baseline", scale="ratio"),
        charts.Axis(label="share of kernels", scale="share"),
        kind="step",
        mark_x=1,
    )


def _make_drawing(key: str) -> Callable[[str, list[dict[str, Any]]], str]:
    """Return a function that draws fast_p with a line for each value of `key`."""

    def draw(name: str, rows: list[dict[str, Any]]) -> str:
        places = sorted({row["p"] for row in rows})
        series = [
            charts.Series(
                label=f"{value} ({mine[0]['timed']}/{mine[0]['n']} timed)",
                x=[places.index(row["p"]) for row in mine],
                y=[row["share"] for row in mine],
            )
            for (value,), mine in group_rows(rows, [key]).items()
        ]
        return charts.draw_lines(
            name,
            series,
            charts.Axis(label="p (places are not to scale)", ticks=[f"{p:g}" for p in places]),
            charts.Axis(label="share of tasks, speedup > p", scale="share"),
        )

    return draw
