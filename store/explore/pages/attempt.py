"""Attempt: the prompt with its exemplars, the answer, and what came of it."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from store.explore.page.answers import show_times
from store.explore.page.model import Fact, Page, Panel, Row, Told, View
from store.explore.page.texts import show_messages

PATH = "/attempt/{attempt}"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    attempt = await view.find("attempt", "See the answers of a run.")
    run, kernel = attempt["run_id"], attempt["kernel_id"]
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
        facts=[
            Fact(name="Task", text=attempt["task"], link=f"/task/{attempt['task_id']}"),
            Fact(name="Author", text=attempt["policy"] or "unknown"),
            Fact(name="Run", text=run and f"{attempt['run']} {run[:8]}",
                 link=f"/run/{quote(run or '', safe='')}"),
            Fact(name="Kernel", text=kernel and kernel[:12], link=f"/kernel/{kernel}"),
            Fact(name="No kernel", text=attempt["parse_error"], tone="bad"),
            Fact(name="Step", text=attempt["known_step"]),
            Fact(name="Sample", text=attempt["sample_index"]),
            Fact(name="Reward", text=attempt["reward"]),
            Fact(name="Advantage", text=attempt["advantage"]),
            Fact(name="Prompt tokens", text=attempt["prompt_tokens"]),
            Fact(name="Answer tokens", text=attempt["completion_tokens"]),
        ],
        links=links,
        values={"attempt": attempt["generation_id"]},
        panels=[
            Panel(name="outcome", tell=_tell_outcome, is_required=True),
            Panel(name="exemplars"),
            Panel(name="completion", template="messages", prepare=show_messages),
            Panel(name="prompt", template="messages", prepare=show_messages),
            Panel(name="group"),
        ],
    )  # fmt: skip


def _tell_outcome(rows: list[Row]) -> Told:
    best = next((row for row in rows if row["speedup"] is not None), rows[0])
    speedup = f", {show_times(best)} over {best['baseline']}" if best["speedup"] is not None else ""
    return f"Its kernel is {best['status']} on {best['device']}{speedup}.", ""
