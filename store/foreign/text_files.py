"""Untrusted JSON, YAML and CSV: parsed with limits, and refused with file and line.

YAML is one document of plain values, and CSV has limits on the length of a field. Python's parser
of JSON accepts more than JSON allows and less than data needs: the last of two equal names wins,
NaN and 1e999 become numbers that nothing can store, and a nested text passes here only to exhaust
the stack where it is written again. This module refuses equal names and deep nesting, and reads
numbers that are not finite as None.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import yaml

from store import faults
from store.errors import ImportFailed
from store.foreign.fields import NOTHING_STORED, Fields

MAX_DEPTH = 100
MAX_LINE_BYTES = 64 << 20


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text; numbers that are not finite are None.

    Raises ImportFailed, with `where` in its message, for text that is not JSON, for an object that
    has a name twice, and for nesting deeper than MAX_DEPTH.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_refuse_repeats,
            parse_constant=lambda _: None,
            parse_float=_read_float,
        )
    except json.JSONDecodeError as error:
        at = f", line {error.lineno}" if error.lineno > 1 else ""
        raise ImportFailed(f"{where}{at}: {error.msg}", NOTHING_STORED) from error
    except RecursionError as error:
        raise ImportFailed(f"{where} is nested too deeply", NOTHING_STORED) from error
    except ValueError as error:
        raise ImportFailed(f"{where}: {error}", NOTHING_STORED) from error
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value, where)
    return value


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the object of a JSON text like `parse_json`; raises ImportFailed for other values."""
    value = parse_json(text, where)
    if not isinstance(value, dict):
        raise ImportFailed(
            f"{where}: an object is expected, not {type(value).__name__}", NOTHING_STORED
        )
    return cast("dict[str, Any]", value)


def read_lines(file: Path) -> Iterator[tuple[dict[str, Any], str, int]]:
    """Yield the objects of a JSON Lines file with their places and sizes in bytes.

    A name that ends in .gz is decompressed while it is read. Blank lines are skipped.

    Raises ImportFailed if a line is no JSON object, is not UTF-8, or exceeds MAX_LINE_BYTES.
    """
    with open_bytes(file) as handle:
        number = 0
        while line := read_line(handle, file):
            number += 1
            if line.isspace():
                continue
            where = f"{file}, line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise ImportFailed(
                    f"{where} is longer than {MAX_LINE_BYTES >> 20} MiB", NOTHING_STORED
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ImportFailed(
                    f"{where} is not UTF-8 at byte {error.start}", NOTHING_STORED
                ) from error
            yield parse_object(text, where), where, len(line)


def open_bytes(file: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in .gz."""
    with faults.at(file, ImportFailed):
        return cast("IO[bytes]", gzip.open(file)) if file.suffix == ".gz" else open(file, "rb")


def read_line(handle: IO[bytes], file: Path) -> bytes:
    """Return the next line, at most one byte longer than MAX_LINE_BYTES; empty at the end."""
    try:
        return handle.readline(MAX_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise faults.explain(error, file, ImportFailed) or ImportFailed(
            f"{file} cannot be read: {error}", NOTHING_STORED
        ) from error


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!a:.60} twice")
    return made


def _read_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _check_depth(value: Any, where: str) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in cast("list[Any]", one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ImportFailed(f"{where} is nested deeper than {MAX_DEPTH} levels", NOTHING_STORED)


MAX_CHARACTERS = 4 << 20


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Return the mapping of a YAML text.

    Raises ImportFailed if the text is no YAML or no mapping, has an alias or a tag of its own, is
    nested too deeply, or is longer than MAX_CHARACTERS; `where` is in the message.
    """
    if len(text) > MAX_CHARACTERS:
        raise ImportFailed(
            f"{where} has more than {MAX_CHARACTERS} characters of YAML", NOTHING_STORED
        )
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportFailed(f"{where} is not YAML: {error}", NOTHING_STORED) from error
    if not isinstance(value, dict):
        raise ImportFailed(f"{where}: a mapping is expected", NOTHING_STORED)
    return cast("dict[str, Any]", value)


class _Loader(yaml.SafeLoader):
    """Refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


MAX_FIELD = 16 << 20
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def read_csv(
    file: Path, required: Sequence[str], *, numbers: Sequence[str] = (), flags: Sequence[str] = ()
) -> Iterator[Fields]:
    """Yield the rows of a CSV file with a header.

    Values are texts, and empty ones are None. `numbers` and `flags` name columns that are numbers
    (NaN is None) and truth values.

    Raises ImportFailed if a required column is missing, a row has too many fields, or a value is
    not of its column's type; the message has the line.
    """
    csv.field_size_limit(MAX_FIELD)
    try:
        with open(file, encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, strict=True)
            missing = [name for name in required if name not in (reader.fieldnames or ())]
            if missing:
                raise ImportFailed(
                    f"{file} has no column {', '.join(missing)}",
                    f"It has {', '.join(reader.fieldnames or ())[:200]}.",
                )
            for row in reader:
                where = f"{file}, line {reader.line_num}"
                if None in row or None in row.values():
                    raise ImportFailed(f"{where} has more or fewer fields than the header")
                values: dict[str, Any] = {name: value or None for name, value in row.items()}
                for names, kind, read in (
                    (numbers, "a number", float),
                    (flags, "true or false", lambda text: _FLAGS[text.lower()]),
                ):
                    for name in names:
                        text = values.setdefault(name, None)
                        try:
                            values[name] = None if text is None else read(text)
                        except (ValueError, KeyError):
                            raise ImportFailed(
                                f"{where}: {name} is {text!a:.40}, not {kind}", NOTHING_STORED
                            ) from None
                yield Fields(values=values, where=where, size=sum(map(len, row.values())))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise faults.explain(error, file, ImportFailed) or ImportFailed(
            f"{file} cannot be read as CSV: {error}", NOTHING_STORED
        ) from error
