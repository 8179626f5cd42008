"""The application: every file of `pages/` at its address, with its exports and live updates."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import store
from store.commandline import echo
from store.commandline.escape import encode_json
from store.commandline.listening import LOOPBACK, listen, make_server
from store.errors import FlywheelError, ServerBusy, SnapshotNotFound, UnknownName
from store.explore.page import render
from store.explore.page.model import Page
from store.explore.page.view import View
from store.explore.server import console
from store.explore.server.decisions import TOKEN, Decider
from store.explore.server.protection import Protection
from store.explore.server.readers import Readers
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from store.explore.page.model import Panel, SectionTable
    from store.lake.location import Location


_PAGES = Path(__file__).parent.parent / "pages"
_YEAR_S = 31_536_000


@dataclass(frozen=True, kw_only=True)
class Member:
    """A page: a file of `pages/`."""

    name: str
    """Name of the file, and of the folder of `sql/` with its questions."""
    route: str
    """Address, in which {name} stands for a part, or {name:path} for one that may have slashes."""
    menu: tuple[int, str] | None
    """Place and label in the menu."""
    build: Callable[[View], Awaitable[Page]]

    @property
    def path(self) -> str:
        """The address, in which {name} stands for a part."""
        return self.route.replace(":path}", "}")

    @property
    def export_path(self) -> str:
        """The address in front of `.json`, `.csv` and `.sql`."""
        return "/overview" if self.path == "/" else self.path


@functools.cache
def find_pages() -> tuple[Member, ...]:
    """Return all pages; each file defines PATH and `build`, and may define MENU."""
    found: list[Member] = []
    for file in sorted(_PAGES.glob("[!_]*.py")):
        module = importlib.import_module(f"store.explore.pages.{file.stem}")
        found.append(
            Member(
                name=file.stem,
                route=module.PATH,
                menu=getattr(module, "MENU", None),
                build=module.build,
            )
        )
    return tuple(found)


def build_app(readers: Readers, decider: Decider) -> Starlette:
    """Return the application of a lake.

    Args:
        readers: Readers of the lake.
        decider: Stores decisions on findings, if it has a token.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        async with readers:
            yield

    pages = [(one.menu[0], one.menu[1], one.path) for one in find_pages() if one.menu is not None]
    site = {
        "menu": [(path, label) for _, label, path in sorted([*pages, console.MENU])],
        "lake_name": readers.location.url,
        "describe_fault": readers.describe_fault,
        "version": store.__version__,
        "can_decide": decider.is_enabled,
    }
    routes: list[BaseRoute] = [
        Route("/static/{name}", _send_asset),
        Route("/events", functools.partial(send_events, readers)),
        Route("/sql", functools.partial(console.show, readers, site)),
        Route("/sql.{form}", functools.partial(console.export, readers)),
        Route("/suspects/decide", functools.partial(decider.decide, readers), methods=["POST"]),
    ]
    for one in find_pages():
        show = functools.partial(_show, one, readers, decider, site)
        # The exports first: the last part of a path may contain a dot.
        routes += [
            Route(f"{one.export_path}/{{panel}}.{{form}}", show),
            Route(f"{one.export_path}.{{form}}", show),
            Route(one.route, show),
        ]
    return Starlette(
        routes=routes,
        lifespan=run,
        middleware=[Middleware(Protection)],
        exception_handlers=cast(
            "Mapping[Any, Any]",
            {
                404: functools.partial(_explain, readers, site),
                FlywheelError: functools.partial(_explain, readers, site),
            },
        ),
    )


async def _show(
    member: Member,
    readers: Readers,
    decider: Decider,
    site: dict[str, Any],
    request: Request,
) -> Response:
    """Answer with a page, or with an export of its rows."""
    from starlette.responses import StreamingResponse

    parts = {name: str(value) for name, value in request.path_params.items()}
    form, panel = parts.pop("form", None), parts.pop("panel", None)
    path = member.path.format(**{name: parts[name] for name in parts})
    view = await View.of(readers, request, path, parts)
    view.may_decide = decider.knows(request)
    page = await member.build(view)
    if form is not None:
        if form not in FORMS:
            raise UnknownName.among("format", form, FORMS)
        return await _export(view, page, member.name, panel, form, readers.lake_id)
    stream = render.stream_page(view, page, member.name, site)
    return StreamingResponse(stream, media_type="text/html", headers={"cache-control": "no-cache"})


