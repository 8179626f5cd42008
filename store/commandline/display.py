"""Rows of Arrow as Python dictionaries, and as tables, JSON, CSV or Parquet to print."""

from __future__ import annotations

import csv
import html
import re
import sys
from collections.abc import Container, Mapping, Sequence
from datetime import date, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast
from zoneinfo import ZoneInfo

from store.bounds import read_bounds
from store.commandline import echo
from store.commandline.escape import encode_json, escape_terminal, escape_text, spell_bytes
from store.errors import FlywheelError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType


SHOWN_ROWS = 100
SHOWN_CHARACTERS = 60
"""Length at which a value is cut by default."""
_TERMINAL_CHARACTERS = 240
"""Length at which a terminal's cell is cut, which may have several lines."""
PIPED_CHARACTERS = 4000
"""Length at which other cells are cut: descriptions are shorter, source files may be longer."""
_MOST_LINES = 3
"""Lines of a cell after which it is cut."""
_RECORD_ROWS = 2
"""Rows that become blocks rather than losing a column."""
_LONGEST_WORD = 24
"""Words of a cell that are longer are broken in a narrow column."""
_NARROW_TEXT = 30
"""Columns in which a long text may have more lines than two."""
_GAP = 2
_MARGIN = 1
"""No line of a table begins in the column of our own lines, so that none can pass for one."""
_HASH = re.compile("[0-9a-f]{64}")
_CUT_HASH = re.compile("[0-9a-f]{12}(?:[0-9a-f]{52})?")
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_WORDS = re.compile(r"[^\s_/,]*[\s_/,]*")
_STYLES = {
    **dict.fromkeys(("correct", "dismissed", "finished", "held"), "green"),
    **dict.fromkeys(("evaluator_error", "open", "interrupted", "raises"), "yellow"),
    **dict.fromkeys(("incorrect", "rejected", "timeout", "crash", "compile_error"), "red"),
    **dict.fromkeys(("confirmed", "failed", "wrong"), "red"),
}
"""Colors of the values of columns that hold a status."""
_STATUS_COLUMNS = frozenset(("status", "standing", "state", "outcome", "decision"))


def write_rows(
    rows: pa.Table | Sequence[dict[str, Any]],
    form: str,
    out: Path | None = None,
    keys: Sequence[str] = (),
) -> None:
    """Write rows to stdout or to a file, as table, json, csv or parquet.

    `keys` are the key columns of a table on a terminal; see `print_table`.

    JSON is a list of objects, CSV has a header, and Parquet goes to a file or a pipe, never to a
    terminal. NULL is null in JSON and empty in CSV; NaN and infinite numbers are texts in JSON.
    JSON, Parquet and files contain the stored texts unchanged. CSV has no notation for control
    characters: on stdout they become escapes, on a terminal newlines too, and a note counts the
    changed cells.
    """
    import pyarrow as pa

    rows = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    if form == "parquet":
        import pyarrow.parquet as pq

        if out is None and sys.stdout.isatty():
            raise FlywheelError("Parquet cannot be printed on a terminal", "Give --out FILE.")
        target = out or sys.stdout.buffer
        pq.write_table(rows, target, compression="zstd", write_page_index=True)
        return
    if out is None:
        write_text(rows, form, sys.stdout, keys)
        return
    with open(out, "w", encoding="utf-8", newline="") as handle:
        write_text(rows, form, handle)


def write_text(rows: pa.Table, form: str, handle: TextIO, keys: Sequence[str] = ()) -> None:
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
        print_table(rows, handle, keys=keys)


