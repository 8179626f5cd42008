"""Leaderboards: the columns of CUDA-L1's tables by suite, level, device, baseline and policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.report.page.section import Exhibit, Section, ask

if TYPE_CHECKING:
    from store.lake.reader import Lake


def build_section(lake: Lake) -> Section:
    """Run the queries."""
    return Section(
        name="leaderboards",
        title="Leaderboards",
        exhibits=[
            Exhibit(answer=ask(lake, "leaderboard"), split=("suite", "device")),
            Exhibit(answer=ask(lake, "levels"), split=("suite", "device", "level")),
            Exhibit(answer=ask(lake, "stages"), split=("suite", "device")),
        ],
    )
