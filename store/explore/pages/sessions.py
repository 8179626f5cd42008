"""Sessions: a list of the transcripts of coding agents."""

from __future__ import annotations

from store.explore.page.model import Choice, Page, Panel, View, list_choices

PATH = "/sessions"
MENU = (35, "Agents")


async def build(view: View) -> Page:
    """Return the page."""
    text = Choice(name="q", label="Task or harness", placeholder="part of a name")
    choices = [text, *await list_choices(view, "policy")]
    values = {one.name: view.choose(one) for one in choices}
    return Page(
        title="Sessions of agents",
        choices=choices,
        panels=[Panel(name="list", values=values, is_required=True)],
    )
