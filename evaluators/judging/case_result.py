"""The result of a case, and the rows of tables that it becomes."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from evaluators.device.lock import Hold
from evaluators.judging.case import Case, Precision
from evaluators.judging.flags import CAUSES, NONEQUIVALENT, SUSPECT_CONFIDENCE
from evaluators.sandbox.launcher import Ended
from store.ids import content_id, uuid7

if TYPE_CHECKING:
    from evaluators.judging.comparison import Comparison

_MOST_QUOTE = 120
LOG_LIMIT = 32 * 1024
"""Characters of a row's log, at most."""
_COMPARED = ("correct", "incorrect", "rejected")
"""Statuses of kernels whose answers were compared."""
SHORTAGE = "shortage"
"""Part of a judgment that began beside other judges and lacked memory: that try, and the wait."""
_FIGURES = ("max_abs_error", "max_scaled_error", "rel_l2_error")
TimePart: TypeAlias = Callable[[AbstractContextManager[Hold] | None], AbstractContextManager[Hold]]
"""Times a block that holds a device, if one is given."""


def hold(device: AbstractContextManager[Hold] | None) -> AbstractContextManager[Hold]:
    """Hold a device, if one is given, without timing the block."""
    return device or contextlib.nullcontext(Hold(0.0))


@dataclass(kw_only=True)
class CaseResult:
    """What a case has shown so far; becomes one row of evaluations."""

    announce: ClassVar[Callable[[str], None] | None] = None
    """Called with the name of each part as it begins."""

    seeds: list[int] = field(default_factory=list)
    """Input seeds, secret until the verdict."""
    flags: set[str] = field(default_factory=set)
    comparison: Any = None
    """The worst Comparison so far, or the one that failed."""
    notes: list[str] = field(default_factory=list[str])
    """Lines for the row's log."""
    answers: list[str] = field(default_factory=list[str])
    """Fingerprints of the answers to the first questions."""
    eager_class: str | None = None
    """Lowest precision class of the eager reference in the calls that show the precision."""
    compared_as_function: bool = False
    """Whether every check for a different function has run to its end."""
    status: str = "correct"
    reason: str | None = None
    message: str | None = None
    detail: str = ""
    timings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Rows of every session, without evaluation_id."""
    custom_kernel_share: float | None = None
    lacks_baseline: bool = False
    """Whether a baseline failed or gave a wrong answer."""
    analyses: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Results of a profile; rows without kernel_id and author."""
    build_s: float | None = None
    ended: Ended | None = None
    parts_s: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by part of the judgment."""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Signs of a hack in the text and the calls; rows without evaluation_id."""

    def is_equivalent(self) -> bool | None:
        """Whether the candidate computes the same function as the task's module.

        None where no flag denies it and not every check has run.
        """
        if self.flags & NONEQUIVALENT:
            return False
        return True if self.compared_as_function else None

    @contextlib.contextmanager
    def time_part(
        self, name: str, device: AbstractContextManager[Hold] | None = None
    ) -> Generator[Hold]:
        """Add the time of the block to a part, even if the block fails.

        device: To hold during the block. The time in which others have it counts as the part
            `waiting`.
        """
        if CaseResult.announce is not None:
            CaseResult.announce(name)
        begin = time.perf_counter()
        held = Hold(0.0)
        try:
            with hold(device) as held:
                yield held
        finally:
            waited_s = held.waited_s + held.aside_s
            self._add(name, time.perf_counter() - begin - waited_s)
            if waited_s:
                self._add("waiting", waited_s)

    @contextlib.contextmanager
    def hold(self, device: AbstractContextManager[Hold]) -> Generator[Hold]:
        """Hold a device for several parts, which may hold it shared within that."""
        with device as held:
            if held.waited_s:
                self._add("waiting", held.waited_s)
            yield held

    def _add(self, part: str, seconds: float) -> None:
        self.parts_s[part] = round(self.parts_s.get(part, 0.0) + seconds, 4)


@dataclass(frozen=True, kw_only=True)
class KnownVerdict:
    """A correct verdict, and what tells whether it holds for another precision (`judge`)."""

    precision: Precision
    options: Any
    """The evaluator's other options, which have to be the same."""
    tables: Mapping[str, list[dict[str, Any]]]
    """The rows."""
    seeds: list[int]
    """Input seeds of the first probes."""
    answers: list[str]
    """Fingerprints of the answers to them."""


