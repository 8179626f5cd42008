"""Training: learning curves of a run, its best kernels over time with their lineage, and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.dossier.names import MOST_IDS, choose_id
from store.rendering import run_charts
from store.rendering.rows import group_rows
from store.report.page.section import Exhibit, Figure, Section, ask, draw_charts

if TYPE_CHECKING:
    from store.lake.reader import Lake

_DEVICES = 3


def build_section(lake: Lake) -> Section:
    """List the runs, and show the newest one that has attempts or metrics."""
    runs = ask(lake, "runs")
    told = [row for row in runs.rows if row["attempts"] or row["last step logged"] is not None]
    shown = build_exhibits(lake, told[0]["run_id"]) if told else []
    return Section(
        name="training", title="Training runs", exhibits=[Exhibit(answer=runs, split=()), *shown]
    )


def build_exhibits(lake: Lake, run: str) -> list[Exhibit]:
    """Return all exhibits of one run except its options and the code of its kernels."""
    return [
        draw_charts(ask(lake, "run_rewards", run=run), ("rule",), run_charts.draw_reward),
        _curves(lake, run),
        draw_charts(ask(lake, "run_metrics", run=run), ("metric",), run_charts.draw_metric),
        draw_charts(
            ask(lake, "run_best_so_far", run=run), ("device",), run_charts.draw_best, most=_DEVICES
        ),
        Exhibit(answer=ask(lake, "run_bests", run=run), split=()),
        Exhibit(answer=ask(lake, "run_costs", run=run), split=()),
    ]


def find_run(lake: Lake, wanted: str) -> str:
    """Return the id of the one run that begins with a prefix; raises UnknownName otherwise."""
    sql = f"SELECT run_id FROM runs WHERE starts_with(run_id, $1) ORDER BY ALL LIMIT {MOST_IDS}"
    ids = [row["run_id"] for row in lake.run(sql, [wanted]).rows()]
    hint = "store query \"SELECT run_id, kind, name FROM runs WHERE kind = 'training'\""
    return choose_id("run", wanted, ids, hint)


def _curves(lake: Lake, run: str) -> Exhibit:
    answer = ask(lake, "run_curve", run=run)
    devices = list(group_rows(answer.rows, ["device"]).items())
    figures = [
        Figure(name=f"{what}-{number}", title=f"{title}, {device}", svg=draw(f"{what}-{number}", r))
        for number, ((device,), rows) in enumerate(devices[:_DEVICES], start=1)
        for what, title, draw, key in (
            ("run_success", "Success", run_charts.draw_success, "share"),
            ("run_speedup", "Speedup over eager", run_charts.draw_speedup, "geomean"),
            ("run_kernels", "Kernels", run_charts.draw_kernels, "attempts"),
        )
        if (r := [row for row in rows if row[key] is not None])
    ]
    return Exhibit(answer=answer, figures=figures, left_out=len(devices[_DEVICES:]))
