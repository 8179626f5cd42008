"""Ids of rows: computed from their content, or from the time of their creation."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def content_id(*parts: str | None) -> str:
    """Return the sha256 of the parts with their boundaries kept.

    >>> content_id("ab", "c") == content_id("a", "bc")
    False
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hash_file(file: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def normalize(code: str) -> str:
    r"""Return task text as it is stored and hashed.

    The rule: no byte-order mark, newlines as LF, exactly one newline at the end; nothing else
    changes, so that whitespace inside the text still tells two tasks apart.

    >>> normalize("\ufeffx = 1\r\ny = 2\n\n")
    'x = 1\ny = 2\n'
    """
    text = code.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.rstrip("\n") + "\n"


def clean_text(text: str) -> str:
    r"""Return text that can be stored: lone surrogates and NUL characters are replaced.

    >>> clean_text("a\x00b\ud800c")
    'a\ufffdb?c'
    """
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def task_id(code: str) -> str:
    """Return the id of a task: the sha256 of its normalized text as UTF-8."""
    return hashlib.sha256(normalize(code).encode()).hexdigest()


def kernel_id(
    files: Mapping[str, str],
    entry_path: str,
    entry_point: str = "ModelNew",
    build_flags: Iterable[str] = (),
) -> str:
    """Return the id of a kernel: its files (path to text), entry point and flags; nothing else."""
    parts = json.dumps([sorted(files.items()), entry_path, entry_point, list(build_flags)])
    return hashlib.sha256(parts.encode()).hexdigest()


def messages_json(messages: Sequence[Mapping[str, object]]) -> str:
    """Return messages as the JSON that the table `prompts` stores.

    >>> messages_json([{"role": "user", "content": "hi"}])
    '[{"role": "user", "content": "hi"}]'
    """
    plain = [{"role": turn["role"], "content": turn["content"]} for turn in messages]
    return json.dumps(plain, ensure_ascii=False)


def prompt_id(messages: Sequence[Mapping[str, object]]) -> str:
    """Return the id of a prompt: the sha256 of its messages as JSON."""
    return hashlib.sha256(messages_json(messages).encode()).hexdigest()


def workload_id(task: str, axes: str = "{}", dtype: str | None = None) -> str:
    """Return the id of a workload; `axes` is a JSON object, whose key order does not matter."""
    return content_id("workload", task, json.dumps(json.loads(axes), sort_keys=True), dtype)


FORMS = ("task", "text", "kernel", "workload", "parts")
"""The forms of ids that catalog.yaml can name."""


def compute_row_id(form: str, kind: str | None, values: Sequence[Any]) -> str | None:
    """Return the id that a row with these values must have, or None if no id is valid."""
    try:
        if form == "task":
            (code,) = values
            # Only one text with each normal form is stored.
            return task_id(code) if code == normalize(code) else None
        if form == "text":
            return hashlib.sha256(values[0].encode()).hexdigest()
        if form == "kernel":
            code, path, entry_point, other_files, build_flags = values
            others = {other["path"]: other["code"] for other in other_files or ()}
            if len({path, *others}) <= len(other_files or ()):
                return None  # which of two files with one path would be built?
            return kernel_id({**others, path: code}, path, entry_point, build_flags or ())
        if form == "workload":
            return workload_id(*values)
        return content_id(kind, *(None if part is None else str(part) for part in values))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return None  # not values of the columns' types, or JSON that cannot be read


def uuid7() -> str:
    """Return a UUIDv7 (RFC 9562): ordered by time, so that new rows are adjacent in the files."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | (0x7 << 76) | (secrets.randbits(12) << 64)
    value |= (0b10 << 62) | secrets.randbits(62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
