"""Tables of pages: headings, which may sort, and cells with their text and link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from store.commandline.escape import escape_terminal
from store.explore.page.texts import NOTHING, SPACE, TIMES, make_label

if TYPE_CHECKING:
    from store.explore.page.model import Panel, Row, View

_SHARES = ("share", "within")
_RATIOS = ("mean", "max", "min", "p5", "p25", "p50", "p75", "p95", "geomean", "speedup", "claimed",
           "measured", "ratio")  # fmt: skip
# Headings of columns whose SQL name would not do.
_HEADINGS = {
    "p50": "median",
    "policy": "author",
    "policies": "authors",
    "weak": "trivial",
    "standing": "decision",
    "faster": f">{SPACE}1.01{TIMES}",
    "mean_missing_as_1": "mean, missing = 1",
    "geomean_missing_as_1": "geomean, missing = 1",
    "geomean_at_least_1": "geomean, each at least 1",
    "share_mean_confidence": "mean confidence",
    "share_confidence": "confidence",
    "clock_mhz": "clock MHz",
    "temperature_c": "temperature °C",
    "reward_mean": "mean reward",
    "cost_usd": "cost USD",
    "cost_usd_per_improvement": "USD per improvement",
    "moved_mb": "moved MB",
    "gb_per_s": "GB/s",
    "peak_gb_per_s": "peak GB/s",
    "gflop": "GFLOP",
    "gflop_per_s": "GFLOP/s",
    "peak_gflop_per_s": "peak GFLOP/s",
    "previous_low": f"bound before{SPACE}{TIMES}",
}
_TEXT_CHARACTERS = 140
_ENDS = ("low", "high")
_HASH = re.compile("[0-9a-f]{64}")


def heading(name: str) -> str:
    """Return the heading of a column, with its unit.

    >>> heading("p50") == f"median{SPACE}{TIMES}", heading("kernel_ms")
    (True, 'kernel ms')
    """
    said = _HEADINGS.get(name, name.removesuffix("_id").replace("_", " "))
    is_ratio = not name.endswith(("_at", "_ms", "_s", "_confidence")) and any(
        name == ratio or name.startswith(f"{ratio}_") for ratio in _RATIOS
    )
    return f"{said}{SPACE}{TIMES}" if is_ratio and TIMES not in said else said


def format_value(name: str, value: object) -> str:
    """Return a value as text: three significant digits, shares in percent, short ids.

    >>> format_value("n", 12345), format_value("share", 0.414), format_value("mean", 368.2)
    ('12,345', '41 %', '368')
    >>> format_value("mean", None) == NOTHING
    True
    """
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if name.startswith(_SHARES):
            return f"{100 * value:.0f} %"
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, date):
        return value.isoformat()
    text = str(value)
    return text[:12] if _HASH.fullmatch(text) else make_label(text, _TEXT_CHARACTERS)


_LONG = 46
TONES = {
    "correct": "good", "holds": "good", "worked": "good",
    "incorrect": "bad", "falls": "bad", "failed": "bad", "leak": "bad",
    "rejected": "cheat", "confirmed": "cheat", "withheld": "cheat",
    "open": "open", "evaluator_error": "open", "not judged": "open",
    "timeout": "plain", "dismissed": "plain", "slower here": "plain", "no kernel": "plain",
    "compile_error": "c2", "crash": "c7", "exceeded": "c1", "faster here": "c6",
}  # fmt: skip
"""What each color of pages and charts means; other colors tell series apart."""
_TONED = ("status", "standing", "outcome", "verdict", "leak")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a column."""

    text: str
    is_number: bool
    link: str | None = None
    """Address of the table sorted by this column."""
    direction: str = "none"
    """ascending, descending or none."""


@dataclass(frozen=True, kw_only=True)
class ShownCell:
    """One cell of a table."""

    text: str
    style: str
    """Class of the style sheet."""
    link: str | None = None
    interval: str | None = None
    """The ends of the interval of a number."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headings and rows of cells."""

    headings: Sequence[Heading]
    rows: Sequence[Sequence[ShownCell]]
    keys: Sequence[str] = ()
    """Id of what each row is about, if a reader may choose two of them to compare."""


def make_cell(row: dict[str, Any], name: str, link: str | None = None) -> ShownCell:
    """Return a value of a row, with its interval if the row has one.

    >>> make_cell({"p50": 1.5, "p50_low": 1.25, "p50_high": 2.0}, "p50").interval
    '[1.25, 2.00]'
    """
    value = row[name]
    if isinstance(value, list):
        listed = ", ".join(format_value(name, one) for one in cast("list[object]", value))
        text = format_value(name, listed)
        return ShownCell(text=text, style="long" if len(text) > _LONG else "text")
    text, interval, style = format_value(name, value), None, "text"
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    # One value is no interval.
    if value is not None and low is not None and high is not None and low < high:
        interval = f"[{format_value(name, low)}, {format_value(name, high)}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        style = "number"
    elif isinstance(value, str) and _HASH.fullmatch(value):
        style = "id"
    elif name == "quote" and value:
        style = "quote"
    elif len(text) > _LONG:
        style = "long"
    if name in _TONED and str(value) in TONES:
        style = f"tone-{TONES[str(value)]}"
    return ShownCell(text=text, style=style, link=link, interval=interval)


