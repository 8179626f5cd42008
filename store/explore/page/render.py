"""Renders pages as HTML: the start at once, then each panel as soon as its rows are there."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.escape import escape_text
from store.errors import FlywheelError
from store.explore.page.tables import build_table
from store.rendering.code import highlight, read_code_style
from store.rendering.environment import make_environment, read_style
from store.rendering.tables import format_value

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from store.explore.page.model import Answer, Page, Panel
    from store.explore.page.view import View

_LOGGER = logging.getLogger(__name__)
_ROOM = Path(__file__).parent.parent


@functools.cache
def read_assets() -> dict[str, tuple[str, bytes]]:
    """Return the files that pages load: media type and content by name."""
    sheets = [
        read_style("colours"), read_code_style(), read_style("charts"), read_style("parts")
    ]  # fmt: skip
    own = (_ROOM / "static" / "explore.css").read_text("utf-8")
    return {
        "explore.css": ("text/css", "\n".join([*sheets, own]).encode()),
        "explore.js": ("text/javascript", (_ROOM / "static" / "explore.js").read_bytes()),
        "icon.svg": ("image/svg+xml", (_ROOM / "static" / "icon.svg").read_bytes()),
    }


@functools.cache
def locate_asset(name: str) -> str:
    """Return the address of a file that pages load; it changes with the content."""
    digest = hashlib.sha256(read_assets()[name][1]).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def render_template(name: str, **values: Any) -> str:
    """Return a template of `templates/` as HTML."""
    return _get_environment().get_template(f"{name}.html.jinja").render(**values)


async def stream_page(
    view: View, page: Page, folder: str, site: Mapping[str, Any]
) -> AsyncIterator[str]:
    """Yield the HTML of a page, its start before any panel has been asked.

    Args:
        view: The view to show.
        page: Its content.
        folder: Folder of `sql/` with the questions of its panels.
        site: Values that all pages show: menu, lake, version.
    """
    asked = [asyncio.create_task(_render_panel(view, panel, folder, site)) for panel in page.panels]
    try:
        yield render_template("page_start", view=view, page=page, **site)
        for block in page.blocks:
            yield render_template("block", view=view, block=block, **site)
        for task in asked:
            yield await task
        yield render_template("page_end", view=view, page=page, **site)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _render_panel(view: View, panel: Panel, folder: str, site: Mapping[str, Any]) -> str:
    try:
        answer = await view.ask(panel, folder)
        return await asyncio.to_thread(_show_answer, view, panel, answer, site)
    except FlywheelError as error:
        return render_template("panel_error", panel=panel, error=error)
    except Exception:
        # The rest of the page is of use without this panel.
        _LOGGER.exception("the panel %s/%s failed", folder, panel.name)
        bug = FlywheelError(
            "this part of the page failed", "This is a bug. The server's log has it."
        )
        return render_template("panel_error", panel=panel, error=bug)


def _show_answer(view: View, panel: Panel, answer: Answer, site: Mapping[str, Any]) -> str:
    """Return a panel as HTML; nothing without rows, unless it is required."""
    rows = answer.rows()
    page = view.get_page(panel)
    if not rows and not panel.is_required and page == 1:
        return ""
    table = build_table(view, panel, rows) if rows and panel.table != "none" else None
    return render_template(
        "panel",
        view=view,
        panel=panel,
        answer=answer,
        rows=rows,
        content=panel.prepare(rows) if panel.prepare and rows else rows,
        table=table,
        charts=list(panel.draw(rows)) if panel.draw and rows else [],
        page_number=page,
        **site,
    )


@functools.cache
def _get_environment() -> Environment:
    environment = make_environment(_ROOM / "templates")
    locate: Any = locate_asset
    environment.globals["asset"] = locate
    environment.filters.update(value=_format, sql=_highlight_sql)
    return environment


def _format(value: object, name: str = "") -> str:
    return format_value(name, value)


def _highlight_sql(sql: str) -> Markup:
    return highlight(escape_text(sql), "sql")
