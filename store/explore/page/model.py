"""What a page consists of: panels with their questions, filters, tabs and facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.commandline.python_rows import list_rows
from store.rendering.questions import Value

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

Row: TypeAlias = dict[str, Any]
PAGE_ROWS = 50
CHART_ROWS = 400


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of `sql/`, bound to the values of a view."""

    file: Path
    title: str
    about: str
    """The meaning of the rows and how to read them."""
    empty: str
    """Why there are no rows, and what adds some."""
    sql: str
    """One statement that `store query` runs; its last clause is ORDER BY."""


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
class Answer:
    """The rows of a panel, and the statement that gives them."""

    question: Question
    sql: str
    """The statement with the order and the limit of the view."""
    table: pa.Table
    has_more: bool
    """Whether there are rows after these."""

    def rows(self) -> list[Row]:
        """Return the rows as dictionaries."""
        return list_rows(self.table)
