"""SQL that computes views from the tables of a snapshot: all their rows, or some."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING

from store.lake import user_sql
from store.lake.cache import leaders, view_cache
from store.lake.cache.kept_files import NewKeys, ViewQuestion
from store.lake.cache.task_parts import DividedView
from store.lake.location import Location
from store.lake.sql_files import list_views, read_view
from store.lake.stored_tables import StoredTable, build_table, list_columns
from store.schema.catalog import Catalog

if TYPE_CHECKING:
    import duckdb

_LAKE_TABLE = re.compile(r"\blake\.main\.(\w+)")
_WORD = re.compile(r"\w+")


class ViewTexts:
    """Builds the SQL of views over the tables of one snapshot.

    Args:
        connection: Where the SQL will be run.
        location: Where the data files are.
        catalog: The tables, with the columns that views may name.
        stored: The tables that have rows at the snapshot.
        prepare: Creates the tables and views of these names on the connection.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        location: Location,
        catalog: Catalog,
        stored: Mapping[str, StoredTable],
        prepare: Callable[[Set[str]], None],
    ) -> None:
        self._connection = connection
        self._location = location
        self._catalog = catalog
        self._stored = stored
        self._prepare = prepare
        self._known = {*catalog.tables, *list_views()}

    def build_table(self, name: str) -> tuple[str, str]:
        """Return whether to create a table as a VIEW or a TABLE, and SQL for it."""
        return build_table(self._catalog.tables[name], self._stored.get(name), self._location)

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
            if table not in dependencies or table not in self._stored:
                continue
            # Rows never change, so their keys identify them.
            self._prepare({table})
            keys = ", ".join(self._catalog.tables[table].key)
            rows = self._connection.execute(f"SELECT {keys} FROM temp.{table} ORDER BY ALL")
            made_of.append(repr(rows.fetchall()))
        return ViewQuestion(
            view=name,
            tables=tuple(table for table in leaders.list_sources(name) if table in self._stored),
            text="\n".join([*made_of, leaders.describe_leaders(name)]),
            build_query=functools.partial(self._build_rows, name),
            divide=functools.partial(self._divide, name),
        )

    def list_dependencies(self, view: str) -> list[str]:
        """Return the tables and views that a view reads, in dependency order, and itself last."""
        found: dict[str, None] = {}
        for name in sorted(user_sql.list_names(self._connection, read_view(view)) & self._known):
            mine = self.list_dependencies(name) if name in list_views() else [name]
            found |= dict.fromkeys(mine)
        return [*found, view]

    def _build_rows(self, name: str, new: NewKeys | None) -> str:
        """Return SQL for the rows of a view, or of those that its first rows are chosen from.

        They are all rows, or those of new keys.
        """
        view = leaders.LEADERS[name].rows if name in leaders.LEADERS else name
        if new is None and name in leaders.LEADERS:
            self._prepare({view})
            return f"SELECT * FROM temp.{view}"
        if new is None:
            return self.build_query(name)
        self._prepare(set(self.list_dependencies(view)) & set(self._catalog.tables))
        rows = {
            table: new.build_rows(table, self._list_columns(table), self.build_table(table)[1])
            for table in new.later
        }
        return self._inline(view, rows)

    def _divide(self, name: str) -> DividedView | None:
        """Return how to compute a view from files with rows of its tables.

        None for a view that reads cached views, which are ordered by parts already.
        """
        dependencies = self.list_dependencies(name)
        cached = {*view_cache.SOURCES, *leaders.LEADERS} - {name}
        if name in leaders.LEADERS or cached & set(dependencies):
            return None
        # Every column that the view could need is named in it, or is a column of its answer.
        texts = [read_view(one) for one in dependencies if one not in self._catalog.tables]
        answer = self._connection.execute(f"DESCRIBE {self.build_query(name)}").fetchall()
        words = {*_WORD.findall("\n".join(texts)), *(str(column) for column, *_ in answer)}
        tables = {
            table: [one for one in self._catalog.tables[table].columns if one in words]
            for table in leaders.list_sources(name)
            if table in self._stored
        }

        def build(relations: Mapping[str, str | None]) -> str:
            rows = {
                table: self._pad_columns(table, columns, relations[table])
                for table, columns in tables.items()
            }
            return self._inline(name, rows, "NOT MATERIALIZED")

        return DividedView(
            rows={
                table: f"SELECT {_list_names(columns)} FROM ({self.build_table(table)[1]})"
                for table, columns in tables.items()
            },
            build_query=build,
        )

    def _pad_columns(self, name: str, columns: list[str], relation: str | None) -> str:
        """Return SQL for all columns of a table, where a relation has some of them."""
        table = self._catalog.tables[name]
        if relation is None:
            return f"SELECT {list_columns(table, None)} WHERE false"
        there = StoredTable(columns=frozenset(columns), files=None, inlined=None, rows=0, bytes=0)
        return f"SELECT {list_columns(table, there)} FROM {relation}"

    def _inline(self, view: str, rows: Mapping[str, str], how: str = "") -> str:
        """Return SQL of a view over other rows of tables, with the views that it reads inside."""
        views = (one for one in self.list_dependencies(view) if one not in self._catalog.tables)
        texts = {**rows, **{one: read_view(one) for one in views}}
        asked = texts.pop(view)
        listed = ", ".join(f"{name} AS {how} ({text}\n)" for name, text in texts.items())
        return f"SELECT * FROM (WITH {listed} SELECT * FROM ({asked}\n))"

    def _list_columns(self, name: str) -> str:
        return list_columns(self._catalog.tables[name], self._stored.get(name))

    def _replace_mention(self, mention: re.Match[str]) -> str:
        """Return SQL for `lake.main.TABLE` in a view: its rows, each with DuckLake's `snapshot_id`.

        A table that the snapshot lacks is empty.
        """
        name = mention[1]
        listed = self._list_columns(name)
        if name not in self._stored:
            return f"(SELECT {listed}, NULL::BIGINT AS snapshot_id WHERE false)"
        return f"(SELECT {listed}, snapshot_id FROM lake.main.{name})"


def _list_names(columns: list[str]) -> str:
    return ", ".join(f'"{one}"' for one in columns)
