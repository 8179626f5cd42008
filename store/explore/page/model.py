"""What a page consists of: the view that a request names, panels with their questions, filters."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from store.commandline.display import list_rows
from store.errors import FlywheelError, UnknownName
from store.explore.page.tables import build_address, heading
from store.explore.page.texts import read_number
from store.lake.sql_files import SqlQuestion, read_question
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.requests import Request

    from store.explore.server.readers import Readers
    from store.lake.reader import Lake

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
Value: TypeAlias = "str | int | float | None"
Told: TypeAlias = tuple[str, str]
"""An answer in a sentence with its number, and its chart as SVG; a chart may be missing."""
SQL = Path(__file__).parent.parent / "sql"
REPORT = SQL / "report"
"""Questions of the report; those without placeholders are also the console's examples."""
_PLACEHOLDER = re.compile(r"\$([a-z_]+)")
_LAST_ORDER = re.compile(r"(?s)(.*\nORDER BY )(?!.*\nORDER BY )")
PAGE_ROWS = 50
CHART_ROWS = 400


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A view of a page: one question, and how its rows are shown."""

    name: str
    """File of the page's folder in `sql/`; also the name in addresses."""
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Values of the question's placeholders, beside those of the page."""
    file: Path | None = None
    """File of the question, if it belongs to another folder than the page's."""
    title: str | None = None
    """Replaces the title of the question."""
    snapshot: int | None = None
    """Snapshot to read instead of the view's."""
    rows: int = PAGE_ROWS
    """Number of rows of a page of the table."""
    tell: Callable[[list[Row]], Told] | None = None
    """Returns what the rows say, in a sentence and a chart."""
    template: str | None = None
    """Template that shows the rows in place of a table."""
    prepare: Callable[[list[Row]], Any] | None = None
    """Returns what the template shows (default: the rows)."""
    table: Literal["open", "folded", "none"] = "open"
    hidden: Sequence[str] = ()
    """Columns that the table leaves out."""
    compares: Literal["kernels", "runs"] | None = None
    """What the rows are about, if a reader may choose two of them to compare."""
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
    text: str | float | None
    """One without a text is left out."""
    link: str | None = None
    tone: Literal["plain", "good", "bad", "open"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that an address shows."""

    title: str
    panels: Sequence[Panel]
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Values of placeholders in the questions of all panels."""
    blocks: Sequence[Block] = ()
    """Shown below the panels."""
    kind: str = ""
    """What the title names, such as kernel."""
    intro: str = ""
    facts: Sequence[Fact] = ()
    tabs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the page's parts, by their names in addresses."""
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


EXPORTED_ROWS = 10_000
"""Number of rows of a JSON or CSV export; the SQL of the view gives all."""
_LONGEST = 20_000
_DEEPEST_PAGE = 10_000
_NO_PARTS: Mapping[str, str] = MappingProxyType({})


class View:
    """The state of one request.

    `parts` are those of the path, such as the id of a kernel; `query` is that of the address:
    filters, order, page, tab and snapshot.
    """

    def __init__(
        self,
        reader: Readers,
        snapshot: int,
        path: str,
        parts: Mapping[str, str],
        query: Mapping[str, str],
    ) -> None:
        self.snapshot = snapshot
        self.may_decide = False
        """Whether the reader has given the token for decisions before."""
        self.last_seen: int | None = None
        """The newest snapshot at the last visit, from a cookie; None without one."""
        self.path = path
        self.parts = parts
        self._reader = reader
        self._query = {name: value for name, value in query.items() if value != ""}
        for name, value in self._query.items():
            if len(value) > _LONGEST or "\0" in value:
                raise FlywheelError(f"the value of {name[:40]} is too long, or has a NUL character")

    @classmethod
    async def of(
        cls, readers: Readers, request: Request, path: str, parts: Mapping[str, str] = _NO_PARTS
    ) -> View:
        """Return the view that a request names. Raises SnapshotNotFound."""
        query = dict(request.query_params)
        # Two rows that a reader chose to compare have one name.
        query |= dict(zip("ab", request.query_params.getlist("pair"), strict=False))
        return cls(readers, await readers.resolve(query.get("at") or None), path, parts, query)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a part of the query; an empty one is the default."""
        return self._query.get(name, default)

    def choose(self, choice: Choice) -> str | None:
        """Return the value of a filter; raises FlywheelError if it is none of the options."""
        value = self.get(choice.name, choice.default)
        if value is not None and choice.options is not None and value not in choice.options:
            raise UnknownName.among(choice.label.lower(), value, choice.options)
        return value

    async def resolve(self, at: str | None) -> int:
        """Return the number of another snapshot; None is the view's. Raises SnapshotNotFound."""
        return self.snapshot if at is None else await self._reader.resolve(at)

    async def read(self, work: Callable[[Lake], T]) -> T:
        """Return what a function reads from the lake at the view's snapshot."""
        return await self._reader.read(self.snapshot, work)

    def choose_tab(self, *names: str) -> str:
        """Return the tab of the view; the first one is the default."""
        tab = self.get("tab", names[0])
        return tab if tab in names else names[0]

    def link(self, path: str) -> str:
        """Return the address of another page at the snapshot of this view."""
        return build_address(path, {"at": self.get("at")})

    def change(self, path: str | None = None, **changes: str | None) -> str:
        """Return the address of this view with some parts of its query changed or removed."""
        return build_address(self.path if path is None else path, {**self._query, **changes})

    def export(self, form: str, panel: Panel | None = None) -> str:
        """Return the address of this view, or of one of its panels, as json, csv or sql."""
        path = "/overview" if self.path == "/" else self.path
        return self.change(f"{path}/{panel.name}.{form}" if panel else f"{path}.{form}")

    def get_page(self, panel: Panel) -> int:
        """Return the number of the page of a panel's table, from 1."""
        return min(read_number(self.get(f"page.{panel.name}")) or 1, _DEEPEST_PAGE)

    def get_sort(self, panel: Panel) -> str | None:
        """Return the column that a panel's table is sorted by; `-column` is descending."""
        return self.get(f"sort.{panel.name}")

    async def ask(
        self, page: Page, panel: Panel, folder: str, *, whole: bool = False
    ) -> SectionTable:
        """Return the rows of a page of a panel, or with `whole` as many as an export has."""
        file = panel.file or SQL / folder / f"{panel.name}.sql"
        question = bind_question(file, {**page.values, **panel.values})
        sort = self.get_sort(panel)
        ordered = order_by(question.sql, sort) if sort else question.sql
        rows = EXPORTED_ROWS if whole else panel.rows
        number = 1 if whole else self.get_page(panel)
        snapshot = self.snapshot if panel.snapshot is None else panel.snapshot
        table = await self._reader.ask(snapshot, limit(ordered, rows, number))
        has_more = table.num_rows > rows
        return SectionTable(
            question=question, sql=ordered, table=table.slice(0, rows), has_more=has_more
        )

    async def rows(self, name: str | Path, **values: Value) -> list[Row]:
        """Return all rows of a question that is not a panel, by its name here or by its file."""
        file = name if isinstance(name, Path) else SQL / f"{name}.sql"
        question = bind_question(file, values)
        return list_rows(await self._reader.ask(self.snapshot, question.sql))

    async def one(self, name: str, **values: Value) -> Row | None:
        """Return the first row of a question that is not a panel, or None."""
        return next(iter(await self.rows(name, **values)), None)

    async def find(self, kind: str, hint: str) -> Row:
        """Return the row of what the path names; raises UnknownName, with a hint, without one."""
        named = self.parts[kind]
        row = await self.one(f"{kind}/head", **{kind: named})
        if row is None:
            raise UnknownName(f"no {kind} {named[:80]}", hint)
        return row


ALL = "all"
ANY = "any"


async def list_choices(view: View, *names: str) -> list[Choice]:
    """Return the filters with some names.

    The names are suite, level, device, baseline, policy, family, class, clock and precision.
    """

    async def make_choice(name: str) -> Choice:
        rows = await view.rows(f"choices/{name}")
        options = [str(next(iter(row.values()))) for row in rows]
        return Choice(name=name, label=heading(name).capitalize(), options=options)

    return list(await asyncio.gather(*map(make_choice, names)))


def list_two(kind: str) -> list[Choice]:
    """Return the choices of two rows to compare."""
    hint = "first characters of an id"
    return [Choice(name=one, label=f"{kind} {one.upper()}", placeholder=hint) for one in "ab"]
