"""Rows of Arrow as Python dictionaries, and as tables, JSON, CSV or Parquet to print."""

from __future__ import annotations

import csv
import re
import sys
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from zoneinfo import ZoneInfo

from store.bounds import read_bounds
from store.commandline import echo
from store.commandline.escape import encode_json, escape_terminal, escape_text, spell_bytes
from store.errors import FlywheelError

if TYPE_CHECKING:
    import pyarrow as pa


SHOWN_ROWS = 100
SHOWN_CHARACTERS = 60
"""Length at which a terminal's cell is cut."""
PIPED_CHARACTERS = 4000
"""Length at which other cells are cut: descriptions are shorter, source files may be longer."""
_MARGIN = 3
_NARROWEST = 16
"""Width to which the last column on a terminal may be cut."""
_HASH = re.compile("[0-9a-f]{64}")


def write_rows(rows: pa.Table, form: str, out: Path | None = None) -> None:
    """Write rows to stdout or to a file, as table, json, csv or parquet.

    JSON is a list of objects, CSV has a header, and Parquet goes to a file or a pipe, never to a
    terminal. NULL is null in JSON and empty in CSV; NaN and infinite numbers are texts in JSON.
    JSON, Parquet and files contain the stored texts unchanged. CSV has no notation for control
    characters: on stdout they become escapes, on a terminal newlines too, and a note counts the
    changed cells.
    """
    if form == "parquet":
        import pyarrow.parquet as pq

        if out is None and sys.stdout.isatty():
            raise FlywheelError("Parquet cannot be printed on a terminal", "Give --out FILE.")
        target = out or sys.stdout.buffer
        pq.write_table(rows, target, compression="zstd", write_page_index=True)
        return
    if out is None:
        write_text(rows, form, sys.stdout)
        return
    with open(out, "w", encoding="utf-8", newline="") as handle:
        write_text(rows, form, handle)


def write_text(rows: pa.Table, form: str, handle: TextIO) -> None:
    """Write rows as table, json or csv; see `write_rows`."""
    if form == "json":
        handle.write(encode_json(list_rows(rows)) + "\n")
    elif form == "csv":
        # Write rows as CSV. On stdout, texts are escaped and a note counts the changed cells.
        shown = handle is sys.stdout
        escape = escape_terminal if handle.isatty() else escape_text
        changed = 0

        def escape_cell(value: object) -> object:
            nonlocal changed
            text = encode_json(value, indent=None) if isinstance(value, list | dict) else value
            text = spell_bytes(text) if isinstance(text, bytes) else text
            if not shown or not isinstance(text, str):
                return text
            safe = escape(text)
            changed += safe != text
            return safe

        plain = csv.writer(handle, lineterminator="\n")
        plain.writerow([escape_cell(name) for name in rows.column_names])
        for batch in rows.to_batches():
            plain.writerows(
                [escape_cell(value) for value in row.values()] for row in list_rows(batch)
            )
        if changed:
            echo.print_note(
                f"{changed} cells hold characters that are shown as escapes; --out FILE or "
                "--format json or parquet keeps them"
            )
    else:
        print_table(rows, handle)


