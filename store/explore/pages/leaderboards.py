"""Leaderboards: authors by suite, level, device and baseline, distributions and best kernels."""

from __future__ import annotations

from dataclasses import replace

from store.explore.page import answers, charts
from store.explore.page.model import (
    ALL,
    ANY,
    CHART_ROWS,
    SQL,
    Page,
    Panel,
    Row,
    Told,
    View,
    group_rows,
    list_choices,
)

PATH = "/leaderboards"
MENU = (10, "Leaderboards")
_BY_CLOCK = SQL / "leaderboards" / "by_clock.sql"
_RANKING = "ranking"
"""Choice of the clock or precision that ranks each task."""
_MOST_GROUPS, _MOST_AUTHORS = 6, 5


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
    only = {
        name: value if value not in (ALL, ANY, _RANKING) else None for name, value in values.items()
    }
    values |= {name: only[name] for name in ("baseline", "clock", "precision")}
    values |= {"task_level": only["level"], "author": only["policy"]}
    # Rankings use one clock and one precision for each task. Any other has a table of its own.
    ranks = values["clock"] is None and values["precision"] is None
    by_clock = Panel(name="by_clock", rows=25, table="folded")
    return Page(
        title="Leaderboards",
        choices=choices,
        values=values,
        panels=[
            Panel(name="ranking", rows=25, file=None if ranks else _BY_CLOCK, tell=_tell_ranking,
                  is_required=True),
            Panel(name="distribution", tell=answers.tell_distribution, table="folded",
                  rows=2 * CHART_ROWS, is_wide=False),
            Panel(name="fast_p", values={"policy": values["policy"] or ANY}, rows=CHART_ROWS,
                  tell=answers.tell_fast_p, table="folded", is_wide=False),
            Panel(name="best", rows=25, tell=answers.tell_best, compares="kernels"),
            *([by_clock] if ranks else []),
        ],
    )  # fmt: skip


def _tell_ranking(rows: list[Row]) -> Told:
    """Tell the author with the highest median where most tasks are decided; draw the others too."""
    timed = [row for row in rows if row["p50"] is not None and row["n"] > 0]
    if not timed:
        return "No kernel has a quiet timing session here.", ""
    groups = sorted(
        group_rows(timed, ["suite", "device"]).values(),
        key=lambda mine: -max(row.get("tasks") or row["n"] for row in mine),
    )
    intervals: list[charts.Interval] = []
    for mine in groups[:_MOST_GROUPS]:
        # Any is not an author, and one task is no median.
        named = [row for row in mine if row["policy"] != ANY and row["n"] > 1] or mine
        intervals.append(charts.Interval(label=f"{mine[0]['suite']} on {mine[0]['device']}"))
        intervals += [
            answers.make_interval(f"{row['policy']} (n {row['n']})", row, "p50")
            for row in named[:_MOST_AUTHORS]
        ]
    named = [row for row in groups[0] if row["policy"] != ANY]
    first = max(named or groups[0], key=lambda row: (row["n"] > 1, row["p50"]))
    axis = charts.Axis(
        label=f"median speedup over {first['baseline']}, 95 % interval", scale="ratio"
    )
    return (
        f"{first['policy']} leads {first['suite']} on {first['device']}: a median of "
        f"{answers.show_times(first, 'p50')} over {first['baseline']} on {first['n']} tasks.",
        charts.draw_intervals("ranking", intervals, axis),
    )
