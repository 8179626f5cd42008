"""Finds the importer that a path is for: `store import detect PATH`.

An importer recognizes its format by a function `recognize(path)`, which returns what it saw, or
None. It reads names, the first line of a file or the columns of a Parquet file, and no more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from store.commandline.members import find_members
from store.errors import FlywheelError, ImportFailed
from store.foreign import json_text

log = logging.getLogger(__name__)

FIRST_LINE_BYTES = 4 << 20
HEAD_BYTES = 64 << 10
FOOTER_BYTES = 16 << 20
SEARCHED_FILES = 2_000
"""How many entries of a folder are looked at."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One importer that fits a path."""

    importer: str
    seen: str
    """What it recognizes."""


def detect(path: Path) -> list[Match]:
    """Return the importers that recognize a path, in order of their names.

    Raises ImportFailed if the path does not exist.
    """
    if not path.exists():
        raise ImportFailed(f"{path} does not exist", "Check the path.")
    found: list[Match] = []
    for name, member in sorted(find_members("store.importers").items()):
        # An importer of the user that fails is reported and skipped.
        try:
            recognize = getattr(member.load(), "recognize", None)
            seen = None if recognize is None else recognize(path)
        except FlywheelError as error:
            log.warning("%s: %s", member.name, error.message)
            continue
        except OSError as error:
            log.warning("%s cannot read %s: %s", member.name, path, error)
            continue
        if seen is not None:
            found.append(Match(importer=name, seen=seen))
    return found


def choose(path: Path, found: Sequence[Match]) -> Match:
    """Return the one match; raises ImportFailed if there is none or more than one."""
    if not found:
        raise ImportFailed(
            f"no importer recognizes {path}",
            "`store import --help` lists the importers. Name the folder that holds the files of "
            "one format, or the file itself.",
        )
    if len(found) > 1:
        listed = "\n".join(f"  {one.importer}: {one.seen}" for one in found)
        raise ImportFailed(
            f"{len(found)} importers recognize {path}:\n{listed}",
            "Name the importer yourself, or a path with the files of one format.",
        )
    return found[0]


def list_files(path: Path, *patterns: str) -> list[Path]:
    """Return a file that fits a pattern, or the first files below a folder that do, in order."""
    if path.is_file():
        return [path] if any(path.match(pattern) for pattern in patterns) else []
    found: list[Path] = []
    for pattern in patterns:
        found += islice(path.glob(pattern), SEARCHED_FILES)
    return sorted(found)


def list_below(path: Path, pattern: str) -> list[Path]:
    """Return the first files that fit a pattern at most three folders deep, in order."""
    return list_files(path, *(f"{'*/' * depth}{pattern}" for depth in range(4)))


def read_first_object(file: Path) -> dict[str, Any]:
    """Return the object in the first line of a file, empty if there is none."""
    try:
        with json_text.open_bytes(file) as handle:
            line = handle.readline(FIRST_LINE_BYTES)
        value = json_text.parse(line.decode("utf-8-sig"), file.name)
    except (ImportFailed, OSError, EOFError, UnicodeDecodeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_head(file: Path) -> str:
    """Return the first characters of a file."""
    try:
        with json_text.open_bytes(file) as handle:
            return handle.read(HEAD_BYTES).decode("utf-8", "replace")
    except (ImportFailed, OSError, EOFError):
        return ""


def has_names(file: Path, *names: str) -> bool:
    """Return whether the beginning of a JSON file has all these names of fields."""
    head = read_head(file)
    return all(re.search(rf'"{re.escape(name)}"\s*:', head) for name in names)


def read_columns(path: Path) -> set[str]:
    """Return the columns of a Parquet file, or of the first one below a folder; empty if none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = list_files(path, "*.parquet", "data/*.parquet", "*/*.parquet")
    if not files:
        return set()
    try:
        with open(files[0], "rb") as handle:
            handle.seek(-8, 2)
            footer = int.from_bytes(handle.read(4), "little")
        if footer > FOOTER_BYTES:
            return set()
        return set(pq.read_schema(files[0]).names)
    except (pa.ArrowException, OSError):
        return set()


def find_columns(path: Path, *names: str) -> str | None:
    """Return the columns in words if a Parquet file, or one below a folder, has all of them."""
    return f"columns {', '.join(names)}" if set(names) <= read_columns(path) else None
