"""Overview: what the lake holds, who wrote it, where it was judged, and with what result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.report import _charts
from store.report._section import Exhibit, Section, ask, charts

if TYPE_CHECKING:
    from store.reader import Lake


def section(lake: Lake) -> Section:
    """Ask and draw."""
    return Section(
        name="overview",
        title="Overview",
        exhibits=[
            Exhibit(answer=ask(lake, "contents"), split=()),
            Exhibit(answer=ask(lake, "devices"), split=()),
            charts(ask(lake, "verdicts"), (), _verdicts, split=("device",)),
            Exhibit(answer=ask(lake, "tags"), split=()),
            Exhibit(answer=ask(lake, "commits"), split=()),
        ],
    )


def _verdicts(name: str, rows: list[dict[str, Any]]) -> str:
    devices: dict[str, _charts.Bar] = {}
    for row in rows:
        bar = devices.setdefault(row["device"], _charts.Bar(label=row["device"]))
        bar.parts[row["status"]] = bar.parts.get(row["status"], 0) + row["verdicts"]
    return _charts.bars(name, list(devices.values())[:16], _charts.Axis(label="verdicts"))
