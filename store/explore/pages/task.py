"""Task: reference, workloads, kernels by speedup, records, claims beside measurements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from store.dossier.pages import TASKS, TaskNames, expand_name
from store.explore.page import charts
from store.explore.page.model import (
    CHART_ROWS,
    Chart,
    Choice,
    Fact,
    Page,
    Panel,
    Row,
    Tab,
    View,
    group_rows,
    list_choices,
)
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, show_code

PATH = "/task/{task:path}"
_TABS = (
    Tab(name="kernels", label="Kernels"),
    Tab(name="claims", label="Claims"),
    Tab(name="reference", label="Reference"),
)


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    text = view.parts["task"]
    task = await view.one("task/head", task=text)
    if task is None:
        names = TaskNames(await view.rows(TASKS, wanted=expand_name(text)))
        if not names.match(text):
            names = TaskNames(await view.rows(TASKS, wanted=None))
        task = await view.one("task/head", task=names.find(text)["task_id"])
    assert task is not None
    # Links to exports and tabs lead to the id: a name may have slashes, or may soon be ambiguous.
    view.path = f"/task/{task['task_id']}"
    tab = view.choose_tab(*(one.name for one in _TABS))
    values: dict[str, Any] = {"task": task["task_id"]}
    suite = f"{task['suite'] or 'none'} {task['suite_revision'] or ''}"
    level = "" if task["level"] is None else f", level {task['level']}"
    weak = "an answer without work passes it" if task["degenerate"] else ""
    choices: list[Choice] = []
    if tab == "kernels":
        choices, chosen = await _choose(view, task["task_id"])
        panels = _list_kernel_panels(view, values | chosen)
    elif tab == "claims":
        panels = [
            Panel(name="claims", values=values, draw=_draw_claims, is_required=True),
            Panel(name="unmeasured_claims", values=values),
        ]
    else:
        panels = [
            Panel(name="reference", values=values, template="code", table="none",
                  prepare=functools.partial(show_code, marks=())),
            Panel(name="workloads", values=values),
            Panel(name="labels", values=values),
        ]  # fmt: skip
    return Page(
        kind="Task",
        title=task["task"],
        intro=task["title"] or "",
        facts=[
            Fact(name="Suite", text=f"{suite}{level}"),
            Fact(name="Family", text=task["family"], link=f"/tasks?family={task['family']}"),
            Fact(name="Split", text=task["split"]),
            Fact(name="Weak", text=weak, tone="bad"),
            Fact(name="Id", text=task["task_id"][:12]),
        ],
        tabs=_TABS,
        choices=choices,
        panels=panels,
    )


async def _choose(view: View, task_id: str) -> tuple[list[Choice], dict[str, str | None]]:
    """Return the filters of the kernels, and their values."""
    places = await view.rows("task/places", task=task_id)
    timed_by = await list_choices(view, "clock", "precision")
    choices = [
        *_list_places(view, places, {one.name: one.options or () for one in timed_by}),
        Choice(name="policy", label="Policy", placeholder="any"),
        Choice(name="language", label="Language", placeholder="any"),
        Choice(name="lines", label="At most lines", placeholder="any"),
    ]
    values = {one.name: view.choose(one) for one in choices}
    if values["lines"] is not None and not values["lines"].isdecimal():
        values["lines"] = None
    return choices, values


def _list_places(view: View, places: list[Row], options: dict[str, Sequence[str]]) -> list[Choice]:
    """Return the filters for what was timed; the default is what ranks by the filters before it."""
    choices: list[Choice] = []
    here = places
    for name in ("device", "baseline", "clock", "precision"):
        timed = options.get(name) or list(dict.fromkeys(row[name] for row in places))
        default = here[0][name] if here else None
        choice = Choice(name=name, label=name.capitalize(), options=timed, default=default)
        chosen = view.choose(choice)
        here = [row for row in here if row[name] == chosen] or here
        choices.append(choice)
    return choices


def _list_kernel_panels(view: View, values: dict[str, Any]) -> list[Panel]:
    narrowed = values | {"lines": int(values["lines"]) if values["lines"] else None}
    draw = functools.partial(_draw_ranking, view)
    if values["device"] is None:  # nothing was timed
        ranked = []
    else:
        ranked = [
            Panel(name="ranking", values=narrowed, draw=draw, rows=200),
            Panel(name="records", values=values, draw=_draw_records),
        ]
    return [
        *ranked,
        Panel(name="statuses", values=values, draw=_draw_statuses, table="none"),
        Panel(name="attempts", values=narrowed, is_required=True),
    ]


def _draw_ranking(view: View, rows: list[Row]) -> Sequence[Chart]:
    if len(rows) < 2:
        return []
    groups = {"ranked": [row for row in rows if not row["left_out"]],
              "left out": [row for row in rows if row["left_out"]]}  # fmt: skip
    series = [
        replace(
            charts.Series.of(mine, label, "place", "speedup", "speedup_low", "speedup_high"),
            links=[view.link(f"/kernel/{row['kernel_id']}") for row in mine],
            notes=[_describe(row) for row in mine],
        )
        for label, mine in groups.items()
        if mine
    ]
    x = charts.Axis(label="rank")
    y = charts.Axis(label="speedup, 95 % interval", scale="ratio")
    return [Chart(svg=charts.draw_scatter("ranking", series, x, y, mark_y=1))]


def _describe(row: Row) -> str:
    speedup = format_value("speedup", row["speedup"])
    return f"{row['kernel_id'][:12]}: {speedup}{TIMES}, {row['policy'] or 'unknown author'}"


def _draw_records(rows: list[Row]) -> Sequence[Chart]:
    if len(rows) < 2:
        return []
    numbered = [row | {"record": number} for number, row in enumerate(rows, start=1)]
    series = [
        charts.Series.of(mine, policy, "record", "speedup", "speedup_low", "speedup_high")
        for (policy,), mine in group_rows(numbered, ["policy"]).items()
    ]
    x = charts.Axis(label="record, in the order of their sessions")
    y = charts.Axis(label="speedup", scale="ratio")
    return [Chart(svg=charts.draw_scatter("records", series, x, y, mark_y=1))]


def _draw_statuses(rows: list[Row]) -> Sequence[Chart]:
    return [Chart(svg=charts.draw_statuses("statuses", rows, "kernels"))]


def _draw_claims(rows: list[Row]) -> Sequence[Chart]:
    drawn = [row for row in rows if row["measured"] is not None][:CHART_ROWS]
    return [Chart(svg=charts.draw_claims("claims", drawn, "", " here"))] if len(drawn) > 1 else []
