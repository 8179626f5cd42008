"""Values and names as SQL text."""

from __future__ import annotations


def quote_values(values: tuple[str, ...]) -> str:
    """Return values as a list of SQL literals."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def quote_names(names: tuple[str, ...]) -> str:
    """Return column names as SQL."""
    return ", ".join(f'"{name}"' for name in names)
