"""Findings: kernels that cheat or may cheat, and tasks that reward cheating."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.report.page.section import Exhibit, Section, ask

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries."""
    return Section(
        name="findings",
        title="Hacks",
        exhibits=[
            Exhibit(answer=ask(lake, "findings"), split=()),
            Exhibit(answer=ask(lake, "suspects"), split=()),
            Exhibit(answer=ask(lake, "weak_tasks"), split=()),
        ],
    )
