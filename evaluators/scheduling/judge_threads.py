"""Threads that work through a job queue: one for each judge, and one for each compiler.

A timing session has its device to itself; judges that share a device wait for it (`DeviceLock`).
Builders compile a bounded number of candidates ahead of the judges. A judge prefers cases of the
task that it has loaded. Where there are judges of several GPUs, or on several cores of a processor,
the second session of a surprising win is a case of its own, for another judge than the first one,
which continues with other cases. Several judges of one GPU would only have to prepare the baselines
of the task again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from evaluators.judging.case import Case
from evaluators.judging.case_result import SHORTAGE
from evaluators.scheduling.contract import ConfirmWin, Tables
from evaluators.scheduling.prebuild import Builder
from store.commandline.escape import quote_name
from store.errors import DeviceUnavailable, EvaluatorError, HostUnfit

log = logging.getLogger(__name__)

_PAUSE_S = 0.02  # between an empty batch and the next one
_TRIES = 2
_FEWEST_SHORTAGES = 3
_SHORT_SHARE = 0.1
_FAILURES = ("incorrect", "rejected", "timeout", "crash", "compile_error")


class Judge(Protocol):
    """A process that judges on one device, here or on another host."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def judge(self, case: Case) -> Tables:
        """Return the rows of one case. Raises HostUnfit, SandboxFailed, DeviceUnavailable.

        Those of a second session are its timings and an evaluation, which says how it ended.
        """
        ...

    def restart(self) -> None:
        """Start another process after SandboxFailed."""
        ...


class StartedJudge(Judge, Protocol):
    """A judge from its start on."""

    def wait_ready(self) -> None:
        """Wait until it can judge. Raises DeviceUnavailable, SandboxFailed."""
        ...

    def give_up(self) -> None:
        """End `wait_ready`, from another thread."""
        ...


@dataclass(frozen=True)
class JudgedCase:
    """The result of one case."""

    case: Case
    device: dict[str, Any]
    tables: Tables | None
    """Rows; None where the judge process failed on every try, or the host is unfit."""
    fault: str = ""
    """The last failure of the judge process, where there are no rows."""
    unfit: HostUnfit | None = None
    """What the host lacks for the kernel, which stays pending without a row."""


@dataclass
class Shortages:
    """How many kernels lacked memory beside other judges, and were judged again alone.

    For each of them, all other judges of the device end their workers and start new ones.
    """

    kernels: int = 0
    judged: int = 0
    _is_told: bool = False

    def count(self, tables: Tables) -> None:
        """Add the rows of one case; warn once, when shortages become frequent."""
        self.judged += 1
        # An evaluator of the user's may give parts of any type.
        self.kernels += f'"{SHORTAGE}":' in str(tables["evaluations"][0].get("parts_s"))
        if self.are_frequent and not self._is_told:
            self._is_told = True
            log.warning("%s", str(self))

    @property
    def are_frequent(self) -> bool:
        """Whether they slow a run down."""
        return self.kernels >= _FEWEST_SHORTAGES and self.kernels >= _SHORT_SHARE * self.judged

    def __str__(self) -> str:
        return (
            f"{self.kernels} of {self.judged} kernels lacked memory beside other judges and were"
            " judged again alone, which slows all judges down: use fewer --workers"
        )


@dataclass(eq=False)
class _Job:
    """A case, and what has happened to it. Judges are named by their numbers."""

    case: Case
    first: JudgedCase | None = None
    """The result of the first session, where the case is the second one."""
    first_judge: int | None = None
    tries: int = 0
    """How many judge processes have failed at it."""


