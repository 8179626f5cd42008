"""Parts of a section: answers to queries, with their tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.lake import exclusions, sql_files
from store.rendering.questions import bind
from store.rendering.rows import group_rows
from store.rendering.text import make_label

if TYPE_CHECKING:
    from store.lake.reader import Lake

_SQL = Path(__file__).parent.parent / "sql"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A query of `sql/` and its result."""

    name: str
    """Name of the file."""
    title: str
    sentence: str
    """What the rows are and how to read them; if there are none, what would add some."""
    sql: str
    """The query with all values filled in: `store query` gives the same rows."""
    sql_sha256: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart."""

    name: str
    """Unique name on the page, and of its file beside the Markdown page."""
    title: str
    svg: str
    """Its colors are variables of the page's style."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One kernel: facts, its code, and a diff to the task's reference."""

    anchor: str
    title: str
    facts: dict[str, str]
    code: str
    path: str
    diff: str
    """Unified diff from the reference to the kernel."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One answer with its tables and charts."""

    answer: Answer
    figures: Sequence[Figure] = ()
    left_out: int = 0
    """Number of charts that are left out because of the limit."""
    split: Sequence[str] | None = None
    """Show one table for each group of rows with equal values here; None shows no table."""
    are_tiles: bool = False
    """Whether each row is a figure with its unit, meaning and section."""
    listings: Sequence[Listing] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A chapter of the report."""

    name: str
    """Its anchor."""
    title: str
    exhibits: list[Exhibit]


def open_newest(lake: Lake) -> Lake:
    """Open the newest snapshot of a lake: the names of a snapshot are rows that came after it."""
    from store.lake.reader import Lake

    return Lake(lake.location, limits=lake.limits)


def ask(lake: Lake, name: str, **values: str | int) -> Answer:
    """Run the query of `sql/<name>.sql`; `$key` in it is replaced by a value."""
    asked = sql_files.read_question(_SQL / f"{name}.sql")
    sql = bind(asked.sql, values)
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


def draw_charts(
    answer: Answer,
    keys: Sequence[str],
    draw: Callable[[str, list[dict[str, Any]]], str],
    *,
    most: int = 6,
    rows: Sequence[dict[str, Any]] | None = None,
    split: Sequence[str] | None = None,
) -> Exhibit:
    """Show an answer as one chart for each group of rows with equal `keys`.

    Args:
        answer: The answer to show.
        keys: Columns that are equal in a chart; their values are its title.
        draw: Takes the chart's name and its rows, and returns SVG.
        most: Draw at most N charts, those with most rows, in the order of the rows.
        rows: Rows of the answer that a chart can show (default: all).
        split: Also show the rows as tables (see `Exhibit`).
    """
    groups = group_rows(answer.rows if rows is None else rows, keys)
    largest = sorted(groups, key=lambda key: -len(groups[key]))[:most]
    figures = [
        Figure(
            name=f"{answer.name}-{number}",
            title=", ".join(map(make_label, key)),
            svg=draw(f"{answer.name}-{number}", groups[key]),
        )
        for number, key in enumerate((key for key in groups if key in largest), start=1)
    ]
    left_out = len(groups) - len(figures)
    return Exhibit(answer=answer, figures=figures, left_out=left_out, split=split)
