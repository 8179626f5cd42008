"""Leaderboards: policies by suite, level, device and baseline, distributions and best kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from store.explore.page import charts
from store.explore.page.model import (
    ALL,
    ANY,
    CHART_ROWS,
    SQL,
    Chart,
    Page,
    Panel,
    Row,
    View,
    group_rows,
    list_choices,
)

PATH = "/leaderboards"
MENU = (10, "Leaderboards")
_BY_CLOCK = SQL / "leaderboards" / "by_clock.sql"
_RANKING = "ranking"
"""Choice of the clock or precision that ranks each task."""
_MOST_LINES = 6
_FEWEST_POINTS = 3


async def build(view: View) -> Page:
    """Return the page."""
    suite, level, device, baseline, policy, clock, precision = await list_choices(
        view, "suite", "level", "device", "baseline", "policy", "clock", "precision"
    )
    level = replace(level, options=[ALL, *(level.options or [])], default=ALL)
    policy = replace(policy, options=[ANY, *(policy.options or [])])
    usual = "eager" if "eager" in (baseline.options or []) else None
    baseline = replace(baseline, options=[*(baseline.options or []), ALL], default=usual or ALL)
    timed_by = [
        replace(one, options=[_RANKING, *(one.options or [])], default=_RANKING)
        for one in (clock, precision)
    ]
    choices = [suite, level, device, baseline, policy, *timed_by]
    values = {one.name: view.choose(one) for one in choices}
    values |= {
        one.name: None if values[one.name] == _RANKING else values[one.name] for one in timed_by
    } | {
        "baseline": None if values["baseline"] == ALL else values["baseline"],
        "task_level": None if values["level"] == ALL else values["level"],
        "author": None if values["policy"] == ANY else values["policy"],
    }
    curves = values | {"policy": values["policy"] or ANY}
    # Rankings use one clock and one precision for each task. Any other has a table of its own.
    ranks = values["clock"] is None and values["precision"] is None
    by_clock = Panel(name="by_clock", values=values, rows=25)
    return Page(
        title="Leaderboards",
        choices=choices,
        panels=[
            Panel(
                name="ranking", values=values, rows=25, file=None if ranks else _BY_CLOCK,
                is_required=True,
            ),
            Panel(
                name="distribution", values=values, draw=_draw_shares, table="folded",
                rows=2 * CHART_ROWS, is_wide=False,
            ),
            Panel(
                name="fast_p", values=curves, draw=_draw_fast_p, table="folded",
                rows=CHART_ROWS, is_wide=False,
            ),
            Panel(name="best", values=values, rows=25),
            *([by_clock] if ranks else []),
        ],
    )  # fmt: skip


def _draw_shares(rows: list[Row]) -> Sequence[Chart]:
    groups = group_rows(rows, ["suite", "device", "baseline"])
    largest = sorted(groups.items(), key=lambda one: -len(one[1]))[:_MOST_LINES]
    shown = {", ".join(key): mine for key, mine in largest if len(mine) >= _FEWEST_POINTS}
    return [Chart(svg=charts.draw_shares("distribution", shown))] if shown else []


def _draw_fast_p(rows: list[Row]) -> Sequence[Chart]:
    groups = list(group_rows(rows, ["suite", "device", "baseline"]).items())
    shown = {f"{', '.join(key)} (n {mine[0]['n']})": mine for key, mine in groups[:_MOST_LINES]}
    return [Chart(svg=charts.draw_fast_p("fast_p", shown))]