def print_table(
    rows: pa.Table,
    handle: TextIO | None = None,
    title: str | None = None,
    keys: Sequence[str] = (),
) -> None:
    """Print at most SHOWN_ROWS rows as a table.

    A table on a terminal begins with its key columns. If it is too wide, it is narrowed: hashes
    and numbers get fewer digits, names and texts are wrapped. If it is still too wide, columns that
    are no keys are left out, and a note on stderr names them. Where keys do not fit, and instead of
    leaving a column of one or two rows out, each row becomes a block with a line per column.
    """
    from rich.text import Text

    target = handle or sys.stdout
    width = echo.terminal_width(target)
    drawn, left_out, needed = _draw(rows, width, keys)
    console = echo.open_console(file=target, width=width or needed)
    if title is not None:
        console.print(Text(escape_terminal(title), style="" if width is None else "bold"))
    console.print(drawn)
    if width is not None:
        console.print()
    if rows.num_rows > SHOWN_ROWS:
        echo.print_note(f"{SHOWN_ROWS} of {rows.num_rows} rows shown; --format csv gives all")
    if left_out:
        echo.print_note(f"columns that did not fit: {', '.join(left_out)}")


def render_text(rows: pa.Table, keys: Sequence[str], width: int) -> str:
    """Return a table of some width as plain text, as for a prompt of Python."""
    text = StringIO()
    drawn, left_out, _ = _draw(rows, width, keys)
    console = echo.open_console(file=text, width=width)
    console.print(drawn)
    if left_out:
        console.print(f"columns that did not fit: {', '.join(left_out)}", markup=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def render_html(rows: pa.Table) -> str:
    """Return a table as HTML in which every value is escaped."""
    names = "".join(f"<th>{html.escape(escape_terminal(name))}</th>" for name in rows.column_names)
    lines = (
        "".join(f"<td>{html.escape(format_cell(value))}</td>" for value in row.values())
        for row in list_rows(rows.slice(0, SHOWN_ROWS))
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _draw(
    rows: pa.Table, width: int | None, keys: Sequence[str]
) -> tuple[RenderableType, list[str], int]:
    """Return what to print, the columns that it leaves out, and its width."""
    from rich.cells import cell_len
    from rich.padding import Padding

    values = list_rows(rows.slice(0, SHOWN_ROWS))
    names = rows.column_names
    headers = {name: escape_terminal(name) for name in names}
    numbers = {field.name for field in rows.schema if _is_number(field.type)}
    if width is None:
        columns = {n: [format_cell(row[n], PIPED_CHARACTERS) for row in values] for n in names}
        widths = {name: max(map(cell_len, (headers[name], *columns[name]))) for name in names}
        drawn = _draw_columns(columns, headers, widths, numbers, is_piped=True)
        return drawn, [], sum(widths.values()) + 3 * len(widths) + 1
    room = width - _MARGIN
    first = [name for name in keys if name in names]
    names = [*first, *(name for name in names if name not in first)]
    columns = {name: [_format_for_terminal(row[name]) for row in values] for name in names}
    widths = {name: max(map(cell_len, (headers[name], *columns[name]))) for name in names}
    if sum(widths.values()) + _GAP * (len(names) - 1) <= room:
        drawn = _draw_columns(columns, headers, widths, numbers)
        return Padding.indent(drawn, _MARGIN), [], width
    words = dict[str, int]()
    for name in names:
        columns[name] = [_format_for_terminal(row[name], is_narrow=True) for row in values]
        header = max(map(len, _WORDS.findall(headers[name])))
        widths[name] = max([header, *map(cell_len, columns[name])])
        word = max((cell_len(w) for c in columns[name] for w in _WORDS.findall(c)), default=0)
        is_time = any(isinstance(row[name], datetime) for row in values)
        word = widths[name] if name in numbers or is_time else min(word, _LONGEST_WORD)
        words[name] = max(header, word)
    # A text takes two lines, or as many as it has words if the keys do not fit otherwise.
    least = {n: max(words[n], min(-(-widths[n] // 2), _NARROW_TEXT)) for n in names}
    if sum(least[name] + _GAP for name in first) > room + _GAP:
        least |= {name: words[name] for name in first}
    # Keys stay first; columns without any value are the first to be left out.
    names.sort(key=lambda name: name not in first and not any(columns[name]))
    left = room + _GAP
    fitting: list[str] = []
    for name in names:
        left -= least[name] + _GAP
        if left < 0 and fitting:
            left += least[name] + _GAP
            break
        fitting.append(name)
    left_out = names[len(fitting) :]
    if left_out and len(values) <= _RECORD_ROWS:
        left_out = list[str]()
        drawn = _draw_records(values, names, headers, room)
    elif len(fitting) < len(first):
        left_out = names[len(first) :]
        drawn = _draw_records(values, first, headers, room)
    else:
        for name in fitting:  # the room that is left goes to the first columns that need it
            more = min(widths[name] - least[name], left)  # less than none for one that is too wide
            widths[name] = least[name] + more
            left -= more
        drawn = _draw_columns({name: columns[name] for name in fitting}, headers, widths, numbers)
    return Padding.indent(drawn, _MARGIN), [headers[name] for name in left_out], width


def _draw_columns(
    columns: Mapping[str, Sequence[str]],
    headers: Mapping[str, str],
    widths: Mapping[str, int],
    numbers: Container[str],
    *,
    is_piped: bool = False,
) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    padding = (0, 1) if is_piped else (0, _GAP - 1, 0, 0)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=is_piped, padding=padding)
    for name in columns:
        header = Text("\n".join(_wrap(headers[name], widths[name])))
        justify = "right" if name in numbers else "left"
        drawn.add_column(header, justify=justify, no_wrap=True, width=widths[name])
    for cells in zip(*columns.values(), strict=True):
        # Text objects: markup inside stored values stays plain text.
        lines = (
            Text("\n".join(_wrap(cell, widths[name], _MOST_LINES)), _choose_style(name, cell))
            for name, cell in zip(columns, cells, strict=True)
        )
        drawn.add_row(*lines)
    return drawn


def _draw_records(
    values: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    headers: Mapping[str, str],
    width: int,
) -> RenderableType:
    """Return a block for each row, with a line for each column."""
    from rich.console import Group
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    blocks: list[RenderableType] = []
    longest = max(map(len, headers.values()))
    for number, row in enumerate(values, start=1):
        block = Table.grid(padding=(0, _GAP, 0, 0))
        block.add_column(no_wrap=True, width=min(longest, width // 2))
        block.add_column(overflow="fold")
        for name in names:
            cell = _format_for_terminal(row[name])
            lines = _wrap(cell, max(width - longest - _GAP, 8))
            block.add_row(Text(headers[name]), Text("\n".join(lines), _choose_style(name, cell)))
        blocks += [Rule(Text(str(number)), align="left", style=""), block]
    return Group(*blocks)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _choose_style(name: str, cell: str) -> str:
    return _STYLES.get(cell, "") if name in _STATUS_COLUMNS else ""


def _wrap(text: str, width: int, most: int | None = None) -> list[str]:
    """Return the lines of a cell: whole words, and names broken behind "_", "/" and ",".

    most: Number of lines after which the text is cut.

    >>> _wrap("compile_reduce_overhead", 16), _wrap("two words", 6)
    (['compile_reduce_', 'overhead'], ['two', 'words'])
    """
    from rich.cells import cell_len, chop_cells

    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in _WORDS.findall(text):
        if cell_len(lines[-1] + word.rstrip()) <= width:
            lines[-1] += word
            continue
        lines += chop_cells(word, width) if cell_len(word.rstrip()) > width else [word]
    lines = [line.rstrip() for line in lines if line.strip()] or [""]
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], f"{chop_cells(lines[most - 1], max(width - 1, 1))[0]}…"]
    return lines


def _format_for_terminal(value: object, *, is_narrow: bool = False) -> str:
    """Return a cell as `format_cell` does; lists without quotes, and shorter if it is narrow."""
    if isinstance(value, list):
        value = ", ".join(map(str, cast("list[object]", value)))
    if is_narrow:
        if isinstance(value, float) and not value.is_integer():
            return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%d %H:%M")
        if isinstance(value, str):
            if _CUT_HASH.fullmatch(value):
                return value[:8]
            if _UUID.fullmatch(value):
                return value[:13]  # its milliseconds
    return format_cell(value, _TERMINAL_CHARACTERS)


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
