"""Untrusted JSON, YAML and CSV: parsed with limits, refused with file and line, read by field.

YAML is one document of plain values, and CSV has limits on the length of a field. Python's parser
of JSON accepts more than JSON allows and less than data needs: the last of two equal names wins,
NaN and 1e999 become numbers that nothing can store, and a nested text passes here only to exhaust
the stack where it is written again. This module refuses equal names and deep nesting, and reads
numbers that are not finite as None.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

import yaml

from store import faults
from store.errors import ImportFailed
from store.foreign import left_out
from store.ids import clean_text as clean

MAX_DEPTH = 100
MAX_LINE_BYTES = 64 << 20


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text; numbers that are not finite are None.

    Raises ImportFailed, with `where` in its message, for text that is not JSON, for an object that
    has a name twice, and for nesting deeper than MAX_DEPTH.
    """
    try:
        value = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_refuse_repeats,
            parse_constant=lambda _: None,
            parse_float=lambda text: read_figure(float(text)),
        )
    except json.JSONDecodeError as error:
        at = f", line {error.lineno}" if error.lineno > 1 else ""
        why = error.msg.removesuffix(" at")
        raise ImportFailed(f"{where}{at}: {why}", NOTHING_STORED) from error
    except RecursionError as error:
        raise ImportFailed(f"{where} is nested too deeply", NOTHING_STORED) from error
    except ValueError as error:
        raise ImportFailed(f"{where}: {error}", NOTHING_STORED) from error
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value, where)
    return value


def parse_object(text: str, where: str, size: int = 0) -> Fields:
    """Return the object of a JSON text like `parse_json`; raises ImportFailed for other values."""
    return require_object(parse_json(text, where), where, size)


def require_object(value: Any, where: str, size: int = 0) -> Fields:
    """Return a value of JSON that is an object; raises ImportFailed for others."""
    if not isinstance(value, dict):
        raise ImportFailed(
            f"{where}: an object is expected, not {type(value).__name__}", NOTHING_STORED
        )
    return Fields(values=cast("Mapping[str, Any]", value), where=where, size=size)


