"""Escapes foreign text for printing: `escape_terminal` and the functions that apply it.

Foreign text comes from models, kernels, tasks, imported files, stored rows, servers, file names and
exceptions. Printed unchanged, it could clear the screen, rename the window, or forge a line that
looks like a verdict.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

PREFIX = "  | "
"""Begins every line of foreign text, so that none begins in the column of our lines."""
_TAB_WIDTH = 4
_QUOTING = b"\\'\""
_LONGEST_NAME = 120
_BETWEEN_BREAKS = re.compile(r"[^\n\t]+")
_SUSPECT = re.compile(r"[^ -~]")
_ESCAPED_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
# Letters and marks that Unicode calls default-ignorable: they have no width and no glyph.
_INVISIBLE = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0)
) | frozenset((*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))


def escape_terminal(text: str) -> str:
    """Return text as one line in which every character is visible and none controls a terminal.

    These characters become escapes as in Python literals, such as `\\x1b` and `\\u202e`:
    control characters (category Cc: C0 with newline and tab, DEL, C1), format characters (Cf: marks
    of the direction of writing, zero-width characters, tags), lone surrogates (Cs), private use
    (Co) and unassigned code points (Cn), which terminals show in different ways, line and paragraph
    separators (Zl, Zp), spaces other than U+0020 (Zs), and the letters and variation selectors
    without a glyph. All other text stays unchanged in every script, so that the result is always
    printable in the sense of `str.isprintable`.

    A backslash stays a backslash, because kernels are full of them. The result is for reading only;
    JSON and Parquet keep the text itself.

    >>> escape_terminal("\\x1b[2J\\r\\x9bm\\u202e a\\nb\\x7f"), escape_terminal("é 日本 → ✓")
    ('\\\\x1b[2J\\\\r\\\\x9bm\\\\u202e a\\\\nb\\\\x7f', 'é 日本 → ✓')
    """
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(lambda found: _escape_char(found[0]), text)


def escape_text(text: str) -> str:
    """Return a text escaped as by `escape_terminal`, except that newlines and tabs stay.

    >>> escape_text("a\\x1b[2Jb\\u202e"), escape_text("kept:\\tthis\\n")
    ('a\\\\x1b[2Jb\\\\u202e', 'kept:\\tthis\\n')
    """
    return _BETWEEN_BREAKS.sub(lambda part: escape_terminal(part[0]), text)


def escape_lines(text: str, *, prefix: str = PREFIX, width: int | None = None) -> list[str]:
    """Return the lines of a foreign text, each escaped and with a prefix.

    Only newlines end a line. Tabs become spaces.

    Args:
        text: The text; a newline at its end adds no line.
        prefix: Begins every line.
        width: Columns of the terminal, if there is one. Longer lines are folded between words,
            because the terminal itself would continue them in its first column, without a prefix.

    >>> escape_lines("boom\\nmine.py on CPU: correct\\n", width=20)
    ['  | boom', '  | mine.py on CPU:', '  | correct']
    """
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    shown = [escape_terminal(line.expandtabs(_TAB_WIDTH)) for line in lines]
    room = None if width is None else max(width - len(prefix), 8)
    return [f"{prefix}{part}" for line in shown for part in fold(line, room)]


def quote_name(text: str) -> str:
    """Return a name as one word: escaped, and in quotes if it could be read as more than a name.

    >>> quote_name("softmax.py"), quote_name("x.py on CPU: correct"), quote_name("a" * 200)[-3:]
    ('softmax.py', '"x.py on CPU: correct"', 'aa…')
    """
    shown = escape_terminal(text)
    if len(shown) > _LONGEST_NAME:
        shown = shown[: _LONGEST_NAME - 1] + "…"
    plain = shown and not any(char.isspace() for char in shown) and shown[0] not in "\"'"
    return shown if plain else '"' + shown.replace('"', '\\"') + '"'


def encode_json(value: Any, *, indent: int | None = 1) -> str:
    """Return a value as JSON with escapes for control and non-ASCII characters.

    A program reads the stored text back, and nothing in the JSON controls a terminal. Values that
    JSON cannot represent become their text, such as "NaN", "Infinity" and "-Infinity".

    >>> encode_json([float("nan"), b"a\\x00"], indent=None)
    '["NaN", "a\\\\\\\\x00"]'
    """
    try:
        text = json.dumps(value, indent=indent, default=_spell_value, allow_nan=False)
    except ValueError:
        finite = _spell_infinite(value)
        text = json.dumps(finite, indent=indent, default=_spell_value, allow_nan=False)
    # The encoder does not escape DEL, which occurs only in strings.
    return text.replace("\x7f", "\\u007f")


def spell_bytes(data: bytes) -> str:
    """Return bytes as the text that DuckDB prints: ASCII, with escapes for all other bytes.

    >>> spell_bytes(b"abc\\xff")
    'abc\\\\xFF'
    """
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in _QUOTING else f"\\x{byte:02X}"
        for byte in data
    )


def _spell_value(value: object) -> str:
    return spell_bytes(value) if isinstance(value, bytes) else str(value)


def _spell_infinite(value: Any) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value).items()
        return {name: _spell_infinite(field) for name, field in fields}
    if isinstance(value, list | tuple):
        return [_spell_infinite(one) for one in cast("Sequence[Any]", value)]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@lru_cache(maxsize=4096)
def _escape_char(char: str) -> str:
    if unicodedata.category(char) in _ESCAPED_CATEGORIES or ord(char) in _INVISIBLE:
        return char.encode("unicode_escape").decode()
    return char


def fold(line: str, width: int | None) -> list[str]:
    """Return an escaped line in parts that fit a width, broken behind spaces where it has some.

    >>> fold("run store query first", 11), fold("a_name_of_19_letters", 11)
    (['run store', 'query first'], ['a_name_of_1', '9_letters'])
    """
    if width is None or len(line) * 2 <= width:
        return [line]
    from rich.cells import cell_len, chop_cells

    parts: list[str] = []
    while cell_len(line.rstrip()) > width:
        part = chop_cells(line, width)[0]
        end = len(part)
        last_word = part.rpartition(" ")[2]
        if line[end] != " " and last_word != part.lstrip():
            end -= len(last_word)
        parts.append(line[:end].rstrip())
        line = line[end:].removeprefix(" ")
    return [*parts, line]
