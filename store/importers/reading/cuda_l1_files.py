"""Finds, reads and validates the files of the CUDA-L1 release."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from store.errors import ImportFailed
from store.importers.reading import sources

SCORES = {
    "score_default": "eager",
    "score_torch_compile_default": "compile",
    "score_torch_compile_reduce_overhead": "compile_reduce_overhead",
    "score_cuda_graph": "cuda_graph",
    "score_cudnn": "cudnn",
}
BASELINE_CODES = {"cuda_graph": "cuda_graph_code", "cudnn": "cudnn_code"}
LINES, NESTED = "cuda-l1", "cuda-l1/codes"
"""Sources of the newer and the older form: a figure of one is not the other's."""
_FORMATS = (
    "Name the release's checkout, its folder optimized_cuda_code, or one file such as h100.json."
)


@dataclass(frozen=True, kw_only=True)
class ReleasedRow:
    """One task of one file, as released."""

    where: str
    level: int
    problem_id: int
    reference: str
    code: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Baseline to speedup, without missing scores."""
    baseline_codes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class ReleasedFile:
    """One file, read and checked."""

    file: Path
    data: bytes
    origin: str
    rows: list[ReleasedRow]


def find(root: Path) -> list[Path]:
    """List the files of the release; the older form only if the newer one is missing."""
    if not root.is_dir():
        return [root]
    for folder in (root / "optimized_cuda_code", root, root / "codes"):
        files = sorted(folder.glob("*.json"))
        if files:
            return files
    raise ImportFailed(f"{root} holds no file of the CUDA-L1 release", _FORMATS)


def read(file: Path, root: Path) -> ReleasedFile:
    """Read one file; raises ImportFailed with the place of a malformed value."""
    data = sources.read_bytes(file, root)
    text = sources.decode(data, file)
    first = text.lstrip().partition("\n")[0]
    if '"level_id"' in first:
        rows = [_row(row, where) for row, where in _lines(text, file)]
        return ReleasedFile(file=file, data=data, origin=LINES, rows=rows)
    return ReleasedFile(file=file, data=data, origin=NESTED, rows=list(_read_nested(text, file)))


def _lines(text: str, file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects of a JSON Lines text, each with its place."""
    # Not splitlines(): it would also cut at characters that JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{file}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFailed(f"{where}: {error}", "Nothing of this file is stored.") from error
        yield _object(value, where), where


def _read_nested(text: str, file: Path) -> Iterator[ReleasedRow]:
    """Yield the rows of the older form: level to a list of tasks."""
    levels = _object(sources.parse_json(text, file), str(file))
    for level, tasks in levels.items():
        if not (level.isdecimal() and isinstance(tasks, list)):
            raise ImportFailed(f"{file}: {level!a:.40} is not a level with its tasks", _FORMATS)
        for number, task in enumerate(cast("list[Any]", tasks), start=1):
            where = f"{file}, level {level}, entry {number}"
            row = _object(task, where)
            score = row.get("score")
            yield _row({**row, "level_id": int(level), "score_default": score}, where)


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ImportFailed(f"{where}: an object is expected, not {type(value).__name__}", _FORMATS)
    return cast("dict[str, Any]", value)


def _row(row: dict[str, Any], where: str) -> ReleasedRow:
    """Validate one object and return it; fields that the release added later are ignored."""
    reference = _text(row, "ref_code", where)
    if reference is None:
        raise ImportFailed(f"{where}: there is no ref_code", _FORMATS)
    scores = {name: _score(row, column, where) for column, name in SCORES.items()}
    codes = {name: _text(row, column, where) for name, column in BASELINE_CODES.items()}
    return ReleasedRow(
        where=where,
        level=_number(row, "level_id", where),
        problem_id=_number(row, "task_id", where),
        reference=reference,
        code=_text(row, "custom_code", where),
        scores={name: score for name, score in scores.items() if score is not None},
        baseline_codes={name: code for name, code in codes.items() if code is not None},
    )


def _text(row: dict[str, Any], name: str, where: str) -> str | None:
    """Return a text, or None if it is missing, empty, or the word None."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ImportFailed(f"{where}: {name} is a text or null, not {type(value).__name__}")
    if value.strip() in ("", "None"):
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ImportFailed(f"{where}: {name} is not Unicode text at {error.start}") from error
    if "\0" in value:
        raise ImportFailed(f"{where}: {name} holds a zero byte at {value.index(chr(0))}")
    return value


def _number(row: dict[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or not 0 < value < 1_000_000:
        raise ImportFailed(f"{where}: {name} is a positive number, not {value!a:.40}", _FORMATS)
    return value


def _score(row: dict[str, Any], name: str, where: str) -> float | None:
    """Return a speedup, or None if it is missing; the older form writes it as text."""
    value = row.get(name)
    if value is None or value in ("", "None"):
        return None
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = -1.0
    if math.isnan(score):
        return None
    if not 0 < score < math.inf:
        raise ImportFailed(
            f"{where}: {name} is {value!a:.40}", "A score is a speedup above 0, or null."
        )
    return score