def read_lines(file: Path) -> Iterator[Fields]:
    """Yield the objects of a JSON Lines file.

    A compressed file is decompressed while it is read. Blank lines are skipped. An import leaves
    out a line that is no JSON object or not UTF-8.

    Raises ImportFailed if a line exceeds MAX_LINE_BYTES.
    """
    with open_bytes(file) as handle:
        for number in count(1):
            where = f"{file}, line {number}"
            try:
                line = handle.readline(MAX_LINE_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise faults.explain(error, file, ImportFailed) or ImportFailed(
                    f"{where}: {error}", NOTHING_STORED
                ) from error
            if not line:
                return
            if line.isspace():
                continue
            if len(line) > MAX_LINE_BYTES:
                raise ImportFailed(
                    f"{where} is longer than {MAX_LINE_BYTES >> 20} MiB", NOTHING_STORED
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                fields = parse_object(text, where, len(line))
            except UnicodeDecodeError as error:
                problem = f"{where}: not UTF-8 at byte {error.start}"
                left_out.get_record().refuse(ImportFailed(problem, NOTHING_STORED))
            except ImportFailed as error:
                left_out.get_record().refuse(error)
            else:
                yield fields


def open_bytes(file: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if it begins as gzip does. Refuse UTF-16."""
    with faults.at(file, ImportFailed), open(file, "rb") as handle:
        head = handle.read(2)
        if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ImportFailed(
                f"{file} is UTF-16, not UTF-8", "`iconv -f UTF-16 -t UTF-8 FILE` converts it."
            )
        return cast("IO[bytes]", gzip.open(file)) if head == b"\x1f\x8b" else open(file, "rb")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!a:.60} twice")
    return made


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


def parse_yaml(text: str, where: str) -> Fields:
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
    return Fields(values=value, where=where)


class _Loader(yaml.SafeLoader):
    """Refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


MAX_FIELD = 16 << 20
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def read_csv(
    file: Path,
    required: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Iterator[Fields]:
    """Yield the rows of a CSV file with a header.

    Values are texts, and empty ones are None. `numbers` and `flags` name columns that are numbers
    (NaN is None) and truth values. An import leaves out a row with more or fewer fields than the
    header, with a value that is not of its column's type, or not UTF-8.

    Raises ImportFailed if a required column is missing, or a name is in the header twice.
    """
    csv.field_size_limit(MAX_FIELD)
    with _open_csv(file) as lines:
        reader = csv.DictReader(lines, strict=True)
        names = list(reader.fieldnames or ())
        missing = [name for name in required if name not in names]
        if missing:
            raise ImportFailed(
                f"{file} has no column {', '.join(missing)}",
                f"It has {', '.join(names)[:200]}.",
            )
        if twice := next((name for name in names if name and names.count(name) > 1), None):
            raise ImportFailed(f"{file} has the column {twice!a:.60} twice", NOTHING_STORED)
        for row in reader:
            where = f"{file}, line {reader.line_num}"
            with left_out.errors():
                if None in row or None in row.values():
                    problem = f"{where}: more or fewer fields than the header"
                    raise ImportFailed(problem, NOTHING_STORED)
                if clean(text := "".join(row.values())) != text.replace("\0", "\ufffd"):
                    raise ImportFailed(f"{where}: not UTF-8", NOTHING_STORED)
                values: dict[str, Any] = {name: value or None for name, value in row.items()}
                fields = Fields(values=values, where=where, size=sum(map(len, row.values())))
                for names, read in ((numbers, fields.number), (flags, fields.flag)):
                    values.update([(name, read(name)) for name in names])
                yield fields


def read_header(file: Path) -> list[str]:
    """Return the columns of a CSV file; raises ImportFailed if it cannot be read."""
    with _open_csv(file) as lines:
        return next(csv.reader(lines, strict=True), [])


@contextmanager
def _open_csv(file: Path) -> Generator[Iterator[str]]:
    """Open a CSV file for its lines, in which bytes that are not UTF-8 are lone surrogates."""

    def read(handle: io.TextIOWrapper) -> Iterator[str]:
        while line := handle.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise csv.Error(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB")
            yield line

    try:
        with (
            open_bytes(file) as data,
            io.TextIOWrapper(data, "utf-8-sig", errors="surrogateescape", newline="") as handle,
        ):
            yield read(handle)
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        raise faults.explain(error, file, ImportFailed) or ImportFailed(
            f"{file} cannot be read as CSV: {error}", NOTHING_STORED
        ) from error


NOTHING_STORED = "Nothing of it is stored. Correct or remove it, then import again."
TEXT_CHARACTERS = 1_000_000
"""Longest text that `prose` returns."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """An object with the place it comes from. NULL, an empty value and a missing name are equal."""

    values: Mapping[str, Any]
    where: str
    """Place for error messages, such as `runs.jsonl, line 3`."""
    size: int = 0
    """Bytes that it takes in its file."""

    def without(self, *absent: str) -> Fields:
        """Return the object without the texts that its source writes for a missing value."""
        stated = {
            name: value
            for name, value in self.values.items()
            if not isinstance(value, str) or value.strip() not in absent
        }
        return Fields(values=stated, where=self.where, size=self.size)

    def text(self, name: str) -> str | None:
        """Return a short text such as a name, in one line, or None."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bytes):
            return self.code(name)
        if isinstance(value, int | float | Decimal):
            return str(value)
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        return " ".join(clean(value).split()) or None

    def require_text(self, name: str) -> str:
        """Return a short text; raises ImportFailed if there is none."""
        value = self.text(name)
        if value is None:
            raise self.refuse(name, "a text")
        return value

    def code(self, name: str) -> str | None:
        """Return a text unchanged, or None if it is blank.

        Raises ImportFailed for a text with a zero byte or a lone surrogate: a kernel is its exact
        bytes, so nothing in it is replaced.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError as error:
                raise self.refuse(name, "UTF-8") from error
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        if "\0" in value or clean(value) != value:
            raise ImportFailed(
                f"{self.where}: {name} holds a zero byte or a lone surrogate", NOTHING_STORED
            )
        return value if value.strip() else None

    def require_code(self, name: str) -> str:
        """Return a text unchanged; raises ImportFailed if there is none."""
        value = self.code(name)
        if value is None:
            raise self.refuse(name, "a text")
        return value

    def prose(self, name: str) -> str | None:
        """Return a long text, or None; characters that cannot be stored are replaced."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        return cut(clean(value)) if value.strip() else None

    def number(self, name: str) -> float | None:
        """Return a finite number, or None.

        Decimals and truth values count, and texts of numbers, as CSV has them.
        """
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, int | float | Decimal | str):
            raise self.refuse(name, "a number")
        try:
            number = float(value)
        except OverflowError:
            return None
        except ValueError:
            raise self.refuse(name, "a number") from None
        return number if math.isfinite(number) else None

    def positive(self, name: str) -> float | None:
        """Return a number above zero, or None: 0 and -1 stand for a missing measurement."""
        value = self.number(name)
        return value if value is not None and value > 0 else None

    def whole(self, name: str, most: int = 2**31 - 1) -> int | None:
        """Return a whole number from 0 to `most`, or None."""
        value = self.number(name)
        if value is None:
            return None
        if not value.is_integer() or not 0 <= value <= most:
            raise self.refuse(name, f"a whole number from 0 to {most}")
        return int(value)

    def require_whole(self, name: str, most: int = 2**31 - 1) -> int:
        """Return a whole number; raises ImportFailed if there is none."""
        value = self.whole(name, most)
        if value is None:
            raise self.refuse(name, "a whole number")
        return value

    def flag(self, name: str) -> bool | None:
        """Return true, false or None; 0 and 1 count as well, and words as CSV has them."""
        value = self.values.get(name)
        if value is None or value == "" or value != value:  # NaN, in columns with gaps
            return None
        if isinstance(value, str) and value.lower() in _FLAGS:
            return _FLAGS[value.lower()]
        if not isinstance(value, str) and value in (0, 1):
            return bool(value)
        raise self.refuse(name, "true or false")

    def inner(self, name: str) -> Fields:
        """Return an object inside this one, which may be a JSON text; empty if it is missing."""
        value = self._parse(name, "{")
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(name, "an object")
        inner = cast("Mapping[str, Any]", value or {})
        return Fields(values=inner, where=f"{self.where}, {name}")

    def _parse(self, name: str, begin: str) -> Any:
        """Return a value, parsed if it is a JSON text that begins so; None for a blank one."""
        value = self.values.get(name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str) and value.lstrip().startswith(begin):
            return parse_json(value, f"{self.where}, {name}")
        return None if isinstance(value, str) and not value.strip() else value

    def list(self, name: str) -> list[Fields]:
        """Return the objects of a list, empty if it is missing.

        The list and its objects may be JSON texts. An import leaves out what is no object.
        """
        value = self._parse(name, "[")
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(name, "a list")
        objects: list[Fields] = []
        for number, one in enumerate(cast("list[Any]", value)):
            where = f"{self.where}, {name} {number}"
            with left_out.errors():
                inner = parse_json(one, where) if isinstance(one, str) else one
                if not isinstance(inner, Mapping):
                    said = f"{type(inner).__name__} {one!a:.40}"
                    raise ImportFailed(f"{where}: it is {said}, not an object", NOTHING_STORED)
                objects.append(Fields(values=cast("Mapping[str, Any]", inner), where=where))
        return objects

    def moment(self, name: str) -> datetime | None:
        """Return a time in UTC, at most now, or None.

        It comes from ISO 8601, or from seconds, milli-, micro- or nanoseconds since 1970.
        """
        value = self.values.get(name)
        try:
            if isinstance(value, datetime):
                moment = value
            elif isinstance(value, date):
                moment = datetime(value.year, value.month, value.day)
            elif isinstance(value, str) and value:
                moment = datetime.fromisoformat(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                # A time of this century has 10 digits in seconds, and 3 more per finer unit.
                digits = len(str(int(abs(value))))
                moment = datetime.fromtimestamp(value / 10 ** max(0, (digits - 8) // 3 * 3), UTC)
            else:
                return None
            zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return min(zoned.astimezone(UTC), datetime.now(UTC))
        except (ValueError, OverflowError, OSError):
            return None

    def json(self, name: str) -> str | None:
        """Return a value as JSON, or None if it is missing; a text that is one stays a text."""
        value = self.values.get(name)
        if value is None:
            return None
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return cut(clean(text))

    def refuse(self, name: str, wanted: str) -> ImportFailed:
        """Return the error of a field that is not what is wanted."""
        value = self.values.get(name)
        said = "missing" if value is None else f"{type(value).__name__} {value!a:.40}"
        return ImportFailed(f"{self.where}: {name} is {said}, not {wanted}", NOTHING_STORED)


def read_figure(value: Any, least: float = -math.inf) -> float | None:
    """Return a finite number of at least `least`; None for anything else, which files write too."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        figure = float(value)
    except (OverflowError, ValueError):  # a whole number of 400 digits, a signaling NaN
        return None
    return figure if math.isfinite(figure) and figure >= least else None


def measure(value: Any) -> int:
    """Return the number of characters of all texts in a value, also in its lists and objects.

    >>> measure({"role": "user", "parts": ["ab", None, 3]})
    6
    """
    total, inside = 0, [value]
    while inside:
        one = inside.pop()
        if isinstance(one, str | bytes):
            total += len(one)
        elif isinstance(one, Mapping):
            inside.extend(cast("Mapping[str, Any]", one).values())
        elif isinstance(one, list | tuple):
            inside.extend(cast("list[Any]", one))
    return total


def cut(text: str) -> str:
    """Return text of at most TEXT_CHARACTERS; a note states how much is left out."""
    more = len(text) - TEXT_CHARACTERS
    return text if more <= 0 else f"{text[:TEXT_CHARACTERS]}\n[{more} characters left out]"
