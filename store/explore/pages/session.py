"""Session: what a coding agent read, wrote and ran, step by step, and the kernels it led to."""

from __future__ import annotations

import functools
from urllib.parse import quote

from store.explore.page import charts
from store.explore.page.answers import tell_correct
from store.explore.page.model import Fact, Page, Panel, Row, Told, View
from store.explore.page.texts import show_steps

PATH = "/session/{session}"
_TABS = {"steps": "Steps", "outcome": "Kernels and tools"}
_STEPS = 15


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    session = await view.find("session", "See Agents.")
    task, run = session["task_id"], session["run_id"]
    tell_kernels = functools.partial(tell_correct, "kernels of this session")
    panels = [Panel(name="kernels", table="folded", tell=tell_kernels)]
    if view.choose_tab(*_TABS) == "steps":
        panels.append(
            Panel(name="steps", template="steps", prepare=show_steps, rows=_STEPS, is_required=True)
        )
    else:
        panels += [
            Panel(name="tools", tell=_tell_tools, table="folded", is_required=True),
            Panel(name="subagents"),
        ]
    links: list[tuple[str, str]] = []
    if session["parent_session_id"]:
        parent = quote(session["parent_session_id"], safe="")
        links.append((f"/session/{parent}", "Session that started it"))
    return Page(
        kind="Session",
        title=session["session_id"][:12],
        intro=session["problem"] or "",
        facts=[
            Fact(name="Task", text=session["task"], link=f"/task/{task}" if task else None),
            Fact(name="Model", text=session["policy"] or "unknown"),
            Fact(name="Harness", text=session["harness"]),
            Fact(name="Outcome", text=session["outcome"]),
            Fact(name="Source", text=session["source"]),
            Fact(name="License", text=session["license"] or "none stated"),
            Fact(name="Run", text=run and (session["run"] or run[:8]), link=f"/run/{run}"),
            Fact(name="Prompt tokens", text=session["prompt_tokens"]),
            Fact(name="Answer tokens", text=session["completion_tokens"]),
            Fact(name="Cost, USD", text=session["cost_usd"]),
        ],
        links=links,
        tabs=_TABS,
        values={"session": session["session_id"]},
        panels=panels,
    )


def _tell_tools(rows: list[Row]) -> Told:
    bars = [
        (row["tool"], {"worked": row["calls"] - row["failed"], "failed": row["failed"]})
        for row in rows[:12]
    ]
    calls, failed = (sum(row[name] for row in rows) for name in ("calls", "failed"))
    return (
        f"{failed:,} of {calls:,} tool calls failed.",
        charts.draw_bars("tools", bars, charts.Axis(label="calls")),
    )
