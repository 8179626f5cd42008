"""Attempt: the prompt with its exemplars, the answer, and what came of it."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from store.errors import UnknownName
from store.explore.page.model import Fact, Page, Panel, Row, View
from store.explore.page.tables import format_value
from store.explore.page.texts import show_messages

PATH = "/attempt/{attempt}"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    attempt = await view.one("attempt/head", attempt=view.parts["attempt"])
    if attempt is None:
        raise UnknownName(f"no attempt {view.parts['attempt'][:80]}", "See the answers of a run.")
    values = {"attempt": attempt["generation_id"]}
    links: list[tuple[str, str]] = []
    if attempt["trajectory_id"]:
        query = urlencode({"id": attempt["trajectory_id"]})
        links.append((f"/trajectory?{query}", "Trajectory"))
    if attempt["parent_generation_id"]:
        parent = quote(attempt["parent_generation_id"], safe="")
        links.append((f"/attempt/{parent}", "Attempt that it continues"))
    return Page(
        kind="Attempt",
        title=attempt["generation_id"][:13],
        facts=_list_facts(attempt),
        links=links,
        panels=[
            Panel(name="outcome", values=values, is_required=True),
            Panel(name="exemplars", values=values),
            Panel(name="completion", values=values, template="messages", table="none",
                  prepare=show_messages),
            Panel(name="prompt", values=values, template="messages", table="none",
                  prepare=show_messages),
            Panel(name="group", values=values),
        ],
    )  # fmt: skip


def _list_facts(attempt: Row) -> list[Fact]:
    run, kernel = attempt["run_id"], attempt["kernel_id"]
    numbers = {
        "Step": attempt["known_step"],
        "Sample": attempt["sample_index"],
        "Reward": attempt["reward"],
        "Advantage": attempt["advantage"],
        "Prompt tokens": attempt["prompt_tokens"],
        "Answer tokens": attempt["completion_tokens"],
    }
    facts = [
        Fact(name="Task", text=attempt["task"] or "", link=f"/task/{attempt['task_id']}"),
        Fact(name="Policy", text=attempt["policy"] or "unknown"),
    ]
    if run:
        link = f"/run/{quote(run, safe='')}"
        facts.append(Fact(name="Run", text=f"{attempt['run']} {run[:8]}", link=link))
    if kernel:
        facts.append(Fact(name="Kernel", text=kernel[:12], link=f"/kernel/{kernel}"))
    if attempt["parse_error"]:
        facts.append(Fact(name="No kernel", text=attempt["parse_error"], tone="bad"))
    return facts + [
        Fact(name=name, text=format_value(name, value))
        for name, value in numbers.items()
        if value is not None
    ]
