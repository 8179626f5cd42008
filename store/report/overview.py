"""Overview: contents of the lake, verdicts by reason, devices, tags and authors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.report.page.section import Exhibit, Section, ask, open_newest

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries."""
    with open_newest(lake) as newest:
        tags = ask(newest, "tags")
    return Section(
        name="overview",
        title="The lake",
        exhibits=[
            Exhibit(answer=ask(lake, "contents"), split=()),
            Exhibit(answer=ask(lake, "reasons"), split=("device",)),
            Exhibit(answer=ask(lake, "devices"), split=()),
            Exhibit(answer=tags, split=()),
            Exhibit(answer=ask(lake, "commits"), split=()),
        ],
    )
