"""Prompt: its messages, the exemplars with their scores as shown, and every answer to it."""

from __future__ import annotations

import functools

from store.explore.page.answers import tell_correct
from store.explore.page.model import Fact, Page, Panel, View
from store.explore.page.texts import show_messages

PATH = "/prompt/{prompt}"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    prompt = await view.find("prompt", "See the answers of a run.")
    task = prompt["task_id"]
    return Page(
        kind="Prompt",
        title=prompt["prompt_id"][:12],
        facts=[
            Fact(name="Task", text=task and prompt["task"], link=f"/task/{task}"),
            Fact(name="Purpose", text=prompt["purpose"]),
            Fact(name="First seen", text=f"{prompt['created_at']:%Y-%m-%d %H:%M} UTC"),
        ],
        values={"prompt": prompt["prompt_id"]},
        panels=[
            Panel(
                name="answers",
                table="folded",
                tell=functools.partial(tell_correct, "answers to this prompt"),
            ),
            Panel(name="exemplars", rows=20),
            Panel(name="messages", template="messages", prepare=show_messages),
            Panel(name="datasets", rows=20),
        ],
    )
