"""Runs the application on this machine until it is interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from store.commandline import echo
from store.commandline.listening import LOOPBACK, listen, make_server
from store.explore.page.view import EXPORTED_ROWS
from store.explore.server.app import build_app
from store.explore.server.decisions import TOKEN, Decider
from store.explore.server.readers import Readers
from store.guard.query_pool import QueryPool
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from store.lake.location import Location


def make_app(
    location: Location, at: str | None, timeout: float, include: Sequence[str] = ()
) -> Starlette:
    """Return the application of a lake; it opens the lake when it starts."""
    limits = QueryLimits(timeout=timeout, max_rows=EXPORTED_ROWS + 1)
    return build_app(
        Readers(location, at, limits, include),
        QueryPool(location.url, replace(limits, max_rows=EXPORTED_ROWS), include),
        Decider.from_environment(location.url),
    )


def serve(
    location: Location, at: str | None, port: int, timeout: float, include: Sequence[str] = ()
) -> None:
    """Serve the pages of a lake on 127.0.0.1 until Ctrl-C."""
    app = make_app(location, at, timeout, include)
    with listen(LOOPBACK, port) as listening:  # requests wait until the lake is open
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
        echo.print_result(f"{address} shows {location.url}")
        echo.print_note(f"Ctrl-C ends it. Decisions need a token in {TOKEN}.")
        make_server(app).run(sockets=[listening])
