"""Audit the tasks of a lake: find those that an answer without work passes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import store
from evaluators.judging.weak_tasks import VERSION
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.worker.fork_server import read_free_memory
from store import read_sql
from store.dossier.pages import read_task_names
from store.errors import RowsRejected, SandboxFailed


@dataclass(frozen=True)
class Result:
    """The audit of one task."""

    name: str
    row: dict[str, Any] | None
    """Row of `task_audits`; None where the task cannot be run."""
    why: str
    """Why it cannot be run."""
    seconds: float


@dataclass
class Tally:
    """What a run of audits has appended."""

    audited: int = 0
    weak: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Answers that pass each trivial task, by the task's name."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why a task has no audit, by its name."""
    snapshot: int = 0

    def __str__(self) -> str:
        failed = f", {len(self.failed)} cannot be run" if self.failed else ""
        return (
            f"task_audits +{self.audited} ({len(self.weak)} trivial{failed})"
            f" → snapshot {self.snapshot}"
        )


def find_pending(
    lake: store.Lake, device: Mapping[str, Any], task: str | None = None
) -> list[dict[str, Any]]:
    """Return the tasks that this version of the audit has not seen on such a device, with code.

    `task`, a name in any suite or the start of an id, selects tasks. Raises UnknownName if it
    selects none.
    """
    task_ids: list[str] | None = None
    if task is not None:
        names = read_task_names(lake, task)
        task_ids = [row["task_id"] for row in names.match(task) or [names.find(task)]]
    parameters = {
        "version": VERSION,
        "device_name": device["name"],
        "device_kind": device["kind"],
        "task_ids": task_ids,
    }
    return lake.run(read_sql(__file__, "pending_tasks"), parameters).rows()


def run(
    lake_url: str | None,
    auditors: Sequence[JudgeProcess],
    task: str | None = None,
    limit_s: float = 600.0,
    report: Callable[[Result, int, int], None] = lambda *_: None,
) -> Tally:
    """Audit the pending tasks and commit each result; results of an interrupted run stay.

    Args:
        auditors: Processes on devices of one kind, which audit tasks side by side.
        task: A name in any suite, or the start of an id, that selects tasks; None for all.
        report: Called with each result, the number of results, and that of tasks.
    """
    tally = Tally()
    devices = {auditor.row["device_id"]: auditor.row for auditor in auditors}
    with store.writer(lake_url, author="evaluators tasks") as writer:
        with writer.reader() as lake:
            tasks = find_pending(lake, auditors[0].row, task)
            tally.snapshot = lake.snapshot
        if not tasks:
            return tally
        writer.append({"devices": list(devices.values())}, message="audit of tasks begins")
        results = _audit_side_by_side(tasks, auditors, limit_s)
        for number, result in enumerate(results, start=1):
            row, why = result.row, result.why
            try:
                if row is not None:
                    message = f"audited {result.name}"
                    tally.snapshot = writer.append({"task_audits": [row]}, message=message)
            except RowsRejected as error:
                row, why = None, str(error)
            if row is None:
                tally.failed[result.name] = why
            else:
                tally.audited += 1
                if row["weak"]:
                    tally.weak[result.name] = row["passes"]
            report(result, number, len(tasks))
    return tally


def _audit_side_by_side(
    tasks: Sequence[dict[str, Any]], auditors: Sequence[JudgeProcess], limit_s: float
) -> Iterator[Result]:
    """Yield the results of tasks as they come, one task at a time for each auditor.

    Tasks that cannot be run are tried again one by one at the end, when they have the memory of the
    device for themselves.
    """
    free: queue.SimpleQueue[JudgeProcess] = queue.SimpleQueue()
    for auditor in auditors:
        free.put(auditor)
    stopped = threading.Event()

    def audit(task: dict[str, Any], side_by_side: int) -> Result:
        auditor, begin = free.get(), time.monotonic()
        free_bytes = read_free_memory() // side_by_side
        try:
            row, why = auditor.audit({**task, "free_bytes": free_bytes}, limit_s)
        except SandboxFailed as failed:
            is_late = time.monotonic() - begin >= limit_s
            row, why = None, f"no result after {limit_s:g} s" if is_late else failed.message
            if not stopped.is_set():
                auditor.restart()
        finally:
            free.put(auditor)
        return Result(task["task_name"], row, why, time.monotonic() - begin)

    threads = ThreadPoolExecutor(len(auditors), "audit")
    try:
        every = len(auditors)
        audits = {threads.submit(audit, task, every): task for task in tasks}
        alone: list[dict[str, Any]] = []
        for future in as_completed(audits):
            result = future.result()
            if result.row is None and every > 1 and result.seconds < limit_s:
                alone.append(audits[future])
            else:
                yield result
        for task in alone:
            yield audit(task, 1)
    finally:
        stopped.set()
        threads.shutdown(wait=False, cancel_futures=True)
