"""What a section of the report is made of: answers of a lake, and the tables and charts of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.lake import exclusions, sql_files
from store.report.page.text import label
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    from store.lake.reader import Lake

_SQL = Path(__file__).parent.parent / "sql"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A question of `sql/`, and what the lake answered."""

    name: str
    """Name of the file."""
    title: str
    sentence: str
    """What the rows are, how to read them; or, where there are none, what would bring some."""
    sql: str
    """The text that was asked, with every value in it: `store query` gives the same rows."""
    sql_sha256: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart."""

    name: str
    """Unique on a page; the name of its file beside the Markdown page."""
    title: str
    svg: str
    """Drawn by `_charts`: its colours are variables of the page's style."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One kernel: facts, its code, and what changed against the task's reference."""

    anchor: str
    title: str
    facts: dict[str, str]
    code: str
    path: str
    diff: str
    """Unified diff from the reference to the kernel."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One answer and the ways in which it is shown."""

    answer: Answer
    figures: Sequence[Figure] = ()
    left_out: int = 0
    """Charts that would have been too many."""
    split: Sequence[str] | None = None
    """A table for each group of rows that agree in these columns; None for no table at all."""
    listings: Sequence[Listing] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A chapter of the report."""

    name: str
    """Its anchor."""
    title: str
    exhibits: list[Exhibit]


def ask(lake: Lake, name: str, **values: str | int) -> Answer:
    """Ask the question of `sql/<name>.sql`; `$key` in it stands for a value."""
    asked = sql_files.read_question(_SQL / f"{name}.sql")
    sql = re.sub(r"\$(\w+)", lambda found: _literal(values[found[1]]), asked.sql)
    rows = lake.sql(sql).rows()
    sentence = asked.sentence if rows else asked.empty
    left_out = exclusions.describe_left_out(lake.count_left_out(sql))
    return Answer(
        name=name,
        title=asked.title,
        sentence=f"{sentence} Left out: {left_out}." if left_out else sentence,
        sql=sql,
        sql_sha256=asked.sha256,
        rows=rows,
    )


def charts(
    answer: Answer,
    keys: Sequence[str],
    draw: Callable[[str, list[dict[str, Any]]], str],
    *,
    most: int = 6,
    rows: Sequence[dict[str, Any]] | None = None,
    split: Sequence[str] | None = None,
) -> Exhibit:
    """Show an answer as one chart for every group of rows that agree in `keys`.

    Args:
        answer: What is shown.
        keys: Columns that are the same all over a chart; they are its title.
        draw: Takes the chart's name and its rows, and returns SVG.
        most: Charts at the most; those with most rows are drawn, in the order of the rows.
        rows: Those rows of the answer that a chart can show; all by default.
        split: Shows the rows as tables too (see `Exhibit`).
    """
    groups = grouped(answer.rows if rows is None else rows, keys)
    largest = sorted(groups, key=lambda key: -len(groups[key]))[:most]
    figures = [
        Figure(
            name=f"{answer.name}-{number}",
            title=", ".join(map(label, key)),
            svg=draw(f"{answer.name}-{number}", groups[key]),
        )
        for number, key in enumerate((key for key in groups if key in largest), start=1)
    ]
    left_out = len(groups) - len(figures)
    return Exhibit(answer=answer, figures=figures, left_out=left_out, split=split)


def grouped(
    rows: Sequence[dict[str, Any]], keys: Sequence[str]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return rows by the values of `keys` that they agree in, in their order.

    >>> grouped([{"a": 1, "b": 2}, {"a": 1, "b": 3}], ["a"])
    {('1',): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    return found


def _literal(value: str | int) -> str:
    return quote_values((value,)) if isinstance(value, str) else str(value)
