"""Tables of pages: headings and cells with their text, alignment, interval and link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from store.rendering.columns import format_value, heading, make_cell

_LONG = 46
_TONES = {
    "correct": "good", "confirmed": "bad", "incorrect": "bad", "rejected": "bad", "crash": "bad",
    "timeout": "bad", "compile_error": "bad", "evaluator_error": "open", "open": "open",
    "holds": "good", "falls": "bad", "withheld": "bad", "leak": "bad",
}  # fmt: skip
_TONED = ("status", "standing", "outcome", "verdict", "leak")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a column."""

    text: str
    is_number: bool
    link: str | None = None
    """Address of the table sorted by this column."""
    direction: str = "none"
    """ascending, descending or none."""


@dataclass(frozen=True, kw_only=True)
class ShownCell:
    """One cell of a table."""

    text: str
    style: str
    """Class of the style sheet."""
    link: str | None = None
    interval: str | None = None
    """The ends of the interval of a number."""

    @property
    def line(self) -> str:
        """The text with its interval."""
        return f"{self.text} {self.interval}" if self.interval else self.text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headings and rows of cells."""

    headings: Sequence[Heading]
    rows: Sequence[Sequence[ShownCell]]


def make_table(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    find_link: Callable[[dict[str, Any], str], str | None],
    make_heading: Callable[[str, bool], Heading] | None = None,
) -> Table:
    """Return the table of some columns of rows.

    Args:
        rows: The rows.
        names: The columns to show, in their order.
        find_link: Returns the address of what a cell names, or None.
        make_heading: Returns the heading of a column, told whether the column has numbers.
    """
    make = make_heading or _make_heading
    cells = [[_show_cell(row, name, find_link(row, name)) for name in names] for row in rows]
    numbers = [any(row[at].style == "number" for row in cells) for at in range(len(names))]
    headings = [make(name, is_number) for name, is_number in zip(names, numbers, strict=True)]
    return Table(headings=headings, rows=cells)


def _make_heading(name: str, is_number: bool) -> Heading:
    return Heading(text=heading(name), is_number=is_number)


def _show_cell(row: dict[str, Any], name: str, link: str | None) -> ShownCell:
    value = row[name]
    if isinstance(value, list):
        text = ", ".join(format_value(name, one) for one in value)
        shown = format_value(name, text)
        return ShownCell(text=shown, style="long" if len(shown) > _LONG else "text")
    cell = make_cell(row, name)
    text, interval, style = cell.text, None, str(cell.kind)
    if cell.kind == "number":
        text, has_interval, ends = cell.text.partition(" [")
        interval = f"[{ends}" if has_interval else None
    if name in _TONED and str(value) in _TONES:
        style = f"tone-{_TONES[str(value)]}"
    elif cell.kind == "text" and len(text) > _LONG:
        style = "long"
    return ShownCell(text=text, style=style, link=link, interval=interval)
