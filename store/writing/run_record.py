"""A run in a lake: its row, the lease that shows that its process lives, and how it ended."""

from __future__ import annotations

import json
import logging
import platform
from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from store import describe_version
from store.commandline import interrupts
from store.errors import FlywheelError, summarize_error
from store.ids import uuid7

if TYPE_CHECKING:
    from store.writing.bundle import Rows
    from store.writing.writer import Writer

log = logging.getLogger(__name__)
LONGEST_ERROR = 300


@dataclass
class RunRecord:
    """A run that is stored in a lake and has not ended."""

    run_id: str
    snapshot: int
    """Snapshot with the row of the run; after the run, snapshot with its end."""
    error: BaseException | None = None
    """Why the run counts as failed although it ends without raising an error."""


def make_run(
    *,
    kind: str,
    name: str,
    config: Mapping[str, Any] | str,
    run_id: str | None = None,
    lake_id: str | None = None,
    snapshot_id: int | None = None,
    started_at: datetime | None = None,
) -> dict[str, Any]:
    """Return the row of a run of this process; by default it has a new id and began now."""
    return {
        "run_id": run_id or uuid7(),
        "kind": kind,
        "name": name,
        "config": config if isinstance(config, str) else json.dumps(config, sort_keys=True),
        "version": describe_version(),
        "lake_id": lake_id,
        "snapshot_id": snapshot_id,
        "host": platform.node(),
        "started_at": started_at or datetime.now(UTC),
    }


def make_end(
    run_id: str, outcome: str = "finished", error: str | None = None, number: int = 1
) -> dict[str, Any]:
    """Return a row of run_ends, which says that a run has ended or was resumed now."""
    return {
        "run_id": run_id,
        "number": number,
        "outcome": outcome,
        "error": error,
        "created_at": datetime.now(UTC),
    }


@contextmanager
def record_run(
    writer: Writer,
    run: Mapping[str, Any],
    message: str,
    tables: Mapping[str, Rows] | None = None,
    *,
    resumed: bool = False,
) -> Generator[RunRecord]:
    """Store a run, hold the lease named by its id while it runs, and store how it ended.

    The end is failed or interrupted if the block raises an error, which is raised again. A killed
    process stores no end and loses the lease, so that `store show` reports the run as killed.

    Args:
        writer: Where to append. It must be open until the run has ended.
        resumed: Whether the lake may have the run already.

    Raises FlywheelError if another process runs this run.
    """
    run_id = str(run["run_id"])
    with writer.location.open_leases() as leases:
        if not leases.take([run_id]):
            raise FlywheelError(
                f"another process runs {run['name']} {run_id}",
                "Wait until it ends, or stop it; then resume the run.",
            )
        begun: dict[str, Rows] = {"runs": [run], **(tables or {})}
        number = 1
        if resumed:
            writer.flush()
            with writer.reader() as lake:
                stored = lake.run(
                    "SELECT coalesce(max(run_ends.number), 0) AS ends FROM runs "
                    "LEFT JOIN run_ends ON run_ends.run_id = runs.run_id "
                    "WHERE runs.run_id = $1 GROUP BY runs.run_id",
                    [run_id],
                ).one()
            if stored is not None:
                begun["run_ends"] = [make_end(run_id, "resumed", number=stored["ends"] + 1)]
                number = stored["ends"] + 2
        record = RunRecord(run_id, writer.append(begun, message))
        try:
            yield record
        except BaseException as error:
            end = make_end(run_id, *_describe_end(error), number=number)
            try:
                with interrupts.wait_for("the end of the run to be stored"):
                    writer.append({"run_ends": [end]}, f"{run['name']} {end['outcome']}")
            except Exception as fault:
                # The error that ended the run is the one to report.
                log.warning("the end of run %s is not stored: %s", run_id, summarize_error(fault))
            raise
        outcome = ("finished", None) if record.error is None else _describe_end(record.error)
        end = make_end(run_id, *outcome, number=number)
        record.snapshot = writer.append({"run_ends": [end]}, f"{run['name']} {end['outcome']}")


def _describe_end(error: BaseException) -> tuple[str, str | None]:
    if isinstance(error, KeyboardInterrupt | CancelledError) or interrupts.is_pending():
        return "interrupted", None
    kind = None if isinstance(error, FlywheelError) else type(error).__name__
    text = ": ".join(filter(None, [kind, *str(error).splitlines()[:1]]))
    return "failed", text[:LONGEST_ERROR]
