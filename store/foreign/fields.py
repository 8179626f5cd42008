"""The fields of one untrusted object, such as a line of JSON or a row of a table, read by type."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from store.errors import ImportFailed

NOTHING_STORED = "Nothing of this file is stored. Correct or remove it, then import again."
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
        if value is None or isinstance(value, int | float) or not value:
            return None if value is None or value == "" else str(value)
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
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        return cut(clean(value)) if value.strip() else None

    def number(self, name: str) -> float | None:
        """Return a finite number, or None."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(name, "a number")
        try:
            number = float(value)
        except OverflowError:
            return None
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

    def require_whole(self, name: str) -> int:
        """Return a whole number; raises ImportFailed if there is none."""
        value = self.whole(name)
        if value is None:
            raise self.refuse(name, "a whole number")
        return value

    def flag(self, name: str) -> bool | None:
        """Return true, false or None; 0 and 1 count as well."""
        value = self.values.get(name)
        if value is None:
            return None
        if value in (0, 1):
            return bool(value)
        raise self.refuse(name, "true or false")

    def inner(self, name: str) -> Fields:
        """Return an object inside this one, empty if it is missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(name, "an object")
        inner = cast("Mapping[str, Any]", value or {})
        return Fields(values=inner, where=f"{self.where}, {name}")

    def list(self, name: str) -> list[Fields]:
        """Return the objects of a list, empty if it is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(name, "a list")
        listed = cast("list[Any]", value)
        if not all(isinstance(one, Mapping) for one in listed):
            raise self.refuse(name, "a list of objects")
        return [
            Fields(values=one, where=f"{self.where}, {name} {number}")
            for number, one in enumerate(listed)
        ]

    def moment(self, name: str) -> datetime | None:
        """Return a time in UTC, from ISO 8601 or seconds since 1970, at most now; or None."""
        value = self.values.get(name)
        try:
            if isinstance(value, datetime):
                moment = value
            elif isinstance(value, str) and value:
                moment = datetime.fromisoformat(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                moment = datetime.fromtimestamp(value, UTC)
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= sys.float_info.max else None


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


def clean(text: str) -> str:
    """Return text that can be stored: lone surrogates and zero bytes are replaced."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def cut(text: str) -> str:
    """Return text of at most TEXT_CHARACTERS; a note states how much is left out."""
    more = len(text) - TEXT_CHARACTERS
    return text if more <= 0 else f"{text[:TEXT_CHARACTERS]}\n[{more} characters left out]"
