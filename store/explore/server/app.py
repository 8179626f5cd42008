"""The application: every file of `pages/` at its address, with its exports and live updates."""

from __future__ import annotations

import asyncio
import functools
import hmac
import importlib
import io
import math
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlencode

import store
from store.bounds import QueryLimits
from store.commandline import display, echo
from store.commandline.display import list_rows
from store.commandline.escape import encode_json
from store.commandline.listening import LOOPBACK, AccessToken, listen, make_server
from store.errors import FlywheelError, ServerBusy, SnapshotNotFound, UnknownName
from store.explore.page import answers, charts, render
from store.explore.page.model import EXPORTED_ROWS, REPORT, SQL, Page, Panel, Row, Told, View
from store.explore.page.tables import (
    FIGURES,
    build_result_table,
    find_role,
    format_value,
    heading,
)
from store.explore.page.texts import SPACE
from store.explore.server.protection import Protection, is_own_origin
from store.explore.server.readers import Readers
from store.lake import sql_files
from store.lake.host import name_user
from store.receipts.receipt import make_receipt, write_receipt
from store.schema import catalog

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from store.lake.location import Location


_CONSOLE_MENU = (70, "SQL", "/sql")
SHOWN_ROWS = 200


async def show_console(readers: Readers, site: Mapping[str, Any], request: Request) -> Response:
    """Answer with the console, and with the rows of the statement in its address."""
    from starlette.responses import HTMLResponse

    view = await View.of(readers, request, "/sql")
    sql = view.get("sql")
    answer, error = None, None
    if sql:
        try:
            answer = await readers.query(view.snapshot, sql)
        except FlywheelError as refused:
            error = refused

    def render_console() -> str:
        rows = [] if answer is None else list_rows(answer.rows.slice(0, SHOWN_ROWS))
        return render.render_template(
            "console",
            view=view,
            page=Page(title="SQL", panels=[Panel(name="result")]),
            sql=sql,
            error=error,
            rows=rows,
            total=0 if answer is None else answer.rows.num_rows,
            is_cut=answer is not None and answer.cut,
            is_asked=answer is not None,
            table=build_result_table(view, rows) if rows else None,
            told=draw_result(rows),
            saved=list_saved(),
            names=list_names(),
            exported=EXPORTED_ROWS,
            **site,
        )

    html = await asyncio.to_thread(render_console)
    status = 200 if error is None else 503 if isinstance(error, ServerBusy) else 400
    return HTMLResponse(html, status_code=status)


async def export_console(readers: Readers, request: Request) -> Response:
    """Answer with the rows of a statement as JSON or CSV, or with the names to complete."""
    from starlette.responses import PlainTextResponse, Response

    form = request.path_params["form"]
    view = await View.of(readers, request, "/sql")
    if form == "names":
        return Response(encode_json(list_names(), indent=None), media_type="application/json")
    if form == "sql":
        return PlainTextResponse(view.get("sql") or "")
    answer = await readers.query(view.snapshot, view.get("sql") or "")
    headers = {"x-more-rows": str(answer.cut).lower()}
    if form == "csv":
        return Response(write_csv(answer.rows), media_type="text/csv", headers=headers)
    if form == "json":
        content = {"snapshot": view.snapshot, "sql": view.get("sql"), "has_more": answer.cut}
        text = encode_json(content | {"rows": list_rows(answer.rows)})
        return Response(text, media_type="application/json", headers=headers)
    raise FlywheelError(f"no format {form[:20]}", "There are csv, json and sql.")


@functools.cache
def list_names() -> dict[str, list[str]]:
    """Return the tables and views with their columns, as far as the catalog knows them."""
    tables = {table.name: list(table.columns) for table in catalog.load().tables.values()}
    return tables | {view: [] for view in sql_files.list_views()}


@functools.cache
def list_saved() -> list[sql_files.SqlQuestion]:
    """Return the questions of the report that need no values, as examples to start from."""
    files = [*sorted(REPORT.glob("*.sql")), SQL / "suspects/classes.sql", SQL / "overview/tags.sql"]
    read = [sql_files.read_question(file) for file in files]
    return [question for question in read if "$" not in question.sql]


_MOST_ROWS = 24
_FEWEST_POINTS = 3


