"""The job queue: several judges at once, with candidates compiled ahead on processor cores.

A device has one judge, so that a timing session has the device to itself. Builders compile a
bounded number of candidates ahead of the judges. A judge prefers cases of the task that it has
loaded. Where there are several judges, a surprising win is measured again by another judge than the
first one, which continues with other cases.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from evaluators.scheduling.contract import Settle, Tables
from store.commandline.escape import quote_name
from store.errors import DeviceUnavailable, EvaluatorError, SandboxFailed

log = logging.getLogger(__name__)

Case: TypeAlias = "dict[str, Any]"
TaskKey: TypeAlias = tuple[str, str]
"""task_id, workload_id."""
_TRIES = 2
_PAUSE_S = 0.02  # between an empty batch and the next one


class Judge(Protocol):
    """A process that judges on one device, here or on another host."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def judge(self, case: Mapping[str, Any]) -> Tables:
        """Return the rows of one case. Raises SandboxFailed, DeviceUnavailable."""
        ...

    def remeasure(
        self, case: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Return the rows of a second session of a case, or how it failed. Raises as `judge`."""
        ...

    def restart(self) -> None:
        """Start another process after SandboxFailed."""
        ...


class Compiler(Protocol):
    """A process that compiles candidates ahead."""

    def build(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Return seconds, hit and failure of a build. Raises SandboxFailed."""
        ...


@dataclass(frozen=True)
class JudgedCase:
    """The result of one case."""

    case: Case
    device: dict[str, Any]
    tables: Tables | None
    """Rows; None where the judge process failed on every try."""
    fault: str = ""
    """The last failure of the judge process, where there are no rows."""


@dataclass(frozen=True)
class _SurprisingWin:
    """A win that waits for its second session."""

    judge: int
    """Thread of the judge that measured it first."""
    device: dict[str, Any]
    tables: Tables


@dataclass
class _JobQueue:
    """The cases of a run: to build, ready to judge, or in progress."""

    builders: int
    judges: int
    """Number of judges at work."""
    to_build: list[Case] = field(default_factory=list[Case])
    ready: list[Case] = field(default_factory=list[Case])
    complete: bool = False
    """Whether no case will be added."""
    wins: dict[int, _SurprisingWin] = field(default_factory=dict[int, _SurprisingWin])
    """Surprising wins that wait for their second session, by the identity of the case."""
    in_progress: int = 0
    stopped: bool = False
    tries: dict[int, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def is_low(self) -> bool:
        """Whether judges or builders may soon have nothing to do, and cases may be added."""
        with self.changed:
            waiting = len(self.ready) + len(self.to_build)
            return not self.complete and waiting < 2 * (self.judges + self.builders)

    def add(self, cases: Sequence[Case]) -> None:
        """Add cases; those that need it are compiled ahead where there are builders."""
        with self.changed:
            for case in cases:
                (self.to_build if self.builders and case["compiles"] else self.ready).append(case)
            self.changed.notify_all()

    def close(self) -> None:
        """Let threads end when all cases are finished."""
        with self.changed:
            self.complete = True
            self.changed.notify_all()

    def next_build(self) -> Case | None:
        """Wait for a case to compile; None when there is none left."""
        with self.changed:
            while not self.stopped and (self.to_build or not self.complete):
                compiled = sum("build" in case for case in self.ready)
                if self.to_build and compiled < 2 * self.builders + self.judges:
                    self.in_progress += 1
                    return self.to_build.pop(0)
                self.changed.wait()
        return None

    def finish_build(self, case: Case) -> None:
        """Make a compiled case ready to judge."""
        with self.changed:
            self.in_progress -= 1
            self.ready.append(case)
            self.changed.notify_all()

    def next_case(self, loaded: TaskKey | None, loaded_elsewhere: set[TaskKey]) -> Case | None:
        """Wait for a case: of the loaded task, else of one that no other judge has loaded."""
        with self.changed:
            while not self.stopped:
                eligible = [case for case in self.ready if not self._is_for_others(case)]
                if eligible:
                    same = [case for case in eligible if _task_key(case) == loaded]
                    free = [case for case in eligible if _task_key(case) not in loaded_elsewhere]
                    self.in_progress += 1
                    case = (same or free or eligible)[0]
                    self.ready = [other for other in self.ready if other is not case]
                    self.changed.notify_all()
                    return case
                if self.complete and not (self.ready or self.to_build or self.in_progress):
                    return None
                self.changed.wait()
        return None

    def _is_for_others(self, case: Case) -> bool:
        win = self.wins.get(id(case))
        return win is not None and win.judge == threading.get_ident() and self.judges > 1

    def request_second_session(self, case: Case, win: _SurprisingWin) -> None:
        """Put a surprising win first in the queue of the other judges."""
        with self.changed:
            self.in_progress -= 1
            self.wins[id(case)] = win
            self.ready.insert(0, case)
            self.changed.notify_all()

    def finish(self, case: Case) -> None:
        """Take a case out of the queue."""
        with self.changed:
            self.in_progress -= 1
            self.changed.notify_all()

    def retry(self, case: Case) -> bool:
        """Put a failed case first in the queue, or finish it after its last try; return which."""
        with self.changed:
            self.in_progress -= 1
            tried = self.tries[id(case)] = self.tries.get(id(case), 0) + 1
            if tried < _TRIES:
                self.ready.insert(0, case)
            self.changed.notify_all()
        return tried < _TRIES

    def put_back(self, case: Case) -> None:
        """Leave a case to the other judges, because this judge's device is unavailable."""
        with self.changed:
            self.in_progress -= 1
            self.ready.insert(0, case)
            self.changed.notify_all()

    def remove_judge(self) -> None:
        """Count one judge less; the others take the cases that waited for it."""
        with self.changed:
            self.judges -= 1
            self.changed.notify_all()

    def stop(self) -> None:
        """Release every waiting thread."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def judge_cases(
    batches: Iterable[Sequence[Case]],
    judges: Sequence[Judge],
    builders: Sequence[Compiler],
    settle: Settle | None = None,
) -> Iterator[JudgedCase]:
    """Judge cases and yield their results in the order in which they are finished.

    A case whose judge process is lost is tried once more with a new process. A device that fails
    its health check takes no more cases; the other devices take them over.

    Args:
        batches: What to judge; the next batch is read when judges or builders may soon have
            nothing to do. An empty one means nothing for now. A case compiled ahead gets `build`.
        judges: One per device.
        builders: Compile the cases that need it; none leaves that to the judges.
        settle: Combines the sessions of a surprising win (`contract.find_settle`), or None.

    Raises DeviceUnavailable where no device is left; all finished cases have been yielded.
    """
    jobs = _JobQueue(builders=len(builders), judges=len(judges))
    results: queue.SimpleQueue[JudgedCase | BaseException | None] = queue.SimpleQueue()
    loaded: dict[int, TaskKey] = {}
    threads = [
        threading.Thread(target=_build_ahead, args=(jobs, builder, results), daemon=True)
        for builder in builders
    ] + [
        threading.Thread(
            target=_run_judge, args=(jobs, judge, settle, loaded, results), daemon=True
        )
        for judge in judges
    ]
    for thread in threads:
        thread.start()
    waiting = iter(batches)
    total, left, running = 0, 0, len(judges)
    lost: BaseException | None = None
    try:
        while running:
            batch: Sequence[Case] | None = ()
            while jobs.is_low and (batch := next(waiting, None)):
                jobs.add(batch)
                total, left = total + len(batch), left + len(batch)
            if batch is None:
                jobs.close()
            if jobs.complete and not left:
                break
            try:
                result = results.get(timeout=_PAUSE_S if jobs.is_low else None)
            except queue.Empty:
                continue
            if result is None:
                running -= 1
            elif isinstance(result, DeviceUnavailable):
                running, lost = running - 1, result
            elif isinstance(result, BaseException):
                raise result
            else:
                left -= 1
                yield result
    finally:
        jobs.stop()
    if left:
        raise lost or EvaluatorError(f"{left} of {total} kernels were not judged")


def _build_ahead(jobs: _JobQueue, builder: Compiler, results: queue.SimpleQueue[Any]) -> None:
    """Compile cases until none is left; the thread of one builder."""
    try:
        while (case := jobs.next_build()) is not None:
            try:
                case["build"] = builder.build(case)
            except (SandboxFailed, OSError) as failed:
                path = quote_name(case["path"])
                log.warning("%s is not compiled ahead: %.300s", path, str(failed))
            jobs.finish_build(case)
    except BaseException as error:
        results.put(error)


def _run_judge(
    jobs: _JobQueue,
    judge: Judge,
    settle: Settle | None,
    loaded: dict[int, TaskKey],
    results: queue.SimpleQueue[Any],
) -> None:
    """Judge cases until none is left; the thread of one judge."""
    thread = threading.get_ident()
    try:
        while True:
            elsewhere = {key for other, key in loaded.items() if other != thread}
            case = jobs.next_case(loaded.get(thread), elsewhere)
            if case is None:
                results.put(None)
                return
            loaded[thread] = _task_key(case)
            win = jobs.wins.get(id(case))
            try:
                if win is None or settle is None:
                    result = _judge_once(jobs, judge, case, remeasures=settle is not None)
                    if result is None:
                        continue
                else:
                    tables = settle(win.tables, *judge.remeasure(case))
                    result = JudgedCase(case, win.device, tables)
            except SandboxFailed as failed:
                path = quote_name(case["path"])
                log.warning("%s %s: %s", path, case["kernel_id"][:12], failed.message)
                retried = jobs.retry(case)
                judge.restart()
                if not retried and win is None:
                    results.put(JudgedCase(case, judge.row, None, failed.message))
                elif not retried and win is not None:
                    results.put(JudgedCase(case, win.device, win.tables))
                continue
            except DeviceUnavailable as gone:
                log.warning("%s takes no more kernels: %s", judge.row["name"], gone.message)
                jobs.put_back(case)
                results.put(gone)
                return
            jobs.finish(case)
            results.put(result)
    except BaseException as error:
        results.put(error)
    finally:
        loaded.pop(thread, None)
        jobs.remove_judge()


def _judge_once(
    jobs: _JobQueue, judge: Judge, case: Case, *, remeasures: bool
) -> JudgedCase | None:
    """Judge a case; None where another judge measures it again."""
    others = remeasures and jobs.judges > 1
    tables = judge.judge({**case, "elsewhere": others})
    if others and "unconfirmed_win" in (tables["evaluations"][0].get("flags") or ()):
        win = _SurprisingWin(threading.get_ident(), judge.row, tables)
        jobs.request_second_session(case, win)
        return None
    return JudgedCase(case, judge.row, tables)


def _task_key(case: Case) -> TaskKey:
    return case["task_id"], case["workload_id"]
