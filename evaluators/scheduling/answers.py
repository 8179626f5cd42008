"""What a judging process may answer: rows of a few tables, about the case it was asked about.

The process that asks holds the lake, and takes nothing on trust. It gives the rows their identities
and times, drops those of other kernels, tasks, devices or tables, and refuses what is no answer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from store.commandline import members
from store.errors import FlywheelError, RowsRejected
from store.ids import content_id, uuid7
from store.schema import catalog
from store.writing import bundle

log = logging.getLogger(__name__)

Row: TypeAlias = "dict[str, Any]"
Tables: TypeAlias = "dict[str, list[Row]]"

_DETECTORS = "evaluators.detectors"
_OTHER_DETECTORS = ("parser", "compute-sanitizer")
_FAILURES = ("incorrect", "rejected", "timeout", "crash", "compile_error")
_FAILURE_PARTS = ("status", "reason", "message", "detail")
_MOST_TEXT = 1 << 20
_MOST_ITEMS = 100_000
_MOST_ROWS = {"evaluations": 1, "timings": 100, "findings": 1000, "analyses": 100}
_WITHHELD = {
    "evaluations": {"run_id", "source", "source_revision", "license"},
    "timings": set[str](),
    "findings": {"run_id", "prompt_id"},
    "analyses": {"generation_id", "fastest_kernel_id"},
    "task_audits": set[str](),
}
"""Columns that a judgement does not set: they belong to the run, to importers, or to others."""
_OWN_IDS = {"timings": "timing_id", "analyses": "analysis_id"}


class Unaccepted(Exception):
    """An answer that says nothing about what was asked; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a judging process was asked about, and who it is."""

    kernel_id: str
    task_id: str
    workload_id: str
    device_id: str
    evaluator: str
    """Name of the evaluator, as its rows have it."""
    version: int
    files: tuple[str, ...] = ()
    """Paths of the kernel's further files."""

    @property
    def about(self) -> dict[str, str]:
        """The columns that tell what a row is about."""
        names = ("kernel_id", "task_id", "workload_id", "device_id")
        return {name: getattr(self, name) for name in names}


@dataclass
class _Sessions:
    """New identities for the sessions of one answer."""

    known: dict[str, str] = field(default_factory=dict[str, str])

    def new(self, given: Any) -> str:
        if not isinstance(given, str):
            raise Unaccepted("a session has no identity")
        return self.known.setdefault(given, uuid7())


def judgement(tables: Any, asked: Asked) -> Tables:
    """The rows of one judgement, with new identities; what is not of this case is left out.

    Raises Unaccepted where there is not one evaluation of the case.
    """
    given = _tables(tables, _MOST_ROWS)
    if len(given.get("evaluations", [])) != 1:
        raise Unaccepted("it holds no evaluation, or several")
    who = {"evaluator": asked.evaluator, "evaluator_version": asked.version}
    [evaluation] = given["evaluations"]
    _check(evaluation, asked.about | who)
    old, new = evaluation.get("evaluation_id"), uuid7()
    kept: Tables = {
        "evaluations": _conforming("evaluations", [evaluation | {"evaluation_id": new}])
    }
    if not kept["evaluations"]:
        raise Unaccepted("its evaluation is none")
    sessions = _Sessions()
    kept["timings"] = [
        row | {"evaluation_id": new, "session_id": sessions.new(row.get("session_id"))}
        for row in _of("timings", given, asked.about | {"evaluation_id": old})
    ]
    kept["findings"] = [
        row | {"evaluation_id": new}
        for row in _findings(_of("findings", given, {"evaluation_id": old}), asked)
    ]
    kept["analyses"] = _of("analyses", given, {"kernel_id": asked.kernel_id})
    return {name: _conforming(name, rows) for name, rows in kept.items()}


def session(rows: Any, failed: Any, asked: Asked) -> tuple[list[Row], Row | None]:
    """The rows of a second session, or how the kernel failed in it. Raises Unaccepted."""
    if failed is not None:
        parts = {name: failed.get(name) for name in _FAILURE_PARTS} if _is_row(failed) else {}
        if parts.get("status") not in _FAILURES or not all(
            isinstance(part, str) for part in parts.values()
        ):
            raise Unaccepted("it names no failure")
        return [], parts
    given = _tables({"timings": rows}, _MOST_ROWS)
    sessions = _Sessions()
    kept = [
        row | {"session_id": sessions.new(row.get("session_id"))}
        for row in _of("timings", given, asked.about)
    ]
    return _conforming("timings", kept), None


def remarks(tables: Any, asked: Asked) -> Tables:
    """Rows of analyses and findings on a kernel. Raises Unaccepted."""
    given = _tables(tables, {name: _MOST_ROWS[name] for name in ("analyses", "findings")})
    kept = {
        "analyses": _of("analyses", given, {"kernel_id": asked.kernel_id}),
        "findings": _findings(given.get("findings", []), asked),
    }
    return {name: _conforming(name, rows) for name, rows in kept.items()}


