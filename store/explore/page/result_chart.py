"""A chart for the rows of any statement: chosen by the types of its first columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from store.explore.page.model import Row
from store.rendering import charts

_MOST_ROWS = 24
_FEWEST_POINTS = 3


def draw_result(rows: Sequence[Row]) -> str | None:
    """Return a chart of rows, or None if they have no numbers to draw.

    A text and a number are bars; two numbers, or a time and a number, are points. Further columns
    are not drawn.
    """
    if len(rows) < _FEWEST_POINTS:
        return None
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    numbers = [name for name in names if _has_only(rows, name, (int, float))]
    times = [name for name in names if _has_only(rows, name, (datetime,))]
    texts = [name for name in names if _has_only(rows, name, (str,))]
    if texts and numbers and names.index(texts[0]) < names.index(numbers[0]):
        if len(rows) > _MOST_ROWS or any((row[numbers[0]] or 0) < 0 for row in rows):
            return None
        bars = [
            charts.Bar(label=label, parts={numbers[0]: float(row[numbers[0]] or 0)})
            for row, label in zip(rows, _label_rows(rows, texts), strict=True)
        ]
        return charts.draw_bars("result", bars, charts.Axis(label=numbers[0]))
    if times and numbers:
        first = min(row[times[0]] for row in rows if row[times[0]] is not None)
        x = {
            id(row): (row[times[0]] - first).total_seconds() / 3600 for row in rows if row[times[0]]
        }
        return _draw_points(rows, x, numbers[0], f"hours after {first:%Y-%m-%d %H:%M}")
    if len(numbers) > 1:
        x = {id(row): float(row[numbers[0]]) for row in rows if row[numbers[0]] is not None}
        return _draw_points(rows, x, numbers[1], numbers[0])
    return None


def _label_rows(rows: Sequence[Row], texts: Sequence[str]) -> list[str]:
    """Return the texts of the columns that tell rows apart."""
    labels = [""] * len(rows)
    for name in texts:
        longer = [
            ", ".join(filter(None, [label, str(row[name] or "")]))
            for label, row in zip(labels, rows, strict=True)
        ]
        if len(set(longer)) > len(set(labels)):
            labels = longer
    return labels if any(labels) else [str(row[texts[0]] or "") for row in rows]


def _draw_points(rows: Sequence[Row], x: dict[int, float], y: str, label: str) -> str:
    shown = [row for row in rows if id(row) in x and row[y] is not None]
    series = charts.Series(
        label=y, x=[x[id(row)] for row in shown], y=[float(row[y]) for row in shown]
    )
    return charts.draw_scatter("result", [series], charts.Axis(label=label), charts.Axis(label=y))


def _has_only(rows: Sequence[Row], name: str, kinds: tuple[type[Any], ...]) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)
