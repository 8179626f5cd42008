"""The report: pages of the explorer's panels as one file of HTML, and as Markdown.

A section is a `Page` without filters. Its panels have questions, charts and tables as those of the
explorer's pages have. One snapshot always gives the same bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from store.commandline.escape import escape_text
from store.dossier.pages import MOST_IDS, choose_id
from store.explore.page import charts
from store.explore.page import texts as text_module
from store.explore.page.model import SQL, Chart, Page, Panel, Row, Value, bind_question, group_rows
from store.explore.page.render import get_environment, read_style
from store.explore.page.tables import Table, format_value, list_columns, make_table
from store.explore.page.texts import highlight, read_code_style
from store.explore.pages.run import draw_curves
from store.lake import exclusions

if TYPE_CHECKING:
    from store.lake.reader import Lake

_ROOM = Path(__file__).parent
_NONE: Mapping[str, Value] = dict.fromkeys(
    (
        "suite",
        "task_level",
        "device",
        "baseline",
        "clock",
        "precision",
        "author",
        "standing",
        "class",
    )
)
"""The filters of the explorer's questions, all unset."""
_KERNELS = 10
_MOST_ROWS = 60
_FEWEST_OF_TECHNIQUE, _MOST_TECHNIQUES = 3, 14


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A panel with its answer."""

    panel: Panel
    name: str
    """Name of the question."""
    title: str
    sentence: str
    """What the rows are and how to read them; if there are none, what would add some."""
    sql: str
    """The query with all values filled in: `store query` gives the same rows."""
    rows: list[Row]
    charts: Sequence[Chart] = ()
    left_out: int = 0
    """Number of charts that are left out because of the limit."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A chapter of the report."""

    name: str
    """Its anchor."""
    title: str
    exhibits: list[Exhibit]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The content of a report."""

    title: str
    lake_id: str
    snapshot: int
    tags: list[str]
    committed_at: str
    """Time of the last commit in UTC; the page has no other time."""
    version: str
    sections: list[Section]
    """Those that have rows, without the exhibits that have none."""
    unanswered: list[Exhibit]
    """Questions that have no rows."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a report."""

    html: Path
    markdown: Path
    charts: int


def build_report(lake: Lake, run: str | None = None) -> Report:
    """Build the report of a lake, or of one of its runs. Raises UnknownName for an unknown run."""
    if run is None:
        return compose(lake, "Kernel report", [build_section(lake, name) for name in _SECTIONS])
    hint = "store query \"SELECT run_id, kind, name FROM runs WHERE kind = 'training'\""
    sql = f"SELECT run_id FROM runs WHERE starts_with(run_id, $1) ORDER BY ALL LIMIT {MOST_IDS}"
    ids = [row["run_id"] for row in lake.run(sql, [run]).rows()]
    run_id = choose_id("run", run, ids, hint)
    code = panel("run_code", run=run_id, kernels=_KERNELS, template="kernels")
    parts = {
        "curves": Page(title="Curves", panels=_list_run_panels(run_id)),
        "best": Page(title="Best kernels", panels=[code]),
        "run": Page(title="Run", panels=[panel("run", run=run_id, split=())]),
    }
    sections = [_answer_section(lake, name, page) for name, page in parts.items()]
    return compose(lake, f"Run {format_value('run_id', run_id)}", sections)


def build_section(lake: Lake, name: str) -> Section:
    """Answer the questions of one section."""
    page = _SECTIONS[name]
    if name == "training":
        # The newest run that has attempts or metrics is shown.
        runs = ask(lake, page.panels[0]).rows
        told = [row for row in runs if row["attempts"] or row["last step logged"] is not None]
        shown = _list_run_panels(told[0]["run_id"]) if told else []
        page = Page(title=page.title, panels=[*page.panels, *shown])
    return _answer_section(lake, name, page)


def _answer_section(lake: Lake, name: str, page: Page) -> Section:
    exhibits: list[Exhibit] = []
    for panel in page.panels:
        if panel.name != "tags":
            exhibits.append(ask(lake, panel))
            continue
        with _open_newest(lake) as newest:
            exhibits.append(ask(newest, panel))
    return Section(name=name, title=page.title, exhibits=exhibits)


def _open_newest(lake: Lake) -> Lake:
    """Open the newest snapshot of a lake: the names of a snapshot are rows that came after it."""
    from store.lake.reader import Lake

    return Lake(lake.location, limits=lake.limits)


