"""Untrusted SQLite files: read one table, read-only, with limits.

A database file can carry code: a view or a trigger under the name of a table, an expression in an
index or a generated column. The file is opened read-only and immutable, the schema must declare the
name as an ordinary table, and an authorizer allows nothing but reading its columns. Limits on the
length of values and on the number of instructions end what remains.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from store.errors import ImportFailed

MAX_VALUE_BYTES = 64 << 20
MAX_INSTRUCTIONS = 200_000_000
_STEP = 1_000_000
_HEADER = b"SQLite format 3\x00"


def is_sqlite(file: Path) -> bool:
    """Return whether a file begins as a SQLite database does."""
    if not file.is_file():
        return False
    with open(file, "rb") as handle:
        return handle.read(len(_HEADER)) == _HEADER


def list_columns(file: Path, table: str) -> list[str]:
    """Return the columns of an ordinary table; none if the file has no such table.

    Raises ImportFailed if the file is no readable database, or the name is a view or virtual table.
    """
    with closing(_open(file, table)) as database:
        kinds = _run(
            database, file, "SELECT type, sql FROM sqlite_schema WHERE lower(name) = ?", table
        )
        if not kinds:
            return []
        [(kind, sql), *more] = kinds
        if more or kind != "table" or not str(sql).upper().startswith("CREATE TABLE"):
            raise ImportFailed(
                f"{file}: {table} is no ordinary table",
                "Views and virtual tables of imported databases are not read.",
            )
        found = _run(database, file, f'PRAGMA table_xinfo("{table}")')
        # 0: a stored column. Generated columns run expressions of the file.
        return [str(row[1]) for row in found if row[6] == 0]


def read_rows(
    file: Path, table: str, columns: Sequence[str], order_by: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the rows of an ordinary table; columns that the table lacks are None.

    Raises ImportFailed if the file is damaged, or a value or the work exceeds the limits.
    """
    there = list_columns(file, table)
    known = [name for name in columns if name in there]
    if not known:
        raise ImportFailed(f"{file} has no table {table} with {', '.join(columns[:3])} …")
    listed = ", ".join(f'"{name}"' for name in known)
    ordered = ", ".join(f'"{name}"' for name in order_by if name in there)
    query = f'SELECT {listed} FROM "{table}"' + (f" ORDER BY {ordered}" if ordered else "")
    missing: dict[str, Any] = {name: None for name in columns if name not in there}
    with closing(_open(file, table)) as database:
        try:
            for row in database.execute(query):
                yield dict(zip(known, row, strict=True)) | missing
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise _refuse(file, error) from error


def _open(file: Path, table: str) -> sqlite3.Connection:
    log = file.with_name(f"{file.name}-wal")
    if log.is_file() and log.stat().st_size:
        raise ImportFailed(
            f"{file} has changes in {log.name} that are not in the database yet",
            f"End the program that writes it, then run: sqlite3 {file.name} "
            "'PRAGMA wal_checkpoint(TRUNCATE)'",
        )
    try:
        database = sqlite3.connect(
            f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1", uri=True
        )
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.execute("PRAGMA mmap_size = 0")
    except sqlite3.Error as error:
        raise _refuse(file, error) from error
    left = MAX_INSTRUCTIONS // _STEP

    def count() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        reads = action == sqlite3.SQLITE_READ and str(first).lower() in (
            table.lower(),
            "sqlite_schema",
            "sqlite_master",
        )
        lists = action == sqlite3.SQLITE_PRAGMA and str(first).lower() == "table_xinfo"
        lower = action == sqlite3.SQLITE_FUNCTION and second == "lower"
        allowed = action == sqlite3.SQLITE_SELECT or reads or lists or lower
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    database.set_progress_handler(count, _STEP)
    database.set_authorizer(authorize)
    return database


def _run(
    database: sqlite3.Connection, file: Path, query: str, *values: str
) -> list[tuple[Any, ...]]:
    try:
        return database.execute(query, values).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _refuse(file, error) from error


def _refuse(file: Path, error: Exception) -> ImportFailed:
    return ImportFailed(
        f"{file} cannot be read as a SQLite database: {error}",
        "Nothing of it was stored. If a program still writes it, let that program end, or copy the "
        "database with `sqlite3 FILE .backup COPY`.",
    )
