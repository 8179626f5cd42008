"""Renders pages as HTML: the start at once, then each panel as soon as its rows are there."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.escape import escape_terminal, escape_text
from store.errors import FlywheelError
from store.explore.page.tables import build_table, format_value
from store.explore.page.texts import highlight, make_label, read_code_style

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from store.explore.page.model import Page, Panel, SectionTable, View

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
    return get_environment().get_template(f"{name}.html.jinja").render(**values)


async def stream_page(
    view: View, page: Page, folder: str, site: Mapping[str, Any]
) -> AsyncIterator[str]:
    """Yield the HTML of a page, its start before any panel has been asked.

    `folder` of `sql/` has the questions of its panels, `site` what all pages show, like the menu.
    """
    asked = [
        asyncio.create_task(_render_panel(view, page, panel, folder, site)) for panel in page.panels
    ]
    try:
        yield render_template("page_start", view=view, page=page, **site)
        for task in asked:
            yield await task
        for block in page.blocks:
            yield render_template("block", view=view, block=block, **site)
        yield render_template("page_end", view=view, page=page, **site)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _render_panel(
    view: View, page: Page, panel: Panel, folder: str, site: Mapping[str, Any]
) -> str:
    try:
        answer = await view.ask(page, panel, folder)
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


def _show_answer(view: View, panel: Panel, answer: SectionTable, site: Mapping[str, Any]) -> str:
    """Return a panel as HTML; nothing without rows, unless it is required."""
    rows = answer.rows()
    page = view.get_page(panel)
    if not rows and not panel.is_required and page == 1:
        return ""
    has_table = rows and panel.table != "none" and not panel.template
    sentence, svg = panel.tell(rows) if panel.tell and rows else ("", "")
    return render_template(
        "panel",
        view=view,
        panel=panel,
        answer=answer,
        rows=rows,
        content=panel.prepare(rows) if panel.prepare and rows else rows,
        table=build_table(view, panel, rows) if has_table else None,
        sentence=sentence,
        svg=svg,
        page_number=page,
        **site,
    )


@functools.cache
def get_environment(*, autoescape: bool = True) -> Environment:
    """Return the environment of the templates, which pages and reports share.

    `drawing` marks our own SVG as safe; every value of a lake goes through autoescape. The filters
    `line`, `text` and `label` escape control characters of foreign text.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def show(value: object, name: str = "") -> str:
        return format_value(name, value)

    def show_sql(sql: str) -> Markup:
        return highlight(escape_text(sql), "sql")

    environment = Environment(
        loader=FileSystemLoader(_ROOM / "templates"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own: dict[str, Any] = {"drawing": Markup, "asset": locate_asset}
    environment.globals.update(own)
    environment.filters.update(line=escape_terminal, text=escape_text, label=make_label)
    environment.filters.update(value=show, sql=show_sql)
    return environment


def read_style(name: str) -> str:
    """Return the text of `styles/NAME.css`."""
    return (_ROOM / "styles" / f"{name}.css").read_text("utf-8")
