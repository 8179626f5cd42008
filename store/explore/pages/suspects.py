"""Suspects: findings with their evidence, and the decisions on them."""

from __future__ import annotations

import functools

from store.explore.page.answers import tell_findings
from store.explore.page.model import Choice, Page, Panel, Row, Told, View, list_choices
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, cut_code, highlight_lines

PATH = "/suspects"
MENU = (50, "Suspects")
_STANDINGS = ("open", "confirmed", "dismissed")
_LEAST_CONFIDENCE = 0.5


async def build(view: View) -> Page:
    """Return the page."""
    [kind] = await list_choices(view, "class")
    standing = Choice(name="standing", label="Decision", options=_STANDINGS, default="open")
    choices = [standing, kind]
    values = {one.name: view.choose(one) for one in choices}
    # A tag that honest kernels carry is shown only to those who ask for its class.
    confidence = None if values["class"] else _LEAST_CONFIDENCE
    return Page(
        title="Suspects",
        intro="Findings of detectors, their evidence, and what was decided.",
        choices=choices,
        values=values | {"confidence": confidence},
        panels=[
            Panel(name="groups", rows=25, is_required=True,
                  tell=functools.partial(_tell_groups, values["standing"])),
            Panel(name="findings", rows=10, template="evidence", prepare=_show_evidence),
            Panel(name="classes", tell=tell_findings, table="folded"),
        ],
    )  # fmt: skip


def _show_evidence(rows: list[Row]) -> list[Row]:
    """Return findings with the lines around the place that each points at."""
    shown: list[Row] = []
    for row in rows:
        lines: list[tuple[int, str]] = []
        if row["line"] is not None and row["excerpt"]:
            excerpt = highlight_lines(cut_code("\n".join(row["excerpt"])), "python")
            lines = list(enumerate(excerpt, start=row["first_line"]))
        shown.append(row | {"lines": lines})
    return shown


def _tell_groups(standing: str | None, rows: list[Row]) -> Told:
    fastest = max(rows, key=lambda row: row["speedup"] or 0.0)
    told = f"the surest is {rows[0]['class']} in {rows[0]['task']}"
    if fastest["speedup"]:
        speedup = f"{format_value('speedup', fastest['speedup'])}{TIMES}"
        told += f", and the fastest below, {speedup}, {fastest['class']} in {fastest['task']}"
    return f"{rows[0]['total']} findings by task and class are {standing}; {told}.", ""
