"""Untrusted CSV: rows as objects with their lines, and with limits on the length of a field."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from store import faults
from store.errors import ImportFailed
from store.foreign.fields import NOTHING_STORED, Fields

MAX_FIELD = 16 << 20
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def read_rows(
    file: Path,
    required: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    flags: Sequence[str] = (),
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
