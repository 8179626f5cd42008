"""Run static detectors on a kernel's text; select the findings for which it is not run at all."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from evaluators.audit.source import MAIN, Hit, parse_source
from store import ids
from store.commandline import members
from store.errors import UnknownName

ROOM = "evaluators.detectors"
UNREADABLE = "parser"
"""Name of the detector of files that cannot be parsed, which no other detector searches."""
UNREADABLE_CLASS = "unreadable_source"
UNREADABLE_VERSION = 1
MOST = 8
"""Most findings of one detector on one kernel."""
LIMIT_S = 10.0
"""Seconds after which the remaining detectors are skipped, and a finding reports that."""
_HOSTILE = "hostile"


@dataclass(frozen=True)
class Detector:
    """One file of evaluators/detectors, or of ./flywheel/detectors."""

    name: str
    module: ModuleType

    @property
    def version(self) -> int:
        """Version of its rules. It rises when the same text may give other hits."""
        return self.module.VERSION

    @property
    def key(self) -> str:
        """Name and version, as runs record it."""
        return f"{self.name}@{self.version}"


@functools.cache
def load_detectors() -> dict[str, Detector]:
    """Import every detector; return them by name."""
    return {
        name: Detector(name, member.load()) for name, member in members.find_members(ROOM).items()
    }


def choose_detectors(name: str | None) -> list[Detector]:
    """Return all detectors, or the one of this name; raises UnknownName with the nearest one."""
    known = load_detectors()
    if name is None:
        return list(known.values())
    wanted = name.replace("_", "-")
    if wanted not in known:
        raise UnknownName.among("detector", name, known)
    return [known[wanted]]


def describe_search() -> dict[str, Any]:
    """Return what the configuration of a run says whose kernels all detectors have read."""
    keys = sorted(one.key for one in load_detectors().values())
    return {"detectors": keys, "every_detector": True}


def search_kernel(
    code: str,
    other_files: Sequence[Mapping[str, str]] | None,
    kernel_id: str,
    only: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Return rows of table `findings`, without run_id, for one kernel; do not raise for any text.

    Args:
        code: Text of the file with the entry point.
        other_files: Mappings of path and code. A finding in one of them has the line in that file,
            and its quote names the file.
        kernel_id: The kernel.
        only: Names of detectors; None means all.
    """
    until = time.monotonic() + LIMIT_S
    source = parse_source(code, other_files)
    rows = [
        _make_row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)
        for hit in source.unreadable
    ]
    wanted = None if only is None else set(only)
    for detector in load_detectors().values():
        if wanted is not None and detector.name not in wanted:
            continue
        if time.monotonic() > until:
            rows.append(make_unfinished(kernel_id, f"stopped before {detector.name}"))
            break
        try:
            rows += _make_rows(kernel_id, detector, detector.module.find(source))
        except Exception as error:
            # A text on which a detector fails is a finding, and the other detectors still run.
            rows.append(make_unfinished(kernel_id, f"{detector.name}: {type(error).__name__}"))
    return list({row["finding_id"]: row for row in rows}.values())


def select_refused(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the findings for which a kernel must not be run; none for nearly every kernel."""
    return [row for row in rows if row["detector"] == _HOSTILE and row["confidence"] == 1.0]


def make_unfinished(kernel_id: str, why: str) -> dict[str, Any]:
    """Return the finding on a kernel whose search did not finish."""
    hit = Hit(MAIN, 1, why, 0.9)
    return _make_row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)


def _make_rows(kernel_id: str, detector: Detector, hits: Iterable[Hit]) -> list[dict[str, Any]]:
    best: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        place = (hit.path, hit.line)
        if place not in best or hit.confidence > best[place].confidence:
            best[place] = hit
    shown = sorted(best.values(), key=lambda hit: (-hit.confidence, hit.path, hit.line))[:MOST]
    kind = detector.module.CLASS
    return [_make_row(kernel_id, detector.name, detector.version, kind, hit) for hit in shown]


def _make_row(kernel_id: str, detector: str, version: int, kind: str, hit: Hit) -> dict[str, Any]:
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
