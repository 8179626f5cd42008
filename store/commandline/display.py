"""How rows reach a person or a program: a table on a terminal, JSON, CSV, or Parquet."""

from __future__ import annotations

import csv
import re
import sys
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from store.commandline import echo
from store.commandline.escape import encode_json, escape_terminal
from store.errors import FlywheelError

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_ROWS = 100
SHOWN_CHARACTERS = 60
PIPE_WIDTH = 400
_HASH = re.compile("[0-9a-f]{64}")


def write(rows: pa.Table, form: str, out: Path | None = None) -> None:
    """Write rows to stdout (or a file) as table, json, csv or parquet.

    JSON is a list of objects; CSV has a header; Parquet goes to a file or a pipe, never to a
    terminal. NULL is null in JSON and empty in CSV. JSON, Parquet and files give stored texts back
    as they are. CSV has no form for control characters, so that on stdout they are escapes, on a
    terminal newlines as well, and a note says how many cells that changes.
    """
    if form == "parquet":
        _parquet(rows, out)
        return
    if out is None:
        _text(rows, form, sys.stdout)
        return
    with open(out, "w", encoding="utf-8", newline="") as handle:
        _text(rows, form, handle)


def _text(rows: pa.Table, form: str, handle: TextIO) -> None:
    if form == "json":
        handle.write(encode_json(rows.to_pylist()) + "\n")
    elif form == "csv":
        _csv(rows, handle, shown=handle is sys.stdout)
    else:
        table(rows, handle)


def table(rows: pa.Table, handle: TextIO | None = None, title: str | None = None) -> None:
    """Print rows as a table: long texts are cut, many rows and columns too wide are counted."""
    import pyarrow as pa
    from rich import box
    from rich.table import Table
    from rich.text import Text

    target = handle or sys.stdout
    console = echo.open_console(file=target, width=None if target.isatty() else PIPE_WIDTH)
    cells = [
        [cell(value) for value in row.values()] for row in rows.slice(0, SHOWN_ROWS).to_pylist()
    ]
    names = [escape_terminal(name) for name in rows.column_names]
    shown = _fitting(names, cells, console.width)
    above = None if title is None else Text(escape_terminal(title))
    drawn = Table(box=box.SIMPLE_HEAD, title=above, title_justify="left", pad_edge=False)
    for name, field in zip(names[:shown], rows.schema, strict=False):
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        drawn.add_column(Text(name), justify="right" if number else "left", no_wrap=True)
    for row in cells:
        # Text objects: markup inside stored values stays plain text.
        drawn.add_row(*map(Text, row[:shown]))
    console.print(drawn)
    if rows.num_rows > SHOWN_ROWS:
        echo.print_note(f"{SHOWN_ROWS} of {rows.num_rows} rows shown; --format csv gives all")
    if shown < rows.num_columns:
        echo.print_note(f"columns that did not fit: {', '.join(names[shown:])}")


def _fitting(names: list[str], cells: list[list[str]], width: int) -> int:
    """Return how many leading columns fit into a width, at least one."""
    used = 0
    for index, name in enumerate(names):
        used += max([len(name), *(len(row[index]) for row in cells)]) + 3
        if used > width:
            return max(index, 1)
    return len(names)


def cell(value: object) -> str:
    """Return a value as the short text of a table cell; control characters are escaped.

    Hashes are cut to the first characters, which `store show` takes.

    >>> cell(3.14159), cell(None), cell("a\\x1b[31mb"), cell("9f" * 32)
    ('3.142', '', 'a\\\\x1b[31mb', '9f9f9f9f9f9f')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = value.isoformat() if isinstance(value, date) else str(value)
    if _HASH.fullmatch(text):
        return text[:12]
    text = escape_terminal(text[: SHOWN_CHARACTERS * 2])
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _csv(rows: pa.Table, handle: TextIO, *, shown: bool) -> None:
    """Write rows as CSV; where they are shown, texts are escaped and the changed ones counted."""
    kept = "" if handle.isatty() else "\n\t"
    changed = 0

    def cell_of(value: object) -> object:
        nonlocal changed
        text = encode_json(value, indent=None) if isinstance(value, list | dict) else value
        if not shown or not isinstance(text, str):
            return text
        safe = (
            re.sub(f"[^{kept}]+", lambda part: escape_terminal(part[0]), text)
            if kept
            else (escape_terminal(text))
        )
        changed += safe != text
        return safe

    plain = csv.writer(handle, lineterminator="\n")
    plain.writerow([cell_of(name) for name in rows.column_names])
    for batch in rows.to_batches():
        plain.writerows([cell_of(value) for value in row.values()] for row in batch.to_pylist())
    if changed:
        echo.print_note(
            f"{changed} cells hold characters that are shown as escapes; --out FILE, and --format "
            "json or parquet keep them"
        )


def _parquet(rows: pa.Table, out: Path | None) -> None:
    import pyarrow.parquet as pq

    if out is not None:
        pq.write_table(rows, out, compression="zstd", write_page_index=True)
        return
    if sys.stdout.isatty():
        raise FlywheelError("Parquet is not for a terminal", "Name a file with --out.")
    pq.write_table(rows, sys.stdout.buffer, compression="zstd", write_page_index=True)
