"""The judges of a service: they take cases from its queue and put their answers back.

They are processes on this host, or actors on the GPUs of a Ray cluster. A device that fails its
health check is quarantined: the others take its case over, and it is tried again later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.contract import Tables
from evaluators.scheduling.judge_threads import Judge, StartedJudge, judge_cases
from evaluators.scheduling.prebuild import Builder
from evaluators.scheduling.run import open_builders
from evaluators.service.queue import Queue
from store.errors import DeviceUnavailable, HostUnfit, SandboxFailed

log = logging.getLogger(__name__)

SICK_S = 30.0
_LONGEST_SICK_S = 600.0
_RECOVERY_S = 300.0
"""Seconds after which judges start anew where one of them is gone."""
_END_S = 60.0
_LOOK_S = 0.2


class Judging:
    """A thread that judges what is queued, with one further thread for each class of devices."""

    def __init__(
        self,
        queue: Queue,
        evaluator: contract.Evaluator,
        start_judges: Callable[[], AbstractContextManager[Sequence[StartedJudge]]],
        builders: Sequence[Sequence[int]] = (),
    ) -> None:
        """Take what is judged, what starts the judges, and the cores of compilers beside them."""
        self._queue, self._evaluator = queue, evaluator
        self._start_judges, self._builder_cores = start_judges, builders
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self._starting: Sequence[StartedJudge] = ()
        self.is_ending = self.is_stopped = False
        self.is_partial = False
        """Whether a judge is gone."""

    def start(self) -> None:
        """Begin to judge."""
        self._thread.start()

    def drain(self) -> None:
        """Finish the cases in hand and take no others."""
        self.is_ending = True

    def stop(self) -> None:
        """End the judges, also in the middle of a case, which is queued again."""
        self.is_ending = self.is_stopped = True
        until = time.monotonic() + _END_S
        while self._thread.is_alive() and time.monotonic() < until:
            for judge in self._starting:  # it may wait long for its device
                judge.give_up()
            self._thread.join(_LOOK_S)

    def _run(self) -> None:
        pause_s = SICK_S
        while not self.is_ending:
            began = time.monotonic()
            try:
                with self._open_judges() as sessions:
                    threads = [
                        threading.Thread(target=session.run, name="session", daemon=True)
                        for session in sessions
                    ]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                    failures = [one.failure for one in sessions if one.failure is not None]
                    if len(failures) == len(sessions):
                        raise failures[0]
            except Exception as error:
                if self.is_stopped:
                    return
                pause_s = SICK_S if time.monotonic() - began > _LONGEST_SICK_S else 2 * pause_s
                pause_s = min(pause_s, _LONGEST_SICK_S)
                is_known = isinstance(error, DeviceUnavailable | HostUnfit | SandboxFailed)
                log.warning("%s; tried again in %d s", error, pause_s, exc_info=not is_known)
                until = time.monotonic() + pause_s
                while time.monotonic() < until and not self.is_ending:
                    time.sleep(_LOOK_S)

    @contextmanager
    def _open_judges(self) -> Generator[list[_Session]]:
        """Start all judges; yield those that work, by their class of devices.

        Raises DeviceUnavailable, SandboxFailed: none works.
        """
        with ExitStack() as stack:
            self._starting = stack.enter_context(self._start_judges())
            judges: dict[str, list[StartedJudge]] = {}
            failure: DeviceUnavailable | SandboxFailed | None = None
            for judge in self._starting:
                try:
                    judge.wait_ready()
                except (DeviceUnavailable, SandboxFailed) as error:
                    log.warning("a judge takes no kernels: %s", error.message)
                    failure = error
                else:
                    judges.setdefault(judge.row["name"], []).append(judge)
            self._starting = ()
            self.is_partial = failure is not None
            if failure is not None and not judges:
                raise failure
            sessions: list[_Session] = []
            for alike in judges.values():
                builders = open_builders(stack, alike[0], self._builder_cores)
                sessions.append(_Session(self, self._queue, self._evaluator, alike, builders))
            yield sessions


class _Stopped(Exception):
    """The service ends at once."""


class _Session:
    """The judges of one class of devices at work, until all shall end or one may have recovered."""

    def __init__(
        self,
        judging: Judging,
        queue: Queue,
        evaluator: contract.Evaluator,
        judges: Sequence[Judge],
        builders: Sequence[Builder],
    ) -> None:
        self._judging, self.queue, self._evaluator = judging, queue, evaluator
        self._judges = [_WatchedJudge(judge, self) for judge in judges]
        self._builders = builders
        self.device_class: str = judges[0].row["name"]
        self._alive = list(self._judges)
        self._began = time.monotonic()
        self._held: set[str] = set()
        """Judgments whose cases have been claimed and not answered."""
        self.seconds: dict[str, float] = {}
        """Seconds that judges have worked on each of them."""
        self.failure: Exception | None = None
        """Why no judge is left."""

    def run(self) -> None:
        """Judge until the service ends, or judges that are gone may have recovered."""
        try:
            self._judge()
        except _Stopped:
            pass
        except Exception as error:
            self.failure, self._judging.is_partial = error, True

    def _judge(self) -> None:
        devices = {judge.row["device_id"]: judge.row for judge in self._judges}
        self.queue.release(self.device_class)
        self.queue.add_devices(list(devices.values()))
        confirm_win = contract.find_confirm_win(self._evaluator)
        try:
            for result in judge_cases(
                self._read_batches(), self._judges, self._builders, confirm_win
            ):
                if result.device["device_id"] not in devices:  # a judge has restarted elsewhere
                    devices[result.device["device_id"]] = result.device
                    self.queue.add_devices([result.device])
                judgement_id = result.case.request_id
                answer: dict[str, Any] = {
                    "device_id": result.device["device_id"],
                    "judged_s": self.seconds.pop(judgement_id, 0.0),
                    "tables": result.tables,
                }
                if result.tables is None:
                    unfit = result.unfit is not None
                    answer |= {"fault": result.fault[:2000], "is_lost": True, "unfit": unfit}
                self.queue.answer(judgement_id, answer)
                self._held.remove(judgement_id)
        finally:
            self.queue.remove_devices(list(devices))
            self.queue.release(self.device_class)

    def _read_batches(self) -> Iterator[list[Case]]:
        """Yield what can be claimed now, which may be nothing."""
        judging, seen, is_full = self._judging, -1, False
        while True:
            if judging.is_stopped:
                raise _Stopped
            may_recover = judging.is_partial and time.monotonic() - self._began > _RECOVERY_S
            if (judging.is_ending or may_recover) and not self._held:
                return
            # Builders prepare some cases while judges have others.
            room = len(self._alive) + 2 * len(self._builders) - len(self._held)
            may_claim = room > 0 and (is_full or self.queue.changes != seen)
            if judging.is_ending or may_recover or not may_claim:
                yield []
                continue
            seen = self.queue.changes
            loaded = [judge.loaded for judge in self._judges if judge.loaded is not None]
            cases = self.queue.claim(self.device_class, room, loaded)
            is_full = len(cases) == room
            # What was given up and is requested anew may still be in hand, where it goes on.
            fresh = [case for case in cases if case.request_id not in self._held]
            self._held |= {case.request_id for case in fresh}
            yield fresh

    def lose(self, judge: _WatchedJudge, why: str) -> None:
        """Note that a judge takes no more kernels."""
        self._alive.remove(judge)
        self._judging.is_partial = True
        device_id = judge.row["device_id"]
        if all(other.row["device_id"] != device_id for other in self._alive):
            self.queue.remove_devices([device_id], quarantine=why)


class _WatchedJudge:
    """A judge whose session knows what it works on, and why it takes no more kernels."""

    def __init__(self, judge: Judge, session: _Session) -> None:
        self._judge, self._session = judge, session
        self.loaded: str | None = None
        """Task that it has worked on last."""

    @property
    def row(self) -> dict[str, Any]:
        return self._judge.row

    def judge(self, case: Case) -> Tables:
        session = self._session
        session.queue.begin(case.request_id)
        self.loaded, began = case.task_id, time.monotonic()
        try:
            return self._judge.judge(case)
        except DeviceUnavailable as gone:
            session.lose(self, gone.message)
            raise
        finally:
            worked_s = session.seconds.get(case.request_id, 0.0) + time.monotonic() - began
            session.seconds[case.request_id] = worked_s

    def restart(self) -> None:
        try:
            self._judge.restart()
            if self.row["name"] != self._session.device_class:
                raise DeviceUnavailable(f"it has restarted on another device, {self.row['name']}")
        except (DeviceUnavailable, SandboxFailed) as error:
            self._session.lose(self, error.message)
            raise
