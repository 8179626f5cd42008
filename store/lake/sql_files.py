"""Load SQL from files: statements, views, and questions whose comments explain the answers."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from store.errors import UnknownName
from store.schema import catalog
from store.schema.catalog import VIEWS

_SHARED_COLUMNS = VIEWS / "columns.yaml"
_OWN_COLUMN = re.compile(r"^-- (\w+): (.+(?:\n--   .+)*)", re.MULTILINE)
_COMMENT = re.compile(r"(?:-- .*\n)+")
_KEY_COLUMNS = re.compile(r"^-- key columns: (.+(?:\n--   .+)*)", re.MULTILINE)
_CHOSEN = re.compile(r"\s*(?:with|select)\b", re.IGNORECASE)
_EVERY_COLUMN = re.compile(r"(?:select|,|\.)\s*\*", re.IGNORECASE)
_EMPTY = "Empty: "
_files: dict[str, Path] = {}
"""The files of the statements that were read, by their text."""


def read_statement(file: Path) -> str:
    """Return the statement in an SQL file, without the semicolon at its end."""
    text = file.read_text("utf-8").rstrip().rstrip(";")
    _files[text] = file
    return text


def find_file(query: str) -> Path | None:
    """Return the file that a query, or the largest part of it, is from; None if it is from none."""
    known = max((text for text in _files if text in query), key=len, default=None)
    return None if known is None else _files[known]


def name_query(query: str) -> str:
    """Return what an error calls a query."""
    file, installed = find_file(query), VIEWS.parents[1]
    if file is None:
        return "the query"
    return f"the query in {file.relative_to(installed) if file.is_relative_to(installed) else file}"


def read_sql(module: str, name: str) -> str:
    """Return the text of `sql/NAME.sql` in the folder of a module."""
    return read_statement(Path(module).parent / "sql" / f"{name}.sql")


@functools.cache
def list_views() -> tuple[str, ...]:
    """Return the names of the views, one SQL file each."""
    return tuple(sorted(file.stem for file in VIEWS.glob("*.sql")))


@functools.cache
def read_view(name: str) -> str:
    """Return the SQL of a view; raises UnknownName."""
    if name not in list_views():
        raise UnknownName.among("view", name, list_views())
    return read_statement(VIEWS / f"{name}.sql")


def describe_column(view: str, name: str) -> str | None:
    """Return what a column of a view is, with its unit; None if nobody has described it.

    The header of the view describes it after an empty comment line, or else views/columns.yaml, or
    else the only table of the catalog that has such a column.
    """
    comment = _COMMENT.match(re.sub(r"(?m)^--$", "-- ", read_view(view)))
    header = "" if comment is None else comment[0].partition("\n-- \n")[2]
    own = {found[1]: found[2].replace("\n--   ", " ") for found in _OWN_COLUMN.finditer(header)}
    described = own.get(name) or _read_shared_columns().get(name)
    if described:
        return described
    tables = catalog.load().tables.values()
    columns = [table.columns[name] for table in tables if name in table.columns]
    texts = {column.about + (f" [{column.unit}]" if column.unit else "") for column in columns}
    return texts.pop() if len(texts) == 1 else None


def read_key_columns(sql: str) -> list[str]:
    """Return the columns that a reader of a view or statement comes for, as its header names them.

    >>> read_key_columns("-- One row per task.\\n--\\n-- key columns: task,\\n--   speedup\\n")
    ['task', 'speedup']
    """
    named = _KEY_COLUMNS.search(sql)
    return [] if named is None else re.findall(r"\w+", named[1].replace("\n--", ""))


def find_key_columns(query: str, columns: Sequence[str]) -> list[str]:
    """Return the key columns of an answer: those of its view, or all that the query lists itself.

    >>> find_key_columns("SELECT task, n FROM best_kernels", ["task", "n"])
    ['task', 'n']
    >>> find_key_columns("FROM best_kernels", ["task_id", "task", "n"])[0]
    'task'
    """
    if _CHOSEN.match(query) and not _EVERY_COLUMN.search(query):
        return list(columns)
    views = (word for word in re.findall(r"\w+", query) if word in list_views())
    keys = next((keys for view in views if (keys := read_key_columns(read_view(view)))), [])
    return [name for name in keys if name in columns]


@functools.cache
def _read_shared_columns() -> dict[str, str]:
    import yaml

    text = _SHARED_COLUMNS.read_text("utf-8")
    return cast("dict[str, str]", yaml.load(text, Loader=yaml.CSafeLoader))


def read_description(sql: str) -> str:
    """Return the sentence in the first comment of an SQL text."""
    return sql.splitlines()[0].removeprefix("--").strip()


@dataclass(frozen=True, kw_only=True)
class SqlQuestion:
    """A statement of a report, with the words that introduce its answer."""

    title: str
    """The comment's first line."""
    sentence: str
    """The meaning of the rows and how to read them: the lines after the first."""
    empty: str
    """Why there are no rows, and what adds some: the lines `-- Empty: …`."""
    sql: str
    sha256: str
    """Checksum of the file: a figure is the answer to this text at a snapshot."""


def read_question(file: Path) -> SqlQuestion:
    """Read a question from its file."""
    text = file.read_text("utf-8")
    comment = _COMMENT.match(text)
    assert comment is not None, file
    statement = text[comment.end() :].strip()
    _files[statement] = file
    title, *lines = (line[3:] for line in comment[0].splitlines())
    return SqlQuestion(
        title=title,
        sentence=" ".join(line for line in lines if not line.startswith(_EMPTY)),
        empty=" ".join(line.removeprefix(_EMPTY) for line in lines if line.startswith(_EMPTY)),
        sql=statement,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
