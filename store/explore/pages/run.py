"""Run: curves by step, answers with prompts, verdicts and rewards, best kernels, options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from store.dossier.pages import choose_id
from store.explore.page import charts
from store.explore.page.model import (
    CHART_ROWS,
    REPORT,
    Chart,
    Choice,
    Fact,
    Page,
    Panel,
    Row,
    Tab,
    View,
    group_rows,
)

PATH = "/run/{run}"
_TABS = (
    Tab(name="progress", label="Progress"),
    Tab(name="answers", label="Answers"),
    Tab(name="evaluations", label="Evaluations"),
    Tab(name="options", label="Options"),
)
SAMPLING = ("training", "rollout")
"""Kinds of runs with attempts by step."""
_MOST_CHARTS = 6
_MOST_DEVICES = 3


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    run = await find_run(view, view.parts["run"])
    run_id = run["run_id"]
    values = {"run": run_id}
    ended, seconds = run["ended_at"], run["seconds"]
    tab = view.choose_tab(*(one.name for one in _TABS))
    choices: list[Choice] = []
    if tab == "answers":
        choices = [
            Choice(name="step", label="Step", placeholder="any"),
            Choice(name="status", label="Verdict", placeholder="any"),
            Choice(name="task", label="Task", placeholder="any"),
        ]
        chosen = {one.name: view.choose(one) for one in choices}
        step = chosen["step"]
        number = int(step) if step is not None and step.isdecimal() and len(step) < 18 else None
        panels = [
            Panel(name="attempts", values=values | chosen | {"step": number}, is_required=True)
        ]
    elif tab == "evaluations":
        panels = [
            Panel(name="evaluations", values=values, is_required=True),
            Panel(name="judged", values=values),
        ]
    elif tab == "options":
        panels = [Panel(name="options", values=values), Panel(name="products", values=values)]
    elif run["kind"] in SAMPLING:
        panels = _list_progress(run_id)
    else:  # other runs have no steps
        panels = [
            Panel(name="products", values=values),
            Panel(name="evaluations", values=values),
        ]
    return Page(
        kind=f"{run['kind'].capitalize()} run",
        title=f"{run['name']} {run_id[:8]}",
        facts=[
            Fact(name="State", text=await view.find_run_state(run)),
            Fact(name="Error", text=run["error"]),
            Fact(name="Started", text=f"{run['started_at']:%Y-%m-%d %H:%M} UTC"),
            Fact(name="Ended", text=ended and f"{ended:%Y-%m-%d %H:%M} UTC"),
            Fact(name="Seconds", text="" if seconds is None else f"{seconds:.3g}"),
            Fact(name="Snapshot read", text=str(run["snapshot_id"] or "")),
            Fact(name="Source", text=run["source"]),
            Fact(name="Version", text=run["version"]),
        ],
        links=[(f"/compare/runs?a={run_id}", "Compare with another run")],
        tabs=_TABS,
        choices=choices,
        panels=panels,
        live=True,
    )


async def find_run(view: View, text: str) -> Row:
    """Return the one run whose id begins with a text; raises UnknownName."""
    found = {row["run_id"]: row for row in await view.rows("run/head", run=text)}
    return found[choose_id("run", text, list(found), "See Runs.")]


def _list_progress(run_id: str) -> list[Panel]:
    values = {"run": run_id}

    def chart(
        name: str, file: str, keys: Sequence[str], draw: Callable[[str, list[Row]], str]
    ) -> Panel:
        return Panel(
            name=name, values=values, file=REPORT / f"{file}.sql", rows=CHART_ROWS, table="folded",
            draw=partial(_draw_groups, draw, keys), is_wide=False,
        )  # fmt: skip

    return [
        chart("rewards", "run_rewards", ("rule",), charts.draw_reward),
        chart("best_so_far", "run_best_so_far", ("device",), charts.draw_best),
        Panel(
            name="curve", values=values, file=REPORT / "run_curve.sql", rows=CHART_ROWS,
            table="folded", draw=_draw_curves,
        ),
        Panel(
            name="metrics", values=values, file=REPORT / "run_metrics.sql", rows=5 * CHART_ROWS,
            table="none", draw=partial(_draw_groups, charts.draw_metric, ("metric",)),
        ),
        Panel(name="bests", values=values, rows=15),
        Panel(name="steps", values=values, rows=15),
        Panel(name="costs", values=values, file=REPORT / "run_costs.sql"),
        Panel(name="products", values=values),
    ]  # fmt: skip


def _draw_groups(
    draw: Callable[[str, list[Row]], str], keys: Sequence[str], rows: list[Row]
) -> Sequence[Chart]:
    groups = group_rows(rows, keys)
    return [
        Chart(svg=draw(f"chart-{at}", mine), title=", ".join(key) if len(groups) > 1 else "")
        for at, (key, mine) in enumerate(groups.items())
    ][:_MOST_CHARTS]


def _draw_curves(rows: list[Row]) -> Sequence[Chart]:
    """Return charts of success and speedup by step for each device."""
    drawn: list[Chart] = []
    for (device,), mine in list(group_rows(rows, ["device"]).items())[:_MOST_DEVICES]:
        for title, draw, key in (
            ("Success", charts.draw_success, "share"),
            ("Speedup over eager", charts.draw_speedup, "geomean"),
        ):
            known = [row for row in mine if row[key] is not None]
            if known:
                drawn.append(Chart(svg=draw(title, known), title=f"{title}, {device}"))
    return drawn
