"""Tables of pages: headings of columns, and cells with their text, alignment, interval and link."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

from store.commandline.escape import escape_text
from store.rendering.text import NOTHING, SPACE, TIMES

Kind: TypeAlias = Literal["text", "number", "id", "quote"]

_SHARES = ("share", "within")
_RATIOS = ("mean", "max", "min", "p5", "p25", "p50", "p75", "p95", "geomean", "speedup", "claimed",
           "measured", "hardest_speedup", "lift", "ratio")  # fmt: skip
# Headings of columns whose SQL name would not do.
_HEADINGS = {
    "p50": "median",
    "faster": f">{SPACE}1.01{TIMES}",
    "share_faster": f"share >{SPACE}1.01{TIMES}",
    "mean_missing_as_1": "mean, missing = 1",
    "geomean_missing_as_1": "geomean, missing = 1",
    "geomean_at_least_1": "geomean, each at least 1",
    "mean_with_degenerate": "mean with weak tasks",
    "mean_with_code": "mean with code",
    "hardest": "hardest baseline",
    "hardest_speedup": "speedup over it",
    "kernel_ms": "kernel ms",
    "baseline_ms": "baseline ms",
    "share_mean_confidence": "mean confidence",
    "clock_mhz": "clock MHz",
    "temperature_c": "temperature °C",
    "p50_ratio": "median ratio",
    "geomean_ratio": "geomean ratio",
    "given": "given that it uses",
    "n_both": "n both",
    "n_technique_only": "n first alone",
    "n_given_only": "n second alone",
    "n_neither": "n neither",
    "lift_without": "lift without",
    "kernel_id": "kernel",
    "decided_by": "decided by",
    "reward_mean": "mean reward",
    "device_s": "device s",
    "cost_usd": "cost USD",
    "tokens_per_improvement": "tokens per improvement",
    "device_s_per_improvement": "device s per improvement",
    "cost_usd_per_improvement": "USD per improvement",
    "previous_low": f"bound before{SPACE}{TIMES}",
}
_TEXT_CHARACTERS = 140
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One formatted value."""

    text: str
    """One escaped line."""
    kind: Kind
    key: str | None = None
    """First characters of a kernel id; the page may have a listing of this kernel."""


def list_columns(rows: Sequence[dict[str, Any]], hidden: Sequence[str]) -> list[str]:
    """Return the columns to show: all but `total` and the ends of intervals."""
    names = list(rows[0])
    ends = {f"{name}_{end}" for name in names for end in ("low", "high")}
    return [name for name in names if name not in ends and name not in {*hidden, "total"}]


def heading(name: str) -> str:
    """Return the heading of a column, with its unit.

    >>> heading("p50") == f"median{SPACE}{TIMES}", heading("kernel_ms")
    (True, 'kernel ms')
    """
    said = _HEADINGS.get(name, name.removesuffix("_id").replace("_", " "))
    return f"{said}{SPACE}{TIMES}" if _is_ratio(name) and TIMES not in said else said


def make_cell(row: dict[str, Any], name: str) -> Cell:
    """Return a value of a row, with its interval if the row has one.

    >>> make_cell({"p50": 1.5, "p50_low": 1.25, "p50_high": 2.0}, "p50").text
    '1.50 [1.25, 2.00]'
    """
    value = row[name]
    text = format_value(name, value)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    # One value is no interval.
    if value is not None and low is not None and high is not None and low < high:
        text = f"{text} [{format_value(name, low)}, {format_value(name, high)}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text=text, kind="number")
    if isinstance(value, str) and _HASH.fullmatch(value):
        return Cell(text=text, kind="id", key=text)
    return Cell(text=text, kind="quote" if name == "quote" and value else "text")


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
    if _HASH.fullmatch(text):
        return text[:12]
    one = " ".join(escape_text(text[: _TEXT_CHARACTERS * 4]).split())
    return one if len(one) <= _TEXT_CHARACTERS else one[: _TEXT_CHARACTERS - 1] + "…"


def _is_ratio(name: str) -> bool:
    if name.endswith(("_at", "_ms")):
        return False
    return any(name == ratio or name.startswith(f"{ratio}_") for ratio in _RATIOS)


_LONG = 46
_TONES = {
    "correct": "good", "confirmed": "bad", "incorrect": "bad", "rejected": "bad", "crash": "bad",
    "timeout": "bad", "compile_error": "bad", "evaluator_error": "open", "open": "open",
    "holds": "good", "falls": "bad", "withheld": "bad", "leak": "bad",
}  # fmt: skip
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

    @property
    def line(self) -> str:
        """The text with its interval."""
        return f"{self.text} {self.interval}" if self.interval else self.text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headings and rows of cells."""

    headings: Sequence[Heading]
    rows: Sequence[Sequence[ShownCell]]


def make_table(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    find_link: Callable[[dict[str, Any], str], str | None],
    make_heading: Callable[[str, bool], Heading] | None = None,
) -> Table:
    """Return the table of some columns of rows.

    Args:
        rows: The rows.
        names: The columns to show, in their order.
        find_link: Returns the address of what a cell names, or None.
        make_heading: Returns the heading of a column, told whether the column has numbers.
    """
    make = make_heading or _make_heading
    cells = [[_show_cell(row, name, find_link(row, name)) for name in names] for row in rows]
    numbers = [any(row[at].style == "number" for row in cells) for at in range(len(names))]
    headings = [make(name, is_number) for name, is_number in zip(names, numbers, strict=True)]
    return Table(headings=headings, rows=cells)


def _make_heading(name: str, is_number: bool) -> Heading:
    return Heading(text=heading(name), is_number=is_number)


def _show_cell(row: dict[str, Any], name: str, link: str | None) -> ShownCell:
    value = row[name]
    if isinstance(value, list):
        text = ", ".join(format_value(name, one) for one in value)
        shown = format_value(name, text)
        return ShownCell(text=shown, style="long" if len(shown) > _LONG else "text")
    cell = make_cell(row, name)
    text, interval, style = cell.text, None, str(cell.kind)
    if cell.kind == "number":
        text, has_interval, ends = cell.text.partition(" [")
        interval = f"[{ends}" if has_interval else None
    if name in _TONED and str(value) in _TONES:
        style = f"tone-{_TONES[str(value)]}"
    elif cell.kind == "text" and len(text) > _LONG:
        style = "long"
    return ShownCell(text=text, style=style, link=link, interval=interval)