def audit(row: Any, about: Mapping[str, Any]) -> Row:
    """The row of `task_audits` on the task, workload, device and version in `about`.

    Raises Unaccepted.
    """
    if not _is_row(row):
        raise Unaccepted("it is no row")
    _check(row, about)
    [kept] = _conforming("task_audits", [_timed(row)]) or [None]
    if kept is None:
        raise Unaccepted("it is no audit")
    return kept


def fault(asked: Asked, why: str) -> Tables:
    """The rows of a case that our own machinery could not judge: no fault of the kernel."""
    row = asked.about | {
        "evaluation_id": uuid7(),
        "evaluator": asked.evaluator,
        "evaluator_version": asked.version,
        "status": "evaluator_error",
        "reason": "internal",
        "message": why,
    }
    return {"evaluations": [row], "timings": []}


def _tables(tables: Any, most: Mapping[str, int]) -> Tables:
    """The tables of an answer that it may hold, with rows that are mappings of moderate size."""
    if not isinstance(tables, dict):
        raise Unaccepted("it holds no tables")
    kept: Tables = {}
    for name, rows in tables.items():
        if name not in most:
            log.warning("a judging process gave rows of %.60a, which are left out", name)
            continue
        if not isinstance(rows, list) or len(rows) > most[name]:
            raise Unaccepted(f"it holds no rows of {name}, or too many")
        kept[name] = [_timed(row) for row in rows if _is_row(row)]
        _warn(name, len(rows) - len(kept[name]), "are no rows")
    return kept


def _of(name: str, given: Tables, about: Mapping[str, Any]) -> list[Row]:
    """The rows of a table that are about the same, with identities of their own."""
    rows = given.get(name, [])
    kept = [row for row in rows if all(row.get(key) == value for key, value in about.items())]
    _warn(name, len(rows) - len(kept), "are about something else")
    own = _OWN_IDS.get(name)
    return [row | {own: uuid7()} for row in kept] if own is not None else kept


def _findings(rows: Iterable[Row], asked: Asked) -> list[Row]:
    """Findings on the kernel by known detectors, under identities that follow from them."""
    known = {asked.evaluator, *_detectors()}
    given = list(rows)
    kept = [
        row | {"finding_id": _finding_id(row, asked)}
        for row in given
        if row.get("kernel_id") == asked.kernel_id and row.get("detector") in known
    ]
    _warn("findings", len(given) - len(kept), "are on another kernel or of no detector")
    return kept


@functools.cache
def _detectors() -> frozenset[str]:
    return frozenset({*_OTHER_DETECTORS, *members.find_members(_DETECTORS)})


def _finding_id(row: Row, asked: Asked) -> str:
    """The identity by which detectors name a finding; another one of its own for what is not so."""
    base = [str(row.get(name)) for name in ("detector", "detector_version", "class")]
    base = ["finding", asked.kernel_id, *base]
    line, quote = str(row.get("line")), str(row.get("quote"))
    what, _, where = quote.partition(" at ")
    usual = [
        content_id(*base),
        content_id(*base, line),
        *(content_id(*base, line, path) for path in asked.files),
        content_id(*base, what, where),
    ]
    given = row.get("finding_id")
    return str(given) if given in usual else content_id(*base, line, quote)


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and all(map(_is_moderate, row.values()))


def _is_moderate(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    if isinstance(value, list):
        return len(value) <= _MOST_ITEMS and all(
            not isinstance(item, list | dict) and _is_moderate(item) for item in value
        )
    return value is None or isinstance(value, bool | int | float)


def _timed(row: Row) -> Row:
    """The row with the time of its arrival: no answer has to say when it was given."""
    return row | {"created_at": datetime.now(UTC).isoformat()}


def _check(row: Row, about: Mapping[str, Any]) -> None:
    for name, value in about.items():
        if row.get(name) != value or type(row.get(name)) is not type(value):
            raise Unaccepted(f"its {name} is another one than was asked about")


def _conforming(name: str, rows: list[Row]) -> list[Row]:
    """The rows with the table's columns that a judgement may set, and values of their types."""
    table = catalog.load().table(name)
    columns = set(table.columns) - _WITHHELD[name]
    kept: list[Row] = []
    for row in rows:
        if not set(row) <= columns:
            odd = sorted(set(row) - columns)[0]
            log.warning("a row of %s is left out: it sets the column %.60a", name, odd)
            continue
        try:
            bundle.conform(table, [row])
        except (RowsRejected, FlywheelError) as error:
            log.warning("a row of %s is left out: %.300a", name, str(error))
            continue
        kept.append(row)
    return kept


def _warn(name: str, count: int, why: str) -> None:
    if count:
        log.warning("%d rows of %s are left out: they %s", count, name, why)
