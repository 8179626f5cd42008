"""Addresses of pages, and which columns of a table link to which page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from store.explore.page.model import Row

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
