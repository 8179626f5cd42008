"""What a page consists of: panels with their questions, filters, tabs and facts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.commandline.display import list_rows
from store.errors import FlywheelError
from store.lake.sql_files import SqlQuestion, read_question
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = dict[str, Any]
Value: TypeAlias = "str | int | float | None"
SQL = Path(__file__).parent.parent / "sql"
REPORT = SQL / "report"
"""Questions of the report; those without placeholders are also the console's examples."""
_PLACEHOLDER = re.compile(r"\$([a-z_]+)")
_LAST_ORDER = re.compile(r"(?s)(.*\nORDER BY )(?!.*\nORDER BY )")
PAGE_ROWS = 50
CHART_ROWS = 400


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart of a panel."""

    svg: str
    title: str = ""
    name: str = ""
    """Its file beside the Markdown of a report, where it is unique."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A view of a page: one question, and how its rows are shown."""

    name: str
    """File of the page's folder in `sql/`; also the name in addresses."""
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    file: Path | None = None
    """File of the question, if it belongs to another folder than the page's."""
    title: str | None = None
    """Replaces the title of the question."""
    snapshot: int | None = None
    """Snapshot to read instead of the view's."""
    rows: int = PAGE_ROWS
    """Number of rows of a page of the table."""
    draw: Callable[[list[Row]], Sequence[Chart]] | None = None
    """Returns the charts of the rows."""
    template: str | None = None
    """Template that shows the rows in place of a table."""
    prepare: Callable[[list[Row]], Any] | None = None
    """Returns what the template shows (default: the rows)."""
    table: Literal["open", "folded", "none"] = "open"
    hidden: Sequence[str] = ()
    """Columns that the table leaves out."""
    count_charts: Callable[[list[Row]], int] | None = None
    """In a report: returns the number of groups of rows that have charts; it tells how many are
    left out."""
    split: Sequence[str] | None = None
    """In a report: one table for each group of rows with equal values here; None is no table."""
    is_required: bool = False
    """Whether the panel is shown without rows, with a sentence about what adds some."""
    is_wide: bool = True
    """Whether the panel takes the whole width of the page; two others stand side by side."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a page that no question answers, such as rows of a file."""

    name: str
    title: str
    about: str = ""
    template: str
    """Template that shows the content."""
    content: Any


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A filter of a page: a list of values, or a text if there are no options."""

    name: str
    """Name in addresses."""
    label: str
    options: Sequence[str] | None = None
    placeholder: str = ""
    default: str | None = None
    """The option that holds without a choice; None adds an option for all values."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One line of the list at the top of a page."""

    name: str
    text: str
    link: str | None = None
    tone: Literal["plain", "good", "bad", "open"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Tab:
    """One of several parts of a page."""

    name: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that an address shows."""

    title: str
    panels: Sequence[Panel]
    blocks: Sequence[Block] = ()
    """Shown above the panels."""
    kind: str = ""
    """What the title names, such as kernel."""
    intro: str = ""
    facts: Sequence[Fact] = ()
    tabs: Sequence[Tab] = ()
    choices: Sequence[Choice] = ()
    links: Sequence[tuple[str, str]] = ()
    """Addresses and labels of related pages."""
    live: bool = False
    """Whether the page is loaded again whenever the lake has a new snapshot."""


@dataclass(frozen=True, kw_only=True)
class SectionTable:
    """The rows of a panel, and the statement that gives them."""

    question: SqlQuestion
    sql: str
    """The statement with the order and the limit of the view."""
    table: pa.Table
    has_more: bool
    """Whether there are rows after these."""

    def rows(self) -> list[Row]:
        """Return the rows as dictionaries."""
        return list_rows(self.table)


def bind(sql: str, values: Mapping[str, Value]) -> str:
    """Return the SQL with literals for its placeholders; raises KeyError for an unknown one.

    A line is left out if it mentions a placeholder whose value is None, so that a file can list
    every filter of a view on a line of its own.

    >>> bind("SELECT 1\\nWHERE true\\nAND a = $a\\nAND b = $b", {"a": "it's", "b": None})
    "SELECT 1\\nWHERE true\\nAND a = 'it''s'"
    """

    def quote(placeholder: re.Match[str]) -> str:
        value = values[placeholder[1]]
        return quote_values((value,)) if isinstance(value, str) else str(value)

    return "\n".join(
        _PLACEHOLDER.sub(quote, line)
        for line in sql.splitlines()
        if not any(values[name] is None for name in _PLACEHOLDER.findall(line))
    )


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


_read = functools.cache(read_question)


def bind_question(file: Path, values: Mapping[str, Value]) -> SqlQuestion:
    """Read a question and bind its placeholders. Its last clause is ORDER BY."""
    question = _read(file)
    return replace(question, sql=bind(question.sql, values))


def order_by(sql: str, sort: str) -> str:
    """Return a question's SQL ordered by a column, and then as before; `-column` is descending.

    >>> order_by("SELECT a, b FROM t\\nORDER BY a", "-b")
    'SELECT a, b FROM t\\nORDER BY "b" DESC NULLS LAST, a'
    """
    column = sort.removeprefix("-")
    if not (column.isascii() and column.isidentifier()):
        raise FlywheelError(f"'{column[:60]}' is no column of this table", "Click a heading.")
    direction = "DESC" if sort.startswith("-") else "ASC"
    found = _LAST_ORDER.match(sql)
    assert found is not None, sql
    return f'{found[1]}"{column}" {direction} NULLS LAST, {sql[found.end() :]}'


def limit(sql: str, rows: int, page: int) -> str:
    """Return SQL for one page of rows, and one row more if there are further pages."""
    offset = f" OFFSET {rows * (page - 1)}" if page > 1 else ""
    return f"{sql}\nLIMIT {rows + 1}{offset}"
