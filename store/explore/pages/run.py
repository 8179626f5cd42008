"""Run: whether it learns and cheats, its answers, verdicts, best kernels and options."""

from __future__ import annotations

import functools

from store.dossier.pages import choose_id, find_state
from store.explore.page import answers
from store.explore.page.model import CHART_ROWS, REPORT, Choice, Fact, Page, Panel, Row, Value, View
from store.explore.page.texts import TOKEN_COLORS, read_number, show_tokens

PATH = "/run/{run}"
_TABS = {
    "progress": "Progress",
    "answers": "Answers",
    "evaluations": "Evaluations",
    "options": "Options",
}
SAMPLING = ("training", "rollout")
"""Kinds of runs with attempts by step."""
_ROLLOUT_STEPS = 200
"""Number of steps back from the newest one whose tokens the page reads."""
_VERDICTS = functools.partial(answers.tell_statuses, "evaluations", "evaluations")


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    run = await find_run(view, view.parts["run"])
    run_id = run["run_id"]
    values: dict[str, Value] = {"run": run_id}
    ended, state = run["ended_at"], await view.read(lambda lake: find_state(lake.location, run))
    runs = state == "running" or state.startswith("open on another host")
    tab = view.choose_tab(*_TABS)
    choices: list[Choice] = []
    if tab == "answers":
        choices = [
            Choice(name="step", label="Step", placeholder="any"),
            Choice(name="status", label="Verdict", placeholder="any"),
            Choice(name="task", label="Task", placeholder="any"),
        ]
        values |= {one.name: view.choose(one) for one in choices}
        values["step"] = read_number(view.choose(choices[0]))
        tell = functools.partial(answers.tell_correct, "answers below")
        panels = [Panel(name="attempts", is_required=True, tell=tell, compares="kernels")]
    elif tab == "evaluations":
        panels = [
            Panel(name="evaluations", tell=_VERDICTS, is_required=True),
            Panel(name="judged", compares="kernels"),
        ]
    elif tab == "options":
        panels = [
            Panel(name="options", template="options", rows=500),
            Panel(name="products"),
        ]
    elif run["kind"] in SAMPLING:
        panels = [
            Panel(name="learning", file=REPORT / "run_learning.sql", rows=CHART_ROWS,
                  table="folded", tell=answers.tell_learning, is_required=True),
            Panel(name="best_so_far", file=REPORT / "run_best_so_far.sql", rows=CHART_ROWS,
                  table="folded", tell=answers.tell_best_so_far, is_wide=False),
            Panel(name="metrics", file=REPORT / "run_metrics.sql", rows=5 * CHART_ROWS,
                  table="none", tell=answers.tell_metrics, is_wide=False),
            Panel(name="bests", rows=15, tell=answers.tell_bests, compares="kernels"),
            Panel(name="steps", rows=15),
            Panel(name="costs", file=REPORT / "run_costs.sql", tell=answers.tell_costs),
            Panel(name="products"),
        ]  # fmt: skip
        newest = await view.one("run/newest_rollouts", run=run_id)
        if newest is not None:
            choices = [
                Choice(name="step", label="Step of the tokens", placeholder="newest"),
                Choice(name="color", label="Color", options=TOKEN_COLORS, default=TOKEN_COLORS[0]),
            ]
            chosen, color = (view.choose(choice) for choice in choices)
            # No step has the number -1.
            asked = -1 if (at := read_number(chosen)) is None else at
            step = asked if chosen else newest["step"]
            values |= {"step": step, "no_step": 1 if step is None else None}
            values["first"] = None if newest["step"] is None else newest["step"] - _ROLLOUT_STEPS
            panels[1:1] = [
                Panel(name="rollouts", rows=CHART_ROWS, table="folded", tell=answers.tell_rollouts),
                Panel(name="tokens", rows=3, template="tokens", is_required=True,
                      tell=answers.tell_tokens, prepare=functools.partial(show_tokens, str(color))),
            ]  # fmt: skip
    else:  # other runs have no steps
        panels = [
            Panel(name="evaluations", tell=_VERDICTS, table="folded"),
            Panel(name="judged", rows=15, compares="kernels"),
            Panel(name="products"),
            Panel(name="options", template="options", rows=500),
        ]
    return Page(
        kind=f"{run['kind'].capitalize()} run",
        title=f"{run['name']} {run_id[:8]}",
        intro=_tell_end(run, state) + (" This page follows it." if runs else ""),
        facts=[
            Fact(name="Started", text=f"{run['started_at']:%Y-%m-%d %H:%M} UTC"),
            Fact(name="Ended", text=ended and f"{ended:%Y-%m-%d %H:%M} UTC"),
            Fact(name="Snapshot read", text=str(run["snapshot_id"] or "")),
            Fact(name="Source", text=run["source"]),
            Fact(name="Version", text=run["version"]),
        ],
        links=[(f"/compare/runs?a={run_id}", "Compare with another run")],
        tabs=_TABS,
        choices=choices,
        values=values,
        panels=panels,
        live=runs,
    )


async def find_run(view: View, text: str) -> Row:
    """Return the one run whose id begins with a text; raises UnknownName."""
    found = {row["run_id"]: row for row in await view.rows("run/head", run=text)}
    return found[choose_id("run", text, list(found), "See Runs.")]


def _tell_end(run: Row, state: str) -> str:
    """Return what a run does, or what ended it."""
    if state == "unknown":
        return "How it ended was not recorded."
    took = "" if run["seconds"] is None else f" after {run['seconds']:,.3g} s"
    error = f": {run['error']}" if run["error"] else ""
    return f"{state[0].upper()}{state[1:]}{took}{error}."
