"""A worker: the judges of one host, which take cases from a judge service and send back rows.

It holds no lake. A device that fails its health check is quarantined: its case goes back to the
service, and the worker tries the device again later. A server that is away is waited for.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import store
from evaluators.device import placement
from evaluators.device.placement import Layout
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.judge_threads import JudgedCase, judge_cases
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.scheduling.prebuild import Builder
from evaluators.service.connection import Connection, Unreachable
from evaluators.service.hand import Hand, WatchedJudge
from evaluators.worker.builds.cache import Builds, default_root
from store.commandline import echo
from store.errors import DeviceUnavailable, FlywheelError, HostUnfit, SandboxFailed

log = logging.getLogger(__name__)

_CLAIM_WAIT_S = 15.0
_AWAY_S = 2.0
_SICK_S = 30.0
_LONGEST_SICK_S = 600.0
_RECOVERY_S = 300.0
_ORPHAN_S = 30.0


class _EndedEarly(Exception):
    """The worker ends while its judges start."""


class Worker:
    """The worker of one host. Call `run`."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        """Take the connection to the server, and the devices and cores to use.

        Raises:
            FlywheelError: the server judges with another version.
            Unreachable: there is no server, or it refuses the token.
        """
        self._connection, self._layout = connection, layout
        order = connection.get("/v1/workers/order")
        self._evaluator = contract.load(order["evaluator"])
        theirs = (order["version"], order["evaluator_version"])
        if theirs != (store.__version__, self._evaluator.VERSION):
            raise FlywheelError(
                f"the server has version {theirs[0]} with evaluator version {theirs[1]}, and this "
                f"host {store.__version__} with {self._evaluator.VERSION}",
                "Install the same version on both.",
            )
        config = order["config"]
        self._config = self._evaluator.Config(
            **{name: tuple(v) if isinstance(v, list) else v for name, v in config.items()}
        )
        self._heartbeat_s = float(order["heartbeat_s"])
        self._ended = threading.Event()
        self._is_starting = False

    def end(self) -> None:
        """Finish the cases in hand, then let `run` return. Call it in the thread of `run`.

        Raises _EndedEarly for `run` where judges are starting: they have no cases in hand, and may
        wait long for their devices.
        """
        self._ended.set()
        if self._is_starting:
            raise _EndedEarly

    @property
    def is_ending(self) -> bool:
        """Whether `end` has been called."""
        return self._ended.is_set()

    def run(self) -> None:
        """Judge until `end`. Devices that fail are tried again."""
        with suppress(_EndedEarly):
            self._run()

    def _run(self) -> None:
        pause_s = _SICK_S
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                with self._open_judges() as (judges, builders, sick):
                    _Session(self._connection, judges, builders, sick).run(
                        self._evaluator, self._heartbeat_s, self._ended
                    )
            except (DeviceUnavailable, HostUnfit, SandboxFailed) as error:
                pause_s = _SICK_S if time.monotonic() - began > _LONGEST_SICK_S else 2 * pause_s
                pause_s = min(pause_s, _LONGEST_SICK_S)
                log.warning("%s; tried again in %d s", error.message, pause_s)
                self._ended.wait(pause_s)

    @contextmanager
    def _open_judges(
        self,
    ) -> Generator[tuple[list[JudgeProcess], list[Builder], list[placement.Place]]]:
        """Start a judge at every place that works; yield them, builders, and the other places.

        Raises:
            DeviceUnavailable: no place works.
        """
        with ExitStack() as stack:
            starting: list[tuple[placement.Place, JudgeProcess]] = []
            judges: list[JudgeProcess] = []
            sick: list[placement.Place] = []
            failure: DeviceUnavailable | SandboxFailed | None = None
            name = contract.name_of(self._evaluator)
            self._is_starting = True
            try:
                if self._ended.is_set():
                    raise _EndedEarly
                for place in self._layout.places:
                    judge = JudgeProcess(name, place.device, self._config, place.cores)
                    stack.callback(judge.close)
                    starting.append((place, judge))
                for place, judge in starting:
                    try:
                        judge.wait_ready()
                    except (DeviceUnavailable, SandboxFailed) as error:
                        log.warning("%s takes no kernels: %s", place.device, error.message)
                        sick.append(place)
                        failure = error
                    else:
                        judges.append(judge)
            finally:
                self._is_starting = False
            if failure is not None and not judges:
                raise failure
            builds = Builds(default_root(), judges[0].toolchain)
            builds.trim()
            builders = [
                stack.enter_context(Builder(builds, judges[0].arch, cores))
                for cores in self._layout.builders
            ]
            yield judges, builders, sick


class _Session:
    """The work of one set of judges, from their start to their end."""

    def __init__(
        self,
        connection: Connection,
        judges: Sequence[JudgeProcess],
        builders: Sequence[Builder],
        sick: Sequence[placement.Place],
    ) -> None:
        self._connection = connection
        self._hand = Hand(ahead=len(judges) + 2 * len(builders))
        self._judges = [WatchedJudge(judge, self._hand) for judge in judges]
        self._builders = builders
        self._is_partial = bool(sick)
        self._closed = threading.Event()
        self._worker_id = ""
        self._began = time.monotonic()

    def run(
        self, evaluator: contract.Evaluator, heartbeat_s: float, ended: threading.Event
    ) -> None:
        """Judge until the worker ends, or a sick device may have recovered.

        Raises:
            DeviceUnavailable: no device is left; its cases have gone back to the service.
        """
        self._join()
        threads = [
            threading.Thread(target=self._claim_cases, args=(ended,), name="claims", daemon=True),
            threading.Thread(
                target=self._keep_alive, args=(heartbeat_s,), name="heartbeat", daemon=True
            ),
        ]
        for thread in threads:
            thread.start()
        try:
            settle = contract.find_settle(evaluator)
            for result in judge_cases(
                self._hand.read_batches(), self._judges, self._builders, settle
            ):
                self._send(result)
        finally:
            self._closed.set()
            self._connection.try_request("DELETE", f"/v1/workers/{self._worker_id}")

    def _join(self) -> None:
        devices = [judge.row for judge in self._judges]
        reply = self._connection.post(
            "/v1/workers", {"host": socket.gethostname(), "devices": devices}
        )
        self._worker_id = reply["worker_id"]

    def _claim_cases(self, ended: threading.Event) -> None:
        """Take cases while there is room in hand; the thread of the claims."""
        try:
            while not self._closed.is_set():
                if ended.is_set() or self._may_recover():
                    self._hand.close()
                    return
                idle = len(self._judges) - len(self._hand.quarantine)
                capacity, ahead = self._hand.count_room(idle)
                if not capacity and not ahead:
                    self._hand.wait_for_room(1.0)
                    continue
                self._claim(capacity, ahead)
        except BaseException as error:
            self._hand.fail(error)

    def _claim(self, capacity: int, ahead: int) -> None:
        body = {
            "capacity": capacity,
            "ahead": ahead,
            "holding": self._hand.list_held(),
            "loaded": self._hand.loaded,
        }
        # With work in hand, ask briefly: the next answer makes room for more.
        wait_s = _CLAIM_WAIT_S if capacity else 0.0
        address = f"/v1/workers/{self._worker_id}/claim?wait={wait_s:g}"
        try:
            reply = self._connection.post(address, body, tries=1)
        except Unreachable as error:
            if error.status == 404 and not self._closed.is_set():
                self._join()
                return
            if error.status in (401, 403):
                raise
            log.debug("the server is away: %s", error.message)
            time.sleep(_AWAY_S)
            return
        self._hand.add(
            [
                (Case.read(one["case"] | {"request_id": one["judgement_id"]}), one["lease"])
                for one in reply["cases"]
            ]
        )
        if reply["drain"]:
            time.sleep(_AWAY_S)
        elif not reply["cases"] and not capacity:
            self._hand.wait_for_room(1.0)

    def _keep_alive(self, heartbeat_s: float) -> None:
        """Report what the judges do; the thread of the heartbeat."""
        while not self._closed.wait(heartbeat_s):
            body = {"running": self._hand.list_running(), "quarantine": self._hand.quarantine}
            self._connection.try_request("POST", f"/v1/workers/{self._worker_id}/heartbeat", body)

    def _may_recover(self) -> bool:
        """Whether some device is sick for long enough to start all judges anew.

        The cases in hand are finished first.
        """
        is_partial = self._is_partial or bool(self._hand.quarantine)
        return is_partial and time.monotonic() - self._began > _RECOVERY_S

    def _send(self, result: JudgedCase) -> None:
        """Send the rows of a case, for as long as it takes; drop what the server refuses."""
        judgement_id = result.case.request_id
        body = {
            "judgement_id": judgement_id,
            "lease": self._hand.read_lease(judgement_id),
            "device_id": result.device["device_id"],
            "judged_s": self._hand.read_seconds(judgement_id),
            "tables": result.tables,
            "fault": result.fault,
            "unfit": result.unfit is not None,
        }
        try:
            self._connection.post(f"/v1/workers/{self._worker_id}/answers", body, tries=None)
        except Unreachable as error:
            if error.status in (401, 403):
                raise
            log.warning("an answer is not wanted: %s", error.message)
        self._hand.remove(judgement_id)


def run_worker(
    url: str, token: str | None, device: str, workers: int, *, attached: bool = False
) -> None:
    """Judge for a service until SIGTERM or Ctrl-C; cases in hand are finished first.

    Args:
        url: Of the server.
        token: With the scope worker.
        device: auto, cpu, cuda, or names of GPUs.
        workers: Judges on the processor, or on each GPU.
        attached: End at once when the standard input ends, as it does with the server.

    Raises:
        DeviceUnavailable: an unknown device.
        FlywheelError: the server cannot be used, or refuses the token.
    """
    layout = placement.divide_machine(device, workers)
    with Connection(url, token) as connection:
        worker = Worker(connection, layout)

        def end(*_: object) -> None:
            if worker.is_ending:
                raise KeyboardInterrupt
            worker.end()

        signal.signal(signal.SIGTERM, end)
        if attached:
            threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
        echo.print_note(f"judging for {url} on {', '.join(p.device for p in layout.places)}")
        worker.run()


def _watch_parent() -> None:
    """Interrupt this process when the standard input ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_ORPHAN_S)
    os._exit(1)
