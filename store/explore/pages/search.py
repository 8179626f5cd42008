"""Search: ids, names, code and messages."""

from __future__ import annotations

from store.explore.page.model import Choice, Page, Panel, View

PATH = "/search"
_FEWEST_CHARACTERS = 2
_ID = frozenset("0123456789abcdef")


async def build(view: View) -> Page:
    """Return the page."""
    choice = Choice(name="q", label="Text", placeholder="name, id, code or message")
    text = (view.get("q") or "").strip()
    if len(text) < _FEWEST_CHARACTERS:
        return Page(
            title="Search",
            intro="Finds kernels by id, tasks, runs and authors by name, and code and messages.",
            choices=[choice],
            panels=[Panel(name="languages")],
        )
    ids = [Panel(name="kernels", values={"prefix": text.lower()}, rows=20, compares="kernels")]
    return Page(
        title=f"Search: {text[:80]}",
        choices=[choice],
        values={"q": text},
        panels=[
            *(ids if set(text.lower()) <= _ID else []),
            Panel(name="tasks", rows=20),
            Panel(name="runs", rows=20),
            Panel(name="code", rows=20, is_required=True),
            Panel(name="messages", rows=20),
        ],
    )