def ask(lake: Lake, panel: Panel) -> Exhibit:
    """Answer the question of a panel, and draw its charts."""
    assert panel.file is not None
    question = bind_question(panel.file, panel.values)
    is_own = panel.file.parent.name == "report"  # these have a limit of their own, or few rows
    sql = question.sql if is_own or panel.draw else f"{question.sql}\nLIMIT {panel.rows}"
    rows = lake.sql(sql).rows()
    sentence = question.sentence if rows else question.empty
    left_out = exclusions.describe_left_out(lake.count_left_out(sql))
    drawn = list(panel.draw(rows)) if panel.draw and rows else []
    shown = {chart.name.rpartition("-")[2] for chart in drawn}
    return Exhibit(
        panel=panel,
        name=panel.name,
        title=question.title,
        sentence=f"{sentence} Left out: {left_out}." if left_out else sentence,
        sql=sql,
        rows=rows,
        charts=drawn,
        left_out=panel.count_charts(rows) - len(shown) if panel.count_charts else 0,
    )


def compose(lake: Lake, title: str, sections: Sequence[Section]) -> Report:
    """Return the report of some sections, with a title that states the lake and the snapshot."""
    row = lake.sql("SELECT max(committed_at) AS at FROM ingest_log").one()
    with _open_newest(lake) as newest:
        tags = newest.sql(
            f"SELECT name FROM current_tags WHERE snapshot_id = {lake.snapshot} ORDER BY name"
        ).rows()
    filled = [
        Section(name=one.name, title=one.title, exhibits=[e for e in one.exhibits if e.rows])
        for one in sections
    ]
    return Report(
        title=title,
        lake_id=lake.lake_id,
        snapshot=lake.snapshot,
        tags=[text_module.make_label(tag["name"]) for tag in tags],
        committed_at=f"{row['at']:%Y-%m-%d %H:%M:%S}" if row and row["at"] else "never",
        version=store.__version__,
        sections=[section for section in filled if section.exhibits],
        unanswered=[e for section in sections for e in section.exhibits if not e.rows],
    )


def write_report(report: Report, out: Path) -> Written:
    """Write report.html, and report.md with its charts, to a folder."""
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    style = read_style("colours") + read_style("charts")
    drawn = [c for section in report.sections for e in section.exhibits for c in e.charts]
    for chart in drawn:
        text = charts.make_standalone(chart.svg, style)
        (figures / f"{chart.name}.svg").write_text(text, "utf-8", newline="\n")
    written = Written(html=out / "report.html", markdown=out / "report.md", charts=len(drawn))
    written.html.write_text(render_html(report), "utf-8", newline="\n")
    written.markdown.write_text(render_markdown(report), "utf-8", newline="\n")
    return written


def render_html(report: Report) -> str:
    """Return the report as HTML without scripts and external resources."""
    from markupsafe import Markup

    own = (_ROOM / "static" / "report.css").read_text("utf-8")
    names = ("colours", "charts", "parts")
    style = "\n".join([*map(read_style, names), read_code_style(), own])
    return _render(
        "report.html.jinja", report, autoescape=True,
        style=Markup(style), coloured=highlight, escape_text=escape_text,
    )  # fmt: skip


