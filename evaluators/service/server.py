"""Runs a judge service until SIGTERM or Ctrl-C, and lets it end gracefully."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import store
from evaluators.device import placement
from evaluators.scheduling import contract, ray_cluster
from evaluators.scheduling.judge_threads import StartedJudge
from evaluators.scheduling.judges.process import start_judges
from evaluators.service.judging import Judging
from evaluators.service.queue import Database, Queue, Refused, list_tokens
from evaluators.service.recorder import Recorder
from evaluators.service.routes import Access, Caller, Changes, ClientRoutes, LakeReads, refuse
from store.commandline import echo, interrupts
from store.commandline.listening import is_loopback, listen
from store.errors import FlywheelError
from store.explore.server.protection import HOSTS, Protection

log = logging.getLogger(__name__)

_LOOK_S = 0.2
_CLOSE_S = 5
_KEEP_ALIVE_S = 75  # a busy client may be slow to send its next request
_SECOND_S = 1.0
_PRUNE_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to serve."""

    host: str
    port: int
    device: str
    workers: int
    ray: str | None
    """Address of the Ray cluster that judges, or None where this host does."""
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
        DeviceUnavailable: a device is not there, there are more workers than cores, or Ray is not
            installed.
        FlywheelError: another server has this queue, the port is taken, or the address is not of
            this machine alone and there are no tokens.
    """
    name = contract.name_of(evaluator)
    start: Callable[[], AbstractContextManager[Sequence[StartedJudge]]]
    if options.ray is None:
        layout = placement.divide_machine(options.device, options.workers)
        start, builders = partial(start_judges, name, layout.places, config), layout.builders
    else:
        ray_cluster.import_ray()
        ray_cluster.check_device(options.device)
        start, builders = (
            partial(
                ray_cluster.start_judges, options.ray, name, options.device, config, options.workers
            ),
            (),
        )
    location.require()
    location.require_writable()
    with (
        listen(options.host, options.port) as listening,
        open(location.root / "service.lock", "a", opener=partial(os.open, mode=0o600)) as lock,
    ):
        try:  # the kernel lets go of it when this process ends
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FlywheelError(
                f"another server judges for {location.url} on this host",
                "End it first. `--on cuda` and `--ray ADDRESS` give one server several GPUs.",
            ) from error
        host, port = listening.getsockname()[:2]
        database = Database(location)
        on_loopback = is_loopback(host)
        if not on_loopback and not list_tokens(database):
            raise FlywheelError(
                f"{host} can be reached from other machines, and there are no tokens",
                "Create one first: evaluators token create NAME --scope judge",
            )
        # As many open connections as the system allows.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        shown = f"[{host}]" if ":" in host else host
        echo.print_result(f"http://{shown}:{port} judges for {location.url}")
        queue = Queue(database, options.queue)
        queue.recover()
        routes = ClientRoutes(
            access=Access(database),
            changes=Changes(),
            queue=queue,
            recorder=Recorder(location, evaluator, config, queue),
            reads=LakeReads(location),
            evaluator=evaluator,
            config=config,
        )
        judging = Judging(queue, evaluator, start, builders)
        server = _Server(
            uvicorn.Config(
                build_app(routes, on_loopback=on_loopback),
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=_CLOSE_S,
                timeout_keep_alive=_KEEP_ALIVE_S,
            ),
            routes,
            judging,
            options.drain_s,
        )

        def on_change(judgement_ids: Sequence[str]) -> None:
            routes.recorder.wake()
            routes.changes.notify(judgement_ids)

        queue.on_change = on_change
        try:
            asyncio.run(server.serve(sockets=[listening]))
        finally:
            judging.stop()
            routes.access.close()
            database.close()


@cache
def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the addresses for clients."""
    return yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text("utf-8"))


def build_app(routes: ClientRoutes, *, on_loopback: bool) -> Starlette:
    """Return the application; on loopback, it answers to names of this machine only."""

    async def show_openapi(_: Request, __: Caller) -> Response:
        return JSONResponse(read_openapi())

    async def explain(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "unknown_address", 405: "unknown_method"}.get(error.status_code, "invalid")
        return refuse(Refused(error.status_code, code, error.detail, "See /v1/openapi.json."))

    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        routes.changes.open()
        thread = threading.Thread(target=routes.recorder.run, name="recorder")
        thread.start()
        keeping = asyncio.create_task(_keep_house(routes))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            routes.recorder.end()
            await asyncio.to_thread(thread.join)

    return Starlette(
        routes=[
            *routes.list_routes(),
            Route("/v1/openapi.json", routes.access.guard("read", show_openapi)),
        ],
        lifespan=run,
        middleware=[Middleware(Protection, hosts=HOSTS if on_loopback else None)],
        exception_handlers={HTTPException: explain},
    )


async def _keep_house(routes: ClientRoutes) -> None:
    """End what is late, and forget what ended long ago."""
    rounds = 0
    while True:
        try:
            await routes.access.run(routes.queue.expire)
            if rounds % int(_PRUNE_S / _SECOND_S) == 0:
                await routes.access.run(routes.queue.prune)
        except Exception:
            log.exception("the queue cannot be written to; trying again")
        rounds += 1
        await asyncio.sleep(_SECOND_S)


class _Server(uvicorn.Server):
    """A server that first lets judges finish, and ends at once on a second signal."""

    def __init__(
        self, config: uvicorn.Config, routes: ClientRoutes, judging: Judging, drain_s: float
    ) -> None:
        super().__init__(config)
        self._routes, self._judging, self._drain_s = routes, judging, drain_s
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Begin to judge when the server listens."""
        await super().startup(sockets)
        self._judging.start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first signal."""
        if self._routes.changes.is_draining:
            self.should_exit = self.force_exit = True
            return
        echo.print_note("finishing what is being judged; a second signal ends at once")

        def drain() -> None:
            self._routes.changes.drain()
            self._judging.drain()
            self._draining = asyncio.create_task(self._drain())

        asyncio.get_running_loop().call_soon_threadsafe(drain)

    async def _drain(self) -> None:
        loop, routes = asyncio.get_running_loop(), self._routes
        until = loop.time() + self._drain_s
        with interrupts.wait_for("the kernels that are being judged"):
            while loop.time() < until:
                counts = await routes.access.run(routes.queue.count_waiting)
                if not any(row["state"] in ("claimed", "answered") for row in counts):
                    break
                await asyncio.sleep(_LOOK_S)
        self.should_exit = True