def draw_result(rows: Sequence[Row]) -> Told:
    """Return what is drawn of rows and what is not, in a sentence, and the chart if there is one.

    A column is chosen by its role (`store.explore.page.tables.find_role`): the first figure, which
    is a ratio or share before a time and a time before a count, over a date, a step or another
    figure, or for each label. An id, a level or another number that only names is never drawn.
    """
    if len(rows) < _FEWEST_POINTS:
        return "", ""
    roles = {name: find_role(name, [row[name] for row in rows]) for name in rows[0]}
    figures = [name for kind in FIGURES for name, role in roles.items() if role == kind]
    if not figures:
        return "Nothing is drawn: no column is a ratio, a share, a time or a count.", ""
    y = figures[0]
    shown = [row for row in rows if row[y] is not None and math.isfinite(row[y])]
    name, is_ratio = heading(y).replace(SPACE, " "), roles[y] == "ratio"
    scale = "ratio" if is_ratio else "share" if roles[y] == "share" else "plain"
    axis = charts.Axis(label=name, scale=scale)
    along = [one for one, role in roles.items() if role in ("date", "order")]
    # Rows of one label are told apart by what names or numbers them.
    labels = [one for one, role in roles.items() if role in ("label", "number")]
    if "label" in roles.values() and not along:
        if len(shown) > _MOST_ROWS:
            return f"Nothing is drawn: a chart by label has at most {_MOST_ROWS} rows.", ""
        if any(row[y] < 0 for row in shown):
            return f"Nothing is drawn: {y} has negative values.", ""
        named = [(", ".join(format_value(one, row[one]) for one in labels), row) for row in shown]
        drawn = {y, *labels}
        if is_ratio:
            intervals = [answers.make_interval(label, row, y) for label, row in named]
            chart = charts.draw_intervals("result", intervals, axis)
            drawn |= {f"{y}_low", f"{y}_high"}
        else:
            bars = [(label, {name: row[y]}) for label, row in named]
            chart = charts.draw_bars("result", bars, axis)
    else:
        x = next(iter([*along, *figures[1:]]), None)
        if x is None:
            return f"Nothing is drawn: {y} has no label, date, step or second figure.", ""
        drawn = {x, y}
        shown = [row for row in shown if row[x] is not None]
        at, label = [row[x] for row in shown], heading(x).replace(SPACE, " ")
        if roles[x] == "date" and at:
            label = f"hours after {min(at):%Y-%m-%d %H:%M}"
            at = [(one - min(at)).total_seconds() / 3600 for one in at]
        series = charts.Series(label=y, x=at, y=[row[y] for row in shown])
        kind = "ratio" if roles[x] == "ratio" else "plain"
        x_axis = charts.Axis(label=label, scale=kind)
        chart = charts.draw_points("result", [series], x_axis, axis)
    left = [name for name in rows[0] if name not in drawn]
    return f"{name} of {len(shown)} rows. Not drawn: {', '.join(left) or 'nothing'}.", chart


def write_csv(table: pa.Table) -> str:
    """Return a table as CSV with a header."""
    with io.StringIO() as out:
        display.write_text(table, "csv", out)
        return out.getvalue()


TOKEN = "FLYWHEEL_EXPLORE_TOKEN"
"""Environment variable with the token. Without it, the server writes nothing."""
COOKIE = "flywheel_explore"
SEEN = "flywheel_seen"
"""Cookie with the newest snapshots when the reader looked at the overview."""
_DECISIONS = ("confirmed", "dismissed")
_LARGEST_BYTES = 16_384


