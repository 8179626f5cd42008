"""The prompt of `store shell`: SQL statements on one pinned snapshot."""

from __future__ import annotations

import importlib
import sys

from store.commandline import display, echo, interrupts
from store.errors import FlywheelError
from store.guard.query_process import QueryProcess
from store.lake.sql_files import find_key_columns, list_views, read_view
from store.schema import catalog

_HELP = """\
End a statement with a semicolon.
  .tables          list tables and views
  .views NAME      print the description and the SQL of a view
  .help            print this help
  .quit            leave (or Ctrl-D)
"""


def interact(lake: QueryProcess) -> None:
    """Read statements from standard input until it ends, and print their results."""
    interactive = sys.stdin.isatty()
    if interactive:
        # Importing it gives input() line editing and a history.
        importlib.import_module("readline")
        echo.print_note(f"snapshot {lake.snapshot} of {lake.url}; .help for help")
    pending: list[str] = []
    while True:
        try:
            line = input(("...> " if pending else "lake> ") if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            interrupts.dismiss()
            pending = []
            sys.stderr.write("\n")
            continue
        if not pending and line.strip().startswith("."):
            if line.strip() in (".quit", ".exit"):
                return
            word, _, argument = line.strip().partition(" ")
            if word == ".tables":
                echo.print_lines("\n".join([*catalog.load().tables, *list_views()]))
            elif word == ".views" and argument:
                try:
                    echo.print_lines(read_view(argument.strip()))
                except FlywheelError as error:
                    echo.print_error(error)
            else:
                sys.stderr.write(_HELP)
            continue
        pending.append(line)
        if line.rstrip().endswith(";"):
            _run_statement(lake, "\n".join(pending))
            pending = []
    if "".join(pending).strip():
        _run_statement(lake, "\n".join(pending))


def _run_statement(lake: QueryProcess, statement: str) -> None:
    try:
        answer = lake.ask(statement)
        keys = find_key_columns(statement, answer.rows.column_names)
        display.print_table(answer.rows, keys=keys)
    except FlywheelError as error:
        echo.print_error(error)
    except KeyboardInterrupt:
        interrupts.dismiss()
        echo.print_note("interrupted")
    else:
        if answer.cut:
            echo.print_note(f"cut after {answer.rows.num_rows} rows")
