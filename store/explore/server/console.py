"""The SQL console: statements of readers, which a `QueryPool` answers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from store.commandline.python_rows import list_rows
from store.errors import FlywheelError, ServerBusy
from store.explore.page import render
from store.explore.page.model import Page, Panel
from store.explore.page.questions import REPORT
from store.explore.page.result_chart import draw_result
from store.explore.page.tables import build_result_table
from store.explore.page.view import EXPORTED_ROWS, View
from store.lake import sql_files

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from store.explore.server.readers import Readers
    from store.guard.query_pool import QueryPool
    from store.guard.query_process import Answer

MENU = (70, "SQL", "/sql")
SHOWN_ROWS = 200


async def show(
    readers: Readers, queries: QueryPool, site: Mapping[str, Any], request: Request
) -> Response:
    """Answer with the console, and with the rows of the statement in its address."""
    from starlette.responses import HTMLResponse

    view = await _make_view(readers, request)
    sql = view.get("sql")
    answer, error = None, None
    if sql:
        try:
            answer = await queries.ask(view.snapshot, sql)
        except FlywheelError as refused:
            error = refused
    html = await asyncio.to_thread(_render, view, sql, answer, error, site)
    status = 200 if error is None else 503 if isinstance(error, ServerBusy) else 400
    return HTMLResponse(html, status_code=status)


async def export(readers: Readers, queries: QueryPool, request: Request) -> Response:
    """Answer with the rows of a statement as JSON or CSV, or with the names to complete."""
    from starlette.responses import PlainTextResponse, Response

    from store.commandline.escape import encode_json
    from store.explore.server.exports import write_csv

    form = request.path_params["form"]
    view = await _make_view(readers, request)
    if form == "names":
        return Response(encode_json(list_names(), indent=None), media_type="application/json")
    if form == "sql":
        return PlainTextResponse(view.get("sql") or "")
    answer = await queries.ask(view.snapshot, view.get("sql") or "")
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
    from store.schema import catalog

    tables = {table.name: list(table.columns) for table in catalog.load().tables.values()}
    return tables | {view: [] for view in sql_files.list_views()}


@functools.cache
def list_saved() -> list[sql_files.Question]:
    """Return the questions of the report that need no values, as examples to start from."""
    read = [sql_files.read_question(file) for file in sorted(REPORT.glob("*.sql"))]
    return [question for question in read if "$" not in question.sql]


async def _make_view(readers: Readers, request: Request) -> View:
    query = dict(request.query_params)
    return View(readers, await readers.resolve(query.get("at") or None), "/sql", {}, query)


def _render(
    view: View,
    sql: str | None,
    answer: Answer | None,
    error: FlywheelError | None,
    site: Mapping[str, Any],
) -> str:
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
        chart=draw_result(rows),
        saved=list_saved(),
        names=list_names(),
        exported=EXPORTED_ROWS,
        **site,
    )
