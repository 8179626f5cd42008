"""Many judges at once: candidates are compiled ahead on processor cores and timed one per device.

A device has one judge, so that timing is exclusive there. Builders work ahead of the judges by a
bounded number of candidates. A candidate goes to the judge that has its task at hand, if any does.
A surprising win is measured again by another judge than the one that has seen it, where there is
one; the first goes on with other candidates meanwhile.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from evaluators.judge import settle
from store.commandline.escape import quote_name
from store.errors import DeviceUnavailable, EvaluatorError, SandboxFailed

log = logging.getLogger(__name__)

Case: TypeAlias = "dict[str, Any]"
Tables: TypeAlias = "dict[str, list[dict[str, Any]]]"
_TRIES = 2


class Judge(Protocol):
    """A process that judges on one device, here or on another host."""

    @property
    def row(self) -> dict[str, Any]:
        """The `devices` row."""
        ...

    def judge(self, case: Mapping[str, Any]) -> Tables:
        """Rows of one case. Raises SandboxFailed, DeviceUnavailable."""
        ...

    def remeasure(
        self, case: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Rows of a second session of a case, or how it failed. Raises as `judge` does."""
        ...

    def restart(self) -> None:
        """Start anew after SandboxFailed."""
        ...


class Compiler(Protocol):
    """What compiles candidates ahead."""

    def build(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds, hit and failure of a build. Raises SandboxFailed."""
        ...


@dataclass(frozen=True)
class Judged:
    """What came of one case."""

    case: Case
    device: dict[str, Any]
    tables: Tables | None
    """Rows; None where the judging itself failed on every try."""
    fault: str = ""
    """What failed then."""


@dataclass(frozen=True)
class _Look:
    """A win that waits for its second session."""

    judge: int
    """The thread of the judge that has seen it."""
    device: dict[str, Any]
    tables: Tables


@dataclass
class _Line:
    """Cases on their way: to be built, ready to be judged, in hand."""

    to_build: list[Case]
    ready: list[Case]
    ahead: int
    judges: int
    """How many are at work."""
    looks: dict[int, _Look] = field(default_factory=dict[int, _Look])
    """Cases that are ready to be measured again, by the identity of the case."""
    in_hand: int = 0
    stopped: bool = False
    tries: dict[int, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def next_build(self) -> Case | None:
        """Wait for a case to compile; None when there is none left."""
        with self.changed:
            while not self.stopped and self.to_build:
                if len(self.ready) < self.ahead:
                    self.in_hand += 1
                    return self.to_build.pop(0)
                self.changed.wait()
        return None

    def built(self, case: Case) -> None:
        """Put a compiled case in the line of those to judge."""
        with self.changed:
            self.in_hand -= 1
            self.ready.append(case)
            self.changed.notify_all()

    def next_case(self, task: tuple[str, str] | None, taken: set[tuple[str, str]]) -> Case | None:
        """Wait for a case to judge: of this task, else of one that no other judge has at hand."""
        with self.changed:
            while not self.stopped:
                found = [case for case in self.ready if not self._is_for_others(case)]
                if found:
                    same = [case for case in found if _task(case) == task]
                    free = [case for case in found if _task(case) not in taken]
                    self.in_hand += 1
                    case = (same or free or found)[0]
                    self.ready = [one for one in self.ready if one is not case]
                    self.changed.notify_all()
                    return case
                if not self.ready and not self.to_build and not self.in_hand:
                    return None
                self.changed.wait()
        return None

    def _is_for_others(self, case: Case) -> bool:
        look = self.looks.get(id(case))
        return look is not None and look.judge == threading.get_ident() and self.judges > 1

    def look_again(self, case: Case, look: _Look) -> None:
        """Put a surprising win in the line of another judge."""
        with self.changed:
            self.in_hand -= 1
            self.looks[id(case)] = look
            self.ready.insert(0, case)
            self.changed.notify_all()

    def leave(self) -> None:
        """Count a judge out; what waited for it is for those that stay."""
        with self.changed:
            self.judges -= 1
            self.changed.notify_all()

    def done(self, case: Case, *, again: bool) -> bool:
        """Take a case out of hand, or put it back; returns whether it is to be tried again."""
        with self.changed:
            self.in_hand -= 1
            tried = self.tries[id(case)] = self.tries.get(id(case), 0) + 1
            again = again and tried < _TRIES
            if again:
                self.ready.insert(0, case)
            self.changed.notify_all()
        return again

    def put_back(self, case: Case) -> None:
        """Leave a case to the other judges: this one's device is gone."""
        with self.changed:
            self.in_hand -= 1
            self.ready.insert(0, case)
            self.changed.notify_all()

    def stop(self) -> None:
        """Let every waiting thread go."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def judged(
    cases: Sequence[Case], judges: Sequence[Judge], builders: Sequence[Compiler]
) -> Iterator[Judged]:
    """Yield what comes of the cases, in the order in which they are done.

    A case of which the judging process is lost is tried once more with a new process. A device
    that fails its health check takes no more cases; what it had goes to the others.

    Raises:
        DeviceUnavailable: no device is left; what was judged before has been yielded.
    """
    compiled = [case for case in cases if builders and case["compiles"]]
    plain = [case for case in cases if not (builders and case["compiles"])]
    ahead = len(plain) + 2 * len(builders) + len(judges)
    line = _Line(to_build=compiled, ready=plain, ahead=ahead, judges=len(judges))
    results: queue.SimpleQueue[Judged | BaseException | None] = queue.SimpleQueue()
    at_hand: dict[int, tuple[str, str]] = {}
    threads = [
        threading.Thread(target=_built, args=(line, builder, results), daemon=True)
        for builder in builders
    ] + [
        threading.Thread(target=_judged, args=(line, judge, at_hand, results), daemon=True)
        for judge in judges
    ]
    for thread in threads:
        thread.start()
    left, running = len(cases), len(judges)
    lost: BaseException | None = None
    try:
        while running and left:
            result = results.get()
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
        line.stop()
    if left:
        raise lost or EvaluatorError(f"{left} of {len(cases)} kernels were not judged")


def _built(line: _Line, builder: Compiler, results: queue.SimpleQueue[Any]) -> None:
    try:
        while (case := line.next_build()) is not None:
            try:
                case["build"] = builder.build(case)
            except (SandboxFailed, OSError) as failed:
                path = quote_name(case["path"])
                log.warning("%s is not compiled ahead: %.300s", path, str(failed))
            line.built(case)
    except BaseException as error:
        results.put(error)


def _judged(
    line: _Line,
    judge: Judge,
    at_hand: dict[int, tuple[str, str]],
    results: queue.SimpleQueue[Any],
) -> None:
    me = threading.get_ident()
    try:
        while True:
            mine = at_hand.get(me)
            taken = {key for thread, key in at_hand.items() if thread != me}
            case = line.next_case(mine, taken)
            if case is None:
                results.put(None)
                return
            at_hand[me] = _task(case)
            look = line.looks.get(id(case))
            try:
                if look is None:
                    elsewhere = line.judges > 1
                    tables = judge.judge({**case, "elsewhere": elsewhere})
                    if elsewhere and _surprises(tables):
                        line.look_again(case, _Look(me, judge.row, tables))
                        continue
                    result = Judged(case, judge.row, tables)
                else:
                    tables = settle(look.tables, *judge.remeasure(case))
                    result = Judged(case, look.device, tables)
            except SandboxFailed as failed:
                path = quote_name(case["path"])
                log.warning("%s %s: %s", path, case["kernel_id"][:12], failed.message)
                again = line.done(case, again=True)
                judge.restart()
                if again:
                    continue
                if look is None:
                    results.put(Judged(case, judge.row, None, failed.message))
                else:
                    results.put(Judged(case, look.device, look.tables))
                continue
            except DeviceUnavailable as gone:
                log.warning("%s takes no more kernels: %s", judge.row["name"], gone.message)
                line.put_back(case)
                results.put(gone)
                return
            line.done(case, again=False)
            results.put(result)
    except BaseException as error:
        results.put(error)
    finally:
        at_hand.pop(me, None)
        line.leave()


def _surprises(tables: Tables) -> bool:
    """Whether a case that was judged with `elsewhere` wants a second session."""
    return "unconfirmed_win" in (tables["evaluations"][0].get("flags") or ())


def _task(case: Case) -> tuple[str, str]:
    return case["task_id"], case["workload_id"]
