"""Rejected bundles: kept in the spool's folder `rejected/`, each with a report of the reason."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from store.errors import FlywheelError, RowsRejected
from store.lake.host.durable_file import write_durably
from store.writing.record_format import encode
from store.writing.spool import SEALED, Place, Record, sync

log = logging.getLogger(__name__)
_FOLDER = "rejected"
_MODE = 0o666
"""As files of the spool: a writer takes back what another user's commit rejected."""


def locate_folder(spool: Path) -> Path:
    """Return the folder of a spool's rejected bundles."""
    return spool / _FOLDER


def keep_record(record: Record) -> None:
    """Keep the bytes of a damaged record."""
    assert record.damage is not None
    _keep(_locate(record.place), record.data, {"reason": record.damage})


def keep_bundle(record: Record, position: int, error: FlywheelError, *, awaited: bool) -> None:
    """Keep one bundle of a record, and the rule that it breaks.

    Warns of it, unless its writer waits and gets the error.
    """
    report: dict[str, Any] = {"reason": str(error)}
    if isinstance(error, RowsRejected):
        report["rows"] = [error.table, error.rule, error.count, error.examples]
    one, file = record.bundles[position], _locate(record.place, position)
    if not awaited:
        log.warning("%r is not stored and is kept as %s: %s", one.message, file, error)
    _keep(file, encode([one]), report)


def raise_if_kept(place: Place, bundles: int) -> None:
    """Raise the error of the first bundle of a record that was rejected.

    The caller still has the rows and gets the reason, so that only silent rejections are kept.
    """
    errors = [error for at in range(bundles) if (error := _take(_locate(place, at))) is not None]
    for error in errors[1:]:
        log.warning("another bundle was refused: %s", error)
    if errors:
        raise errors[0]


def _take(kept: Path) -> FlywheelError | None:
    report = kept.with_suffix(".json")
    if not report.exists():
        return None
    found = json.loads(report.read_text())
    report.unlink()
    kept.unlink()
    return RowsRejected(*found["rows"]) if "rows" in found else FlywheelError(found["reason"])


def _locate(place: Place, position: int = 0) -> Path:
    name = f"{place.file.name}-{place.number:06d}-{position:04d}{SEALED}"
    return locate_folder(place.file.parent) / name


def _keep(file: Path, data: bytes, report: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    sync(file.parent.parent)  # the name of the folder
    # Write the report first: a bundle that leaves the spool without one counts as stored.
    write_durably(file.with_suffix(".json"), json.dumps(report).encode(), mode=_MODE)
    write_durably(file, data, mode=_MODE)
