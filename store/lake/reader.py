"""A pinned, read-only look at a lake: its tables and views as they were at one snapshot."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from store.errors import FlywheelError, SnapshotNotFound, UnknownName
from store.lake import exclusions, user_sql, view_cache
from store.lake.limits import GB, THREADS, QueryLimits
from store.lake.location import Location, attach, connect, newest_snapshot
from store.lake.sql_files import read_sql
from store.schema import catalog as catalogs
from store.schema.catalog import quoted

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

VIEWS = Path(__file__).parent.parent / "views"
QUESTIONS = 256
SMALL_ROWS = 20_000
BATCH_ROWS = 10_000
_LAKE_TABLE = re.compile(r"\blake\.main\.(\w+)")
Parameters: TypeAlias = "Sequence[object] | Mapping[str, object] | None"


class Lake:
    """A lake at one snapshot, read-only by construction; made by `store.open`.

    Tables of catalog.yaml and views of store/views are visible by their bare names. What the
    snapshot is too old to have (a table, a column) reads as typed NULLs.

    Args:
        location: Where the lake is.
        at: Tag, snapshot number or ISO time; None is the newest.
        limits: What each question to `sql` may cost; None is without limits. A query that heeds no
            interrupt outlives its time here: `store.lake.query_process` kills it.
        spill: Private folder for what does not fit into memory; None is the process's own.
        include: Views of `including.LEFT_OUT` to read as empty, so that rankings and tables
            include what they leave out by default.
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
        self._connection = connect(spill)
        attach(self._connection, location, name="newest")
        self.snapshot = resolve(self._connection, at, name="newest")
        """Number of the snapshot that is read."""
        self._connection.execute("DETACH newest")
        attach(self._connection, location, snapshot=self.snapshot)
        self._stored = _stored(self._connection, self.snapshot)
        self._known = (*self.catalog.tables, *view_names())
        self._made: set[str] = set()
        self._included = frozenset(include)
        self._counts: dict[str, int] = {}
        self._derived = view_cache.Derived(self._connection, location, self.snapshot)
        self._set_limits()
        self._lock_down()
        # A question asked again is not parsed again.
        self._guarded = functools.lru_cache(QUESTIONS)(
            lambda query: user_sql.check(self._connection, query, self._known)
        )
        self._prepared = functools.lru_cache(QUESTIONS)(
            lambda query: self._prepare(user_sql.names(self._connection, query))
        )

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lake."""
        self._connection.close()
        self._derived.close()

    @property
    def url(self) -> str:
        """Where the lake lies."""
        return str(self.location.root)

    @functools.cached_property
    def lake_id(self) -> str:
        """The lake's own identity; a snapshot number means something only together with it."""
        row = self.run("SELECT lake_id FROM lakes ORDER BY created_at LIMIT 1").one()
        return str(row["lake_id"]) if row else ""

    def sql(
        self, query: str, parameters: Parameters = None, limits: QueryLimits | None = None
    ) -> Result:
        """Answer one SELECT-like statement; anything that could reach outside is refused.

        >>> import store, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> store.writer(folder, author="doctest").close()
        >>> lake = store.open(folder)
        >>> lake.sql("SELECT count(*) AS kernels FROM kernels").rows()
        [{'kernels': 0}]
        >>> lake.sql("COPY kernels TO 'stolen.parquet'")
        Traceback (most recent call last):
            ...
        store.errors.UnsafeSQL: a COPY statement cannot be run here
        Write one SELECT (or FROM, WITH, VALUES, DESCRIBE, SUMMARIZE) over tables and views.

        Args:
            query: The statement.
            parameters: Values for its placeholders.
            limits: Time and size of this answer; by default those of the reader.

        Raises:
            UnsafeSQL: not one SELECT, or it names files, functions or catalogs outside.
            FlywheelError: DuckDB cannot answer it (the message is DuckDB's), or it exceeds a limit.
        """
        limits = limits or self.limits
        with _translated(limits), _deadline(self._connection, limits):
            self._guarded(query)
            self._prepared(query)
        return Result(self._connection, query, parameters, limits)

    def run(self, query: str, parameters: Parameters = None) -> Result:
        """Answer SQL of our own files, which may also read registered tables."""
        with _translated():
            self._prepared(query)
        return Result(self._connection, query, parameters)

    def register(self, name: str, rows: pa.Table) -> None:
        """Make an Arrow table visible to `run` under a name."""
        self._connection.register(name, rows)
        self._made.add(name)

    def keep(self, name: str, query: str, parameters: Parameters = None) -> None:
        """Answer SQL of our own files into a table that `run` can read, in place of an earlier one.

        What the next question reads need not leave DuckDB in between.
        """
        with _translated():
            self._prepared(query)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}", parameters)
        self._made.add(name)

    def define(self, name: str, query: str) -> None:
        """Let `run` read SQL of our own files under a name, in place of an earlier one.

        It is asked anew each time, where `keep` holds the answer.
        """
        with _translated():
            self._prepared(query)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
        self._made.add(name)

    def left_out(self, query: str) -> dict[str, int]:
        """Return the number of rows of each view of `including.LEFT_OUT` that a query goes through.

        Those that are included, or asked for by name, have no number.
        """
        named = user_sql.names(self._connection, query) & set(self._known)
        asked = named - set(self.catalog.tables)
        used = {part for name in asked for part in self._parts(name)} - named - self._included
        return {view: self._count(view) for view in exclusions.LEFT_OUT if view in used}

    def _count(self, view: str) -> int:
        if view not in self._counts:
            row = self.run(f"SELECT count(*) AS rows FROM {view}").one()
            self._counts[view] = 0 if row is None else int(row["rows"])
        return self._counts[view]

    def views(self) -> dict[str, str]:
        """Return every view with the sentence on top of its file."""
        return {name: about(view_text(name)) for name in view_names()}

    def _prepare(self, wanted: Set[str]) -> None:
        """Create those temporary views that a query needs, once."""
        for name in self._known:
            if name in self._made or not ({"*", name} & wanted):
                continue
            self._made.add(name)
            if name in self.catalog.tables:
                kind, body = self._table(name)
            else:
                kind, body = "VIEW", self._view(name)
            self._connection.execute(f"CREATE TEMP {kind} {name} AS {body}")

    def _view(self, name: str) -> str:
        """Return SQL for a view; what it needs is there then."""
        kept = self.kept(name) if name in view_cache.SOURCES else None
        asked = kept or self._asked(name)
        return f"SELECT * FROM ({asked}\n) WHERE false" if name in self._included else asked

    def kept(self, name: str, *, make: bool = True) -> str | None:
        """Return SQL for a view by its kept answers (`store.lake.view_cache`), or None without any.

        Those of few rows are not kept. `make` makes what is missing.
        """
        tables = tuple(table for table in view_cache.SOURCES[name] if table in self._stored)
        if sum(self._stored[table].rows for table in tables) < view_cache.LARGE_ROWS:
            return None
        made_of = [
            f"{part} {[(one.name, one.type) for one in self.catalog.tables[part].columns.values()]}"
            if part in self.catalog.tables
            else view_text(part)
            for part in self._parts(name)
        ]
        return self._derived.sql(
            view_cache.Question(
                view=name,
                tables=tables,
                text="\n".join(made_of),
                asked=functools.partial(self._asked, name),
            ),
            make=make,
        )

    def unlike_kept(self, name: str) -> int:
        """Return the number of rows by which kept answers differ from those of the tables."""
        kept = self.kept(name, make=False)
        if kept is None:
            return 0
        live = self._asked(name)
        row = self.run(
            f"WITH kept AS ({kept}\n), live AS ({live}\n) SELECT count(*) AS rows FROM "
            "((FROM kept EXCEPT ALL FROM live) UNION ALL (FROM live EXCEPT ALL FROM kept))"
        ).one()
        assert row is not None
        return int(row["rows"])

    def _asked(self, name: str, keys: str | None = None) -> str:
        """Return SQL that asks a view of the tables: as a whole, or about the keys in a table."""
        parts = self._parts(name)
        if keys is None:
            self._prepare(user_sql.names(self._connection, view_text(name)))
            return _LAKE_TABLE.sub(self._committed, view_text(name))
        sources = view_cache.SOURCES[name]
        tables = set(self.catalog.tables)
        self._prepare(set(parts) & tables)
        only = f"SEMI JOIN {keys} USING ({view_cache.KEY})"
        own = {part: f"SELECT * FROM ({self._table(part)[1]}) {only}" for part in sources} | {
            part: view_text(part) for part in parts if part not in tables
        }
        listed = ", ".join(f"{part} AS ({body}\n)" for part, body in own.items() if part != name)
        return f"SELECT * FROM (WITH {listed} SELECT * FROM ({own[name]}\n))"

    def _committed(self, mention: re.Match[str]) -> str:
        """Return SQL for `lake.main.TABLE` in a view: its rows, each with DuckLake's `snapshot_id`.

        A table that this snapshot is too old to have is empty.
        """
        name = mention[1]
        listed = self._columns(name)
        if name not in self._stored:
            return f"(SELECT {listed}, NULL::BIGINT AS snapshot_id WHERE false)"
        return f"(SELECT {listed}, snapshot_id FROM lake.main.{name})"

    def _columns(self, name: str) -> str:
        """Return a table's columns as SQL; those that this snapshot lacks are typed NULLs."""
        stored = self._stored.get(name)
        there = frozenset[str]() if stored is None else stored.columns
        return ", ".join(
            f'"{c.name}"' if c.name in there else f'NULL::{c.type} AS "{c.name}"'
            for c in self.catalog.tables[name].columns.values()
        )

    def _parts(self, view: str) -> list[str]:
        """Return the tables and views that a view is made of, each after its own; itself last."""
        parts: dict[str, None] = {}
        for name in sorted(user_sql.names(self._connection, view_text(view)) & set(self._known)):
            mine = self._parts(name) if name in view_names() else [name]
            parts |= dict.fromkeys(mine)
        return [*parts, view]

    def _table(self, name: str) -> tuple[str, str]:
        """Return SQL for a table at this snapshot, and whether it is made a VIEW or a TABLE.

        What the snapshot is too old to have reads as typed NULLs. Where Parquet files alone hold
        the table, they are read as they are. Few rows are copied, which takes one scan through
        DuckLake in place of one for every mention in a view.
        """
        listed = self._columns(name)
        stored = self._stored.get(name)
        if stored is None:
            return "VIEW", f"SELECT {listed} WHERE false"
        if stored.files is not None:
            paths = quoted(tuple(str(self.location.data / file) for file in stored.files))
            return "VIEW", f"SELECT {listed} FROM read_parquet([{paths}])"
        kind = "TABLE" if stored.rows <= SMALL_ROWS else "VIEW"
        return kind, f"SELECT {listed} FROM lake.main.{name}"

    def _set_limits(self) -> None:
        """Bound what this connection may use; user SQL cannot change settings."""
        if self.limits is None:
            return
        settings = self.limits.settings() | {"threads": str(min(THREADS, os.cpu_count() or 1))}
        for name, value in settings.items():
            self._connection.execute(f"SET {name} = {quoted((value,))}")

    def _lock_down(self) -> None:
        folders = quoted((str(self.location.data), str(self.location.derived)))
        self._connection.execute(f"SET allowed_directories = [{folders}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET python_enable_replacements = false")
        self._connection.execute("SET lock_configuration = true")


