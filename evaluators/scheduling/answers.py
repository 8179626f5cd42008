"""Accept the answers of a judge process: rows of a few tables about the case of the request.

The process that holds the lake trusts no answer. It gives rows new identities and times, drops rows
of other kernels, tasks, devices or tables, and refuses malformed answers.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evaluators.judging.case import MOST_SHAPES, Case
from evaluators.scheduling.contract import Row, Tables
from store.code.completion import clean_text
from store.commandline import members
from store.errors import FlywheelError, RowsRejected
from store.ids import content_id, uuid7, workload_id
from store.schema import catalog
from store.writing import bundle

log = logging.getLogger(__name__)

_OTHER_DETECTORS = ("parser", "compute-sanitizer")
_MOST_TEXT = 1 << 20
_MOST_ITEMS = 100_000
_MOST_ROWS = {"evaluations": 1, "timings": 100, "findings": 1000, "analyses": 100}
_MOST_ROWS_WITH_SHAPES = _MOST_ROWS | {
    "evaluations": 1 + MOST_SHAPES,
    "timings": 100 * (1 + MOST_SHAPES),
    "workloads": MOST_SHAPES,
}
_WITHHELD = {
    "evaluations": {"run_id", "source", "source_revision", "license", "withdraws"},
    "timings": set[str](),
    "findings": {"run_id", "prompt_id"},
    "analyses": {"generation_id", "fastest_kernel_id"},
    "task_audits": set[str](),
    "workloads": set[str](),
}
"""Columns that a judgment does not set: they belong to the run, to importers, or to others."""
_OWN_IDS = {"timings": "timing_id", "analyses": "analysis_id"}


class RefusedAnswer(Exception):
    """An answer that is malformed or about another case; the text says why."""


_find_detectors = functools.cache(functools.partial(members.find_members, "evaluators.detectors"))


@dataclass(frozen=True)
class Subject:
    """The case of a request, the device, and the evaluator that answers."""

    case: Case
    device_id: str
    evaluator: str
    """Name of the evaluator, as its rows have it."""
    version: int

    @property
    def about(self) -> dict[str, str]:
        """The columns that identify the case of a row."""
        case = self.case
        ids = {"kernel_id": case.kernel_id, "task_id": case.task_id}
        return {**ids, "workload_id": case.workload_id, "device_id": self.device_id}


def accept_judgment(tables: Any, subject: Subject) -> Tables:
    """Return the rows of one judgment with new identities; leave out rows of other cases.

    The first evaluation is that of the case. Those after it are of other shapes of its task, each
    with its row of `workloads`, and get the protocol `shape`.

    Raises RefusedAnswer where there is no evaluation of the case.
    """
    given = {"workloads": [], **_accept_tables(tables, _MOST_ROWS_WITH_SHAPES)}
    own = [row.get("workload_id") for row in given.get("evaluations", [])]
    if own[:1] != [subject.case.workload_id] or subject.case.workload_id in own[1:]:
        raise RefusedAnswer("it must have exactly one evaluation of the case, the first one")
    if len(given.get("timings", [])) > _MOST_ROWS["timings"] * len(own):
        raise RefusedAnswer("its rows of timings are too many")
    who = {"evaluator": subject.evaluator, "evaluator_version": subject.version}
    evaluation, *at_shapes = given["evaluations"]
    _check(evaluation, subject.about | who)
    old, new = evaluation.get("evaluation_id"), uuid7()
    kept: Tables = {
        "evaluations": _select_conforming("evaluations", [evaluation | {"evaluation_id": new}])
    }
    if not kept["evaluations"]:
        raise RefusedAnswer("its evaluation breaks the table's rules")
    kept["findings"] = [
        row | {"evaluation_id": new}
        for row in _accept_findings(
            _select_rows("findings", given, {"evaluation_id": old}), subject
        )
    ]
    profiled = {"kernel_id": subject.case.kernel_id, "evaluation_id": old}
    kept["analyses"] = [
        row | {"evaluation_id": new} for row in _select_rows("analyses", given, profiled)
    ]
    judged = {old: (new, subject.about)}
    workloads: list[Row] = []
    for row in given["workloads"]:  # with the identity that follows from the task and its axes
        try:
            axes = json.dumps(dict(json.loads(row["axes"])), sort_keys=True)
            workload = workload_id(subject.case.task_id, axes)
            shape = {"name": clean_text(row["name"]), "axes": axes, "generator": "get_inputs"}
        except (AttributeError, KeyError, TypeError, ValueError):
            workload, shape = "", {}
        other = workload not in ("", subject.case.workload_id)
        if row.get("workload_id") != workload or not other:
            _warn("workloads", 1, "are malformed")
            continue
        ids = {"workload_id": workload, "task_id": subject.case.task_id}
        workloads.append(ids | shape | {"created_at": row["created_at"]})
    for row, workload in itertools.product(at_shapes, workloads):
        about = subject.about | {"workload_id": workload["workload_id"]}
        if _has_values(row, about | who):
            own = row | {"evaluation_id": uuid7(), "protocol": "shape"}
            kept["evaluations"].append(own)
            kept.setdefault("workloads", []).append(workload)
            judged[row.get("evaluation_id")] = own["evaluation_id"], about
    _warn("evaluations", 1 + len(at_shapes) - len(judged), "are about something else")
    sessions: dict[str, str] = {}
    kept["timings"] = []
    for old, (new, about) in judged.items():
        for row in given.get("timings", []):
            if _has_values(row, about | {"evaluation_id": old}):
                session_id = row.get("session_id")
                if not isinstance(session_id, str):
                    raise RefusedAnswer("a session has no identity")
                session_id = sessions.setdefault(session_id, uuid7())
                ids = {"timing_id": uuid7(), "session_id": session_id, "evaluation_id": new}
                kept["timings"].append(row | ids)
    lost = len(given.get("timings", [])) - len(kept["timings"])
    _warn("timings", lost, "are about something else")
    return {name: _select_conforming(name, rows) for name, rows in kept.items()}


def accept_remarks(tables: Any, subject: Subject) -> Tables:
    """Return rows of analyses and findings on a kernel, of no evaluation. Raises RefusedAnswer."""
    given = _accept_tables(tables, {name: _MOST_ROWS[name] for name in ("analyses", "findings")})
    kept = {
        "analyses": [
            row | {"evaluation_id": None}
            for row in _select_rows("analyses", given, {"kernel_id": subject.case.kernel_id})
        ],
        "findings": _accept_findings(given.get("findings", []), subject),
    }
    return {name: _select_conforming(name, rows) for name, rows in kept.items()}


def accept_audit(row: Any, about: Mapping[str, Any]) -> Row:
    """Return the row of `task_audits` on the task, workload, device and version in `about`.

    Raises RefusedAnswer.
    """
    if not _is_row(row):
        raise RefusedAnswer("it is not a row")
    _check(row, about)
    [kept] = _select_conforming("task_audits", [_stamp_time(row)]) or [None]
    if kept is None:
        raise RefusedAnswer("it breaks the table's rules")
    return kept


def build_fault(subject: Subject, why: str) -> Tables:
    """Return the rows of a case that could not be judged through no fault of the kernel."""
    row = subject.about | {
        "evaluation_id": uuid7(),
        "evaluator": subject.evaluator,
        "evaluator_version": subject.version,
        "status": "evaluator_error",
        "reason": "internal",
        "message": clean_text(why),
    }
    return {"evaluations": [row], "timings": []}


def _accept_tables(tables: Any, most: Mapping[str, int]) -> Tables:
    if not isinstance(tables, dict):
        raise RefusedAnswer("it has no tables")
    kept: Tables = {}
    for name, rows in tables.items():
        if name not in most:
            log.warning("a judge process sent rows of %.60a, which are left out", name)
            continue
        if not isinstance(rows, list) or len(rows) > most[name]:
            raise RefusedAnswer(f"its rows of {name} are malformed or too many")
        kept[name] = [_stamp_time(row) for row in rows if _is_row(row)]
        _warn(name, len(rows) - len(kept[name]), "are malformed")
    return kept


def _select_rows(name: str, given: Tables, about: Mapping[str, Any]) -> list[Row]:
    rows = given.get(name, [])
    kept = [row for row in rows if _has_values(row, about)]
    _warn(name, len(rows) - len(kept), "are about something else")
    own = _OWN_IDS.get(name)
    return [row | {own: uuid7()} for row in kept] if own is not None else kept


def _accept_findings(rows: Iterable[Row], subject: Subject) -> list[Row]:
    known = {subject.evaluator, *_OTHER_DETECTORS, *_find_detectors()} - {""}
    kernel_id, given = subject.case.kernel_id, list(rows)
    kept: list[Row] = []
    for row in given:
        if row.get("kernel_id") != kernel_id or row.get("detector") not in known:
            continue
        # The identity that detectors give a finding; another one for other findings.
        base = [str(row.get(name)) for name in ("detector", "detector_version", "class")]
        base = ["finding", kernel_id, *base]
        line, quote = str(row.get("line")), str(row.get("quote"))
        what, _, where = quote.partition(" at ")
        usual = [
            content_id(*base),
            content_id(*base, line),
            *(content_id(*base, line, path) for path, _ in subject.case.other_files),
            content_id(*base, what, where),
        ]
        own = row.get("finding_id")
        finding_id = own if own in usual else content_id(*base, line, quote)
        kept.append(row | {"finding_id": finding_id})
    _warn("findings", len(given) - len(kept), "are on another kernel or by an unknown detector")
    return kept


def _has_values(row: Row, about: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in about.items())


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


def _stamp_time(row: Row) -> Row:
    """Return the row with the time of its arrival, whatever time it states."""
    return row | {"created_at": datetime.now(UTC).isoformat()}


def _check(row: Row, about: Mapping[str, Any]) -> None:
    for name, value in about.items():
        if row.get(name) != value or type(row.get(name)) is not type(value):
            raise RefusedAnswer(f"its {name} differs from that of the request")


def _select_conforming(name: str, rows: list[Row]) -> list[Row]:
    table = catalog.load().table(name)
    columns = {*table.columns, *table.renamed} - _WITHHELD[name]
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
