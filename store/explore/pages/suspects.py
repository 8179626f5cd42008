"""Suspects: findings with their evidence, and the decisions on them."""

from __future__ import annotations

from dataclasses import dataclass

from store.explore.page.model import Choice, Page, Panel, Row
from store.explore.page.texts import cut_code, highlight_lines
from store.explore.page.view import View, list_choices

PATH = "/suspects"
MENU = (50, "Suspects")
_STANDINGS = ("open", "confirmed", "dismissed")
_LEAST_CONFIDENCE = 0.5


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One finding with the lines around the place that it points at."""

    row: Row
    lines: list[tuple[int, str]]


async def build(view: View) -> Page:
    """Return the page."""
    [kind] = await list_choices(view, "class")
    standing = Choice(name="standing", label="Standing", options=_STANDINGS, default="open")
    choices = [standing, kind]
    values = {one.name: view.choose(one) for one in choices}
    # A tag that honest kernels carry is shown only to those who ask for its class.
    confidence = None if values["class"] else _LEAST_CONFIDENCE
    return Page(
        title="Suspects",
        intro="Findings of detectors, their evidence, and what was decided.",
        choices=choices,
        panels=[
            Panel(name="kernels", values=values | {"except": None}, rows=15, is_required=True),
            Panel(name="findings", values=values | {"confidence": confidence}, rows=10,
                  template="evidence", table="none", prepare=_show_evidence),
            Panel(name="classes"),
        ],
    )  # fmt: skip


def _show_evidence(rows: list[Row]) -> list[Evidence]:
    return [Evidence(row=row, lines=_show_lines(row)) for row in rows]


def _show_lines(row: Row) -> list[tuple[int, str]]:
    if row["line"] is None or not row["excerpt"]:
        return []
    lines = highlight_lines(cut_code("\n".join(row["excerpt"])), "python")
    return list(enumerate(lines, start=row["first_line"]))
