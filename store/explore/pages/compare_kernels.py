"""Two kernels: verdicts, times and the changes from one to the other."""

from __future__ import annotations

from store.explore.page.model import SQL, Choice, Page, Panel, View
from store.explore.page.texts import show_diff
from store.explore.pages.kernel import find_kernel

PATH = "/compare/kernels"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    choices = [
        Choice(name="a", label="Kernel A", placeholder="first characters of an id"),
        Choice(name="b", label="Kernel B", placeholder="first characters of an id"),
    ]
    given = [view.get("a"), view.get("b")]
    if not all(given):
        intro = "Give the ids of two kernels, or their first characters."
        return Page(title="Compare two kernels", intro=intro, choices=choices, panels=[])
    a, b = [await find_kernel(view, text or "") for text in given]
    both = {"a": a, "b": b}
    pair = {"kernel": b, "other": a, "reference": None}
    return Page(
        title=f"Kernels {a[:12]} and {b[:12]}",
        choices=choices,
        panels=[
            Panel(name="sides", values=both),
            Panel(name="change", values=pair, file=SQL / "kernel" / "change.sql",
                  title="Change in time, from A to B"),
            Panel(name="verdicts", values=both),
            Panel(name="diff", values=pair, file=SQL / "kernel" / "diff.sql", rows=1,
                  title="Changes from A to B", template="diff", table="none", prepare=show_diff),
        ],
    )  # fmt: skip
