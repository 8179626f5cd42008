"""The report: of each section the answer in a sentence, one chart, and the query behind both.

A section is a question of the explorer and a function that tells and draws its rows; it links to
the page of the explorer that has the rest. One snapshot always gives the same bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import store
from store.dossier.pages import find_run
from store.errors import FlywheelError
from store.explore.page import answers, charts, texts
from store.explore.page.model import SQL, Row, Told, bind_question, group_rows
from store.explore.page.render import get_environment, read_style, render_template
from store.explore.page.tables import build_address, format_value
from store.lake import exclusions
from store.receipts.receipt import make_receipt, write_receipt

if TYPE_CHECKING:
    from store.lake.reader import Lake

_EXPLORER = "http://127.0.0.1:8765"
"""Where `store explore` serves by default."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A question, and how its rows are told and drawn."""

    title: str
    question: str
    """File of `sql/` without its ending; its last part names the section's chart."""
    tell: Callable[[list[Row]], Told]
    keys: Sequence[str] = ()
    """The answer is about the group of rows with equal values here that has most rows."""
    page: str
    """Page of the explorer with the rest; it may name columns, as in /kernel/{kernel_id}."""
    run: str | None = None
    """The run that the question is about."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a section."""

    title: str
    name: str
    """Its anchor, and the file of its chart beside the Markdown."""
    sentence: str
    """If there are no rows, what would add some."""
    about: str
    """How to read the chart, and what is left out."""
    sql: str
    """The query with all values filled in: `store query` gives the same rows."""
    rows: list[Row]
    link: str = ""
    svg: str = ""
    receipt: bytes = b""
    """Receipt of the kernel that the answer is about, if it is about one."""

    @property
    def receipt_name(self) -> str:
        """Name of the receipt's file beside the report."""
        return f"receipt-{self.rows[0]['kernel_id'][:12]}.json" if self.receipt else ""


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
    answers: list[Answer]
    unanswered: list[Answer]
    """Those without rows."""


def build_report(lake: Lake, run: str | None = None) -> Report:
    """Build the report of a lake, or of one of its runs. Raises UnknownName for an unknown run."""
    from store.lake.reader import Lake

    if run is None:
        title, sections = "Kernel report", list_sections(lake)
    else:
        run_id = find_run(lake, run)
        title, sections = f"Run {format_value('run_id', run_id)}", list_run_sections(run_id)
    row = lake.sql("SELECT max(committed_at) AS at FROM ingest_log").one()
    # The names of a snapshot are rows that came after it.
    with Lake(lake.location, limits=lake.limits) as newest:
        tags = newest.sql(
            f"SELECT name FROM current_tags WHERE snapshot_id = {lake.snapshot} ORDER BY name"
        ).rows()
    answers = [answer_section(lake, section) for section in sections]
    return Report(
        title=title,
        lake_id=lake.lake_id,
        snapshot=lake.snapshot,
        tags=[texts.make_label(tag["name"]) for tag in tags],
        committed_at=f"{row['at']:%Y-%m-%d %H:%M:%S}" if row and row["at"] else "never",
        version=store.__version__,
        answers=[answer for answer in answers if answer.rows],
        unanswered=[answer for answer in answers if not answer.rows],
    )


def answer_section(lake: Lake, section: Section) -> Answer:
    """Ask the question of a section, and tell and draw its rows."""
    question = bind_question(SQL / f"{section.question}.sql", {"run": section.run})
    rows = lake.sql(question.sql).rows()
    sentence, about, link, svg, receipt = question.empty, "", "", "", b""
    if rows:
        shown = max(group_rows(rows, section.keys).values(), key=len)
        sentence, svg = section.tell(shown)
        left_out = exclusions.describe_left_out(lake.count_left_out(question.sql))
        about = f"{question.sentence} Left out: {left_out}." if left_out else question.sentence
        path = section.page.format_map(shown[0] | {"run": section.run})
        link = _EXPLORER + build_address(path, {"at": str(lake.snapshot)})
        if section.page == "/kernel/{kernel_id}":
            with suppress(FlywheelError):  # such as a finding that quotes a token
                receipt = write_receipt(make_receipt(lake, rows[0]["kernel_id"]))
    return Answer(
        title=section.title,
        name=section.question.rpartition("/")[2],
        sentence=sentence,
        about=about,
        sql=question.sql,
        rows=rows,
        link=link,
        svg=svg,
        receipt=receipt,
    )


