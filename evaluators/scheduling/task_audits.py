"""Audit the tasks of a lake: find those that an answer without work passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import store
from evaluators.judging.weak_tasks import VERSION
from store import read_sql
from store.errors import RowsRejected, SandboxFailed


class Auditor(Protocol):
    """A process that audits tasks on one device."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def audit(self, task: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """Return the row of `task_audits`, or None and the reason. Raises SandboxFailed."""
        ...

    def restart(self) -> None:
        """Start another process after SandboxFailed."""
        ...


@dataclass
class Tally:
    """What a run of audits has appended."""

    audited: int = 0
    weak: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Answers that pass each weak task, by the task's name."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why a task has no audit, by its name."""
    snapshot: int = 0

    def __str__(self) -> str:
        failed = f", {len(self.failed)} cannot be run" if self.failed else ""
        return (
            f"task_audits +{self.audited} ({len(self.weak)} weak{failed})"
            f" → snapshot {self.snapshot}"
        )


def find_pending(
    lake: store.Lake, device: Mapping[str, Any], task: str | None = None
) -> list[dict[str, Any]]:
    """Return the tasks that this version of the audit has not seen on a device, with their code.

    `task`, a name in any suite or the start of an id, selects tasks.
    """
    parameters = {
        "version": VERSION,
        "device_id": device["device_id"],
        "device_kind": device["kind"],
        "task": task,
    }
    return lake.run(read_sql(__file__, "pending_tasks"), parameters).rows()


def run(lake_url: str | None, auditor: Auditor, task: str | None = None) -> Tally:
    """Audit the pending tasks and append each result; results of an interrupted run stay.

    `task`, a name in any suite or the start of an id, selects tasks.
    """
    tally = Tally()
    with store.writer(lake_url, author="evaluators tasks") as writer:
        with writer.reader() as lake:
            tasks = find_pending(lake, auditor.row, task)
            tally.snapshot = lake.snapshot
        if not tasks:
            return tally
        writer.append({"devices": [auditor.row]}, message="audit of tasks begins")
        try:
            for pending in tasks:
                name = pending["task_name"]
                try:
                    row, why = auditor.audit(pending)
                except SandboxFailed as failed:
                    row, why = None, failed.message
                    auditor.restart()
                if row is None:
                    tally.failed[name] = why
                    continue
                try:
                    writer.append({"task_audits": [row]}, message=f"audited {name}", wait=False)
                except RowsRejected as error:
                    tally.failed[name] = str(error)
                    continue
                tally.audited += 1
                if row["weak"]:
                    tally.weak[name] = row["passes"]
        finally:
            tally.snapshot = writer.flush()
    return tally
