"""The cases of a run in memory: to compile, ready to judge, or in progress; shared by threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evaluators.scheduling.contract import Tables

Case: TypeAlias = "dict[str, Any]"
TaskKey: TypeAlias = tuple[str, str]
"""task_id, workload_id."""
_TRIES = 2


@dataclass(frozen=True)
class SurprisingWin:
    """A win that waits for its second session."""

    judge: int
    """Thread of the judge that measured it first."""
    device: dict[str, Any]
    tables: Tables


@dataclass(eq=False)
class Job:
    """A case, and what has happened to it."""

    case: Case
    win: SurprisingWin | None = None
    tries: int = 0
    """How many judge processes have failed at it."""


@dataclass
class JobQueue:
    """The cases of a run: to build, ready to judge, or in progress."""

    builders: int
    judges: int
    """Number of judges at work."""
    to_build: list[list[Job]] = field(default_factory=list[list[Job]])
    """Cases of one kernel and task, which differ in the policy, share a build."""
    ready: list[Job] = field(default_factory=list[Job])
    complete: bool = False
    """Whether no case will be added."""
    loaded: dict[int, TaskKey] = field(default_factory=dict[int, TaskKey])
    """The task that each judge has loaded, by the judge's identity."""
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
        with self.changed:
            for job in map(Job, cases):
                if not (self.builders and job.case["compiles"]):
                    self.ready.append(job)
                    continue
                key = _build_key(job)
                alike = next((each for each in self.to_build if _build_key(each[0]) == key), None)
                if alike is None:
                    self.to_build.append([job])
                else:
                    alike.append(job)
            self.changed.notify_all()

    def close(self) -> None:
        """Let threads end when all cases are finished."""
        with self.changed:
            self.complete = True
            self.changed.notify_all()

    def next_build(self) -> list[Job] | None:
        """Wait for cases to compile together; None when there are none left."""
        with self.changed:
            while not self.stopped and (self.to_build or not self.complete):
                compiled = sum("build" in job.case for job in self.ready)
                if self.to_build and compiled < 2 * self.builders + self.judges:
                    jobs = self.to_build.pop(0)
                    self.building += len(jobs)
                    return jobs
                self.changed.wait()
        return None

    def finish_build(self, jobs: Sequence[Job]) -> None:
        """Make compiled cases ready to judge."""
        with self.changed:
            self.building -= len(jobs)
            self.ready += jobs
            self.changed.notify_all()

    def next_case(self, judge: int) -> Job | None:
        """Wait for a case: of the judge's loaded task, else of one that no other judge has loaded.

        The task of the case counts as loaded by the judge.
        """
        with self.changed:
            while not self.stopped:
                job = self._choose(judge)
                if job is not None:
                    self.judging += 1
                    self.loaded[judge] = task_key(job.case)
                    self.changed.notify_all()
                    return job
                if self.complete and not self._has_work():
                    return None
                self.changed.wait()
        return None

    def _has_work(self) -> bool:
        return bool(self.ready or self.to_build or self.building or self.judging)

    def _choose(self, judge: int) -> Job | None:
        eligible = [job for job in self.ready if not self._is_for_others(job)]
        if not eligible:
            return None
        own = self.loaded.get(judge)
        elsewhere = {key for other, key in self.loaded.items() if other != judge}
        same = [job for job in eligible if task_key(job.case) == own]
        free = [job for job in eligible if task_key(job.case) not in elsewhere]
        job = (same or free or eligible)[0]
        self.ready.remove(job)
        return job

    def _is_for_others(self, job: Job) -> bool:
        mine = job.win is not None and job.win.judge == threading.get_ident()
        return mine and self.judges > 1

    def request_second_session(self, job: Job, win: SurprisingWin) -> None:
        """Put a surprising win first in the queue of the other judges."""
        with self.changed:
            job.win = win
            self.ready.insert(0, job)
            self.end_judging()

    def retry(self, job: Job) -> bool:
        """Put a failed case first in the queue, or finish it after its last try; return which."""
        with self.changed:
            job.tries += 1
            if job.tries < _TRIES:
                self.ready.insert(0, job)
            self.end_judging()
        return job.tries < _TRIES

    def put_back(self, job: Job) -> None:
        """Leave a case to the other judges, because this judge's device is unavailable."""
        with self.changed:
            self.ready.insert(0, job)
            self.end_judging()

    def end_judging(self) -> None:
        """Note that a judge is done with its case."""
        with self.changed:
            self.judging -= 1
            self.changed.notify_all()

    def remove_judge(self, judge: int) -> None:
        """Count one judge less; the others take the cases that waited for it."""
        with self.changed:
            self.loaded.pop(judge, None)
            self.judges -= 1
            self.changed.notify_all()

    def stop(self) -> None:
        """Release every waiting thread."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def _build_key(job: Job) -> tuple[str, TaskKey]:
    return job.case["kernel_id"], task_key(job.case)


def task_key(case: Case) -> TaskKey:
    """Return what a case's task is known by: judges and baselines are prepared for one."""
    return case["task_id"], case["workload_id"]
