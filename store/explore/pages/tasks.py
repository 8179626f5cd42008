"""Tasks: a list with filters."""

from __future__ import annotations

from store.explore.page.answers import show_times
from store.explore.page.model import Choice, Page, Panel, Row, Told, View, list_choices

PATH = "/tasks"
MENU = (20, "Tasks")


async def build(view: View) -> Page:
    """Return the page."""
    text = Choice(name="q", label="Name", placeholder="part of a name or title")
    choices = [text, *await list_choices(view, "suite", "level", "family")]
    return Page(
        title="Tasks",
        choices=choices,
        values={one.name: view.choose(one) for one in choices},
        panels=[Panel(name="list", tell=_tell_tasks, hidden=("timed",), is_required=True)],
    )


def _tell_tasks(rows: list[Row]) -> Told:
    timed = [row for row in rows if row["speedup"] is not None]
    best = max(timed, key=lambda row: row["speedup_low"], default=None)
    fastest = (
        f"; of those below, {best['task']} has the fastest: {show_times(best)}" if best else ""
    )
    return f"{rows[0]['timed']:,} of {rows[0]['total']:,} tasks have a ranked kernel{fastest}.", ""
