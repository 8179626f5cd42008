"""Commands that read: one query, a shell, and the lists of tables, views and columns."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from store import faults
from store.cli.options import (
    COMMON,
    INCLUDING,
    LIMITS,
    At,
    Include,
    Limits,
    ListFormat,
    QueryFormat,
    open_lake,
    print_rows,
)
from store.commandline import echo
from store.commandline.members import Common
from store.commandline.outputs import write_file
from store.errors import FlywheelError
from store.lake.exclusions import describe_left_out
from store.schema.sql_text import quote_values


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    for command in (query, shell, tables, views, describe):
        app.command(command)


def query(
    sql: str | None = None,
    /,
    *,
    file: Path | None = None,
    at: At = None,
    format: QueryFormat = "table",
    out: Path | None = None,
    including: Include = INCLUDING,
    limits: Limits = LIMITS,
    common: Common = COMMON,
) -> None:
    """Run one SELECT statement. It cannot change the lake or read other files.

    The statement runs in a process of its own, which ends when it exceeds a limit or on Ctrl-C.

    Examples:
      store query "FROM best_kernels LIMIT 5"
      store query --at v1 "SELECT count(*) FROM kernels"
      store query --format csv --out speedups.csv "FROM speedups"
      store query --file question.sql

    Parameters
    ----------
    sql
        One SELECT, FROM, WITH, VALUES, DESCRIBE or SUMMARIZE (default: read standard input).
    file
        Read the statement from this file.
    format
        Format of the result. A table on a terminal cuts long texts; the other formats are complete.
        JSON has null for NaN and infinite numbers.
    out
        Write the result to this file instead of stdout. A result that this command wrote there
        before is replaced; other files are not.
    """
    from store.guard.query_process import QueryProcess

    if sql is None and file is not None:
        try:
            sql = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise faults.explain(error) or FlywheelError(f"cannot read {file}: {error}") from error
    if sql is None and sys.stdin.isatty():
        raise FlywheelError("no SQL was given", 'For example: store query "FROM leaderboard"')
    statement = sys.stdin.read() if sql is None else sql
    place = nullcontext() if out is None else write_file(out, "store query")
    with place as target, QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        from store.commandline import display  # while the process starts

        answer = lake.ask(statement)
        display.write_rows(answer.rows, format, target)
        if answer.cut:
            count = answer.rows.num_rows
            option = "--max-rows" if count == limits.max_rows else "--max-chars"
            echo.print_note(f"cut after {count} rows; {option} 0 gives all")
        left_out = describe_left_out(answer.left_out)
        if left_out and not common.quiet:
            echo.print_note(f"left out: {left_out}")


def shell(
    *,
    at: At = None,
    including: Include = INCLUDING,
    limits: Limits = LIMITS,
    common: Common = COMMON,
) -> None:
    """Open a prompt for SQL statements on one snapshot of the lake.

    Examples:
      store shell
      store shell --at v1
    """
    from store.cli.shell import interact
    from store.guard.query_process import QueryProcess

    with QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        interact(lake)


def tables(*, at: At = None, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List the tables and their numbers of rows."""
    with open_lake(common, at) as lake:
        parts = [
            f"SELECT '{t.name}' AS \"table\", count(*) AS rows, "
            f"{quote_values((t.about,))} AS about FROM {t.name}"
            for t in lake.catalog.tables.values()
        ]
        print_rows(lake.run(" UNION ALL ".join(parts)).arrow(), format)


def views(
    name: Annotated[str | None, Parameter(name=["--name", "--sql"])] = None,
    *,
    format: ListFormat = "table",
    common: Common = COMMON,
) -> None:
    """List the views, or print the description and the SQL of one.

    Examples:
      store views
      store views leaderboard

    Parameters
    ----------
    name
        Name of the view to print.
    """
    import pyarrow as pa

    from store.lake import sql_files

    if name is not None:
        echo.print_lines(sql_files.read_view(name))
        return
    rows = [
        {"view": view, "about": sql_files.read_description(sql_files.read_view(view))}
        for view in sql_files.list_views()
    ]
    print_rows(pa.Table.from_pylist(rows), format)


def describe(table: str, /, *, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List the columns of a table with their types and descriptions, or of a view with their types.

    `store views NAME` prints the SQL of a view, which begins with a description of its columns.

    Examples:
      store describe kernels
      store describe leaderboard --format json

    Parameters
    ----------
    table
        Name of a table or a view.
    """
    import pyarrow as pa

    from store.cli import reference
    from store.lake import sql_files
    from store.schema import catalog

    known = catalog.load()
    if table in sql_files.list_views():
        with open_lake(common) as lake:
            print_rows(lake.run(f"DESCRIBE {table}").arrow().select([0, 1]), format)
        return
    print_rows(pa.Table.from_pylist(reference.list_columns(known.table(table))), format)