def print_table(rows: pa.Table, handle: TextIO | None = None, title: str | None = None) -> None:
    """Print rows as a table.

    Prints at most SHOWN_ROWS rows. On a terminal it cuts long texts and leaves out the columns that
    do not fit; notes on stderr say what is missing.
    """
    import pyarrow as pa
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    target = handle or sys.stdout
    characters = SHOWN_CHARACTERS if target.isatty() else PIPED_CHARACTERS
    cells = [
        [format_cell(value, characters) for value in row.values()]
        for row in list_rows(rows.slice(0, SHOWN_ROWS))
    ]
    names = [escape_terminal(name) for name in rows.column_names]
    # With the margin of each column.
    widths = [
        max([cell_len(name), *(cell_len(row[index]) for row in cells)]) + _MARGIN
        for index, name in enumerate(names)
    ]
    console = echo.open_console(file=target, width=None if target.isatty() else sum(widths) + 1)
    shown = _count_fitting(widths, console.width)
    above = None if title is None else Text(escape_terminal(title))
    drawn = Table(box=box.SIMPLE_HEAD, title=above, title_justify="left", pad_edge=False)
    left = console.width
    for name, width, field in zip(names[:shown], widths, rows.schema, strict=False):
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        justify = "right" if number else "left"
        drawn.add_column(
            Text(name), justify=justify, no_wrap=True, max_width=max(left - _MARGIN, 1)
        )
        left -= width
    for row in cells:
        # Text objects: markup inside stored values stays plain text.
        drawn.add_row(*map(Text, row[:shown]))
    console.print(drawn)
    if rows.num_rows > SHOWN_ROWS:
        echo.print_note(f"{SHOWN_ROWS} of {rows.num_rows} rows shown; --format csv gives all")
    if shown < rows.num_columns:
        echo.print_note(f"columns that did not fit: {', '.join(names[shown:])}")


def _count_fitting(widths: list[int], width: int) -> int:
    """Return how many leading columns fit, at least one; the last one may be cut to fit.

    >>> _count_fitting([10, 50, 60], 80), _count_fitting([10, 50, 60], 70)
    (3, 2)
    """
    used = 0
    for index, needed in enumerate(widths):
        if used + min(needed, _NARROWEST + _MARGIN) > width:
            return max(index, 1)
        used += needed
        if used > width:
            return index + 1
    return len(widths)


def format_cell(value: object, characters: int = SHOWN_CHARACTERS) -> str:
    """Return a value as the text of a table cell of at most `characters` characters, escaped.

    Hashes are cut to their first characters, which `store show` takes.

    >>> format_cell(3.14159), format_cell(None), format_cell("a\\x1b[31mb"), format_cell("9f" * 32)
    ('3.142', '', 'a\\\\x1b[31mb', '9f9f9f9f9f9f')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bytes):
        value = spell_bytes(value)
    text = value.isoformat() if isinstance(value, date) else str(value)
    if _HASH.fullmatch(text):
        return text[:12]
    text = escape_terminal(text[: characters * 2])
    return text if len(text) <= characters else text[: characters - 1] + "…"


def list_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows that `to_pylist` returns, whatever times they contain.

    PyArrow imports pandas for a time with a zone, so this function adds the zone UTC itself. A
    value with a time that Python cannot represent, such as infinity or the year 20000, becomes its
    text in DuckDB.
    """
    import pyarrow as pa

    utc = ZoneInfo("UTC")
    zoned: dict[str, bool] = {}
    plain = table
    for place, field in enumerate(table.schema):
        kind = field.type
        zoned[field.name] = pa.types.is_timestamp(kind) and kind.tz == utc.key and kind.unit != "ns"
        if zoned[field.name]:
            times: Any = table.column(place).cast(pa.timestamp(kind.unit))
            plain = plain.set_column(place, field.name, times)
    try:
        rows: list[dict[str, Any]] = plain.to_pylist()
    except (OverflowError, ValueError):
        columns = [_list_values(table.column(place)) for place in range(table.num_columns)]
        names = table.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    for name in (name for name, is_zoned in zoned.items() if is_zoned):
        for row in rows:
            row[name] = row[name] and row[name].replace(tzinfo=utc)
    return rows


def _list_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        pass
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as connection:
        read_bounds(None).apply(connection, None)
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("spelled", pa.Table.from_arrays([column], ["value"]))
        rows = connection.execute("SELECT value::VARCHAR FROM spelled").fetchall()
    texts = [row[0] for row in rows]
    values = list[Any]()
    for value, text in zip(column, texts, strict=True):
        try:
            values.append(value.as_py())
        except (OverflowError, ValueError):
            values.append(text)
    return values
