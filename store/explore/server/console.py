"""The SQL console: statements of readers, which processes answer, with a chart of the rows."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from store.commandline.python_rows import list_rows
from store.errors import FlywheelError, ServerBusy
from store.explore.page import charts, render
from store.explore.page.model import REPORT, SQL, Page, Panel, Row
from store.explore.page.tables import build_result_table
from store.explore.page.view import EXPORTED_ROWS, View
from store.lake import sql_files

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.requests import Request
    from starlette.responses import Response

    from store.explore.server.readers import Readers
    from store.guard.query_process import QueryAnswer


MENU = (70, "SQL", "/sql")
SHOWN_ROWS = 200


async def show(readers: Readers, site: Mapping[str, Any], request: Request) -> Response:
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
    html = await asyncio.to_thread(_render, view, sql, answer, error, site)
    status = 200 if error is None else 503 if isinstance(error, ServerBusy) else 400
    return HTMLResponse(html, status_code=status)


async def export(readers: Readers, request: Request) -> Response:
    """Answer with the rows of a statement as JSON or CSV, or with the names to complete."""
    from starlette.responses import PlainTextResponse, Response

    from store.commandline.escape import encode_json

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
    from store.schema import catalog

    tables = {table.name: list(table.columns) for table in catalog.load().tables.values()}
    return tables | {view: [] for view in sql_files.list_views()}


@functools.cache
def list_saved() -> list[sql_files.SqlQuestion]:
    """Return the questions of the report that need no values, as examples to start from."""
    files = [*sorted(REPORT.glob("*.sql")), SQL / "suspects/classes.sql", SQL / "overview/tags.sql"]
    read = [sql_files.read_question(file) for file in files]
    return [question for question in read if "$" not in question.sql]


def _render(
    view: View,
    sql: str | None,
    answer: QueryAnswer | None,
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


_MOST_ROWS = 24
_FEWEST_POINTS = 3


def draw_result(rows: Sequence[Row]) -> str | None:
    """Return a chart of rows, or None if they have no numbers to draw.

    A text and a number are bars; two numbers, or a time and a number, are points. Further columns
    are not drawn.
    """
    if len(rows) < _FEWEST_POINTS:
        return None
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    numbers = [name for name in names if _has_only(rows, name, (int, float))]
    times = [name for name in names if _has_only(rows, name, (datetime,))]
    texts = [name for name in names if _has_only(rows, name, (str,))]
    if texts and numbers and names.index(texts[0]) < names.index(numbers[0]):
        if len(rows) > _MOST_ROWS or any((row[numbers[0]] or 0) < 0 for row in rows):
            return None
        bars = [
            charts.Bar(label=label, parts={numbers[0]: float(row[numbers[0]] or 0)})
            for row, label in zip(rows, _label_rows(rows, texts), strict=True)
        ]
        return charts.draw_bars("result", bars, charts.Axis(label=numbers[0]))
    if times and numbers:
        first = min(row[times[0]] for row in rows if row[times[0]] is not None)
        x = {
            id(row): (row[times[0]] - first).total_seconds() / 3600 for row in rows if row[times[0]]
        }
        return _draw_points(rows, x, numbers[0], f"hours after {first:%Y-%m-%d %H:%M}")
    if len(numbers) > 1:
        x = {id(row): float(row[numbers[0]]) for row in rows if row[numbers[0]] is not None}
        return _draw_points(rows, x, numbers[1], numbers[0])
    return None


def _label_rows(rows: Sequence[Row], texts: Sequence[str]) -> list[str]:
    """Return the texts of the columns that tell rows apart."""
    labels = [""] * len(rows)
    for name in texts:
        longer = [
            ", ".join(filter(None, [label, str(row[name] or "")]))
            for label, row in zip(labels, rows, strict=True)
        ]
        if len(set(longer)) > len(set(labels)):
            labels = longer
    return labels if any(labels) else [str(row[texts[0]] or "") for row in rows]


def _draw_points(rows: Sequence[Row], x: dict[int, float], y: str, label: str) -> str:
    shown = [row for row in rows if id(row) in x and row[y] is not None]
    series = charts.Series(
        label=y, x=[x[id(row)] for row in shown], y=[float(row[y]) for row in shown]
    )
    return charts.draw_scatter("result", [series], charts.Axis(label=label), charts.Axis(label=y))


def _has_only(rows: Sequence[Row], name: str, kinds: tuple[type[Any], ...]) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)


def write_csv(table: pa.Table) -> str:
    """Return a table as CSV with a header."""
    from store.commandline import display

    with io.StringIO() as out:
        display.write_text(table, "csv", out)
        return out.getvalue()
