"""Task: the race of its attempts, kernels by speedup, claims beside measurements, reference."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from store.dossier.pages import find_task
from store.explore.page import charts
from store.explore.page.answers import draw_claims, show_times
from store.explore.page.model import (
    CHART_ROWS,
    Choice,
    Fact,
    Page,
    Panel,
    Row,
    Told,
    View,
    group_rows,
    list_choices,
)
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, read_number, show_code

PATH = "/task/{task:path}"
_TABS = {"kernels": "Kernels", "claims": "Claims", "reference": "Reference"}


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    text = view.parts["task"]
    task = await view.one("task/head", task=text)
    if task is None:
        named = await view.read(lambda lake: find_task(lake, text))
        task = await view.one("task/head", task=named["task_id"])
    assert task is not None
    # Links to exports and tabs lead to the id: a name may have slashes, or may soon be ambiguous.
    view.path = f"/task/{task['task_id']}"
    tab = view.choose_tab(*_TABS)
    values: dict[str, Any] = {"task": task["task_id"]}
    suite = f"{task['suite'] or 'none'} {task['suite_revision'] or ''}"
    level = "" if task["level"] is None else f", level {task['level']}"
    trivial = "an answer without work passes it" if task["degenerate"] else ""
    choices: list[Choice] = []
    if tab == "kernels":
        here = places = await view.rows("task/places", task=task["task_id"])
        timed_by = {one.name: one.options for one in await list_choices(view, "clock", "precision")}
        # What was timed: the default of each filter is what ranks by the filters before it.
        for name in ("device", "baseline", "clock", "precision"):
            options = timed_by.get(name) or list(dict.fromkeys(row[name] for row in places))
            default = here[0][name] if here else None
            choice = Choice(name=name, label=name.capitalize(), options=options, default=default)
            chosen = view.choose(choice)
            here = [row for row in here if row[name] == chosen] or here
            choices.append(choice)
        choices += [
            Choice(name=name, label=label, placeholder="any")
            for name, label in (
                ("policy", "Author"), ("language", "Language"), ("lines", "At most lines")
            )
        ]  # fmt: skip
        values |= {one.name: view.choose(one) for one in choices}
        values["lines"] = read_number(values["lines"])
        panels = [
            Panel(name="race", tell=functools.partial(_tell_race, view, values), table="folded",
                  rows=2 * CHART_ROWS, is_required=True),
        ]  # fmt: skip
        if values["device"] is not None:  # something was timed
            panels.append(Panel(name="ranking", rows=25, compares="kernels"))
        panels.append(Panel(name="attempts", rows=25, compares="kernels"))
    elif tab == "claims":
        panels = [
            Panel(name="claims", tell=_tell_claims, table="folded", rows=CHART_ROWS,
                  is_required=True),
            Panel(name="unmeasured_claims"),
        ]  # fmt: skip
    else:
        panels = [
            Panel(
                name="reference", template="code", prepare=functools.partial(show_code, marks=())
            ),
            Panel(name="workloads"),
            Panel(name="labels"),
        ]
    return Page(
        kind="Task",
        title=task["task"],
        intro=task["title"] or "",
        facts=[
            Fact(name="Suite", text=f"{suite}{level}"),
            Fact(name="Family", text=task["family"], link=f"/tasks?family={task['family']}"),
            Fact(name="Split", text=task["split"]),
            Fact(name="Trivial", text=trivial, tone="bad"),
            Fact(name="Id", text=task["task_id"][:12]),
        ],
        tabs=_TABS,
        choices=choices,
        values=values,
        panels=panels,
    )


def _tell_race(view: View, values: dict[str, Any], rows: list[Row]) -> Told:
    """Tell who leads and since which attempt; draw all attempts and the best of each author."""
    last = rows[-1]
    share = f"{last['correct']:,} of {last['attempts']:,} attempts are correct"
    timed = [row for row in rows if row["speedup"] is not None]
    if not timed:
        return f"{share}, and none has a quiet timing session.", ""
    lead = max(timed, key=lambda row: (row["speedup_low"], -row["attempt"]))
    authors = sorted(
        group_rows([row for row in rows if row["improves"]], ["policy"]).items(),
        key=lambda one: -one[1][-1]["speedup_low"],
    )
    best = [
        charts.Series.of(
            [*mine, mine[-1] | {"attempt": last["attempts"]}], policy, "attempt", "speedup"
        )
        for (policy,), mine in authors
    ]
    tried = group_rows(timed, ["policy"])
    tries = [
        replace(
            charts.Series.of(tried[author], author[0], "attempt", "speedup"),
            links=[view.link(f"/kernel/{row['kernel_id']}") for row in tried[author]],
            notes=[_describe(row) for row in tried[author]],
        )
        for author, _ in authors
    ]
    failed = [
        row["attempt"] for row in rows
        if row["speedup"] is None and row["status"] not in ("correct", "not judged")
    ]  # fmt: skip
    x = charts.Axis(label="attempt, in the order of writing")
    y = charts.Axis(label=f"speedup over {values['baseline']}", scale="ratio")
    return (
        f"{lead['policy']} leads with {show_times(lead)} over {values['baseline']} on "
        f"{values['device']}, since attempt {lead['attempt']:,}; {share}.",
        charts.draw_race("race", best, tries, failed, x, y),
    )


def _describe(row: Row) -> str:
    speedup = format_value("speedup", row["speedup"])
    return f"{row['kernel_id'][:12]}: {speedup}{TIMES}, {row['policy']}"


def _tell_claims(rows: list[Row]) -> Told:
    drawn = [row for row in rows if row["measured"] is not None][:CHART_ROWS]
    holds = sum(row["outcome"] in ("holds", "exceeded") for row in drawn)
    same = sum(row["outcome"] in ("holds", "exceeded", "falls") for row in drawn)
    told = f"{holds} of {same} claims about a GPU of this lake hold or are exceeded"
    chart = draw_claims(drawn, "", " here") if len(drawn) > 1 else ""
    return f"{told}; {len(drawn)} claims have a measurement.", chart