_PAGES = {
    "kernel_id": "/kernel/",
    "task_id": "/task/",
    "run_id": "/run/",
    "generation_id": "/attempt/",
    "prompt_id": "/prompt/",
    "dataset_id": "/dataset/",
    "agent_session_id": "/session/",
    "trajectory_id": "/trajectory?id=",
    "snapshot_id": "/?at=",
}
# A column that names what another column identifies.
_NAMES = {
    "kernel": "kernel_id",
    "task": "task_id",
    "run": "run_id",
    "attempt": "generation_id",
    "prompt": "prompt_id",
    "dataset": "dataset_id",
    "snapshot": "snapshot_id",
    "session": "agent_session_id",
}


def find_link(row: Row, column: str) -> str | None:
    """Return the address of what a cell names, without a query, or None.

    >>> find_link({"task": "level1/9", "task_id": "ab"}, "task")
    '/task/ab'
    """
    column = _NAMES.get(column, column)
    value = row.get(column)
    if value is None:
        return None
    if column == "row_index" and row.get("dataset_id"):
        return f"{_PAGES['dataset_id']}{row['dataset_id']}?row={value}"
    kind = "kernel_id" if column.endswith("_kernel_id") else column
    return f"{_PAGES[kind]}{quote(str(value), safe='')}" if kind in _PAGES else None


FIGURES = ("ratio", "share", "time", "count", "figure")
"""Roles of columns that a chart may draw, best first."""
_NUMBERS = ("level", "problem", "revision", "version", "seed", "place", "rank", "index", "number",
            "line", "threads", "page")  # fmt: skip
_ORDERS = ("step", "attempt", "snapshot", "turn", "block", "minute", "p")
_COUNTS = ("n", "count", "rows", "tasks", "kernels", "attempts", "samples", "sessions", "tokens",
           "evaluations", "findings", "correct", "faster", "calls")  # fmt: skip
_TIMES = ("_ms", "_s", "_us", "seconds", "hours")


def find_role(name: str, values: Sequence[object]) -> str:
    """Return what a column is to a chart: one of FIGURES, or id, label, date, order, number, other.

    >>> [find_role(name, [1, 2]) for name in ("level", "step", "n", "p50", "kernel_ms", "task_id")]
    ['number', 'order', 'count', 'ratio', 'time', 'id']
    """
    known = [value for value in values if value is not None]
    words = name.lower().split("_")
    if words[-1] == "id" or all(isinstance(one, str) and _HASH.fullmatch(one) for one in known):
        return "id"
    if all(isinstance(one, str) for one in known):
        return "label"
    if all(isinstance(one, datetime | date) for one in known):
        return "date"
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in known):
        return "other"
    whole = all(isinstance(one, int) for one in known)
    if whole and any(word in _NUMBERS for word in words):
        return "number"
    if words[-1] in _ORDERS or (whole and words[0] == "snapshot"):
        return "order"
    if words[-1] in _ENDS:
        return "other"
    if TIMES in heading(name):
        return "ratio"
    if name.startswith(_SHARES) or words[-1] == "share":
        return "share"
    if name.endswith(_TIMES):
        return "time"
    return "count" if words[0] in _COUNTS or words[-1] in _COUNTS or "count" in name else "figure"


def build_address(path: str, state: Mapping[str, str | None]) -> str:
    """Return an address with the parts of a state that are set.

    >>> build_address("/task/ab?tab=code", {"at": "v1", "sort": None})
    '/task/ab?tab=code&at=v1'
    """
    query = urlencode({name: value for name, value in state.items() if value})
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def build_table(view: View, panel: Panel, rows: Sequence[Row]) -> Table:
    """Return the table of a panel's rows, which its headings sort."""
    sort = view.get_sort(panel)
    # Ends of intervals are in the cells of their middles, ids are links of the names beside them.
    hidden = {*panel.hidden, "total", *(f"{name}_{end}" for name in rows[0] for end in _ENDS)}
    hidden |= {key for name, key in _NAMES.items() if name in rows[0]}
    # A column without any value says nothing, unless the reader has sorted by it.
    names = [
        name
        for name in rows[0]
        if name not in hidden
        if any(row[name] is not None for row in rows) or name in (sort or "")
    ]
    cells = _make_cells(view, rows, names)
    headings: list[Heading] = []
    for at, name in enumerate(names):
        is_number = any(row[at].style == "number" for row in cells)
        # The first click shows the largest numbers, or the first names.
        first, second = (f"-{name}", name) if is_number else (name, f"-{name}")
        changes = {
            f"sort.{panel.name}": second if sort == first else first,
            f"page.{panel.name}": None,
        }
        headings.append(
            Heading(
                text=heading(name),
                is_number=is_number,
                link=f"{view.change(**changes)}#{panel.name}",
                direction={name: "ascending", f"-{name}": "descending"}.get(sort or "", "none"),
            )
        )
    key = {"kernels": "kernel_id", "runs": "run_id"}.get(panel.compares or "", "")
    return Table(headings=headings, rows=cells, keys=[str(row.get(key) or "") for row in rows])


def build_result_table(view: View, rows: Sequence[Row]) -> Table:
    """Return the table of the rows of any statement: every column, in its order, not sortable."""
    names = list(rows[0])
    cells = _make_cells(view, rows, names)
    headings = [
        Heading(
            text=escape_terminal(name), is_number=any(row[at].style == "number" for row in cells)
        )
        for at, name in enumerate(names)
    ]
    return Table(headings=headings, rows=cells)


def _make_cells(view: View, rows: Sequence[Row], names: Sequence[str]) -> list[list[ShownCell]]:
    return [
        [
            make_cell(row, name, view.link(link) if (link := find_link(row, name)) else None)
            for name in names
        ]
        for row in rows
    ]
