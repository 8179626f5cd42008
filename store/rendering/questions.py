"""Questions: SQL files with `$name` placeholders, bound to values as SQL that anybody can rerun."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from store.schema.sql_text import quote_values

Value: TypeAlias = "str | int | float | None"
_PLACEHOLDER = re.compile(r"\$([a-z_]+)")


def bind(sql: str, values: Mapping[str, Value]) -> str:
    """Return the SQL with literals for its placeholders; raises KeyError for an unknown one.

    A line is left out if it mentions a placeholder whose value is None, so that a file can list
    every filter of a view on a line of its own.

    >>> bind("SELECT 1\\nWHERE true\\nAND a = $a\\nAND b = $b", {"a": "it's", "b": None})
    "SELECT 1\\nWHERE true\\nAND a = 'it''s'"
    """
    lines: list[str] = []
    for line in sql.splitlines():
        names = _PLACEHOLDER.findall(line)
        if not any(values[name] is None for name in names):
            lines.append(_PLACEHOLDER.sub(lambda found: _quote(values[found[1]]), line))
    return "\n".join(lines)


def _quote(value: Value) -> str:
    return quote_values((value,)) if isinstance(value, str) else str(value)


def group_rows(
    rows: Sequence[dict[str, Any]], keys: Sequence[str]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Group rows by their values of `keys`, in their order.

    >>> group_rows([{"a": 1, "b": 2}, {"a": 1, "b": 3}], ["a"])
    {('1',): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    return found
