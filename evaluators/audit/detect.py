"""Static detectors over a kernel's text: rows of table `findings`, and what is refused outright."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from evaluators.audit.hits import MAIN, Hit
from evaluators.audit.source import parse_source
from store import ids
from store.commandline import members
from store.errors import UnknownName

ROOM = "evaluators.detectors"
UNREADABLE = "parser"
"""Detector of files that cannot be parsed, which no other detector has seen."""
UNREADABLE_CLASS = "unreadable_source"
UNREADABLE_VERSION = 1
MOST = 8
"""At most so many findings of one detector on one kernel: the first ones say enough."""
LIMIT_S = 10.0
"""After so many seconds the remaining detectors are left out, and a finding says so."""
_HOSTILE = "hostile"


@dataclass(frozen=True)
class Detector:
    """One file of evaluators/detectors, or of ./flywheel/detectors."""

    name: str
    module: ModuleType

    @property
    def version(self) -> int:
        """Version of its rules; raised when the same text may give other hits."""
        return self.module.VERSION

    @property
    def key(self) -> str:
        """Name and version, as runs record it."""
        return f"{self.name}@{self.version}"


@functools.cache
def detectors() -> dict[str, Detector]:
    """Return every detector by name."""
    return {name: Detector(name, one.load()) for name, one in members.members(ROOM).items()}


def chosen(name: str | None) -> list[Detector]:
    """Return all detectors, or the one of this name; raises UnknownName with the nearest one."""
    known = detectors()
    if name is None:
        return list(known.values())
    wanted = name.replace("_", "-")
    if wanted not in known:
        raise UnknownName.among("detector", name, known)
    return [known[wanted]]


def findings(
    code: str,
    other_files: Sequence[Mapping[str, str]] | None,
    kernel_id: str,
    only: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Return rows of table `findings`, without run_id, for one kernel; never raises for any text.

    Args:
        code: Text of the file with the entry point.
        other_files: Mappings of path and code; `line` is then the line in that file, which the
            quote names.
        kernel_id: The kernel.
        only: Names of detectors; None means all.
    """
    until = time.monotonic() + LIMIT_S
    source = parse_source(code, other_files)
    rows = [
        _row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)
        for hit in source.unreadable
    ]
    wanted = None if only is None else set(only)
    for detector in detectors().values():
        if wanted is not None and detector.name not in wanted:
            continue
        if time.monotonic() > until:
            rows.append(unfinished(kernel_id, f"stopped before {detector.name}"))
            break
        try:
            rows += _rows(kernel_id, detector, detector.module.find(source))
        except Exception as error:
            # A text that a detector trips over is a finding, and holds up no other detector.
            rows.append(unfinished(kernel_id, f"{detector.name}: {type(error).__name__}"))
    return list({row["finding_id"]: row for row in rows}.values())


def refused(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the findings for which a kernel must not be run; empty for nearly every kernel."""
    return [row for row in rows if row["detector"] == _HOSTILE and row["confidence"] == 1.0]


def unfinished(kernel_id: str, why: str) -> dict[str, Any]:
    """Return the finding on a kernel that could not be searched to the end."""
    hit = Hit(MAIN, 1, why, 0.9)
    return _row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)


def _rows(kernel_id: str, detector: Detector, hits: Iterable[Hit]) -> list[dict[str, Any]]:
    best: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        place = (hit.path, hit.line)
        if place not in best or hit.confidence > best[place].confidence:
            best[place] = hit
    shown = sorted(best.values(), key=lambda hit: (-hit.confidence, hit.path, hit.line))[:MOST]
    kind = detector.module.CLASS
    return [_row(kernel_id, detector.name, detector.version, kind, hit) for hit in shown]


def _row(kernel_id: str, detector: str, version: int, kind: str, hit: Hit) -> dict[str, Any]:
    where = [] if hit.path == MAIN else [hit.path]
    return {
        "finding_id": ids.content_id(
            "finding", kernel_id, detector, str(version), kind, str(hit.line), *where
        ),
        "kernel_id": kernel_id,
        "detector": detector,
        "detector_version": version,
        "class": kind,
        "line": hit.line,
        "quote": ": ".join([*where, hit.quote]),
        "confidence": hit.confidence,
    }
