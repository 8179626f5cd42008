"""Datasets: a list."""

from __future__ import annotations

from store.explore.page.model import Page, Panel, Row, Told, View

PATH = "/datasets"
MENU = (40, "Datasets")


async def build(view: View) -> Page:
    """Return the page."""
    del view
    return Page(title="Datasets", panels=[Panel(name="list", tell=_tell, is_required=True)])


def _tell(rows: list[Row]) -> Told:
    first = rows[0]
    return (
        f"{first['total']:,} datasets; the newest, {first['dataset']}, has {first['rows']:,} rows "
        f"for {first['tasks'] or 0:,} tasks.",
        "",
    )