async def _explain(
    readers: Readers, site: dict[str, Any], request: Request, error: Exception
) -> Response:
    """Answer with a page that explains an error."""
    from starlette.responses import HTMLResponse

    if not isinstance(error, FlywheelError):
        error = FlywheelError(
            f"there is no page {request.url.path[:100]}", "The menu above leads to all pages."
        )
    is_unknown = isinstance(error, UnknownName | SnapshotNotFound) or "no page" in error.message
    view = View(readers, readers.newest, "/", {}, {})
    page = Page(title="Not found" if is_unknown else "Cannot show this", panels=())
    html = render.render_template("error", view=view, page=page, error=error, **site)
    status = 503 if isinstance(error, ServerBusy) else 404 if is_unknown else 400
    return HTMLResponse(html, status_code=status)


async def _send_asset(request: Request) -> Response:
    from starlette.responses import PlainTextResponse, Response

    asset = render.read_assets().get(request.path_params["name"])
    if asset is None:
        return PlainTextResponse("no such file\n", status_code=404)
    media_type, content = asset
    return Response(
        content, media_type=media_type, headers={"cache-control": f"max-age={_YEAR_S}, immutable"}
    )


FORMS = ("json", "csv", "sql")
_TYPES = {"json": "application/json", "csv": "text/csv", "sql": "text/plain"}


async def _export(
    view: View, page: Page, folder: str, panel: str | None, form: str, lake_id: str
) -> Response:
    """Return the rows of one panel, or of all panels of a page, as JSON, CSV or SQL.

    CSV has one table, which is the first one of a page. Raises UnknownName.
    """
    from starlette.responses import Response

    panels = _find_panels(page, panel)
    if form == "csv":
        panels = panels[:1]
    answers = {one.name: await view.ask(one, folder, whole=True) for one in panels}
    if form == "sql":
        text = "\n\n".join(f"-- {a.question.title}\n{a.sql};" for a in answers.values()) + "\n"
    elif form == "csv":
        text = console.write_csv(next(iter(answers.values())).table)
    else:
        origin = {"lake_id": lake_id, "snapshot": view.snapshot, "title": page.title}
        text = encode_json(origin | {"views": {n: _describe(a) for n, a in answers.items()}})
    return Response(
        text,
        media_type=f"{_TYPES[form]}; charset=utf-8",
        headers={"x-more-rows": str(any(a.has_more for a in answers.values())).lower()},
    )


def _find_panels(page: Page, name: str | None) -> list[Panel]:
    if not page.panels:
        raise UnknownName("this page has no rows", page.intro)
    if name is None:
        return list(page.panels)
    known = {panel.name: panel for panel in page.panels}
    if name not in known:
        raise UnknownName.among("view", name, known)
    return [known[name]]


def _describe(answer: SectionTable) -> dict[str, Any]:
    return {
        "title": answer.question.title,
        "about": answer.question.sentence,
        "sql": answer.sql,
        "has_more": answer.has_more,
        "rows": answer.rows(),
    }


BEAT_S = 15.0
"""Seconds after which a comment shows that the connection is alive."""


async def send_events(readers: Readers, request: Request) -> Response:
    """Answer with a stream of events named `snapshot`; the first names the current one."""
    from starlette.responses import StreamingResponse

    del request
    return StreamingResponse(
        _list_events(readers), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


async def _list_events(readers: Readers) -> AsyncIterator[str]:
    yield f"event: snapshot\ndata: {readers.newest}\n\n"
    while True:
        try:
            snapshot = await asyncio.wait_for(readers.wait_for_change(), BEAT_S)
        except TimeoutError:
            yield ": alive\n\n"
        else:
            yield f"event: snapshot\ndata: {snapshot}\n\n"


def make_app(
    location: Location, at: str | None, timeout: float, include: Sequence[str] = ()
) -> Starlette:
    """Return the application of a lake; it opens the lake when it starts."""
    readers = Readers(location, at, QueryLimits(timeout=timeout), include)
    return build_app(readers, Decider.from_environment(location.url))


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