class Result:
    """The answer to one query, computed when it is asked for in some form."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        parameters: Parameters,
        limits: QueryLimits | None = None,
    ) -> None:
        self._connection = connection
        self._query = query
        self._parameters = parameters
        self._limits = limits

    def arrow(self) -> pa.Table:
        """Return the whole answer as an Arrow table, or as many rows as the limits allow."""
        import pyarrow as pa

        with _translated(self._limits), _deadline(self._connection, self._limits):
            if self._limits is None:
                return self._execute().to_arrow_table()
            answer = self._execute().to_arrow_reader(BATCH_ROWS)
            batches = [batch for batch, _ in _bounded(answer, self._limits)]
            return pa.Table.from_batches(batches, answer.schema)

    def write(self, file: Path) -> bool:
        """Write the answer as an Arrow stream; return whether rows beyond the limit were cut.

        Batches go to the file as DuckDB makes them, so that a large answer needs little memory.
        """
        import pyarrow as pa

        was_cut = False
        with _translated(self._limits), _deadline(self._connection, self._limits):
            answer = self._execute().to_arrow_reader(BATCH_ROWS)
            # Anew, and not over an earlier answer, which the reader may still have mapped.
            file.unlink(missing_ok=True)
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, answer.schema) as out:
                for batch, is_last in _bounded(answer, self._limits or QueryLimits(max_rows=0)):
                    out.write_batch(batch)
                    was_cut = is_last
        return was_cut

    def reader(self, rows: int = 10_000) -> pa.RecordBatchReader:
        """Return the answer as a stream of batches of at most so many rows.

        Read it to its end before the next query of the same lake.
        """
        with _translated():
            return self._execute().to_arrow_reader(rows)

    def polars(self) -> pl.DataFrame:
        """Return the whole answer as a Polars frame."""
        import polars as pl

        return cast("pl.DataFrame", pl.from_arrow(self.arrow()))

    def pandas(self) -> pd.DataFrame:
        """Return the whole answer as a pandas frame (pandas must be installed)."""
        return self.arrow().to_pandas()

    def rows(self) -> list[dict[str, Any]]:
        """Return the whole answer as Python dictionaries; for small answers."""
        return self.arrow().to_pylist()

    def one(self) -> dict[str, Any] | None:
        """Return the first row, or None where there is none."""
        return next(iter(self.rows()), None)

    def _execute(self) -> duckdb.DuckDBPyConnection:
        # A prepared plan is slower where a constant would have let whole files be skipped.
        given = None if "pandas" in sys.modules else _literals(self._parameters)
        if not given:
            return self._connection.execute(self._query, self._parameters)
        self._connection.execute(f"PREPARE _question AS {self._query}")
        return self._connection.execute(f"EXECUTE _question({given})")


def resolve(
    connection: duckdb.DuckDBPyConnection, at: str | int | None, *, name: str = "lake"
) -> int:
    """Return the snapshot that a number, a tag, an ISO time or None (the newest) stands for.

    Raises SnapshotNotFound, naming the nearest tag.
    """
    newest = newest_snapshot(connection, name)
    if at is None:
        return newest
    text = str(at)
    if text.isascii() and text.isdigit():
        known = connection.execute(
            f"SELECT count(*) FROM ducklake_snapshots('{name}') WHERE snapshot_id = ?", [int(text)]
        ).fetchone()
        if known is None or not known[0]:
            raise SnapshotNotFound(
                f"no snapshot {text}; the newest is {newest}",
                "`store log` lists those that are there.",
            )
        return int(text)
    tags = dict(
        connection.execute(
            "SELECT name, arg_max(coalesce(snapshot_id, -1), (created_at, tag_id)) "
            f"FROM {name}.tags GROUP BY name"
        ).fetchall()
    )
    current = {tag: snapshot for tag, snapshot in tags.items() if snapshot >= 0}
    if text in current:
        return int(current[text])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        unknown = UnknownName.among("tag", text, current)
        raise SnapshotNotFound(
            f'"{text}" is no tag, snapshot number or ISO time', unknown.hint
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    row = connection.execute(
        f"SELECT max(snapshot_id) FROM ducklake_snapshots('{name}') WHERE snapshot_time <= ?",
        [moment],
    ).fetchone()
    if row is None or row[0] is None:
        raise SnapshotNotFound(f"no snapshot is as old as {text}", "`store log` lists times (UTC).")
    return int(row[0])


@functools.cache
def view_names() -> tuple[str, ...]:
    """Return the names of the views, one SQL file each."""
    return tuple(sorted(file.stem for file in VIEWS.glob("*.sql")))


@functools.cache
def view_text(name: str) -> str:
    """Return the SQL of a view; raises UnknownName."""
    if name not in view_names():
        raise UnknownName.among("view", name, view_names())
    return (VIEWS / f"{name}.sql").read_text("utf-8").rstrip().rstrip(";")


def about(sql: str) -> str:
    """Return the sentence in the first comment of an SQL text."""
    return sql.splitlines()[0].removeprefix("--").strip()


def _literals(parameters: Parameters) -> str | None:
    """Return parameters as SQL literals of the types that DuckDB would give them.

    None without any, or where one has no plain literal. To take parameters as Python objects DuckDB
    imports pandas where it is installed, which takes half a second.
    """
    if not parameters:
        return None
    named = isinstance(parameters, Mapping)
    texts: list[str] = []
    for name, value in parameters.items() if named else enumerate(parameters):
        if value is None:
            text = "NULL"
        elif isinstance(value, bool | int):
            text = str(value)
        elif isinstance(value, float) and math.isfinite(value):
            text = f"{value!r}::DOUBLE"
        elif isinstance(value, str) and "\0" not in value:
            text = quoted((value,))
        else:
            return None
        if named and not str(name).isidentifier():
            return None
        texts.append(f'"{name}" := {text}' if named else text)
    return ", ".join(texts)


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """How a table with rows is stored at a snapshot."""

    columns: frozenset[str]
    files: list[str] | None
    """Its Parquet files, below the data folder, where these alone hold it."""
    rows: int
    """Rows of the newest snapshot, hence at most so many in an older one."""


def _stored(connection: duckdb.DuckDBPyConnection, snapshot: int) -> dict[str, _Stored]:
    # Put in as text: for a parameter DuckDB would import pandas, which takes half a second.
    query = read_sql(__file__, "stored").replace("$snapshot", str(snapshot))
    rows = connection.execute(query).fetchall()
    return {
        table: _Stored(columns=frozenset(columns), files=files, rows=count)
        for table, columns, files, count in rows
    }


def _bounded(
    answer: pa.RecordBatchReader, limits: QueryLimits
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield batches within the limits, each with whether rows were cut off behind it."""
    rows = size = 0
    for batch in answer:
        size += batch.nbytes
        if size > limits.max_result_gb * GB:
            raise limits.too_large()
        left = limits.max_rows - rows if limits.max_rows else batch.num_rows
        if batch.num_rows > left:
            yield batch.slice(0, left), True
            return
        rows += batch.num_rows
        yield batch, False


@contextmanager
def _deadline(connection: duckdb.DuckDBPyConnection, limits: QueryLimits | None) -> Generator[None]:
    """Interrupt what the connection does inside the block when the time of the limits is up."""
    if limits is None:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        over.set()
        connection.interrupt()

    timer = threading.Timer(limits.timeout, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise limits.took_too_long() from error
        raise
    finally:
        timer.cancel()


@contextmanager
def _translated(limits: QueryLimits | None = None) -> Generator[None]:
    """Turn DuckDB's complaints about a query into ours, which the shell prints plainly."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        text = str(error)
        if limits is not None and (
            isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in text
        ):
            raise limits.out_of_memory() from error
        raise FlywheelError(text) from error
