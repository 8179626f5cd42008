"""Datasets: a list."""

from __future__ import annotations

from store.explore.page.model import Page, Panel, View

PATH = "/datasets"
MENU = (40, "Datasets")


async def build(view: View) -> Page:
    """Return the page."""
    del view
    return Page(title="Datasets", panels=[Panel(name="list", is_required=True)])
