"""The view that a request names: a snapshot, the parts of its address, answers and filters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from store.commandline.display import list_rows
from store.errors import FlywheelError, UnknownName
from store.explore.page.model import (
    SQL,
    Choice,
    Panel,
    Row,
    SectionTable,
    Value,
    bind_question,
    limit,
    order_by,
)
from store.explore.page.tables import build_address

if TYPE_CHECKING:
    from starlette.requests import Request

    from store.explore.server.readers import Readers


EXPORTED_ROWS = 10_000
"""Number of rows of a JSON or CSV export; the SQL of the view gives all."""
_LONGEST = 20_000
_DEEPEST_PAGE = 10_000
_NO_PARTS: Mapping[str, str] = MappingProxyType({})


class View:
    """The state of one request.

    Args:
        reader: Answers questions.
        snapshot: Number of the snapshot that is read.
        path: Path of the page, without a query.
        parts: The parts of the path, such as the id of a kernel.
        query: The query of the address: filters, order, page, tab and snapshot.
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

    async def find_run_state(self, run: Row) -> str:
        """Return what became of a run; an open one still runs, or was killed."""
        return await self._reader.find_run_state(run)

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
        text = self.get(f"page.{panel.name}", "1") or "1"
        return min(max(int(text), 1), _DEEPEST_PAGE) if text.isdecimal() and len(text) < 9 else 1

    def get_sort(self, panel: Panel) -> str | None:
        """Return the column that a panel's table is sorted by; `-column` is descending."""
        return self.get(f"sort.{panel.name}")

    async def ask(self, panel: Panel, folder: str, *, whole: bool = False) -> SectionTable:
        """Return the rows of a page of a panel, or with `whole` as many as an export has."""
        file = panel.file or SQL / folder / f"{panel.name}.sql"
        question = bind_question(file, panel.values)
        sort = self.get_sort(panel)
        ordered = order_by(question.sql, sort) if sort else question.sql
        rows = EXPORTED_ROWS if whole else panel.rows
        page = 1 if whole else self.get_page(panel)
        snapshot = self.snapshot if panel.snapshot is None else panel.snapshot
        table = await self._reader.ask(snapshot, limit(ordered, rows, page))
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


ALL = "all"
ANY = "any"


async def list_choices(view: View, *names: str) -> list[Choice]:
    """Return the filters with some names.

    The names are suite, level, device, baseline, policy, family, class, clock and precision.
    """
    files = {"policy": "policies", "class": "classes", "family": "families"}

    async def make_choice(name: str) -> Choice:
        rows = await view.rows(f"choices/{files.get(name, f'{name}s')}")
        options = [str(next(iter(row.values()))) for row in rows]
        return Choice(name=name, label=name.capitalize(), options=options)

    return list(await asyncio.gather(*map(make_choice, names)))
