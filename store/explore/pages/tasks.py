"""Tasks: a list with filters."""

from __future__ import annotations

from store.explore.page.model import Choice, Page, Panel, View, list_choices

PATH = "/tasks"
MENU = (20, "Tasks")


async def build(view: View) -> Page:
    """Return the page."""
    text = Choice(name="q", label="Name", placeholder="part of a name or title")
    choices = [text, *await list_choices(view, "suite", "level", "family")]
    values = {one.name: view.choose(one) for one in choices}
    return Page(
        title="Tasks",
        choices=choices,
        panels=[Panel(name="list", values=values, is_required=True)],
    )
