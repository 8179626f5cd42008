"""The sections of a report, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.rendering.columns import format_value
from store.report import (
    best,
    claims,
    distribution,
    findings,
    leaderboards,
    overview,
    search,
    summary,
    techniques,
    training,
    transfer,
)
from store.report.page import render
from store.report.page.section import Exhibit, Section, ask

if TYPE_CHECKING:
    from store.lake.reader import Lake

_SECTIONS = (
    summary,
    leaderboards,
    distribution,
    claims,
    techniques,
    transfer,
    best,
    findings,
    training,
    search,
    overview,
)


def build_page(lake: Lake, run: str | None = None) -> render.Page:
    """Build the report of a lake, or of one of its runs. Raises UnknownName for an unknown run."""
    if run is None:
        return render.build_page(
            lake, "Kernel report", [member.build_section(lake) for member in _SECTIONS]
        )
    run_id = training.find_run(lake, run)
    about = ask(lake, "run", run=run_id)
    code = best.list_code(ask(lake, "run_code", run=run_id, kernels=best.KERNELS))
    sections = [
        Section(name="curves", title="Curves", exhibits=training.build_exhibits(lake, run_id)),
        Section(name="best", title="Best kernels", exhibits=[code]),
        Section(name="run", title="Run", exhibits=[Exhibit(answer=about, split=())]),
    ]
    return render.build_page(lake, f"Run {format_value('run_id', run_id)}", sections)
