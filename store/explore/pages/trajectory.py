"""Trajectory: the turns of one attempt, each with its prompt, its answer and its verdict."""

from __future__ import annotations

import functools
from urllib.parse import quote

from store.explore.page.answers import tell_correct
from store.explore.page.model import Page, Panel, View
from store.explore.page.texts import show_messages

PATH = "/trajectory"
_TURNS = 3


async def build(view: View) -> Page:
    """Return the page."""
    trajectory = view.get("id") or ""
    session = await view.one("session/head", session=trajectory)
    link = f"/session/{quote(trajectory, safe='')}"
    return Page(
        links=[(link, "The session of the agent, step by step")] if session else (),
        kind="Trajectory",
        title=trajectory[:40] or "Trajectory",
        values={"trajectory": trajectory},
        panels=[
            Panel(name="turns", is_required=True, tell=functools.partial(tell_correct, "turns")),
            Panel(name="texts", template="messages", prepare=show_messages, rows=_TURNS),
        ],
    )
