"""Overview: contents of the lake, verdicts by reason, devices, tags and authors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.report.page.section import Exhibit, Section, ask

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries."""
    return Section(
        name="overview",
        title="The lake",
        exhibits=[
            Exhibit(answer=ask(lake, "contents"), split=()),
            Exhibit(answer=ask(lake, "reasons"), split=("device",)),
            Exhibit(answer=ask(lake, "devices"), split=()),
            Exhibit(answer=ask(lake, "tags"), split=()),
            Exhibit(answer=ask(lake, "commits"), split=()),
        ],
    )
