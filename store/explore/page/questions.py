"""Reads questions and adds the order and the limits of a view to their SQL."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from store.errors import FlywheelError
from store.explore.page.model import Question
from store.lake import sql_files
from store.rendering.questions import Value, bind

SQL = Path(__file__).parent.parent / "sql"
REPORT = SQL / "report"
"""Questions of the report; those without placeholders are also the console's examples."""
_LAST_ORDER = re.compile(r"(?s)(.*\nORDER BY )(?!.*\nORDER BY )")


@functools.cache
def _read(file: Path) -> sql_files.Question:
    return sql_files.read_question(file)


def read_question(file: Path, values: Mapping[str, Value]) -> Question:
    """Read a question and bind its placeholders."""
    read = _read(file)
    return Question(
        file=file,
        title=read.title,
        about=read.sentence,
        empty=read.empty,
        sql=bind(read.sql, values),
    )


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
