"""Threads that work through a job queue: one for each judge, and one for each compiler.

A timing session has its device to itself; judges that share a device wait for it (`DeviceLock`).
Builders compile a bounded number of candidates ahead of the judges. A judge prefers cases of the
task that it has loaded. Where there are judges of several GPUs, or on several cores of a processor,
a surprising win is measured again by another judge than the first one, which continues with other
cases. Several judges of one GPU would only have to prepare the baselines of the task again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evaluators.scheduling.contract import Settle, Tables
from evaluators.scheduling.job_queue import Case, Job, JobQueue, SurprisingWin
from store.commandline.escape import quote_name
from store.errors import DeviceUnavailable, EvaluatorError, HostUnfit

log = logging.getLogger(__name__)

_PAUSE_S = 0.02  # between an empty batch and the next one


class Judge(Protocol):
    """A process that judges on one device, here or on another host."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def judge(self, case: Mapping[str, Any]) -> Tables:
        """Return the rows of one case. Raises HostUnfit, SandboxFailed, DeviceUnavailable."""
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
    """Rows; None where the judge process failed on every try, or the host is unfit."""
    fault: str = ""
    """The last failure of the judge process, where there are no rows."""
    unfit: HostUnfit | None = None
    """What the host lacks for the kernel, which stays pending without a row."""


def judge_cases(
    batches: Iterable[Sequence[Case]],
    judges: Sequence[Judge],
    builders: Sequence[Compiler],
    settle: Settle | None = None,
) -> Generator[JudgedCase]:
    """Judge cases and yield their results in the order in which they are finished.

    A case whose judge process is lost is tried once more with a new process. A device that fails
    its health check, or whose judge cannot be started again, takes no more cases; the other devices
    take them over.

    Args:
        batches: What to judge; the next batch is read when judges or builders may soon have
            nothing to do. An empty one means nothing for now. A case compiled ahead gets `build`.
        judges: One or more per device.
        builders: Compile the cases that need it; none leaves that to the judges.
        settle: Combines the sessions of a surprising win (`contract.find_settle`), or None.

    Raises DeviceUnavailable, or SandboxFailed, where no judge is left; all finished cases have been
    yielded.
    """
    gpus = {judge.row["device_id"] for judge in judges if judge.row["kind"] == "cuda"}
    has_others = len(judges) > 1 and len(gpus) != 1
    jobs = JobQueue(builders=len(builders), judges=len(judges))
    results: queue.SimpleQueue[JudgedCase | BaseException | None] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_build_ahead, args=(jobs, builder, results), daemon=True)
        for builder in builders
    ] + [
        threading.Thread(
            target=_run_judge,
            args=(jobs, judge, settle, results, has_others),
            daemon=True,
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
            elif isinstance(result, EvaluatorError):
                running, lost = running - 1, result
            elif isinstance(result, BaseException):
                raise result
            else:
                left -= 1
                yield result
    finally:
        jobs.stop()
    if left:
        raise lost or EvaluatorError(
            f"{left} of {total} kernels were not judged", "Run this again to judge the rest."
        )


def _build_ahead(jobs: JobQueue, builder: Compiler, results: queue.SimpleQueue[Any]) -> None:
    """Compile cases until none is left; the thread of one builder."""
    try:
        while (alike := jobs.next_build()) is not None:
            case = alike[0].case
            try:
                build = builder.build(case)
                for job in alike:
                    job.case["build"] = build
            except Exception as failed:  # the judge compiles it then
                if jobs.stopped:  # the end of the run has ended the builder's processes
                    return
                path = quote_name(case["path"])
                log.warning("%s is not compiled ahead: %.300s", path, describe_fault(failed))
            jobs.finish_build(alike)
    except BaseException as error:
        results.put(error)


def _run_judge(
    jobs: JobQueue,
    judge: Judge,
    settle: Settle | None,
    results: queue.SimpleQueue[Any],
    has_others: bool,
) -> None:
    """Judge cases until none is left; the thread of one judge."""
    own = id(judge)
    try:
        while True:
            job = jobs.next_case(own)
            if job is None:
                results.put(None)
                return
            case, win = job.case, job.win
            try:
                if win is None or settle is None:
                    result = _judge_once(
                        jobs, judge, job, remeasures=settle is not None and has_others
                    )
                    if result is None:
                        continue
                else:
                    tables = settle(win.tables, *judge.remeasure(case))
                    result = JudgedCase(case, win.device, tables)
            except HostUnfit as unfit:
                result = JudgedCase(case, judge.row, None, unfit.message, unfit)
            except DeviceUnavailable as gone:
                log.warning("%s takes no more kernels: %s", judge.row["name"], gone.message)
                jobs.put_back(job)
                results.put(gone)
                return
            except Exception as failed:  # whatever it is, it is no fault of other cases
                if jobs.stopped:
                    return
                why = describe_fault(failed)
                log.warning("%s %s: %s", quote_name(case["path"]), case["kernel_id"][:12], why)
                try:
                    judge.restart()
                finally:  # no other judge has a case after its last try
                    retried = jobs.retry(job)
                    if not retried and win is None:
                        results.put(JudgedCase(case, judge.row, None, why))
                    elif not retried and win is not None:
                        results.put(JudgedCase(case, win.device, win.tables))
                continue
            jobs.end_judging()
            results.put(result)
    except BaseException as error:
        results.put(error)
    finally:
        jobs.remove_judge(own)


def describe_fault(failed: Exception) -> str:
    """Return what has failed in one line."""
    if isinstance(failed, EvaluatorError):
        return failed.message
    return f"{type(failed).__name__}: {failed}"


def _judge_once(jobs: JobQueue, judge: Judge, job: Job, *, remeasures: bool) -> JudgedCase | None:
    """Judge a case; None where another judge measures it again."""
    others = remeasures and jobs.judges > 1
    tables = judge.judge({**job.case, "elsewhere": others})
    if others and "unconfirmed_win" in (tables["evaluations"][0].get("flags") or ()):
        win = SurprisingWin(threading.get_ident(), judge.row, tables)
        jobs.request_second_session(job, win)
        return None
    return JudgedCase(job.case, judge.row, tables)
