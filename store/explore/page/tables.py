"""Tables of a page: their cells link to other pages, and their headings sort them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from store.commandline.escape import escape_terminal
from store.explore.page.links import find_link, list_hidden
from store.rendering.columns import heading, list_columns
from store.rendering.tables import Heading, Table, make_table

if TYPE_CHECKING:
    from store.explore.page.model import Panel, Row
    from store.explore.page.view import View


def build_table(view: View, panel: Panel, rows: Sequence[Row]) -> Table:
    """Return the table of a panel's rows."""
    hidden = {*panel.hidden, *list_hidden(list(rows[0]))}
    # A column without any value says nothing, unless the reader has sorted by it.
    names = [
        name
        for name in list_columns(rows, sorted(hidden))
        if any(row[name] is not None for row in rows) or name in (view.get_sort(panel) or "")
    ]
    return make_table(
        rows,
        names,
        lambda row, name: _link_cell(view, row, name),
        lambda name, is_number: _build_heading(view, panel, name, is_number=is_number),
    )


def build_result_table(view: View, rows: Sequence[Row]) -> Table:
    """Return the table of the rows of any statement: every column, in its order, not sortable."""
    return make_table(
        rows,
        list(rows[0]),
        lambda row, name: _link_cell(view, row, name),
        lambda name, is_number: Heading(text=escape_terminal(name), is_number=is_number),
    )


def _build_heading(view: View, panel: Panel, name: str, *, is_number: bool) -> Heading:
    sort = view.get_sort(panel)
    directions = {name: "ascending", f"-{name}": "descending"}
    # The first click shows the largest numbers, or the first names.
    first, second = (f"-{name}", name) if is_number else (name, f"-{name}")
    changes = {
        f"sort.{panel.name}": second if sort == first else first,
        f"page.{panel.name}": None,
    }
    return Heading(
        text=heading(name),
        is_number=is_number,
        link=f"{view.change(**changes)}#{panel.name}",
        direction=directions.get(sort or "", "none"),
    )


def _link_cell(view: View, row: Row, name: str) -> str | None:
    link = find_link(row, name)
    return None if link is None else view.link(link)