@dataclass
class _JobQueue:
    """The cases of a run in memory: to build, ready to judge, or in progress."""

    builders: int
    judges: int
    """Number of judges at work."""
    to_build: list[list[_Job]] = field(default_factory=list[list[_Job]])
    """Cases of one kernel and task, which differ in the precision, share a build."""
    ready: list[_Job] = field(default_factory=list[_Job])
    complete: bool = False
    """Whether no case will be added."""
    loaded: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """The task that each judge has loaded, by the judge's number."""
    building: int = 0
    judging: int = 0
    stopped: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def is_low(self) -> bool:
        """Whether judges or builders may soon have nothing to do, and cases may be added."""
        with self.changed:
            waiting = len(self.ready) + sum(map(len, self.to_build))
            return not self.complete and waiting < 2 * (self.judges + self.builders)

    def add(self, cases: Sequence[Case]) -> None:
        """Add cases; those that need it are compiled ahead where there are builders."""
        with self.change():
            for case in cases:
                if not (self.builders and case.compiles):
                    self.ready.append(_Job(case))
                    continue
                for alike in self.to_build:
                    other = alike[0].case
                    if (other.kernel_id, other.task_key) == (case.kernel_id, case.task_key):
                        alike.append(_Job(case))
                        break
                else:
                    self.to_build.append([_Job(case)])

    @contextmanager
    def change(self) -> Generator[None]:
        """Hold the queue for a change, and wake every thread that waits for one."""
        with self.changed:
            yield
            self.changed.notify_all()

    def next_build(self) -> list[_Job] | None:
        """Wait for cases to compile together; None when there are none left."""
        with self.changed:
            while not self.stopped and (self.to_build or not self.complete):
                compiled = sum(job.case.build is not None for job in self.ready)
                if self.to_build and compiled < 2 * self.builders + self.judges:
                    jobs = self.to_build.pop(0)
                    self.building += len(jobs)
                    return jobs
                self.changed.wait()
        return None

    def next_case(self, judge: int) -> _Job | None:
        """Wait for a case: of the judge's loaded task, else of one that no other judge has loaded.

        The task of the case counts as loaded by the judge.
        """
        with self.changed:
            while not self.stopped:
                eligible = [
                    job for job in self.ready if job.first_judge != judge or self.judges == 1
                ]
                if eligible:
                    own = self.loaded.get(judge)
                    others = {key for other, key in self.loaded.items() if other != judge}
                    same = [job for job in eligible if job.case.task_key == own]
                    free = [job for job in eligible if job.case.task_key not in others]
                    job = (same or free or eligible)[0]
                    self.ready.remove(job)
                    self.judging += 1
                    self.loaded[judge] = job.case.task_key
                    self.changed.notify_all()
                    return job
                has_work = self.ready or self.to_build or self.building or self.judging
                if self.complete and not has_work:
                    return None
                self.changed.wait()
        return None

    def end_judging(self, job: _Job | None = None) -> None:
        """Note that a judge is done with a case, which comes first in the queue again if given."""
        with self.change():
            self.judging -= 1
            if job is not None:
                self.ready.insert(0, job)