def write_report(report: Report, out: Path) -> int:
    """Write report.html, and report.md with its charts, to a folder; return their number."""
    from markupsafe import Markup

    (out / "figures").mkdir(parents=True, exist_ok=True)
    style = read_style("colours") + read_style("charts")
    drawn = [answer for answer in report.answers if answer.svg]
    for answer in drawn:
        text = charts.make_standalone(answer.svg, style)
        (out / "figures" / f"{answer.name}.svg").write_text(text, "utf-8", newline="\n")

    for answer in report.answers:
        if answer.receipt:
            (out / answer.receipt_name).write_bytes(answer.receipt)

    own = (Path(__file__).parent / "static" / "report.css").read_text("utf-8")
    sheets = [style, read_style("parts"), texts.read_code_style(), own]
    html = render_template("report", page=report, style=Markup("\n".join(sheets)))
    (out / "report.html").write_text(html, "utf-8", newline="\n")

    template = get_environment(autoescape=False).get_template("report.md.jinja")
    markdown = template.render(page=report, md=texts.escape_markdown, fence=texts.fence)
    markdown = re.sub(r"\n{3,}", "\n\n", markdown)
    (out / "report.md").write_text(markdown, "utf-8", newline="\n")
    return len(drawn)


def list_sections(lake: Lake) -> list[Section]:
    """Return the sections of the report of a lake, in their order."""
    runs = lake.sql(bind_question(SQL / "report/runs.sql", {}).sql).rows()
    # The newest run with attempts or metrics is shown.
    newest = [row["run_id"] for row in runs if row["attempts"] or row["last step logged"]]
    place, pair = ("suite", "device"), ("device", "baseline")
    tell_verdicts = functools.partial(answers.tell_statuses, "verdicts", "verdicts")
    return [
        Section(title="Speedup", question="report/medians", tell=answers.tell_medians, keys=place,
                page="/leaderboards"),
        Section(title="Correct kernels", question="report/verdicts", tell=tell_verdicts,
                page="/tasks"),
        Section(title="Faster kernels", question="report/fast_p", tell=answers.tell_fast_p,
                keys=place, page="/leaderboards"),
        Section(title="Best kernels", question="report/best", tell=answers.tell_best,
                page="/kernel/{kernel_id}"),
        Section(title="Claims and measurements", question="report/claims_points",
                tell=answers.tell_claims, keys=("source", "gpu", "device"), page="/leaderboards"),
        Section(title="Techniques", question="report/techniques", tell=answers.tell_techniques,
                keys=pair, page="/leaderboards"),
        Section(title="Across GPUs", question="report/transfer_points", tell=answers.tell_transfer,
                keys=("device_a", "device_b", "baseline"), page="/leaderboards"),
        Section(title="Hacks", question="suspects/classes", tell=answers.tell_findings,
                page="/suspects"),
        Section(title="Newest training", tell=answers.tell_learning,
                question="report/run_learning" if runs else "report/runs",
                page="/run/{run}", run=next(iter(newest), "")),
        Section(title="Search", question="report/search_curve", tell=answers.tell_search,
                keys=("search", "device"), page="/runs"),
    ]  # fmt: skip


def list_run_sections(run: str) -> list[Section]:
    """Return the sections of the report of a run, in their order."""
    page = "/run/{run}"
    return [
        Section(title="Learning", question="report/run_learning", tell=answers.tell_learning,
                page=page, run=run),
        Section(title="Speedup", question="report/run_best_so_far", tell=answers.tell_best_so_far,
                page=page, run=run),
        Section(title="Training", question="report/run_metrics", tell=answers.tell_metrics,
                page=page, run=run),
        Section(title="Best kernels", question="run/bests", tell=answers.tell_bests,
                page="/kernel/{kernel_id}?tab=lineage", run=run),
        Section(title="Costs", question="report/run_costs", tell=answers.tell_costs, page=page,
                run=run),
    ]  # fmt: skip
