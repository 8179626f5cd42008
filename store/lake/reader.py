"""A pinned, read-only reader of a lake: its tables and views as of one snapshot."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from store.bounds import QueryLimits, read_bounds
from store.errors import UnknownName
from store.lake import exclusions, user_sql, view_cache
from store.lake.attachment import connect, pin
from store.lake.host import choose_scratch
from store.lake.location import Location
from store.lake.result import BATCH_ROWS, Parameters, Result, interrupt_after, translate_errors
from store.lake.sql_files import list_views, read_sql, read_view
from store.lake.view_cache import NewKeys, ViewQuestion
from store.schema import catalog as catalogs
from store.schema import migrate
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import polars as pl

QUESTIONS = 256
SMALL_ROWS = 20_000
_SMALL_BYTES = 4_000_000
_LAKE_TABLE = re.compile(r"\blake\.main\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class _StoredTable:
    """A table that has rows at a snapshot."""

    columns: frozenset[str]
    rows: int
    """Rows of the newest snapshot; an older one has no more."""
    is_small: bool
    """Whether a copy of its rows fits into memory easily."""


class Lake(AbstractContextManager["Lake"]):
    """A read-only lake at one snapshot; `store.open` creates it.

    Tables of catalog.yaml and views of store/views are visible by their bare names. What the
    snapshot is too old to have (a table, a column) reads as typed NULLs.

    Args:
        location: Where the lake is.
        at: Tag, snapshot number or ISO time; None is the newest.
        limits: Time and size that each query of `sql` may use; None means no limits. A query that
            ignores the interrupt may run longer here; `store.guard.query_process` kills it.
        spill: Private folder for data that does not fit into memory; None is the process's own.
        include: Views of `exclusions.LEFT_OUT` to read as empty, so that rankings and tables
            include what they leave out by default. `unheld` is read as empty without it.
    """

    def __init__(
        self,
        location: Location,
        at: str | int | None = None,
        limits: QueryLimits | None = None,
        *,
        spill: Path | None = None,
        include: Sequence[str] = (),
    ) -> None:
        location.require()
        self.limits = limits
        self.location = location
        self.catalog = catalogs.load()
        spill = spill or choose_scratch("spill")
        self.bounds = read_bounds(spill) if limits is None else limits.find_bounds(spill)
        """Memory and disk space that the queries of this reader may use."""
        self._connection = connect(to=location, bounds=self.bounds, spill=spill, one_thread=True)
        with translate_errors(self.bounds):
            self.snapshot = pin(self._connection, location, at)
            """Number of the snapshot that is read."""
            # A literal: DuckDB would import pandas for a parameter, which takes half a second.
            query = read_sql(__file__, "stored").replace("$snapshot", str(self.snapshot))
            self._stored = {
                table: _StoredTable(
                    columns=frozenset(columns),
                    rows=rows,
                    is_small=rows <= SMALL_ROWS and size <= _SMALL_BYTES,
                )
                for table, columns, rows, size in self._connection.execute(
                    location.qualify(query)
                ).fetchall()
            }
            """The tables that have rows at the snapshot."""
        self._large_names = {name for name, one in self._stored.items() if not one.is_small}
        """Tables with many rows, and the views over them that have been prepared."""
        row_count = sum(table.rows for table in self._stored.values())
        self._is_small = not self._large_names and row_count < view_cache.LARGE_ROWS
        if self._large_names:
            self.bounds.use_threads(self._connection)
        self._known = (*self.catalog.tables, *list_views())
        self._prepared_names: set[str] = set()
        self._is_preparing = False
        self.include = frozenset(include)
        """What `include` names."""
        self._included = self.include ^ exclusions.EMPTY_BY_DEFAULT
        self._counts: dict[str, int] = {}
        self._reading = threading.Lock()
        self._view_cache = view_cache.ViewCache(self._connection, location, self.snapshot)
        folders = quote_values((self.location.files.url, str(self.location.derived)))
        self._connection.execute(f"SET allowed_directories = [{folders}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET python_enable_replacements = false")
        self._connection.execute("SET lock_configuration = true")
        # A repeated query is not parsed again.
        self._guarded = functools.lru_cache(QUESTIONS)(
            lambda query: user_sql.check(self._connection, query, self._known)
        )
        self._prepared = functools.lru_cache(QUESTIONS)(
            lambda query: self._prepare(user_sql.list_names(self._connection, query))
        )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._view_cache.close()

    def interrupt(self) -> None:
        """End the statement that another thread runs here; it raises FlywheelError there."""
        self._connection.interrupt()

    @property
    def url(self) -> str:
        """The lake's URL; for a lake in a folder, the folder."""
        return self.location.url

    @functools.cached_property
    def lake_id(self) -> str:
        """The identity of the lake; snapshot numbers have a meaning only together with it."""
        row = self.run("SELECT lake_id FROM lakes ORDER BY created_at LIMIT 1").one()
        return str(row["lake_id"]) if row else ""

    def refuse_newer(self, what: str) -> None:
        """Raise CatalogError, which says what cannot be done, if a newer version wrote the lake.

        This version does not read the tables and columns that the newer one added.
        """
        with translate_errors(self.bounds):
            record = migrate.read_record(self._connection)
        migrate.refuse_newer(record, self.catalog, what)

    def sql(
        self, query: str, parameters: Parameters = None, limits: QueryLimits | None = None
    ) -> Result:
        """Answer one SELECT-like statement; statements that could reach outside are refused.

        >>> import store, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> store.writer(folder, author="doctest").close()
        >>> lake = store.open(folder)
        >>> lake.sql("SELECT count(*) AS kernels FROM kernels").rows()
        [{'kernels': 0}]
        >>> lake.sql("COPY kernels TO 'stolen.parquet'")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        store.errors.UnsafeSQL: COPY statements cannot be run here
        Write one SELECT (or FROM, WITH, VALUES, PIVOT, UNPIVOT, DESCRIBE, SUMMARIZE, EXPLAIN) ...

        Raises:
            UnsafeSQL: not one SELECT, or it names files, functions or catalogs outside.
            FlywheelError: DuckDB cannot answer it (the message is DuckDB's), or it exceeds a limit.
        """
        limits = limits or self.limits
        with translate_errors(self.bounds), interrupt_after(self._connection.interrupt, limits):
            self._guarded(query)
            self._prepared(query)
        return Result(
            self._connection, self.location, query, parameters, bounds=self.bounds, limits=limits
        )

    def lazy(self, name: str) -> pl.LazyFrame:
        """Return a table or view as a Polars LazyFrame, which reads when it is collected.

        DuckDB then reads only the columns and rows that the Polars query needs. The lake has to be
        open at that time. Raises UnknownName.

        >>> import polars, store, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> store.writer(folder, author="doctest").close()
        >>> lake = store.open(folder)
        >>> fast = lake.lazy("speedups").filter(polars.col("speedup") > 2)
        >>> fast.select("kernel_id", "speedup").collect().shape
        (0, 2)
        """
        from polars.io.plugins import register_io_source

        if name not in self._known:
            raise UnknownName.among("table or view", name, self._known)
        query = f"SELECT * FROM {name}"
        with translate_errors(self.bounds, query):
            self._prepared(query)
            schema = self._connection.sql(query).pl(lazy=True).collect_schema()

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None
        ) -> Iterator[pl.DataFrame]:
            # Polars reads the sources of a query in several threads. A second query of the
            # connection would end the first one, so each answer is taken whole.
            with self._reading, translate_errors(self.bounds, query):
                answer = self._connection.sql(query).pl(lazy=True)
                if columns is not None:
                    answer = answer.select(columns)
                if rows is not None:
                    answer = answer.head(rows)
                if predicate is not None:
                    answer = answer.filter(predicate)
                with self.location.hold_inlined_rows():
                    frame = answer.collect()
            yield from frame.iter_slices(size or BATCH_ROWS)

        return register_io_source(read, schema=schema, is_pure=True, explain_name=name)

    def run(self, query: str, parameters: Parameters = None) -> Result:
        """Run a query of our own SQL files, which may also read registered tables."""
        with translate_errors(self.bounds, query):
            self._prepared(query)
        return Result(self._connection, self.location, query, parameters, bounds=self.bounds)

    def register(self, name: str, rows: pa.Table) -> None:
        """Make an Arrow table visible to `run` under a name; replace any other."""
        # DuckDB can replace a registered table, but not a view.
        self._connection.execute(f'DROP VIEW IF EXISTS temp."{name}"')
        self._connection.register(name, rows)
        self._prepared_names.add(name)

    def keep(self, name: str, query: str, parameters: Parameters = None) -> None:
        """Store the result of an internal query in a table for `run`; replace a table of that name.

        The rows stay inside DuckDB between the two queries.
        """
        with translate_errors(self.bounds, query):
            self._prepared(query)
            with self.location.hold_inlined_rows():
                self._connection.execute(
                    f"CREATE OR REPLACE TEMP TABLE {name} AS {query}", parameters
                )
        self._prepared_names.add(name)

    def define(self, name: str, query: str) -> None:
        """Define a view of an internal query for `run`; replaces a view of that name.

        DuckDB computes it on every use, whereas `keep` stores the rows.
        """
        with translate_errors(self.bounds, query):
            self._prepared(query)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
        self._prepared_names.add(name)

    def count_left_out(self, query: str) -> dict[str, int]:
        """Return the number of rows of each view of `exclusions.LEFT_OUT` that a query uses.

        Views that are included, or that the query names, are left out.
        """
        named = user_sql.list_names(self._connection, query) & set(self._known)
        asked = named - set(self.catalog.tables)
        parts = {part for name in asked for part in self._list_dependencies(name)}
        used = parts - named - self._included
        return {view: self._count_rows(view) for view in exclusions.LEFT_OUT if view in used}

    def _count_rows(self, view: str) -> int:
        if view not in self._counts:
            [row] = self.run(f"SELECT count(*) AS rows FROM {view}").rows()
            self._counts[view] = int(row["rows"])
        return self._counts[view]

    def _prepare(self, wanted: Set[str]) -> None:
        """Create the temporary tables and views that a query needs, once."""
        missing = {*self._known} if "*" in wanted else wanted & {*self._known}
        if missing <= self._prepared_names:
            return
        # Where a server is lost during a transaction, DuckDB aborts the process in its rollback.
        if not self._is_small or self._is_preparing or self.location.sees_every_host:
            self._create(missing)
            return
        # In one transaction, because DuckLake looks up its snapshot in each. On a large lake it
        # would last long, and the cache of views handles errors, after which it could not go on.
        before, self._is_preparing = {*self._prepared_names}, True
        self._connection.execute("BEGIN")
        try:
            self._create(missing)
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # a failed COMMIT has ended it
                self._connection.execute("ROLLBACK")
            self._prepared_names = before
            raise
        finally:
            self._is_preparing = False

    def _create(self, missing: Set[str]) -> None:
        for name in self._known:
            if name in self._prepared_names or name not in missing:
                continue
            self._prepared_names.add(name)
            if name in self.catalog.tables:
                kind, body = self._build_table(name)
            else:
                # Over few rows, each view becomes a table: planning every mention of it in other
                # views takes longer than computing its rows once.
                cached = self.find_cached(name) if name in view_cache.SOURCES else None
                body = cached or self._build_query(name)
                named = user_sql.list_names(self._connection, read_view(name))
                is_small = self._large_names.isdisjoint(named)
                if not is_small:
                    self._large_names.add(name)
                kind = "TABLE" if is_small or name in view_cache.STORED_VIEWS else "VIEW"
                if name in self._included:
                    body = f"SELECT * FROM ({body}\n) WHERE false"
            with self.location.hold_inlined_rows():
                # An interrupt may end a preparation that is committed already.
                self._connection.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {body}")

    def find_cached(self, name: str, *, make: bool = True) -> str | None:
        """Return SQL that reads a view from its cache, or None without one.

        Views over few rows have no cache. With `make`, a missing cache is written.
        """
        question = self._build_question(name)
        rows = sum(self._stored[table].rows for table in question.tables)
        if rows < view_cache.LARGE_ROWS:
            return None
        with self.location.hold_inlined_rows():
            return self._view_cache.find_sql(question, make=make)

    def write_cached_views(self) -> None:
        """Write all views that the cache lacks at this snapshot, without a limit of time."""
        for name in view_cache.SOURCES:
            self.find_cached(name)

    def count_stale_rows(self, name: str) -> int:
        """Return the number of rows in which the cache of a view differs from the tables."""
        kept = self.find_cached(name, make=False)
        if kept is None:
            return 0
        question, whole, stale = self._build_question(name), self._build_query(name), 0
        # In parts, which limits the memory.
        for condition, live in self._view_cache.list_parts(question, whole):
            [row] = self.run(
                f"WITH kept AS (SELECT * FROM ({kept}\n) WHERE {condition}), "
                f"live AS ({live}\n) SELECT count(*) AS rows FROM "
                "((FROM kept EXCEPT ALL FROM live) UNION ALL (FROM live EXCEPT ALL FROM kept))"
            ).rows()
            stale += int(row["rows"])
        return stale

    def _build_table(self, name: str) -> tuple[str, str]:
        """Return whether to create a table of the snapshot as a VIEW or a TABLE, and SQL for it.

        What the snapshot is too old to have reads as typed NULLs. Small tables are copied, which
        takes one scan instead of one per mention in a view.
        """
        stored, listed = self._stored.get(name), self._list_columns(name)
        if stored is None:
            return "VIEW", f"SELECT {listed} WHERE false"
        return "TABLE" if stored.is_small else "VIEW", f"SELECT {listed} FROM lake.main.{name}"

    def _build_query(self, name: str) -> str:
        self._prepare(user_sql.list_names(self._connection, read_view(name)))

        def read_rows(mention: re.Match[str]) -> str:
            """Return SQL for `lake.main.TABLE`: its rows, each with DuckLake's `snapshot_id`."""
            listed = self._list_columns(mention[1])
            if mention[1] not in self._stored:
                return f"(SELECT {listed}, NULL::BIGINT AS snapshot_id WHERE false)"
            return f"(SELECT {listed}, snapshot_id FROM lake.main.{mention[1]})"

        return _LAKE_TABLE.sub(read_rows, read_view(name))

    def _build_question(self, name: str) -> ViewQuestion:
        dependencies = self._list_dependencies(name)
        defining_texts = [
            f"{one} {[(c.name, c.type) for c in self.catalog.tables[one].columns.values()]}"
            if one in self.catalog.tables
            else read_view(one)
            for one in dependencies
        ]
        for table in view_cache.FIGURES:
            if table not in dependencies or table not in self._stored:
                continue
            # Rows never change, so their keys identify them.
            self._prepare({table})
            keys = ", ".join(self.catalog.tables[table].key)
            rows = self._connection.execute(f"SELECT {keys} FROM temp.{table} ORDER BY ALL")
            defining_texts.append(repr(rows.fetchall()))
        return ViewQuestion(
            view=name,
            tables=tuple(table for table in view_cache.SOURCES[name] if table in self._stored),
            text="\n".join(defining_texts),
            build_query=functools.partial(self._build_rows, name),
        )

    def _list_dependencies(self, view: str) -> list[str]:
        """Return the tables and views that a view reads, in dependency order, and itself last."""
        found: dict[str, None] = {}
        for name in sorted(user_sql.list_names(self._connection, read_view(view)) & {*self._known}):
            mine = self._list_dependencies(name) if name in list_views() else [name]
            found |= dict.fromkeys(mine)
        return [*found, view]

    def _build_rows(self, name: str, new: NewKeys | None) -> str:
        """Return SQL for the rows of a view: all, or those of new keys."""
        if new is None:
            return self._build_query(name)
        dependencies = self._list_dependencies(name)
        tables = [one for one in dependencies if one in self.catalog.tables]
        self._prepare(set(tables))
        # The view over other rows of its tables, with the views that it reads inside.
        texts = {
            table: new.build_rows(table, self._list_columns(table), self._build_table(table)[1])
            for table in new.later
        }
        texts |= {one: read_view(one) for one in dependencies if one not in tables}
        asked = texts.pop(name)
        listed = ", ".join(f"{one} AS ({text}\n)" for one, text in texts.items())
        return f"SELECT * FROM (WITH {listed} SELECT * FROM ({asked}\n))"

    def _list_columns(self, name: str) -> str:
        """Return a table's columns as SQL, with typed NULLs for columns that the snapshot lacks."""
        table, stored = self.catalog.tables[name], self._stored.get(name)
        there = frozenset[str]() if stored is None else stored.columns
        return ", ".join(column.build_sql(there) for column in table.columns.values())
