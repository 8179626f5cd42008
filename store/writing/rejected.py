"""Rejected bundles: kept in the spool's folder `rejected/`, each with a report of the reason."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.errors import FlywheelError, RowsRejected, summarize_error
from store.lake.host import sync, write_durably
from store.schema.catalog import Catalog
from store.writing.bundle import Bundle
from store.writing.spool import SEALED, Place, Record, decode, encode

log = logging.getLogger(__name__)
NEXT_STEP = (
    "`store rejected` lists such bundles; --retry stores them after a fix, --discard deletes them."
)
_FOLDER = "rejected"
_MODE = 0o666
"""As files of the spool: a writer takes back what another user's commit rejected."""


def locate_folder(spool: Path) -> Path:
    """Return the folder of a spool's rejected bundles."""
    return spool / _FOLDER


@dataclass(frozen=True, kw_only=True)
class RejectedBundle:
    """A bundle that was refused when it was committed."""

    name: str
    """Name of its files, without the suffix."""
    kept_at: datetime
    author: str | None
    """Who wrote it; None where it cannot be read."""
    message: str | None
    reason: str


def list_rejected(catalog: Catalog, spool: Path) -> list[RejectedBundle]:
    """Return the rejected bundles of a spool in the order in which they were spooled."""
    kept: list[RejectedBundle] = []
    for report in sorted(locate_folder(spool).glob("*.json")):
        try:
            reason = str(json.loads(report.read_text("utf-8"))["reason"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{report.name} cannot be read: {summarize_error(error)}"
        bundle = _read_bundle(catalog, report)
        if bundle is None:
            file = report.with_suffix(SEALED)
            what = "is damaged" if file.exists() else "is missing"
            reason = f"{file.name} {what}, so it cannot be stored; before: {reason}"
        kept.append(
            RejectedBundle(
                name=report.stem,
                kept_at=datetime.fromtimestamp(report.stat().st_mtime, UTC),
                author=None if bundle is None else bundle.author,
                message=None if bundle is None else bundle.message,
                reason=reason,
            )
        )
    return kept


def discard(spool: Path, name: str) -> None:
    """Delete a rejected bundle."""
    report = locate_folder(spool) / f"{name}.json"
    report.with_suffix(SEALED).unlink(missing_ok=True)
    report.unlink()


def put_back(catalog: Catalog, spool: Path, name: str) -> Place | None:
    """Move a rejected bundle into the spool, for the next commit; return its place there.

    One that cannot be read stays where it is, and the place is None.
    """
    report = locate_folder(spool) / f"{name}.json"
    if _read_bundle(catalog, report) is None:
        return None
    place = Place(file=spool / f"{time.time_ns():020d}-{os.getpid()}", number=0)
    report.with_suffix(SEALED).rename(place.file.with_suffix(SEALED))
    sync(spool)
    report.unlink()
    return place


def is_kept(place: Place) -> bool:
    """Whether the only bundle of a record has been rejected."""
    return locate_file(place).exists()


def _read_bundle(catalog: Catalog, report: Path) -> Bundle | None:
    try:
        (bundle,) = decode(catalog, report.with_suffix(SEALED).read_bytes())
    except (OSError, ValueError, FlywheelError):
        return None
    return bundle


def keep_record(record: Record) -> None:
    """Keep the bytes of a damaged record, and warn of it."""
    assert record.place is not None
    file = locate_file(record.place)
    log.warning(
        "a record of the spool is damaged and is kept as %s: %s\n%s",
        file,
        record.damage,
        "Its rows are not stored: run again what wrote them. `store rejected` lists such records.",
    )
    _keep(file, record.data, {"reason": record.damage})


def keep_bundle(record: Record, position: int, error: FlywheelError) -> None:
    """Keep one bundle of a record, and the rule that it breaks."""
    report: dict[str, Any] = {"reason": str(error)}
    if isinstance(error, RowsRejected):
        report["rows"] = [error.table, error.rule, error.count, error.examples]
    assert record.place is not None
    one, file = record.bundles[position], locate_file(record.place, position)
    log.warning("%r is not stored and is kept as %s: %s\n%s", one.message, file, error, NEXT_STEP)
    _keep(file, encode([one], file.stem), report)


def take_back(place: Place, bundles: int) -> list[FlywheelError]:
    """Return why another writer rejected bundles of a record, and delete what it kept of them.

    The caller still has the rows, so that only silent rejections are kept.
    """
    errors: list[FlywheelError] = []
    for position in range(bundles):
        report = locate_file(place, position).with_suffix(".json")
        if report.exists():
            stated = json.loads(report.read_text())
            rows = stated.get("rows")
            errors.append(RowsRejected(*rows) if rows else FlywheelError(stated["reason"]))
            discard(place.file.parent, report.stem)
    return errors


def locate_file(place: Place, position: int = 0) -> Path:
    """Return the file of a rejected bundle of a record."""
    name = f"{place.file.name}-{place.number:06d}-{position:04d}{SEALED}"
    return locate_folder(place.file.parent) / name


def _keep(file: Path, data: bytes, report: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    sync(file.parent.parent)  # the name of the folder
    # Write the report first: a bundle that leaves the spool without one counts as stored.
    write_durably(file.with_suffix(".json"), json.dumps(report).encode(), mode=_MODE)
    write_durably(file, data, mode=_MODE)