def judge_cases(
    batches: Iterable[Sequence[Case]],
    judges: Sequence[Judge],
    builders: Sequence[Builder],
    confirm_win: ConfirmWin | None = None,
) -> Generator[JudgedCase]:
    """Judge cases and yield their results in the order in which they are finished.

    A case whose judge process is lost is tried once more with a new process. A device that fails
    its health check, or whose judge cannot be started again, takes no more cases; the other devices
    take them over.

    Args:
        batches: What to judge; the next batch is read when judges or builders may soon have
            nothing to do. An empty one means nothing for now.
        builders: Compile the cases that need it; none leaves that to the judges.
        confirm_win: Combines both sessions of a surprising win, or None (`find_confirm_win`).

    Raises DeviceUnavailable, or SandboxFailed, where no judge is left; all finished cases have been
    yielded.
    """
    gpus = {judge.row["device_id"] for judge in judges if judge.row["kind"] == "cuda"}
    has_others = len(judges) > 1 and len(gpus) != 1
    jobs = _JobQueue(builders=len(builders), judges=len(judges))
    results: queue.SimpleQueue[JudgedCase | BaseException | None] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_build_ahead, args=(jobs, builder, results), daemon=True)
        for builder in builders
    ] + [
        threading.Thread(
            target=_run_judge,
            args=(jobs, number, judge, confirm_win if has_others else None, results),
            daemon=True,
        )
        for number, judge in enumerate(judges)
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
                with jobs.change():
                    jobs.complete = True
            if jobs.complete and not left:
                break
            try:
                result = results.get(timeout=_PAUSE_S if jobs.is_low else None)
            except queue.Empty:
                continue
            if result is None:
                running -= 1
            elif isinstance(result, EvaluatorError):
                running, lost = running - 1, result
            elif isinstance(result, BaseException):
                raise result
            else:
                left -= 1
                yield result
    finally:
        with jobs.change():
            jobs.stopped = True
    if left:
        raise lost or EvaluatorError(
            f"{left} of {total} kernels were not judged", "Run this again to judge the rest."
        )


def _build_ahead(jobs: _JobQueue, builder: Builder, results: queue.SimpleQueue[Any]) -> None:
    try:
        while (alike := jobs.next_build()) is not None:
            case = alike[0].case
            try:
                build = builder.build(case)
                for job in alike:
                    job.case = replace(job.case, build=build)
            except Exception as failed:  # the judge compiles it then
                if jobs.stopped:  # the end of the run has ended the builder's processes
                    return
                path = quote_name(case.path)
                log.warning("%s is not compiled ahead: %.300s", path, describe_fault(failed))
            with jobs.change():
                jobs.building -= len(alike)
                jobs.ready += alike
    except BaseException as error:
        results.put(error)


def _run_judge(
    jobs: _JobQueue,
    number: int,
    judge: Judge,
    confirm_win: ConfirmWin | None,
    results: queue.SimpleQueue[Any],
) -> None:
    """Judge cases until none is left; the thread of one judge.

    confirm_win: None where no other judge measures a surprising win again.
    """
    try:
        while (job := jobs.next_case(number)) is not None:
            case = job.case
            if confirm_win is not None and job.first is None and jobs.judges > 1:
                case = replace(case, sessions="first")
            try:
                tables = judge.judge(case)
            except HostUnfit as unfit:
                result = JudgedCase(job.case, judge.row, None, unfit.message, unfit)
            except DeviceUnavailable as gone:
                log.warning("%s takes no more kernels: %s", judge.row["name"], gone.message)
                jobs.end_judging(job)
                results.put(gone)
                return
            except Exception as failed:  # whatever it is, it is no fault of other cases
                if jobs.stopped:
                    return
                why = describe_fault(failed)
                log.warning("%s %s: %s", quote_name(case.path), case.kernel_id[:12], why)
                job.tries += 1
                try:
                    judge.restart()
                finally:  # no other judge has a case after its last try
                    if job.tries < _TRIES:
                        jobs.end_judging(job)
                    else:
                        jobs.end_judging()
                        results.put(job.first or JudgedCase(job.case, judge.row, None, why))
                continue
            else:
                flags = tables["evaluations"][0].get("flags") or ()
                if confirm_win is not None and job.first is not None:
                    evaluation, failed = tables["evaluations"][0], None
                    if evaluation["status"] in _FAILURES:
                        names = ("status", "reason", "message")
                        failed = {name: evaluation.get(name) for name in names}
                        failed["detail"] = evaluation.get("log") or ""
                    assert job.first.tables is not None
                    rows = confirm_win(job.first.tables, tables["timings"], failed)
                    result = replace(job.first, tables=rows)  # on the first device
                elif case.sessions == "first" and "unconfirmed_win" in flags:
                    job.first, job.first_judge = JudgedCase(job.case, judge.row, tables), number
                    job.case = replace(case, sessions="second")
                    jobs.end_judging(job)
                    continue
                else:
                    result = JudgedCase(job.case, judge.row, tables)
            jobs.end_judging()
            results.put(result)
        results.put(None)
    except BaseException as error:
        results.put(error)
    finally:
        with jobs.change():  # the others take the cases that waited for it
            jobs.loaded.pop(number, None)
            jobs.judges -= 1


def describe_fault(failed: Exception) -> str:
    """Return what has failed in one line."""
    if isinstance(failed, EvaluatorError):
        return failed.message
    return f"{type(failed).__name__}: {failed}"
