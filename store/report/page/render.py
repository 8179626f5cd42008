"""Writes a report as one self-contained HTML file, and as Markdown with its charts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from store.commandline.escape import escape_text
from store.rendering import charts
from store.rendering import text as text_module
from store.rendering.code import highlight, read_code_style
from store.rendering.columns import format_value, list_columns
from store.rendering.environment import make_environment
from store.rendering.rows import group_rows
from store.rendering.styles import read_style
from store.rendering.tables import Table, make_table
from store.report.page.section import Answer, Exhibit, Section, open_newest

if TYPE_CHECKING:
    from store.lake.reader import Lake

_TEMPLATES = Path(__file__).parent.parent / "templates"


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a report."""

    html: Path
    markdown: Path
    charts: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of the page."""

    title: str
    lake_id: str
    snapshot: int
    tags: list[str]
    committed_at: str
    """Time of the last commit in UTC; the page has no other time."""
    version: str
    sections: list[Section]
    """Those that have rows, without the exhibits that have none."""
    unanswered: list[Answer]
    """Queries that returned no rows."""


def build_page(lake: Lake, title: str, sections: Sequence[Section]) -> Page:
    """Build a page from sections, with a title that states the lake and the snapshot."""
    row = lake.sql("SELECT max(committed_at) AS at FROM ingest_log").one()
    with open_newest(lake) as newest:
        tags = newest.sql(
            f"SELECT name FROM current_tags WHERE snapshot_id = {lake.snapshot} ORDER BY name"
        ).rows()
    return Page(
        title=title,
        lake_id=lake.lake_id,
        snapshot=lake.snapshot,
        tags=[text_module.make_label(tag["name"]) for tag in tags],
        committed_at=f"{row['at']:%Y-%m-%d %H:%M:%S}" if row and row["at"] else "never",
        version=store.__version__,
        sections=[section for one in sections if (section := _drop_empty(one)).exhibits],
        unanswered=[
            exhibit.answer
            for section in sections
            for exhibit in section.exhibits
            if not exhibit.answer.rows
        ],
    )


def _drop_empty(section: Section) -> Section:
    return replace(section, exhibits=[one for one in section.exhibits if one.answer.rows])


def write_page(page: Page, out: Path) -> Written:
    """Write report.html, and report.md with its charts, to a folder."""
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    style = read_style("colours") + read_style("charts")
    drawn = [
        figure
        for section in page.sections
        for exhibit in section.exhibits
        for figure in exhibit.figures
    ]
    for chart in drawn:
        text = charts.make_standalone(chart.svg, style)
        (figures / f"{chart.name}.svg").write_text(text, "utf-8", newline="\n")
    written = Written(html=out / "report.html", markdown=out / "report.md", charts=len(drawn))
    written.html.write_text(render_html(page), "utf-8", newline="\n")
    written.markdown.write_text(render_markdown(page), "utf-8", newline="\n")
    return written


def render_html(page: Page) -> str:
    """Return the page as HTML without scripts and external resources."""
    from markupsafe import Markup

    names = ("colours", "charts", "parts")
    style = "\n".join([*map(read_style, names), read_code_style(), _template("page.css")])
    anchors = {
        listing.anchor
        for section in page.sections
        for exhibit in section.exhibits
        for listing in exhibit.listings
    }
    return _render_template(
        "page.html.jinja", page, anchors, autoescape=True,
        style=Markup(style), coloured=highlight, escape_text=escape_text,
    )  # fmt: skip


def render_markdown(page: Page) -> str:
    """Return the page as Markdown; its charts are files in figures/."""
    text = _render_template(
        "page.md.jinja", page, frozenset(), autoescape=False,
        md=text_module.escape_markdown, fence=text_module.fence,
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", text)


def _render_template(
    name: str, page: Page, anchors: Set[str], *, autoescape: bool, **values: Any
) -> str:
    def split(exhibit: Exhibit) -> Iterator[_Part]:
        return _split_parts(exhibit, anchors)

    environment = make_environment(_TEMPLATES, autoescape=autoescape)
    template = environment.get_template(name)
    return template.render(page=page, parts=split, tiles=_list_tiles, **values)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One table of an exhibit, and the values that its rows share."""

    caption: str
    table: Table
    total: int
    """Number of rows of the query without its LIMIT."""


def _split_parts(exhibit: Exhibit, anchors: Set[str]) -> Iterator[_Part]:
    """Yield the tables of an exhibit, one for each group of rows with equal split columns."""

    def link(row: dict[str, Any], name: str) -> str | None:
        anchor = f"kernel-{row[name][:12]}" if name == "kernel_id" and row[name] else ""
        return f"#{anchor}" if anchor in anchors else None

    split = exhibit.split or ()
    for key, rows in group_rows(exhibit.answer.rows, split).items():
        # A column without any value says nothing.
        names = [
            name for name in list_columns(rows, split) if any(row[name] is not None for row in rows)
        ]
        yield _Part(
            caption=", ".join(
                f"{name} {value}" if name == "level" else text_module.make_label(value)
                for name, value in zip(split, key, strict=True)
            ),
            table=make_table(rows, names, link),
            total=rows[0].get("total", len(rows)),
        )


@dataclass(frozen=True, kw_only=True)
class _Tile:
    """One figure of the summary, with its interval and its meaning."""

    figure: str
    interval: str
    meaning: str
    section: str
    """Name of the section that explains it."""


def _list_tiles(exhibit: Exhibit) -> Iterator[_Tile]:
    """Yield the figures of an exhibit whose rows are figures."""
    for row in exhibit.answer.rows:
        unit = row["unit"]
        value = int(row["figure"]) if unit == "count" else row["figure"]
        sign = text_module.TIMES if unit == "speedup" else ""
        ends = [format_value(unit, row[end]) for end in ("low", "high")]
        yield _Tile(
            figure=f"{format_value(unit, value)}{sign}",
            interval=f"[{', '.join(ends)}]" if row["low"] is not None else "",
            meaning=" ".join(escape_text(row["meaning"]).split()),
            section=row["section"],
        )


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")
