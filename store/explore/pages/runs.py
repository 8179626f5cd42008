"""Runs: a list with filters."""

from __future__ import annotations

from store.explore.page.model import Choice, Page, Panel, Row, Told, View
from store.schema import catalog

PATH = "/runs"
MENU = (30, "Runs")


async def build(view: View) -> Page:
    """Return the page."""
    kinds = catalog.load().enums["run_kind"].values
    choices = [
        Choice(name="kind", label="Kind", options=kinds),
        Choice(name="q", label="Name", placeholder="part of a name"),
    ]
    return Page(
        title="Runs",
        choices=choices,
        values={one.name: view.choose(one) for one in choices},
        panels=[
            Panel(name="list", tell=_tell_runs, hidden=("open_runs",),
                  is_required=True, compares="runs"),
        ],
        live=True,
    )  # fmt: skip


def _tell_runs(rows: list[Row]) -> Told:
    first = rows[0]
    return (
        f"Of {first['total']:,} runs, {first['open_runs'] or 'none'} still run; the newest, "
        f"{first['run']}, began {first['started_at']:%Y-%m-%d %H:%M} UTC.",
        "",
    )
