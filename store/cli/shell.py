"""`store shell`: a prompt for questions to one pinned snapshot."""

from __future__ import annotations

import importlib
import sys

from store.commandline import display, echo
from store.errors import FlywheelError
from store.lake.query_process import QueryProcess
from store.lake.sql_files import list_views, read_view
from store.schema import catalog

_HELP = """\
End a question with a semicolon. Tables and views go by their bare names.
  .tables          list tables and views
  .views NAME      print the SQL of a view
  .help            this
  .quit            leave (or Ctrl-D)
"""


def interact(lake: QueryProcess) -> None:
    """Read questions from standard input until its end and print the answers."""
    talking = sys.stdin.isatty()
    if talking:
        # Line editing and history come with being imported.
        importlib.import_module("readline")
        echo.print_note(f"snapshot {lake.snapshot} of {lake.url}; .help for help")
    pending: list[str] = []
    while True:
        try:
            line = input(("...> " if pending else "lake> ") if talking else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            pending = []
            sys.stderr.write("\n")
            continue
        if not pending and line.strip().startswith("."):
            if line.strip() in (".quit", ".exit"):
                return
            _command(line.strip())
            continue
        pending.append(line)
        if line.rstrip().endswith(";"):
            _answer(lake, "\n".join(pending))
            pending = []
    if "".join(pending).strip():
        _answer(lake, "\n".join(pending))


def _answer(lake: QueryProcess, question: str) -> None:
    try:
        answer = lake.ask(question)
        display.table(answer.rows)
    except FlywheelError as error:
        echo.print_error(error)
    except KeyboardInterrupt:
        echo.print_note("interrupted")
    else:
        if answer.cut:
            echo.print_note(f"cut after {answer.rows.num_rows} rows")


def _command(line: str) -> None:
    word, _, argument = line.partition(" ")
    if word == ".tables":
        echo.print_lines("\n".join([*catalog.load().tables, *list_views()]))
    elif word == ".views" and argument:
        try:
            echo.print_lines(read_view(argument.strip()))
        except FlywheelError as error:
            echo.print_error(error)
    else:
        sys.stderr.write(_HELP)
