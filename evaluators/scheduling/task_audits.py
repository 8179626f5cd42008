"""From a lake to audits of its tasks: which of them an answer without work passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import store
from evaluators.judging.weak_tasks import VERSION
from store.errors import RowsRejected, SandboxFailed

_SQL = Path(__file__).parent / "sql" / "tasks_pending.sql"


class Auditor(Protocol):
    """A process that audits tasks on one device."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def audit(self, task: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The row of `task_audits`, or None and why there is none. Raises SandboxFailed."""
        ...

    def restart(self) -> None:
        """Start anew after SandboxFailed."""
        ...


@dataclass
class Tally:
    """What a run of audits has appended."""

    audited: int = 0
    weak: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What passes each weak task, by the task's name."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why a task has no audit, by its name."""
    snapshot: int = 0

    def __str__(self) -> str:
        failed = f", {len(self.failed)} cannot be run" if self.failed else ""
        return (
            f"task_audits +{self.audited} ({len(self.weak)} weak{failed})"
            f" → snapshot {self.snapshot}"
        )


def pending(
    lake: store.Lake, device: Mapping[str, Any], task: str | None = None
) -> list[dict[str, Any]]:
    """Tasks that this version of the audit has not seen on a device, with their code.

    `task` is a name in any suite, or the start of an id: only those tasks.
    """
    given = {
        "version": VERSION,
        "device_id": device["device_id"],
        "device_kind": device["kind"],
        "task": task,
    }
    return lake.run(_SQL.read_text("utf-8"), given).rows()


def run(lake_url: str | None, auditor: Auditor, task: str | None = None) -> Tally:
    """Audit what is pending and append each result; what was done before an interruption stays.

    `task` is a name in any suite, or the start of an id: only those tasks are audited.
    """
    tally = Tally()
    with store.writer(lake_url, author="evaluators tasks") as writer:
        with writer.reader() as lake:
            tasks = pending(lake, auditor.row, task)
            tally.snapshot = lake.snapshot
        if not tasks:
            return tally
        writer.append({"devices": [auditor.row]}, message="audit of tasks begins")
        try:
            for one in tasks:
                name = one["task_name"]
                try:
                    row, why = auditor.audit(one)
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
