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


@dataclass
class JobQueue:
    """The cases of a run: to build, ready to judge, or in progress."""

    builders: int
    judges: int
    """Number of judges at work."""
    to_build: list[list[Case]] = field(default_factory=list[list[Case]])
    """Cases of one kernel and task, which differ in the policy, share a build."""
    ready: list[Case] = field(default_factory=list[Case])
    deferred: list[Case] = field(default_factory=list[Case])
    """Cases that are judged one at a time after all others."""
    alone: set[int] = field(default_factory=set[int])
    """Deferred cases that a judge has taken, by identity."""
    complete: bool = False
    """Whether no case will be added."""
    wins: dict[int, SurprisingWin] = field(default_factory=dict[int, SurprisingWin])
    """Surprising wins that wait for their second session, by the identity of the case."""
    loaded: dict[int, TaskKey] = field(default_factory=dict[int, TaskKey])
    """The task that each judge has loaded, by the judge's identity."""
    in_progress: int = 0
    stopped: bool = False
    tries: dict[int, int] = field(default_factory=dict)
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
            for case in cases:
                if not (self.builders and case["compiles"]):
                    self.ready.append(case)
                    continue
                key = _build_key(case)
                alike = next((each for each in self.to_build if _build_key(each[0]) == key), None)
                if alike is None:
                    self.to_build.append([case])
                else:
                    alike.append(case)
            self.changed.notify_all()

    def close(self) -> None:
        """Let threads end when all cases are finished."""
        with self.changed:
            self.complete = True
            self.changed.notify_all()

    def next_build(self) -> list[Case] | None:
        """Wait for cases to compile together; None when there are none left."""
        with self.changed:
            while not self.stopped and (self.to_build or not self.complete):
                compiled = sum("build" in case for case in self.ready)
                if self.to_build and compiled < 2 * self.builders + self.judges:
                    cases = self.to_build.pop(0)
                    self.in_progress += len(cases)
                    return cases
                self.changed.wait()
        return None

    def finish_build(self, cases: Sequence[Case]) -> None:
        """Make compiled cases ready to judge."""
        with self.changed:
            self.in_progress -= len(cases)
            self.ready += cases
            self.changed.notify_all()

    def next_case(self, judge: int) -> Case | None:
        """Wait for a case: of the judge's loaded task, else of one that no other judge has loaded.

        The task of the case counts as loaded by the judge. Deferred cases come last, and no other
        judge is at work then.
        """
        with self.changed:
            while not self.stopped:
                eligible = [case for case in self.ready if not self._is_for_others(case)]
                if eligible:
                    own = self.loaded.get(judge)
                    elsewhere = {key for other, key in self.loaded.items() if other != judge}
                    same = [case for case in eligible if task_key(case) == own]
                    free = [case for case in eligible if task_key(case) not in elsewhere]
                    self.in_progress += 1
                    case = (same or free or eligible)[0]
                    self.loaded[judge] = task_key(case)
                    self.ready = [other for other in self.ready if other is not case]
                    self.changed.notify_all()
                    return case
                if self.complete and not (self.ready or self.to_build or self.in_progress):
                    if not self.deferred:
                        return None
                    case = self.deferred.pop(0)
                    self.alone.add(id(case))
                    self.loaded[judge] = task_key(case)
                    self.in_progress += 1
                    return case
                self.changed.wait()
        return None

    def _is_for_others(self, case: Case) -> bool:
        win = self.wins.get(id(case))
        return win is not None and win.judge == threading.get_ident() and self.judges > 1

    def request_second_session(self, case: Case, win: SurprisingWin) -> None:
        """Put a surprising win first in the queue of the other judges."""
        with self.changed:
            self.in_progress -= 1
            self.wins[id(case)] = win
            self.ready.insert(0, case)
            self.changed.notify_all()

    def defer(self, case: Case) -> None:
        """Leave a case until all others are finished."""
        with self.changed:
            self.in_progress -= 1
            self.deferred.append(case)
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

    def unload(self, judge: int) -> bool:
        """Note that a judge is about to lose its task; return whether it had one loaded."""
        with self.changed:
            return self.loaded.pop(judge, None) is not None

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


def _build_key(case: Case) -> tuple[str, TaskKey]:
    return case["kernel_id"], task_key(case)


def task_key(case: Case) -> TaskKey:
    """Return what a case's task is known by: judges and baselines are prepared for one."""
    return case["task_id"], case["workload_id"]