class Decider:
    """Appends decisions to the lake, if it was given a token."""

    def __init__(self, lake_url: str | None, token: AccessToken | None) -> None:
        self._lake_url = lake_url
        self._token = token
        # Servers on other ports of this machine get this cookie too, so it is not the token.
        self._session = secrets.token_hex(32)

    @property
    def is_enabled(self) -> bool:
        """Whether there is a token."""
        return self._token is not None

    def knows(self, request: Request) -> bool:
        """Whether a request comes from a browser that has given the token before."""
        sent = request.cookies.get(COOKIE, "").encode()
        return self.is_enabled and hmac.compare_digest(sent, self._session.encode())

    async def decide(self, readers: Readers, request: Request) -> Response:
        """Append the decision that a form states, and lead back to the findings.

        Raises FlywheelError for a wrong token, a request from another site or a missing reason.
        """
        from starlette.responses import RedirectResponse

        form = await _read_form(request)
        if self._token is None:
            raise FlywheelError(
                "this server takes no decisions",
                f"Start it with the environment variable {TOKEN}, or run `evaluators quarantine`.",
            )
        if not is_own_origin(dict(request.headers)):
            raise FlywheelError("the decision was sent by another site", "Open the page again.")
        if not (self._token.matches(form.get("token", "")) or self.knows(request)):
            raise FlywheelError("the token is wrong", f"It is the value of {TOKEN}.")
        finding_id, decision, why = (form.get(name, "") for name in ("finding", "decision", "why"))
        if decision not in _DECISIONS or not why.strip():
            raise FlywheelError("a decision needs a reason", "Go back and fill in the field Why.")
        await asyncio.to_thread(self._append, finding_id, decision, why.strip())
        await readers.refresh()
        query = urlencode({name: form[name] for name in ("standing", "class") if form.get(name)})
        answer = RedirectResponse(f"/suspects?{query}", status_code=303)
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return answer

    def _append(self, finding_id: str, decision: str, why: str) -> None:
        row: dict[str, object] = {
            "standing_id": store.ids.uuid7(),
            "finding_id": finding_id,
            "decision": decision,
            "author": name_user(),
            "why": why,
        }
        with store.writer(self._lake_url, author="store explore") as writer:
            row["created_at"] = writer.choose_time("standings")
            writer.append({"standings": [row]}, f"{decision} the finding {finding_id[:12]}")


