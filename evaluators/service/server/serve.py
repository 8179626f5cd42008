"""Runs a judge service until SIGTERM or Ctrl-C, and lets it end gracefully."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

import store
from evaluators.device import placement
from evaluators.scheduling import contract
from evaluators.service.queue import tokens
from evaluators.service.queue.claims import Claims
from evaluators.service.queue.database import Database
from evaluators.service.queue.judgements import Judgements
from evaluators.service.queue.workers import Workers
from evaluators.service.server.access import OWN_WORKER, Access
from evaluators.service.server.app import build_app
from evaluators.service.server.changes import Changes
from evaluators.service.server.client_routes import Desk
from evaluators.service.server.lake_reads import LakeReads
from evaluators.service.server.own_worker import OwnWorker
from evaluators.service.server.recorder import Recorder
from store.commandline import echo, interrupts
from store.commandline.listening import is_loopback, listen
from store.errors import FlywheelError

log = logging.getLogger(__name__)

NO_DEVICE = "none"
"""Value of `device` for a server that has no worker of its own."""
_LOOK_S = 0.2
_CLOSE_S = 5
_KEEP_ALIVE_S = 75  # a busy client may be slow to send its next request


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to serve."""

    host: str
    port: int
    device: str
    workers: int
    queue: int
    """Judgments that may wait."""
    drain_s: float
    """Seconds that judges may take to finish when the server ends."""


def serve(
    location: store.Location, evaluator: contract.Evaluator, config: Any, options: Options
) -> None:
    """Serve verdicts on a lake until SIGTERM or Ctrl-C.

    Raises:
        LakeNotFound: no lake there.
        LakeUnreachable: the lake cannot be written to.
        DeviceUnavailable: a device is not there, or there are more workers than cores.
        FlywheelError: another server has this queue, the port is taken, or the address is not of
            this machine alone and there are no tokens.
    """
    if options.device != NO_DEVICE:
        placement.divide_machine(options.device, options.workers)
    location.require()
    location.require_writable()
    with listen(options.host, options.port) as listening, _hold_queue(location):
        host, port = listening.getsockname()[:2]
        database = Database(location)
        on_loopback = is_loopback(host)
        if not on_loopback and not tokens.list_tokens(database):
            raise FlywheelError(
                f"{host} can be reached from other machines, and there are no tokens",
                "Create one first: evaluators token create NAME --scope judge",
            )
        _raise_file_limit()
        shown = f"[{host}]" if ":" in host else host
        reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)
        echo.print_result(f"http://{shown}:{port} judges for {location.url}")
        asyncio.run(
            _serve(
                _Service(location, evaluator, config, options, database),
                listening,
                f"http://{reached}:{port}",
                on_loopback=on_loopback,
            )
        )
        database.close()


@dataclass(frozen=True)
class _Service:
    location: store.Location
    evaluator: contract.Evaluator
    config: Any
    options: Options
    database: Database


async def _serve(service: _Service, listening: Any, url: str, *, on_loopback: bool) -> None:
    options = service.options
    judgements = Judgements(service.database, options.queue)
    claims = Claims(service.database)
    claims.leave_all(OWN_WORKER, lost=False)
    claims.recover()  # after what was claimed by the own worker is queued again
    changes = Changes(asyncio.get_running_loop())
    workers = Workers(service.database)
    recorder = Recorder(service.location, service.evaluator, service.config, judgements, workers)

    def on_change(judgement_ids: Any) -> None:
        recorder.wake()
        changes.notify(judgement_ids)

    judgements.on_change = claims.on_change = on_change
    access = Access(service.database)
    desk = Desk(
        access=access,
        changes=changes,
        judgements=judgements,
        claims=claims,
        workers=workers,
        recorder=recorder,
        reads=LakeReads(service.location),
        evaluator=service.evaluator,
        config=service.config,
    )
    own = OwnWorker(url, options.device, options.workers, access, claims)
    server = _Server(
        uvicorn.Config(
            build_app(desk, on_loopback=on_loopback),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=_CLOSE_S,
            timeout_keep_alive=_KEEP_ALIVE_S,
        ),
        desk,
        options.drain_s,
    )
    keeping = asyncio.create_task(own.run()) if options.device != NO_DEVICE else None
    try:
        await server.serve(sockets=[listening])
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await own.stop()
        access.close()


class _Server(uvicorn.Server):
    """A server that first lets judges finish, and ends at once on a second signal."""

    def __init__(self, config: uvicorn.Config, desk: Desk, drain_s: float) -> None:
        super().__init__(config)
        self._desk, self._drain_s = desk, drain_s
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first signal."""
        if self._desk.changes.is_draining:
            self.should_exit = self.force_exit = True
            return
        echo.print_note("finishing what is being judged; a second signal ends at once")
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self._desk.changes.drain()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        loop, desk = asyncio.get_running_loop(), self._desk
        until = loop.time() + self._drain_s
        with interrupts.wait_for("the kernels that are being judged"):
            while loop.time() < until:
                counts = await desk.access.run(desk.judgements.count_waiting)
                if not any(row["state"] in ("claimed", "answered") for row in counts):
                    break
                await asyncio.sleep(_LOOK_S)
        self.should_exit = True


@contextmanager
def _hold_queue(location: store.Location) -> Generator[None]:
    """Keep other servers from the queue of a lake; the kernel lets go when this process ends."""
    descriptor = os.open(location.root / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FlywheelError(
                f"another server judges for {location.url} on this host",
                "End it first. More judges join it with: evaluators join URL",
            ) from error
        yield
    finally:
        os.close(descriptor)


def _raise_file_limit() -> None:
    """Allow as many open connections as the system does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