def render_markdown(report: Report) -> str:
    """Return the report as Markdown; its charts are files in figures/."""
    text = _render(
        "report.md.jinja", report, autoescape=False,
        md=text_module.escape_markdown, fence=text_module.fence,
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", text)


def _render(name: str, report: Report, *, autoescape: bool, **values: Any) -> str:
    listed = {
        _find_anchor(row)
        for section in report.sections
        for exhibit in section.exhibits
        if exhibit.panel.template == "kernels"
        for row in exhibit.rows
    }

    def link(row: Row, column: str) -> str | None:
        anchor = _find_anchor(row) if column == "kernel_id" and row[column] else ""
        return f"#{anchor}" if anchor in listed else None

    return get_environment(autoescape=autoescape).get_template(name).render(
        page=report, parts=partial(_split_tables, link), tiles=_list_tiles, kernels=list_kernels,
        **values,
    )  # fmt: skip


def _find_anchor(row: Row) -> str:
    return f"kernel-{row['kernel_id'][:12]}"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One table of an exhibit, and the values that its rows share."""

    caption: str
    table: Table
    total: int
    """Number of rows of the query without its LIMIT."""


def _split_tables(link: Callable[[Row, str], str | None], exhibit: Exhibit) -> Iterator[_Part]:
    """Yield the tables of an exhibit, one for each group of rows with equal split columns."""
    split = exhibit.panel.split or ()
    hidden = (*split, *exhibit.panel.hidden)
    for key, rows in group_rows(exhibit.rows, split).items():
        # A column without any value says nothing.
        names = [
            name
            for name in list_columns(rows, hidden)
            if any(row[name] is not None for row in rows)
        ]
        yield _Part(
            caption=", ".join(
                f"{name} {value}" if name == "level" else text_module.make_label(value)
                for name, value in zip(split, key, strict=True)
            ),
            table=make_table(rows, names, link),
            total=rows[0].get("total", len(rows)),
        )


def _list_tiles(exhibit: Exhibit) -> Iterator[dict[str, str]]:
    """Yield the figures of an exhibit whose rows are figures: with interval, meaning, section."""
    for row in exhibit.rows:
        unit = row["unit"]
        value = int(row["figure"]) if unit == "count" else row["figure"]
        sign = text_module.TIMES if unit == "speedup" else ""
        ends = [format_value(unit, row[end]) for end in ("low", "high")]
        yield {
            "figure": f"{format_value(unit, value)}{sign}",
            "interval": f"[{', '.join(ends)}]" if row["low"] is not None else "",
            "meaning": " ".join(escape_text(row["meaning"]).split()),
            "section": row["section"],
        }


def list_kernels(exhibit: Exhibit) -> Iterator[dict[str, Any]]:
    """Yield the kernels of an exhibit: facts, code, and a diff from the task's reference."""
    for row in exhibit.rows:
        code = text_module.cut_code(row["code"])
        reference = text_module.cut_code(row["reference"])
        path = text_module.make_label(row["path"])
        diff = difflib.unified_diff(
            reference.splitlines(), code.splitlines(), "reference", path, lineterm=""
        )
        names = ("speedup", "speedup_low", "speedup_high")
        speedup, low, high = (format_value("speedup", row[name]) for name in names)
        times = text_module.TIMES
        yield {
            "anchor": _find_anchor(row),
            "title": f"{row['suite']} {row['task']}: {speedup}{times}",
            "facts": {
                "kernel": row["kernel_id"],
                "task": row["title"] or row["task_id"],
                "speedup over eager": (
                    f"{speedup}{times} [{low}, {high}], {row['n']} paired samples of "
                    f"{row['sessions']} session{'s' * (row['sessions'] > 1)}, {row['device']}"
                ),
                "by": row["policy"] or "unknown",
                "other shapes": row["shapes"] or "none tried",
                "fragile": row["fragile"] or "no robustness check failed",
                "techniques": row["techniques"] or "none seen",
                "license": row["license"] or "none stated",
            },
            "code": code,
            "path": path,
            "diff": "\n".join(diff),
        }


def panel(
    name: str,
    *,
    split: Sequence[str] | None = None,
    file: str | None = None,
    template: str | None = None,
    hidden: Sequence[str] = (),
    **values: Value,
) -> Panel:
    """Return a panel of the report; without a file, its question is in `sql/report`."""
    return Panel(
        name=name, file=SQL / f"{file or f'report/{name}'}.sql", values={**_NONE, **values},
        split=split, template=template, hidden=hidden, rows=_MOST_ROWS,
    )  # fmt: skip


def _chart(
    name: str,
    keys: Sequence[str],
    draw: Callable[[str, list[Row]], str],
    *,
    most: int = 6,
    file: str | None = None,
    split: Sequence[str] | None = None,
    choose: Callable[[list[Row]], list[Row]] = lambda rows: rows,
    **values: Value,
) -> Panel:
    """Return a panel with one chart for each group of rows with equal `keys`.

    At most N charts are drawn, those with most rows, in the order of the rows. `choose` returns the
    rows that a chart can show.
    """

    def draw_groups(rows: list[Row]) -> list[Chart]:
        groups = group_rows(choose(rows), keys)
        largest = sorted(groups, key=lambda key: -len(groups[key]))[:most]
        chosen = [key for key in groups if key in largest]
        return [
            Chart(
                name=f"{name}-{number}",
                title=", ".join(map(text_module.make_label, key)),
                svg=draw(f"{name}-{number}", groups[key]),
            )
            for number, key in enumerate(chosen, start=1)
        ]

    return Panel(
        name=name, file=SQL / f"{file or f'report/{name}'}.sql", values={**_NONE, **values},
        count_charts=lambda rows: len(group_rows(choose(rows), keys)), draw=draw_groups,
        split=split,
    )  # fmt: skip


def _list_run_panels(run: str) -> list[Panel]:
    """Return the panels of one run, except its options and the code of its kernels."""
    hidden = ("attempt", "generation_id", "task_id")
    return [
        _chart("run_rewards", ("rule",), charts.draw_reward, run=run),
        Panel(name="run_curve", file=SQL / "report/run_curve.sql", values={"run": run},
              count_charts=lambda rows: len(group_rows(rows, ("device",))),
              draw=partial(draw_curves, with_kernels=True)),
        _chart("run_metrics", ("metric",), charts.draw_metric, run=run),
        _chart("run_best_so_far", ("device",), charts.draw_best, most=3, run=run),
        panel("run_bests", file="run/bests", split=(), hidden=hidden, run=run),
        panel("run_costs", split=(), run=run),
    ]  # fmt: skip


def _draw_medians(key: str, name: str, rows: list[Row]) -> str:
    """Draw the median speedups of the values of a column, with their intervals."""
    intervals = [
        charts.Interval(
            label=f"{row[key]} (n {row['n']})",
            low=row["p50_low"],
            middle=row["p50"],
            high=row["p50_high"],
        )
        for row in rows
    ]
    axis = charts.Axis(label="median speedup (95 % interval)", scale="ratio")
    return charts.draw_intervals(name, intervals, axis)


def _draw_verdicts(name: str, rows: list[Row]) -> str:
    devices: dict[str, charts.Bar] = {}
    for row in rows:
        bar = devices.setdefault(row["device"], charts.Bar(label=row["device"]))
        bar.parts[row["status"]] = bar.parts.get(row["status"], 0) + row["verdicts"]
    return charts.draw_bars(name, list(devices.values())[:16], charts.Axis(label="verdicts"))


def _draw_ecdf(name: str, rows: list[Row]) -> str:
    groups = group_rows(rows, ["baseline"])
    return charts.draw_shares(name, {baseline: mine for (baseline,), mine in groups.items()})


def _draw_fast_p(key: str, name: str, rows: list[Row]) -> str:
    """Draw fast_p with a line for each value of a column."""
    places = sorted({row["p"] for row in rows})
    series = [
        charts.Series(
            label=f"{value} ({mine[0]['timed']}/{mine[0]['n']} timed)",
            x=[places.index(row["p"]) for row in mine],
            y=[row["share"] for row in mine],
        )
        for (value,), mine in group_rows(rows, [key]).items()
    ]
    x = charts.Axis(label="p (places are not to scale)", ticks=[f"{p:g}" for p in places])
    y = charts.Axis(label="share of tasks, speedup > p", scale="share")
    return charts.draw_lines(name, series, x, y)


def _draw_claims(name: str, rows: list[Row]) -> str:
    first = rows[0]
    # All three, so that each keeps its color over the charts.
    same_gpu = first["gpu"].lower() == first["device"].lower()
    apart = ("exceeded", "falls") if same_gpu else ("faster here", "slower here")
    series: list[charts.Series] = []
    for outcome in ("holds", *apart):
        mine = [row for row in rows if row["outcome"] == outcome]
        series.append(
            charts.Series.of(
                mine,
                f"{outcome} (n {mine[0]['n'] if mine else 0})",
                *("claimed", "measured", "measured_low", "measured_high"),
            )
        )
    x = charts.Axis(label=f"speedup claimed for {first['gpu']}", scale="ratio")
    y = charts.Axis(label=f"speedup measured on {first['device']}", scale="ratio")
    return charts.draw_scatter(name, series, x, y, diagonal=True)


def _choose_techniques(rows: list[Row]) -> list[Row]:
    """Return the rows of techniques that enough kernels use, where there are enough of them."""
    enough = [row for row in rows if row["n"] >= _FEWEST_OF_TECHNIQUE]
    groups = group_rows(enough, ("device", "baseline")).values()
    return [row for group in groups if len(group) >= _FEWEST_OF_TECHNIQUE for row in group]


def _draw_techniques(name: str, rows: list[Row]) -> str:
    most = sorted(rows, key=lambda row: -row["n"])[:_MOST_TECHNIQUES]
    return _draw_medians("technique", name, sorted(most, key=lambda row: -row["p50"]))


def _draw_transfer(name: str, rows: list[Row]) -> str:
    series = [
        charts.Series.of(
            mine,
            f"{baseline} (n {mine[0]['n']})",
            *("speedup_a", "speedup_b", "speedup_b_low", "speedup_b_high"),
        )
        for (baseline,), mine in group_rows(rows, ["baseline"]).items()
    ]
    x, y = (charts.Axis(label=f"speedup on {rows[0][f'device_{side}']}", scale="ratio")
            for side in "ab")  # fmt: skip
    return charts.draw_scatter(name, series, x, y, diagonal=True)


def _draw_arms(name: str, rows: list[Row]) -> str:
    """Draw the best speedups so far over attempts, one line for each arm of a search."""
    series = [
        charts.Series.of(
            mine,
            f"{arm} ({mine[-1]['seeds']} seeds, {mine[-1]['tasks']} tasks)",
            *("attempt", "geomean", "low", "high"),
        )
        for (arm,), mine in group_rows(rows, ["arm"]).items()
    ]
    y = charts.Axis(label="geomean of best so far", scale="ratio")
    return charts.draw_lines(name, series, charts.Axis(label="attempts at each task"), y)


_PLACE, _TECHNIQUE, _SEARCH = ("suite", "device"), ("device", "baseline"), ("search", "device")
_SECTIONS = {
    "summary": Page(title="Summary", panels=[
        panel("summary", template="tiles"),
        _chart("medians", _PLACE, partial(_draw_medians, "baseline"), most=4),
        _chart("verdicts", (), _draw_verdicts),
    ]),
    "leaderboards": Page(title="Leaderboards", panels=[
        panel("leaderboard", split=_PLACE),
        panel("levels", split=("suite", "device", "level")),
        panel("stages", split=_PLACE),
    ]),
    "distribution": Page(title="Distribution", panels=[
        _chart("ecdf", _PLACE, _draw_ecdf, file="leaderboards/distribution"),
        panel("quantiles", split=_PLACE),
        _chart("fast_p", _PLACE, partial(_draw_fast_p, "baseline")),
        _chart("fast_p_policies", _PLACE, partial(_draw_fast_p, "policy")),
    ]),
    "claims": Page(title="Claims and measurements", panels=[
        panel("claimed", split=("source", "revision")),
        panel("claims_checked", split=("source", "device")),
        _chart("claims_points", ("source", "gpu", "device"), _draw_claims),
        panel("claims_fallen", split=()),
        panel("published_stages", split=("stated_by",)),
        panel("case_studies", split=()),
    ]),
    "techniques": Page(title="Techniques", panels=[
        _chart("techniques", _TECHNIQUE, _draw_techniques, most=8, split=_TECHNIQUE,
               choose=_choose_techniques),
        panel("technique_pairs", split=()),
    ]),
    "transfer": Page(title="Across GPUs", panels=[
        _chart("transfer_points", ("device_a", "device_b"), _draw_transfer),
        panel("transfer", split=()),
    ]),
    "best": Page(title="Best kernels", panels=[
        panel("best", split=()),
        panel("spreads", split=()),
        panel("best_code", template="kernels", kernels=_KERNELS),
    ]),
    "findings": Page(title="Hacks", panels=[
        panel("findings", file="suspects/classes", split=()),
        panel("suspects", file="suspects/kernels", split=(), **{"except": "dismissed"}),
        panel("weak_tasks", split=()),
    ]),
    "training": Page(title="Training runs", panels=[panel("runs", split=())]),
    "search": Page(title="Search", panels=[
        _chart("search_curve", _SEARCH, _draw_arms, split=_SEARCH),
    ]),
    "overview": Page(title="The lake", panels=[
        panel("contents", split=()),
        panel("reasons", split=("device",)),
        panel("devices", split=()),
        panel("tags", file="overview/tags", split=()),
        panel("commits", split=()),
    ]),
}  # fmt: skip
"""The sections of the report of a lake, in their order."""