def build_tables(
    result: CaseResult, evaluation: Mapping[str, Any], shared: Mapping[str, Any], author: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a case by table, without their run_id.

    evaluation: Columns of the row of `evaluations` that the result does not know: evaluator,
        evaluator_version, precision, sandbox_level, sandbox_missing, wall_s.
    """
    ended = result.ended
    log = "\n".join(
        part for part in (result.detail, *result.notes, ended.log if ended else "") if part
    )
    message = result.message
    causes = [
        finding
        for finding in result.findings
        if finding["detector"] in CAUSES.get(result.reason or "", ())
        and finding["confidence"] >= SUSPECT_CONFIDENCE
    ]
    if message is not None and causes:  # the line of the kernel in which a detector sees the cause
        cause = max(causes, key=lambda finding: finding["confidence"])
        quote = cause["quote"].strip()[:_MOST_QUOTE]
        message = f"{message}; see line {cause['line']} ({cause['detector']}): {quote}"
    figures: dict[str, Any] = dict.fromkeys((*_FIGURES, "precision_class"))
    comparison: Comparison | None = result.comparison
    if result.status in _COMPARED and comparison is not None:
        figures["precision_class"] = comparison.precision_class
        for name in _FIGURES:
            figure = getattr(comparison, name)
            figures[name] = figure if figure is not None and math.isfinite(figure) else None
    evaluation_id = uuid7()
    row = {
        **shared,
        "evaluation_id": evaluation_id,
        **evaluation,
        "status": result.status,
        "reason": result.reason,
        "message": message,
        "log": log[:LOG_LIMIT] or None,
        "flags": sorted(result.flags),
        "equivalent": result.is_equivalent() if result.status == "correct" else None,
        "seeds": result.seeds,
        **figures,
        "custom_kernel_share": result.custom_kernel_share,
        "build_s": result.build_s,
        "parts_s": json.dumps(result.parts_s),
        "peak_memory_bytes": ended.peak_memory_bytes if ended else None,
    }
    now = datetime.now(UTC).isoformat()
    findings = [{**finding, "created_at": now} for finding in result.findings]
    if result.status == "rejected" and result.reason != "forbidden_code":  # the calls show it
        version = evaluation["evaluator_version"]
        findings.append(
            _build_rejection(shared["kernel_id"], result.reason, result.message, version)
        )
    return {
        "evaluations": [row],
        "timings": [{**timing, "evaluation_id": evaluation_id} for timing in result.timings],
        "findings": [{**finding, "evaluation_id": evaluation_id} for finding in findings],
        "analyses": [
            {
                **analysis,
                "kernel_id": shared["kernel_id"],
                "evaluation_id": evaluation_id,
                "author": author,
            }
            for analysis in result.analyses
        ],
    }


def build_shared_columns(case: Case, device_id: str) -> dict[str, Any]:
    """Return the columns that all rows of a case have."""
    return {
        "kernel_id": case.kernel_id,
        "task_id": case.task_id,
        "workload_id": case.workload_id,
        "device_id": device_id,
        "created_at": datetime.now(UTC).isoformat(),
    }


def fail_evaluation(
    tables: Mapping[str, list[dict[str, Any]]], failed: Mapping[str, Any], version: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a case whose kernel has failed in a second session.

    failed: Status, reason, message and detail of the failure.
    """
    evaluation = tables["evaluations"][0]  # without those of other shapes
    log = "\n".join(part for part in (failed["detail"], evaluation.get("log") or "") if part)
    is_compared = failed["status"] in _COMPARED
    unknown = () if is_compared else (*_FIGURES, "precision_class")
    row = {
        **evaluation,
        **{name: failed[name] for name in ("status", "reason", "message")},
        "log": log[:LOG_LIMIT] or None,
        **dict.fromkeys(("custom_kernel_share", "equivalent", *unknown)),
    }
    findings = [*tables.get("findings", [])]
    if failed["status"] == "rejected":
        finding = _build_rejection(
            evaluation["kernel_id"], failed["reason"], failed["message"], version
        )
        findings.append({**finding, "evaluation_id": evaluation["evaluation_id"]})
    emptied: dict[str, list[dict[str, Any]]] = {"timings": [], "analyses": [], "workloads": []}
    return {**tables, "evaluations": [row], "findings": findings, **emptied}


def _build_rejection(
    kernel_id: str, reason: str | None, message: str | None, version: int
) -> dict[str, Any]:
    return {
        "finding_id": content_id("finding", kernel_id, "judge", str(version), reason),
        "kernel_id": kernel_id,
        "detector": "judge",
        "detector_version": version,
        "class": reason,
        "quote": message,
        "confidence": 1.0,
        "created_at": datetime.now(UTC).isoformat(),
    }