async def _read_form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_BYTES:
            raise FlywheelError("the form is too large", "Shorten the reason.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise FlywheelError("the form cannot be read", "Open the page again.") from error
    return {name: values[-1].replace("\0", "") for name, values in fields.items()}


_PAGES = Path(__file__).parent.parent / "pages"
_YEAR_S = 31_536_000


@functools.cache
def find_pages() -> tuple[ModuleType, ...]:
    """Return the modules of `pages/`.

    Each defines PATH, in which {name} stands for a part, or {name:path} for one that may have
    slashes, and `build`; it may define MENU, its place and label in the menu.
    """
    names = sorted(file.stem for file in _PAGES.glob("[!_]*.py"))
    return tuple(importlib.import_module(f"store.explore.pages.{name}") for name in names)


def build_app(readers: Readers, decider: Decider) -> Starlette:
    """Return the application of a lake."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        async with readers:
            yield

    pages = [(*one.MENU, one.PATH) for one in find_pages() if hasattr(one, "MENU")]
    site = {
        "menu": [(path, label) for _, label, path in sorted([*pages, _CONSOLE_MENU])],
        "lake_name": readers.location.url,
        "describe_fault": readers.describe_fault,
        "version": store.__version__,
        "can_decide": decider.is_enabled,
    }
    routes: list[BaseRoute] = [
        Route("/static/{name}", _send_asset),
        Route("/events", functools.partial(send_events, readers)),
        Route("/sql", functools.partial(show_console, readers, site)),
        Route("/sql.{form}", functools.partial(export_console, readers)),
        Route("/kernel/{kernel}/receipt.json", functools.partial(send_receipt, readers)),
        Route("/suspects/decide", functools.partial(decider.decide, readers), methods=["POST"]),
    ]
    for one in find_pages():
        show = functools.partial(_show, one, readers, decider, site)
        path = "/overview" if one.PATH == "/" else one.PATH.replace(":path}", "}")
        # The exports first: the last part of a path may contain a dot.
        routes += [
            Route(f"{path}/{{panel}}.{{form}}", show),
            Route(f"{path}.{{form}}", show),
            Route(one.PATH, show),
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
    module: ModuleType,
    readers: Readers,
    decider: Decider,
    site: dict[str, Any],
    request: Request,
) -> Response:
    """Answer with a page, or with an export of its rows."""
    from starlette.responses import StreamingResponse

    parts = {name: str(value) for name, value in request.path_params.items()}
    form, panel = parts.pop("form", None), parts.pop("panel", None)
    path = module.PATH.replace(":path}", "}").format(**parts)
    view = await View.of(readers, request, path, parts)
    view.may_decide = decider.knows(request)
    # Snapshots of the last two visits: what a reader has reloaded is still new.
    seen = re.fullmatch(r"(\d{1,9})[.](\d{1,9})", request.cookies.get(SEEN, ""))
    if seen:
        before, last = int(seen[1]), int(seen[2])
        view.last_seen = before if last == view.snapshot else last
    page: Page = await module.build(view)
    folder = module.__name__.rpartition(".")[2]
    if form is not None:
        if form not in FORMS:
            raise UnknownName.among("format", form, FORMS)
        return await _export(view, page, folder, panel, form, readers.lake_id)
    stream = render.stream_page(view, page, folder, site)
    answer = StreamingResponse(
        stream, media_type="text/html", headers={"cache-control": "no-cache"}
    )
    if module.PATH == "/" and view.get("at") is None:
        answer.set_cookie(SEEN, f"{view.last_seen or 0}.{view.snapshot}", samesite="strict")
    return answer


async def _explain(
    readers: Readers, site: dict[str, Any], request: Request, error: Exception
) -> Response:
    """Answer with a page that explains an error."""
    from starlette.responses import HTMLResponse

    if not isinstance(error, FlywheelError):
        path = request.url.path[:100]
        error = UnknownName(f"there is no page {path}", "The menu above leads to all pages.")
    is_unknown = isinstance(error, UnknownName | SnapshotNotFound)
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


FORMS = {"json": "application/json", "csv": "text/csv", "sql": "text/plain", "txt": "text/plain"}


async def _export(
    view: View, page: Page, folder: str, panel: str | None, form: str, lake_id: str
) -> Response:
    """Return the rows of one panel, or of all panels of a page, as JSON, CSV or SQL.

    CSV has one table, which is the first one of a page, and txt only the code of a panel with code.
    Raises UnknownName.
    """
    from starlette.responses import Response

    if not page.panels:
        raise UnknownName("this page has no rows", page.intro)
    known = {one.name: one for one in page.panels}
    if panel is not None and panel not in known:
        raise UnknownName.among("view", panel, known)
    panels = page.panels if panel is None else [known[panel]]
    if form == "csv":
        panels = panels[:1]
    answers = {one.name: await view.ask(page, one, folder, whole=True) for one in panels}
    if form == "txt":
        files = [row.get("code") for answer in answers.values() for row in answer.rows()]
        if not files or None in files:
            raise UnknownName("this view has no code", "The page of a kernel has.")
        text = "\n".join(map(str, files))
    elif form == "sql":
        text = "\n\n".join(f"-- {a.question.title}\n{a.sql};" for a in answers.values()) + "\n"
    elif form == "csv":
        text = write_csv(next(iter(answers.values())).table)
    else:
        origin = {"lake_id": lake_id, "snapshot": view.snapshot, "title": page.title}
        views = {
            name: {
                "title": answer.question.title,
                "about": answer.question.sentence,
                "sql": answer.sql,
                "has_more": answer.has_more,
                "rows": answer.rows(),
            }
            for name, answer in answers.items()
        }
        text = encode_json(origin | {"views": views})
    return Response(
        text,
        media_type=f"{FORMS[form]}; charset=utf-8",
        headers={"x-more-rows": str(any(a.has_more for a in answers.values())).lower()},
    )


async def send_receipt(readers: Readers, request: Request) -> Response:
    """Answer with the receipt of a kernel's numbers, as a file to keep."""
    from starlette.responses import Response

    view = await View.of(readers, request, "/")
    kernel, device, clock = request.path_params["kernel"], view.get("device"), view.get("clock")
    receipt = await readers.read(
        view.snapshot, lambda lake: make_receipt(lake, kernel, device=device, clock=clock)
    )
    name = f"receipt-{receipt['kernel']['kernel_id'][:12]}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(write_receipt(receipt), media_type="application/json", headers=headers)


BEAT_S = 15.0
"""Seconds after which pages look again: a run that is killed makes no snapshot."""


async def send_events(readers: Readers, request: Request) -> Response:
    """Answer with a stream of events named `snapshot`; the first names the current one."""
    from starlette.responses import StreamingResponse

    del request

    async def list_events() -> AsyncIterator[str]:
        event = "snapshot"
        while True:
            yield f"event: {event}\ndata: {readers.newest}\n\n"
            event = "snapshot"
            try:
                await asyncio.wait_for(readers.wait_for_change(), BEAT_S)
            except TimeoutError:
                event = "beat"

    return StreamingResponse(
        list_events(), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


def make_app(
    location: Location, at: str | None, timeout: float, include: Sequence[str] = ()
) -> Starlette:
    """Return the application of a lake; it opens the lake when it starts."""
    readers = Readers(location, at, QueryLimits(timeout=timeout), include)
    return build_app(readers, Decider(location.url, AccessToken.read(TOKEN)))


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
