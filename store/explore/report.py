"""The report: of each section the answer in a sentence, one chart, and the query behind both.

A section is a question of the explorer and a function that tells and draws its rows; it links to
the page of the explorer that has the rest. One snapshot always gives the same bytes.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import store
from store.dossier.pages import MOST_IDS, choose_id
from store.explore.page import charts, texts
from store.explore.page.model import SQL, Row, bind_question, group_rows
from store.explore.page.render import get_environment, read_style
from store.explore.page.tables import build_address, format_value, make_cell
from store.explore.page.texts import TIMES
from store.lake import exclusions

if TYPE_CHECKING:
    from store.lake.reader import Lake

Told: TypeAlias = tuple[str, str]
"""An answer in a sentence, and its chart as SVG; a chart may be missing."""
_EXPLORER = "http://127.0.0.1:8765"
"""Where `store explore` serves by default."""
_FEWEST_OF_TECHNIQUE, _MOST_TECHNIQUES = 3, 14
_MOST_KERNELS = 10


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
    if run is None:
        return compose(lake, "Kernel report", list_sections(lake))
    hint = "store query \"SELECT run_id, kind, name FROM runs WHERE kind = 'training'\""
    sql = f"SELECT run_id FROM runs WHERE starts_with(run_id, $1) ORDER BY ALL LIMIT {MOST_IDS}"
    ids = [row["run_id"] for row in lake.run(sql, [run]).rows()]
    run_id = choose_id("run", run, ids, hint)
    return compose(lake, f"Run {format_value('run_id', run_id)}", list_run_sections(run_id))


def compose(lake: Lake, title: str, sections: Sequence[Section]) -> Report:
    """Return the report of some sections, with a title that states the lake and the snapshot."""
    from store.lake.reader import Lake

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
    sentence, about, link, svg = question.empty, "", "", ""
    if rows:
        shown = max(group_rows(rows, section.keys).values(), key=len)
        sentence, svg = section.tell(shown)
        left_out = exclusions.describe_left_out(lake.count_left_out(question.sql))
        about = f"{question.sentence} Left out: {left_out}." if left_out else question.sentence
        path = section.page.format_map(shown[0] | {"run": section.run})
        link = _EXPLORER + build_address(path, {"at": str(lake.snapshot)})
    return Answer(
        title=section.title,
        name=section.question.rpartition("/")[2],
        sentence=sentence,
        about=about,
        sql=question.sql,
        rows=rows,
        link=link,
        svg=svg,
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

    own = (Path(__file__).parent / "static" / "report.css").read_text("utf-8")
    sheets = [style, read_style("parts"), texts.read_code_style(), own]
    template = get_environment().get_template("report.html.jinja")
    html = template.render(page=report, style=Markup("\n".join(sheets)))
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
    return [
        Section(title="Speedup", question="report/medians", tell=tell_medians, keys=place,
                page="/leaderboards"),
        Section(title="Correct kernels", question="report/verdicts", tell=tell_verdicts,
                page="/tasks"),
        Section(title="Faster kernels", question="report/fast_p", tell=tell_fast_p, keys=place,
                page="/leaderboards"),
        Section(title="Best kernels", question="report/best", tell=tell_best,
                page="/kernel/{kernel_id}"),
        Section(title="Claims and measurements", question="report/claims_points",
                tell=tell_claims, keys=("source", "gpu", "device"), page="/leaderboards"),
        Section(title="Techniques", question="report/techniques", tell=tell_techniques, keys=pair,
                page="/leaderboards"),
        Section(title="Across GPUs", question="report/transfer_points", tell=tell_transfer,
                keys=("device_a", "device_b", "baseline"), page="/leaderboards"),
        Section(title="Hacks", question="suspects/classes", tell=tell_findings, page="/suspects"),
        Section(title="Newest training", tell=tell_rewards,
                question="report/run_rewards" if newest else "report/runs",
                keys=("rule",), page="/run/{run}", run=next(iter(newest), "")),
        Section(title="Search", question="report/search_curve", tell=tell_search,
                keys=("search", "device"), page="/runs"),
    ]  # fmt: skip


def list_run_sections(run: str) -> list[Section]:
    """Return the sections of the report of a run, in their order."""
    page, answers = "/run/{run}", "/run/{run}?tab=answers"
    return [
        Section(title="Reward", question="report/run_rewards", tell=tell_rewards, keys=("rule",),
                page=page, run=run),
        Section(title="Correct kernels", question="report/run_curve", tell=tell_success,
                keys=("device",), page=answers, run=run),
        Section(title="Speedup", question="report/run_best_so_far", tell=tell_best_so_far,
                keys=("device",), page=page, run=run),
        Section(title="Training", question="report/run_metrics", tell=tell_metrics,
                keys=("metric",), page=page, run=run),
        Section(title="Best kernels", question="run/bests", tell=tell_bests,
                page="/kernel/{kernel_id}?tab=lineage", run=run),
        Section(title="Costs", question="report/run_costs", tell=tell_costs, page=page, run=run),
    ]  # fmt: skip


# How the rows of each question are told and drawn.


def show_times(row: Row, name: str = "speedup") -> str:
    """Return a ratio of a row with its sign, and its interval if it has one."""
    cell = make_cell(row, name)
    return " ".join(filter(None, [f"{cell.text}{TIMES}", cell.interval]))


def _show_at_step(row: Row, name: str) -> str:
    return f"{format_value(name, row[name])} at step {row['step']}"


def tell_medians(rows: list[Row]) -> Told:
    """Tell the median speedup over eager, and over the hardest baseline."""
    first, hardest = rows[0], min(rows, key=itemgetter("p50"))
    sentence = (
        f"The median speedup over {first['baseline']} is {show_times(first, 'p50')}: best kernels "
        f"of {first['n']} tasks of {first['suite']} on {first['device']}."
    )
    if hardest is not first:
        over = f"{hardest['baseline']}, the baseline that is hardest to beat"
        sentence += f" Over {over}, it is {show_times(hardest, 'p50')}."
    return sentence, charts.draw_medians("medians", {row["baseline"]: row for row in rows})


def tell_verdicts(rows: list[Row]) -> Told:
    """Tell the share of correct kernels on the device with most verdicts."""
    devices = group_rows(rows, ["device"])
    totals = {name: sum(row["verdicts"] for row in mine) for (name,), mine in devices.items()}
    most = max(totals, key=totals.__getitem__)
    correct = sum(row["verdicts"] for row in devices[most,] if row["status"] == "correct")
    share = format_value("share", correct / totals[most])
    return (
        f"{share} of {totals[most]:,} judged kernels are correct on {most}.",
        charts.draw_statuses("verdicts", rows, "verdicts"),
    )


def tell_fast_p(rows: list[Row]) -> Told:
    """Tell the share of tasks with a correct kernel that is faster than the first baseline."""
    groups = group_rows(rows, ["baseline"])
    faster = next(row for row in rows if row["p"] == 1)
    labels = {
        f"{baseline} ({mine[0]['timed']}/{mine[0]['n']} timed)": mine
        for (baseline,), mine in groups.items()
    }
    return (
        f"{format_value('share', faster['share'])} of {faster['n']} decided tasks have a correct "
        f"kernel that is faster than {faster['baseline']} on {faster['device']}.",
        charts.draw_fast_p("fast_p", labels),
    )


def tell_best(rows: list[Row]) -> Told:
    """Tell the fastest kernel."""
    best = rows[0]
    return (
        f"The fastest kernel, {best['kernel_id'][:12]} by {best['policy'] or 'unknown'}, runs "
        f"{show_times(best)} over eager on {best['device']}, for task {best['task']}.",
        charts.draw_intervals(
            "best",
            [
                charts.Interval(
                    label=f"{row['task']} on {row['device']}",
                    low=row["speedup_low"],
                    middle=row["speedup"],
                    high=row["speedup_high"],
                )
                for row in rows[:_MOST_KERNELS]
            ],
            charts.Axis(label="speedup over eager (95 % interval)", scale="ratio"),
        ),
    )


def tell_claims(rows: list[Row]) -> Told:
    """Tell how many claims hold."""
    first = rows[0]
    counts = {row["outcome"]: row["n"] for row in rows}
    others = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if outcome != "holds")
    return (
        f"{counts.get('holds', 0)} of {sum(counts.values())} claims of {first['source']} for "
        f"{first['gpu']} hold on {first['device']}{f' ({others})' if others else ''}.",
        charts.draw_claims("claims", rows, f" for {first['gpu']}", f" on {first['device']}"),
    )


def tell_techniques(rows: list[Row]) -> Told:
    """Tell the technique whose kernels are fastest, of those that enough kernels use."""
    enough = [row for row in rows if row["n"] >= _FEWEST_OF_TECHNIQUE]
    most = sorted(enough or rows, key=itemgetter("n"), reverse=True)[:_MOST_TECHNIQUES]
    shown = sorted(most, key=itemgetter("p50"), reverse=True)
    first = shown[0]
    return (
        f"Kernels that use {first['technique']} are the fastest: the median of {first['n']} is "
        f"{show_times(first, 'p50')} over {first['baseline']} on {first['device']}.",
        charts.draw_medians("techniques", {row["technique"]: row for row in shown}),
    )


def tell_transfer(rows: list[Row]) -> Told:
    """Tell how speedups change from one device to another."""
    first = rows[0]
    ratio = statistics.median(row["speedup_b"] / row["speedup_a"] for row in rows)
    label = f"over {first['baseline']} (n {first['n']})"
    names = ("speedup_a", "speedup_b", "speedup_b_low", "speedup_b_high")
    x, y = (
        charts.Axis(label=f"speedup on {first[f'device_{side}']}", scale="ratio") for side in "ab"
    )
    return (
        f"The median of {len(rows)} kernels has {show_times({'ratio': ratio}, 'ratio')} the "
        f"speedup over {first['baseline']} on {first['device_b']} that it has on "
        f"{first['device_a']}.",
        charts.draw_scatter(
            "transfer", [charts.Series.of(rows, label, *names)], x, y, diagonal=True
        ),
    )


def tell_findings(rows: list[Row]) -> Told:
    """Tell the class of findings that was confirmed most."""
    first = rows[0]
    found = f"{first['class']} is confirmed most often"
    if not first["confirmed"]:
        found = f"No finding is confirmed; kernels with {first['class']}"
    bars = [
        charts.Bar(
            label=row["class"],
            parts={name: row[name] for name in ("confirmed", "open", "dismissed")},
        )
        for row in rows[:_MOST_KERNELS]
    ]
    return (
        f"{found}: {first['confirmed']} confirmed, {first['open']} open and "
        f"{first['dismissed']} dismissed.",
        charts.draw_bars("findings", bars, charts.Axis(label="kernels")),
    )


def tell_rewards(rows: list[Row]) -> Told:
    """Tell the mean reward at the first and the last step."""
    first, last = (_show_at_step(row, "reward_mean") for row in (rows[0], rows[-1]))
    return f"The mean reward is {first} and {last}.", charts.draw_reward("reward", rows)


def tell_search(rows: list[Row]) -> Told:
    """Tell the arm of a search that ends fastest."""
    arms = group_rows(rows, ["arm"])
    reached = {arm: mine[-1] for (arm,), mine in arms.items()}
    best = max(reached, key=lambda arm: reached[arm]["geomean"])
    series = [
        charts.Series.of(
            mine,
            f"{arm} ({mine[-1]['seeds']} seeds, {mine[-1]['tasks']} tasks)",
            *("attempt", "geomean", "low", "high"),
        )
        for (arm,), mine in arms.items()
    ]
    x = charts.Axis(label="attempts at each task")
    y = charts.Axis(label="geomean of best so far", scale="ratio")
    return (
        f"In search {rows[0]['search']}, arm {best} reaches {show_times(reached[best], 'geomean')} "
        f"after {reached[best]['attempt']} attempts at each task on {rows[0]['device']}.",
        charts.draw_lines("search", series, x, y),
    )


def tell_success(rows: list[Row]) -> Told:
    """Tell the share of correct kernels at the first and the last step."""
    known = [row for row in rows if row["share"] is not None]
    if not known:
        return f"{rows[-1]['attempts_so_far']} attempts have no verdict yet.", ""
    first, last = (_show_at_step(row, "share") for row in (known[0], known[-1]))
    return (
        f"Of the attempts, {first} and {last} are correct on {known[0]['device']}.",
        charts.draw_success("success", known),
    )


def tell_best_so_far(rows: list[Row]) -> Told:
    """Tell the best speedups that a run has reached."""
    last = ([row for row in rows if row["baseline"] == "eager"] or rows)[-1]
    return (
        f"At step {last['step']}, the best kernels of {last['tasks']} tasks reach "
        f"{show_times(last, 'geomean_at_least_1')} over {last['baseline']} on {last['device']}.",
        charts.draw_best("best", rows),
    )


def tell_metrics(rows: list[Row]) -> Told:
    """Tell the first and the last value of a metric."""
    first, last = (_show_at_step(row, "value") for row in (rows[0], rows[-1]))
    return f"{rows[0]['metric']} is {first} and {last}.", charts.draw_metric("metric", rows)


def tell_bests(rows: list[Row]) -> Told:
    """Tell the run's newest best kernel, and what it was made from."""
    first = rows[0]
    return (
        f"The newest of {first['total']} best kernels, {first['kernel_id'][:12]}, runs "
        f"{show_times(first)} over eager on {first['device']}, for task {first['task']}. It was "
        f"made from {first['made from']}.",
        "",
    )


def tell_costs(rows: list[Row]) -> Told:
    """Tell what the attempts of a run took, and how many improvements they gave."""
    first = rows[0]
    units = {"prompt_tokens": "prompt tokens", "completion_tokens": "answer tokens",
             "device_s": "s of judging", "cost_usd": "USD"}  # fmt: skip
    took = [f"{format_value(name, first[name])} {unit}" for name, unit in units.items()
            if first[name] is not None]  # fmt: skip
    return (
        f"{first['attempts']:,} attempts took {', '.join(took) or 'nothing that was counted'}, for "
        f"{first['improvements']:,} improvements over {first['baseline']} on {first['device']}.",
        "",
    )
