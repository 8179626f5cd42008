"""Two snapshots: rows, commits and records between them, and their leaderboards."""

from __future__ import annotations

import functools

from store.explore.page.model import SQL, Choice, Page, Panel, View
from store.explore.pages.overview import tell_changes

PATH = "/compare/snapshots"
MENU = (60, "Compare")
_LINKS = (("/compare/runs", "Compare two runs"), ("/compare/kernels", "Compare two kernels"))
# Records and leaderboards read every timing; only those who ask for them wait.
_TABS = {"rows": "Rows", "records": "Records", "leaderboards": "Leaderboards"}
_LEADERBOARD = SQL / "compare_snapshots" / "leaderboard.sql"


async def build(view: View) -> Page:
    """Return the page; raises SnapshotNotFound."""
    choices = [
        Choice(name="a", label="Snapshot A", placeholder="tag, number or time"),
        Choice(name="b", label="Snapshot B", placeholder=f"{view.snapshot} (this one)"),
    ]
    first = view.get("a")
    if first is None:
        return Page(
            title="Compare two snapshots",
            intro="Name a snapshot by a tag, a number or a time (2026-11-24T08:00).",
            links=_LINKS,
            choices=choices,
            panels=[
                Panel(name="tags", file=SQL / "overview" / "tags.sql"),
                Panel(name="commits", file=SQL / "overview" / "commits.sql", rows=25),
            ],
        )
    ends = [await view.resolve(first), await view.resolve(view.get("b"))]
    a, b = min(ends), max(ends)
    tab = view.choose_tab(*_TABS)
    if tab == "rows":
        panels = [
            Panel(
                name="added", snapshot=b, is_required=True, tell=functools.partial(tell_changes, a)
            ),
            Panel(name="commits", snapshot=b, rows=20),
        ]
    elif tab == "records":
        panels = [Panel(name="records", snapshot=b, is_required=True)]
    else:
        panels = [
            Panel(name="after", snapshot=b, title=f"Leaderboard at snapshot {b}",
                  file=_LEADERBOARD, is_required=True),
            Panel(name="before", snapshot=a, title=f"Leaderboard at snapshot {a}",
                  file=_LEADERBOARD, is_required=True),
        ]  # fmt: skip
    return Page(
        title=f"Snapshots {a} and {b}",
        links=_LINKS,
        tabs=_TABS,
        choices=choices,
        values={"a": a, "b": b},
        panels=panels,
    )
