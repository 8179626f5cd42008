"""Two kernels: verdicts, times and the changes from one to the other."""

from __future__ import annotations

import asyncio

from store.explore.page import charts
from store.explore.page.model import SQL, Page, Panel, Row, Told, View, list_two
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, show_diff
from store.explore.pages.kernel import find_kernel

PATH = "/compare/kernels"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    choices = list_two("Kernel")
    given = [view.get("a"), view.get("b")]
    if not all(given):
        intro = (
            "Give the ids of two kernels or their first characters, or choose two rows of a table."
        )
        return Page(title="Compare two kernels", intro=intro, choices=choices, panels=[])
    a, b = await asyncio.gather(*(find_kernel(view, text or "") for text in given))
    changed = SQL / "kernel"
    return Page(
        title=f"Kernels {a[:12]} and {b[:12]}",
        choices=choices,
        values={"a": a, "b": b, "kernel": b, "other": a, "reference": None},
        panels=[
            Panel(name="change", file=changed / "change.sql", title="Change in time, from A to B",
                  tell=tell_change, table="folded", is_required=True),
            Panel(name="sides"),
            Panel(name="verdicts"),
            Panel(name="diff", file=changed / "diff.sql", rows=1, title="Changes from A to B",
                  template="diff", prepare=show_diff),
        ],
    )  # fmt: skip


def tell_change(rows: list[Row]) -> Told:
    """Tell how much faster the second kernel is, and draw the times of both."""
    first = rows[0]
    faster = first["ratio"] >= 1
    ratio = format_value("ratio", first["ratio"] if faster else 1 / first["ratio"])
    intervals: list[charts.Interval] = []
    for row in rows:
        if row["baseline"] == first["baseline"]:
            intervals.append(
                charts.Interval(label=f"{row['device']}, {row['clock']}, {row['precision']}")
            )
            intervals += [
                charts.Interval(
                    label=name, middle=ms, text=f"{format_value('ms', ms)} ms", tone=tone
                )
                for name, ms, tone in (
                    ("A", row["kernel_ms_before"], "plain"), ("B", row["kernel_ms"], "c1")
                )
            ]  # fmt: skip
    return (
        f"B is {ratio}{TIMES} as {'fast' if faster else 'slow'} as A on {first['device']}: "
        f"{format_value('ms', first['kernel_ms'])} ms against "
        f"{format_value('ms', first['kernel_ms_before'])} ms by the clock {first['clock']}.",
        charts.draw_intervals("change", intervals, charts.Axis(label="ms per call", scale="log")),
    )
