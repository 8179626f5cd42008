"""The judges of a service, which take cases from its queue and put answers back; and its recorder.

They are processes on this host, or actors on the GPUs of a Ray cluster. A device that fails its
health check is quarantined: the others take its case over, and it is tried again later.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa

import store
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.cases import read_cases
from evaluators.scheduling.contract import Tables
from evaluators.scheduling.judge_threads import (
    Judge,
    JudgedCase,
    Shortages,
    StartedJudge,
    judge_cases,
)
from evaluators.scheduling.pool import make_verdict, select_verdicts
from evaluators.scheduling.prebuild import Builder
from evaluators.scheduling.run import (
    append_results,
    name_verdict,
    open_builders,
    record_evaluation,
)
from evaluators.service.queue import Queue, QueueUpdate, Row
from store.errors import DeviceUnavailable, HostUnfit, RowsRejected, SandboxFailed
from store.ids import content_id
from store.lake.location import Leases

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
        confirm_win, shortages = contract.find_confirm_win(self._evaluator), Shortages()
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
                else:
                    shortages.count(result.tables)
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


# The thread with the lake: it prepares what is new and records what is answered, in groups.
#
#     new ──▶ kernel into the lake ──▶ has it a verdict? ──yes──▶ done
#                                          └─no──▶ queued … answered ──▶ rows into the lake ──▶ done
#
# One tick appends everything that waits, commits once, and reads all verdicts in one query for each
# device class and precision. A judgment that is queued holds a lease of the lake, as the cases of
# `evaluators run` do: a run on the same lake leaves it to the service, and the other way round.

AUTHOR = "evaluators serve"
_MOST = 256
"""Judgments that one tick takes."""
_SHARE = 0.25
"""Share of a core that ticks may take for long, so that judges on the same cores are not slowed."""
_CREDIT_S = 3.0
"""Processor seconds of ticks that may run at once after a quiet time."""
_LONGEST_PAUSE_S = 1.5
_IDLE_S = 1.0
_RETRY_S = 5.0
_TRIES = 2


class Recorder:
    """The only user of the lake's writer. Start it with `run` in a thread of its own."""

    def __init__(
        self,
        location: store.Location,
        evaluator: contract.Evaluator,
        config: Any,
        queue: Queue,
    ) -> None:
        self._location, self._evaluator, self._config = location, evaluator, config
        self._queue = queue
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._stale: set[str] = set()
        self._leased: dict[str, list[str]] = {}
        """Names that are leased, by judgment."""
        self._run = ExitStack()
        self._run_id: str | None = None
        self.fault: str | None = None
        """Why the lake cannot be written to at the moment."""

    def wake(self) -> None:
        """Say that there is something to do."""
        self._wake.set()

    def refresh(self, judgement_ids: Iterable[str]) -> None:
        """Read the verdicts of judgments that are done from the lake again."""
        self._stale |= set(judgement_ids)
        self._wake.set()

    def end(self) -> None:
        """Let `run` return after another tick, which records what is answered."""
        self._ended.set()
        self._wake.set()

    def run(self) -> None:
        """Work until `end`. A fault of the lake is logged, shown in health and tried again."""
        with (
            store.writer(self._location.url, author=AUTHOR) as writer,
            self._location.open_leases() as leases,
            self._run,
        ):
            credit_s, ended = _CREDIT_S, time.monotonic()
            while True:
                is_last = self._ended.is_set()
                self._wake.clear()
                used_s = time.thread_time()
                credit_s = min(credit_s + (time.monotonic() - ended) * _SHARE, _CREDIT_S)
                ended = time.monotonic()
                try:
                    self._tick(writer, leases)
                    self.fault = None
                    credit_s -= time.thread_time() - used_s
                    pause_s = min(max(-credit_s / _SHARE, 0.0), _LONGEST_PAUSE_S)
                except Exception as error:
                    log.exception("the lake cannot be read or written; trying again")
                    self.fault = f"{type(error).__name__}: {error}"[:300]
                    pause_s = _RETRY_S
                if is_last:
                    return
                self._ended.wait(pause_s)
                self._wake.wait(_IDLE_S)

    def _tick(self, writer: store.Writer, leases: Leases) -> None:
        answered = self._queue.list_in("answered", _MOST)
        new = self._queue.list_in("new", _MOST)
        again = self._queue.list_rows([self._stale.pop() for _ in range(len(self._stale))])
        self._record_devices(writer)
        # What clients have withdrawn and what was given up.
        for judgement_id in self._leased.keys() - self._queue.find_live():
            leases.release(self._leased.pop(judgement_id))
        if not (answered or new or again):
            return
        updates: list[QueueUpdate] = []
        faults = self._append_answers(writer, answered)
        new = self._append_kernels(writer, new, updates)
        writer.flush()
        with writer.reader() as lake:
            groups: dict[tuple[str, str | None], list[Row]] = {}
            for row in (*new, *answered, *again):
                groups.setdefault((row["device_class"], row["policy"]), []).append(row)
            for (device_class, precision), rows in groups.items():
                decided = self._decide(lake, device_class, precision, rows, faults)
                updates += self._lease(writer, leases, lake.snapshot, device_class, decided)
        self._queue.record_results(updates)
        for one in updates:
            if one.state != "queued":
                leases.release(self._leased.pop(one.judgement_id, []))

    def _record_devices(self, writer: store.Writer) -> None:
        """Append devices that have joined; the first ones start the run that all rows belong to."""
        devices = self._queue.list_devices()
        if not devices:
            return
        rows = [device["row"] for device in devices]
        if self._run_id is None:
            writer.flush()
            with writer.reader() as lake:
                origin = (lake.lake_id, lake.snapshot)
            options = {"evaluator": asdict(self._config), "service": {}}
            run = record_evaluation(writer, self._evaluator, rows, options, origin)
            self._run_id = self._run.enter_context(run).run_id
        elif fresh := [device["row"] for device in devices if not device["recorded"]]:
            writer.append({"devices": fresh}, message="devices join")
        self._queue.mark_recorded([row["device_id"] for row in rows])

    def _append_answers(self, writer: store.Writer, answered: Sequence[Row]) -> dict[str, Row]:
        """Spool the rows of answers; return the evaluations that are faults, by judgment."""
        assert self._run_id is not None or not answered
        devices = {device["device_id"]: device["row"] for device in self._queue.list_devices()}
        results: list[JudgedCase] = []
        faults: dict[str, Row] = {}
        judged: list[Row] = []
        for row in answered:
            answer = json.loads(row["answer"])
            if answer.get("unfit"):  # no row: this says nothing about the kernel
                fault = {"reason": "host_unfit", "message": answer["fault"]}
                faults[row["judgement_id"]] = fault
                continue
            judged.append(row)
            device, fault = devices[answer["device_id"]], answer.get("fault") or ""
            case = Case.read(json.loads(row["case"]))
            results.append(JudgedCase(case, device, answer["tables"], fault))
        stored = append_results(writer, self._evaluator, str(self._run_id), results)
        for row, tables in zip(judged, stored, strict=True):
            evaluation = tables["evaluations"][0]
            if evaluation["status"] == "evaluator_error":
                # Where there are no rows, several judges were lost with the case.
                is_final = json.loads(row["answer"]).get("is_lost", False)
                faults[row["judgement_id"]] = evaluation | {"is_final": is_final}
        return faults

    def _append_kernels(
        self, writer: store.Writer, new: Sequence[Row], updates: list[QueueUpdate]
    ) -> list[Row]:
        if not new:
            return []
        ids = pa.array(sorted({row["kernel_id"] for row in new}), pa.string())
        with writer.reader() as lake:
            lake.register("submitted", pa.table({"kernel_id": ids}))
            found = lake.run("SELECT kernel_id FROM kernels SEMI JOIN submitted USING (kernel_id)")
            known = {row["kernel_id"] for row in found.rows()}
        bundles: dict[str, store.Bundle] = {}
        for row in new:
            if row["kernel_id"] in known:
                continue
            client, kernel = row["client"], json.loads(row["kernel"])
            policy_id = f"client {client}"
            generation_id = content_id("submission", client, row["kernel_id"], row["task_id"])
            generation = {
                "generation_id": generation_id,
                "run_id": self._run_id,
                "policy_id": policy_id,
                "task_id": row["task_id"],
                "kernel_id": row["kernel_id"],
                "source": kernel["source"],
            }
            tables = {
                "policies": [{"policy_id": policy_id, "name": client, "kind": "script"}],
                "kernels": [kernel],
                "kernel_features": store.extract_row_features([kernel]),
                "generations": [generation],
            }
            bundles[row["judgement_id"]] = store.Bundle(
                bundle_id=generation_id, message=f"submitted by {client}", tables=tables
            )
        refused: set[str] = set()
        try:
            writer.append_all(list(bundles.values()), wait=False)
        except RowsRejected:
            # The error is that of one bundle. Those that are spooled already are stored only once.
            for judgement_id, bundle in bundles.items():
                try:
                    writer.append_all([bundle], wait=False)
                except RowsRejected as error:
                    refused.add(judgement_id)
                    why = f"the lake refuses the kernel: {error.rule}"
                    updates.append(_fail(judgement_id, "kernel_refused", why))
        return [row for row in new if row["judgement_id"] not in refused]

    def _decide(
        self,
        lake: store.Lake,
        device_class: str,
        precision: str | None,
        rows: Sequence[Row],
        faults: Mapping[str, Row],
    ) -> list[QueueUpdate]:
        devices = self._rows_of(device_class)
        wanted = list(dict.fromkeys((row["kernel_id"], row["task_id"]) for row in rows))
        verdicts = select_verdicts(lake, self._evaluator, devices, precision, wanted)
        standing = {(one["kernel_id"], one["task_id"]): one for one in verdicts.to_pylist()}
        unknown = verdicts.filter([one is None for one in verdicts["evaluation_id"].to_pylist()])
        read = read_cases(lake, unknown, devices[0]["name"])
        cases = {(case.kernel_id, case.task_id): case for case in read}
        updates: list[QueueUpdate] = []
        for row in rows:
            pair = (row["kernel_id"], row["task_id"])
            verdict, fault = standing.get(pair), faults.get(row["judgement_id"])
            judgement_id = row["judgement_id"]
            if verdict is None:
                updates.append(_fail(judgement_id, "no_workload", _NO_WORKLOAD))
            elif verdict["evaluation_id"] is not None:
                public = asdict(make_verdict(verdict, None, fresh=False))
                del public["fresh"]
                public |= {"lake_id": lake.lake_id, "snapshot": lake.snapshot}
                is_fresh = row["state"] == "answered" or bool(row["fresh"])
                updates.append(
                    QueueUpdate(
                        judgement_id=judgement_id, state="done", verdict=public, fresh=is_fresh
                    )
                )
            elif fault is not None and (fault.get("is_final") or row["tries"] + 1 >= _TRIES):
                message = str(fault.get("message") or "")[:2000]
                updates.append(_fail(judgement_id, str(fault["reason"]), message))
            elif row["state"] == "done":
                updates.append(_fail(judgement_id, "verdict_gone", "the lake lost the verdict"))
            else:
                updates.append(
                    QueueUpdate(
                        judgement_id=judgement_id,
                        state="queued",
                        case=cases[pair],
                        is_retry=fault is not None,
                    )
                )
        return updates

    def _lease(
        self,
        writer: store.Writer,
        leases: Leases,
        snapshot: int,
        device_class: str,
        updates: Sequence[QueueUpdate],
    ) -> list[QueueUpdate]:
        """Return the updates that hold; what a run of the same lake judges stays new for now."""
        devices = self._rows_of(device_class)
        kept, taken = list[QueueUpdate](), list[QueueUpdate]()
        for one in updates:
            if one.is_retry:  # its next verdict has another name
                leases.release(self._leased.pop(one.judgement_id, []))
            if one.case is None or one.judgement_id in self._leased:
                kept.append(one)
                continue
            names = sorted({name_verdict(self._evaluator, row, one.case) for row in devices})
            held = leases.take(names)
            if len(held) == len(names):
                self._leased[one.judgement_id] = names
                taken.append(one)
            else:
                leases.release(held)
        # A run commits its verdicts before it releases their cases. If the lake has changed since
        # it was read, the next tick reads these again, and holds their leases then.
        return [*kept, *taken] if not taken or writer.flush() == snapshot else kept

    def _rows_of(self, device_class: str) -> list[Row]:
        devices = self._queue.list_devices()
        return [one["row"] for one in devices if one["device_class"] == device_class]


_NO_WORKLOAD = "the task has no workload for this kind of device"


def _fail(judgement_id: str, reason: str, message: str) -> QueueUpdate:
    return QueueUpdate(judgement_id=judgement_id, state="fault", reason=reason, message=message)
