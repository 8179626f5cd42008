"""Tables of a page: their cells link to other pages, and their headings sort them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from store.commandline.escape import escape_terminal
from store.explore.page.model import Row
from store.rendering.tables import Heading, Table, heading, list_columns, make_table

if TYPE_CHECKING:
    from store.explore.page.model import Panel, Row
    from store.explore.page.view import View


_PAGES = {
    "kernel_id": "/kernel/",
    "task_id": "/task/",
    "run_id": "/run/",
    "generation_id": "/attempt/",
    "prompt_id": "/prompt/",
    "dataset_id": "/dataset/",
    "agent_session_id": "/session/",
}
_QUERIES = {
    "trajectory_id": ("/trajectory", "id"),
    "snapshot_id": ("/", "at"),
}
# A column that names what another column identifies.
_NAMES = {
    "kernel": "kernel_id",
    "task": "task_id",
    "run": "run_id",
    "attempt": "generation_id",
    "prompt": "prompt_id",
    "dataset": "dataset_id",
    "snapshot": "snapshot_id",
    "session": "agent_session_id",
}


def find_link(row: Row, column: str) -> str | None:
    """Return the address of what a cell names, without a query, or None.

    >>> find_link({"task": "level1/9", "task_id": "ab"}, "task")
    '/task/ab'
    """
    column = _NAMES.get(column, column)
    value = row.get(column)
    if value is None:
        return None
    if column in _QUERIES:
        path, name = _QUERIES[column]
        return f"{path}?{urlencode({name: value})}"
    if column == "row_index" and row.get("dataset_id"):
        return f"{_PAGES['dataset_id']}{row['dataset_id']}?row={value}"
    kind = "kernel_id" if column.endswith("_kernel_id") else column
    return f"{_PAGES[kind]}{quote(str(value), safe='')}" if kind in _PAGES else None


def list_hidden(names: Sequence[str]) -> set[str]:
    """Return the columns that another column of the table already names and links."""
    return {key for name, key in _NAMES.items() if name in names and key in names}


def build_address(path: str, state: Mapping[str, str | None]) -> str:
    """Return an address with the parts of a state that are set.

    >>> build_address("/task/ab?tab=code", {"at": "v1", "sort": None})
    '/task/ab?tab=code&at=v1'
    """
    query = urlencode({name: value for name, value in state.items() if value})
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


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
