"""The application: all addresses of a service, and the state that they share."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from evaluators.service.queue.submission import Refused
from evaluators.service.queue.tokens import Caller
from evaluators.service.server.access import refuse
from evaluators.service.server.client_routes import ClientRoutes, Desk
from evaluators.service.server.figures import Figures
from evaluators.service.server.framework_routes import FrameworkRoutes
from evaluators.service.server.worker_routes import WorkerRoutes
from store.explore.server.protection import HOSTS, Protection

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger(__name__)

_SECOND_S = 1.0
_PRUNE_S = 3600.0


@cache
def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the addresses for clients."""
    return yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text("utf-8"))


def build_app(desk: Desk, *, on_loopback: bool) -> Starlette:
    """Return the application.

    Args:
        desk: What the addresses share; `desk.changes` belongs to the running loop.
        on_loopback: Whether it answers to names of this machine only.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def show_openapi(_: Request, __: Caller) -> Response:
        return JSONResponse(read_openapi())

    async def explain(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "unknown_address", 405: "unknown_method"}.get(error.status_code, "invalid")
        return refuse(Refused(error.status_code, code, error.detail, "See /v1/openapi.json."))

    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        thread = threading.Thread(target=desk.recorder.run, name="recorder")
        thread.start()
        keeping = asyncio.create_task(_keep_house(desk))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            desk.recorder.end()
            await asyncio.to_thread(thread.join)

    clients = ClientRoutes(desk)
    return Starlette(
        routes=[
            *clients.list_routes(),
            *FrameworkRoutes(desk.access, clients.ask).list_routes(),
            *WorkerRoutes(desk).list_routes(),
            *Figures(desk).list_routes(),
            Route("/v1/openapi.json", desk.access.guard("read", show_openapi)),
        ],
        lifespan=run,
        middleware=[Middleware(Protection, hosts=HOSTS if on_loopback else None)],
        exception_handlers={HTTPException: explain},
    )


async def _keep_house(desk: Desk) -> None:
    """Take claims from silent workers, end what is late, and forget what ended long ago."""
    rounds = 0
    while True:
        try:
            await desk.access.run(desk.claims.expire)
            if rounds % int(_PRUNE_S / _SECOND_S) == 0:
                await desk.access.run(desk.judgements.prune)
        except Exception:
            log.exception("the queue cannot be written to; trying again")
        rounds += 1
        await asyncio.sleep(_SECOND_S)
