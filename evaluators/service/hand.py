"""The cases that a worker has in hand, between the service and its judges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from evaluators.judging.case import Case
from evaluators.scheduling.contract import Tables
from evaluators.scheduling.judge_threads import Judge
from store.errors import DeviceUnavailable


class Hand:
    """Cases from their claim to their answer. Its methods may be called from any thread."""

    def __init__(self, ahead: int) -> None:
        """Take the number of cases to hold beyond those that judges work on."""
        self._ahead = ahead
        self._changed = threading.Condition()
        self._waiting: list[Case] = []
        """Claimed, and not given to the judges yet."""
        self._held: set[str] = set()
        self._leases: dict[str, str] = {}
        self._running: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._is_closed = False
        self._failure: BaseException | None = None
        self.loaded: str | None = None
        """Task that a judge has worked on last."""
        self.quarantine: dict[str, str] = {}
        """Why a device takes no kernels, by its id."""

    def count_room(self, judges: int) -> tuple[int, int]:
        """Return how many cases idle judges want, and how many more may be taken ahead."""
        with self._changed:
            held = len(self._held)
            idle = max(judges - held, 0)
            return idle, max(judges + self._ahead - held - idle, 0)

    def wait_for_room(self, limit_s: float) -> None:
        """Wait until something changes."""
        with self._changed:
            self._changed.wait(limit_s)

    def add(self, cases: Sequence[tuple[Case, str]]) -> None:
        """Take claimed cases with their leases; one that is in hand goes on under the new one."""
        with self._changed:
            for case, lease in cases:
                self._leases[case.request_id] = lease
                if case.request_id not in self._held:
                    self._held.add(case.request_id)
                    self._waiting.append(case)

    def close(self) -> None:
        """Let `read_batches` end; no case is added any more."""
        with self._changed:
            self._is_closed = True

    def fail(self, error: BaseException) -> None:
        """Raise an error in the thread that reads the batches."""
        self._failure = error

    def read_batches(self) -> Iterator[list[Case]]:
        """Yield what has been claimed since the last batch, which may be nothing."""
        while True:
            if self._failure is not None:
                raise self._failure
            with self._changed:
                batch, self._waiting = self._waiting, []
                if self._is_closed and not batch:
                    return
            yield batch

    def list_held(self) -> list[str]:
        """Return the ids of all cases in hand."""
        with self._changed:
            return list(self._held)

    def list_running(self) -> list[str]:
        """Return the ids of the cases that a judge works on or has worked on."""
        with self._changed:
            return [*self._running, *(one for one in self._seconds if one in self._held)]

    def begin(self, case: Case) -> None:
        """Note that a judge begins with a case."""
        with self._changed:
            self._running[case.request_id] = time.monotonic()
            self.loaded = case.task_id

    def stop(self, case: Case) -> None:
        """Note that a judge has stopped to work on a case."""
        judgement_id = case.request_id
        with self._changed:
            took = time.monotonic() - self._running.pop(judgement_id)
            self._seconds[judgement_id] = self._seconds.get(judgement_id, 0.0) + took

    def read_lease(self, judgement_id: str) -> str:
        """Return the newest lease of a case."""
        with self._changed:
            return self._leases[judgement_id]

    def read_seconds(self, judgement_id: str) -> float:
        """Return how long judges have worked on a case."""
        with self._changed:
            return self._seconds.get(judgement_id, 0.0)

    def remove(self, judgement_id: str) -> None:
        """Note that a case is answered."""
        with self._changed:
            self._held.discard(judgement_id)
            self._leases.pop(judgement_id, None)
            self._seconds.pop(judgement_id, None)
            self._changed.notify_all()


class WatchedJudge:
    """A judge that notes in a hand what it works on, and why its device is out of order."""

    def __init__(self, judge: Judge, hand: Hand) -> None:
        self._judge, self._hand = judge, hand

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        return self._judge.row

    def judge(self, case: Case) -> Tables:
        """Return the rows of one case. Raises SandboxFailed, DeviceUnavailable."""
        self._hand.begin(case)
        try:
            return self._judge.judge(case)
        except DeviceUnavailable as gone:
            self._hand.quarantine[self.row["device_id"]] = gone.message
            raise
        finally:
            self._hand.stop(case)

    def restart(self) -> None:
        """Start another process after SandboxFailed."""
        self._judge.restart()
