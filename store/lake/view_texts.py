"""The tables of a snapshot, and SQL that computes views from them: all their rows, or some."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.lake import user_sql, view_cache
from store.lake.location import Location
from store.lake.sql_files import list_views, read_sql, read_view
from store.lake.view_cache import NewKeys, ViewQuestion
from store.schema.catalog import Catalog

if TYPE_CHECKING:
    import duckdb

SMALL_ROWS = 20_000
_SMALL_BYTES = 4_000_000
_LAKE_TABLE = re.compile(r"\blake\.main\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """A table that has rows at a snapshot."""

    columns: frozenset[str]
    rows: int
    """Rows of the newest snapshot; an older one has no more."""
    is_small: bool
    """Whether a copy of its rows fits into memory easily."""


class ViewTexts:
    """Builds the SQL of tables and views at one snapshot.

    Args:
        connection: Where the lake is attached at the snapshot, and the SQL will be run.
        location: Where the lake is.
        snapshot: The snapshot that is read.
        catalog: The tables, with the columns that views may name.
        prepare: Creates the tables and views of these names on the connection.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        location: Location,
        snapshot: int,
        catalog: Catalog,
        prepare: Callable[[Set[str]], None],
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._prepare = prepare
        self._known = {*catalog.tables, *list_views()}
        # A literal, because DuckDB would import pandas for a parameter, which takes half a second.
        query = read_sql(__file__, "stored").replace("$snapshot", str(snapshot))
        self.stored = {
            table: StoredTable(
                columns=frozenset(columns),
                rows=rows,
                is_small=rows <= SMALL_ROWS and size <= _SMALL_BYTES,
            )
            for table, columns, rows, size in connection.execute(location.qualify(query)).fetchall()
        }
        """The tables that have rows at the snapshot."""

    def build_table(self, name: str) -> tuple[str, str]:
        """Return whether to create a table of the snapshot as a VIEW or a TABLE, and SQL for it.

        What the snapshot is too old to have reads as typed NULLs. Small tables are copied, which
        takes one scan instead of one per mention in a view.
        """
        stored, listed = self.stored.get(name), self._list_columns(name)
        if stored is None:
            return "VIEW", f"SELECT {listed} WHERE false"
        return "TABLE" if stored.is_small else "VIEW", f"SELECT {listed} FROM lake.main.{name}"

    def build_query(self, name: str) -> str:
        """Return SQL that computes a view from the tables, and prepare what it reads."""
        self._prepare(user_sql.list_names(self._connection, read_view(name)))
        return _LAKE_TABLE.sub(self._replace_mention, read_view(name))

    def build_question(self, name: str) -> ViewQuestion:
        """Return a view as the cache asks for it."""
        dependencies = self.list_dependencies(name)
        made_of = [
            f"{one} {[(c.name, c.type) for c in self._catalog.tables[one].columns.values()]}"
            if one in self._catalog.tables
            else read_view(one)
            for one in dependencies
        ]
        for table in view_cache.FIGURES:
            if table not in dependencies or table not in self.stored:
                continue
            # Rows never change, so their keys identify them.
            self._prepare({table})
            keys = ", ".join(self._catalog.tables[table].key)
            rows = self._connection.execute(f"SELECT {keys} FROM temp.{table} ORDER BY ALL")
            made_of.append(repr(rows.fetchall()))
        return ViewQuestion(
            view=name,
            tables=tuple(table for table in view_cache.SOURCES[name] if table in self.stored),
            text="\n".join(made_of),
            build_query=functools.partial(self._build_rows, name),
        )

    def list_dependencies(self, view: str) -> list[str]:
        """Return the tables and views that a view reads, in dependency order, and itself last."""
        found: dict[str, None] = {}
        for name in sorted(user_sql.list_names(self._connection, read_view(view)) & self._known):
            mine = self.list_dependencies(name) if name in list_views() else [name]
            found |= dict.fromkeys(mine)
        return [*found, view]

    def _build_rows(self, name: str, new: NewKeys | None) -> str:
        """Return SQL for the rows of a view: all, or those of new keys."""
        if new is None:
            return self.build_query(name)
        dependencies = self.list_dependencies(name)
        tables = [one for one in dependencies if one in self._catalog.tables]
        self._prepare(set(tables))
        # The view over other rows of its tables, with the views that it reads inside.
        texts = {
            table: new.build_rows(table, self._list_columns(table), self.build_table(table)[1])
            for table in new.later
        }
        texts |= {one: read_view(one) for one in dependencies if one not in tables}
        asked = texts.pop(name)
        listed = ", ".join(f"{one} AS ({text}\n)" for one, text in texts.items())
        return f"SELECT * FROM (WITH {listed} SELECT * FROM ({asked}\n))"

    def _list_columns(self, name: str) -> str:
        """Return a table's columns as SQL, with typed NULLs for columns that the snapshot lacks."""
        table, stored = self._catalog.tables[name], self.stored.get(name)
        there = frozenset[str]() if stored is None else stored.columns
        return ", ".join(
            f'"{c.name}"' if c.name in there else f'NULL::{c.type} AS "{c.name}"'
            for c in table.columns.values()
        )

    def _replace_mention(self, mention: re.Match[str]) -> str:
        """Return SQL for `lake.main.TABLE` in a view: its rows, each with DuckLake's `snapshot_id`.

        A table that the snapshot lacks is empty.
        """
        name = mention[1]
        listed = self._list_columns(name)
        if name not in self.stored:
            return f"(SELECT {listed}, NULL::BIGINT AS snapshot_id WHERE false)"
        return f"(SELECT {listed}, snapshot_id FROM lake.main.{name})"
