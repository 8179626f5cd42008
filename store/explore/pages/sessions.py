"""Sessions: a list of the transcripts of coding agents."""

from __future__ import annotations

from store.explore.page.model import Choice, Page, Panel, Row, Told, View, list_choices

PATH = "/sessions"
MENU = (35, "Agents")


async def build(view: View) -> Page:
    """Return the page."""
    text = Choice(name="q", label="Task or harness", placeholder="part of a name")
    choices = [text, *await list_choices(view, "policy")]
    return Page(
        title="Sessions of agents",
        choices=choices,
        values={one.name: view.choose(one) for one in choices},
        panels=[Panel(name="list", tell=_tell, is_required=True)],
    )


def _tell(rows: list[Row]) -> Told:
    wrote = sum(bool(row["kernels"]) for row in rows)
    return f"{rows[0]['total']:,} sessions; {wrote} of the {len(rows)} below wrote a kernel.", ""
