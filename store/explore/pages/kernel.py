"""Kernel: verdicts, code, changes, raw samples, analyses, lineage, datasets and prompts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import escape

from store.dossier.pages import KERNELS, choose_id
from store.explore.page import charts
from store.explore.page.model import (
    Chart,
    Choice,
    Fact,
    Page,
    Panel,
    Row,
    Tab,
    View,
    group_rows,
    list_choices,
)
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, show_code, show_diff

PATH = "/kernel/{kernel}"
_TABS = (
    Tab(name="verdict", label="Verdict"),
    Tab(name="code", label="Code"),
    Tab(name="changes", label="Changes"),
    Tab(name="timings", label="Timings"),
    Tab(name="lineage", label="Lineage"),
)
_WHOLE_ID = re.compile("[0-9a-f]{64}")
_REFERENCE, _PARENT = "reference", "parent"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    text = view.parts["kernel"]
    kernel = await view.one("kernel/head", kernel=text) if _WHOLE_ID.fullmatch(text) else None
    if kernel is None:
        kernel = await view.one("kernel/head", kernel=await find_kernel(view, text))
    assert kernel is not None
    kernel_id = str(kernel["kernel_id"])
    values: dict[str, Any] = {"kernel": kernel_id}
    findings = Panel(name="findings", values=values, template="findings", table="none")
    choices: Sequence[Choice] = ()
    tab = view.choose_tab(*(one.name for one in _TABS))
    if tab == "code":
        marks = await view.rows("kernel/marks", kernel=kernel_id)
        panels = [
            Panel(name="code", values=values, template="code", table="none",
                  prepare=functools.partial(show_code, marks=marks), rows=10),
            findings,
        ]  # fmt: skip
    elif tab == "changes":
        choices, panels = await _build_changes(view, kernel)
    elif tab == "timings":
        choices = await list_choices(view, "device", "clock", "precision")
        timed = values | {one.name: view.choose(one) for one in choices}
        panels = [
            Panel(name="sessions", values=timed, draw=draw_sessions, rows=60, is_required=True,
                  hidden=("samples_ms", "blocks", "session_id")),
            Panel(name="roofline", values=timed),
            Panel(name="speedups", values=timed),
        ]  # fmt: skip
    elif tab == "lineage":

        def draw(edges: list[Row]) -> Sequence[Chart]:
            graph = draw_lineage(kernel_id, edges, lambda id: view.link(f"/kernel/{id}"))
            return [Chart(svg=graph)]

        names = ("parents", "children", "origins", "prompts", "datasets")
        panels = [
            Panel(name="graph", values=values, draw=draw, rows=60, table="none"),
            *(Panel(name=name, values=values, rows=25) for name in names),
        ]
    else:
        timed_by = {"device": None, "clock": None, "precision": None}
        panels = [
            Panel(name="verdicts", values=values, is_required=True),
            Panel(name="speedups", values=values | timed_by),
            Panel(name="shapes", values=values),
            findings,
            Panel(name="claims", values=values),
            Panel(name="analyses", values=values, template="analyses", table="none", rows=10),
        ]
    return Page(
        kind="Kernel",
        title=kernel_id[:12],
        intro=kernel["title"] or "",
        facts=[
            Fact(name="Task", text=kernel["task"] or "none",
                 link=f"/task/{kernel['task_id']}" if kernel["task_id"] else None),
            Fact(name="Author", text=kernel["policy"] or "unknown"),
            Fact(name="Language", text=kernel["language"] or "not extracted"),
            Fact(name="Techniques", text=", ".join(kernel["techniques"] or [])),
            Fact(name="Size", text=f"{kernel['code_lines'] or 0:,} lines"),
            Fact(name="License", text=kernel["license"] or "none stated"),
            Fact(name="Withheld", text=kernel["withheld"], tone="bad"),
        ],
        links=[(f"/compare/kernels?a={kernel_id}", "Compare with another kernel")],
        tabs=_TABS,
        choices=choices,
        panels=panels,
    )  # fmt: skip


async def find_kernel(view: View, text: str) -> str:
    """Return the one kernel id that begins with a text; raises UnknownName."""
    found = await view.rows(KERNELS, start=text.lower())
    return choose_id(
        "kernel", text, [row["kernel_id"] for row in found], "Search for it at the top."
    )


async def _build_changes(view: View, kernel: Row) -> tuple[Sequence[Choice], list[Panel]]:
    """Return the diff against the parent, the reference, or the kernel in the address."""
    kernel_id = kernel["kernel_id"]
    parent = await view.one("kernel/parent", kernel=kernel_id)
    usual = _REFERENCE if parent is None else _PARENT
    choice = Choice(
        name="against", label="Changes against (parent, reference or the id of a kernel)",
        placeholder=usual,
    )  # fmt: skip
    against = view.get("against", usual) or usual
    other: str | None = None
    if against == _PARENT and parent is not None:
        other = parent["kernel_id"]
    elif against not in (_PARENT, _REFERENCE):
        other = await find_kernel(view, against)
    values: dict[str, Any] = {"kernel": kernel_id, "other": other, "reference": None}
    if other is None:
        values["reference"] = kernel["task_id"] or ""
    name = f"kernel {other[:12]}" if other else "the reference"
    change = [Panel(name="change", values=values)] if other else []
    show = Panel(name="diff", values=values, title=f"Changes against {name}", template="diff",
                 table="none", prepare=show_diff, is_required=True, rows=1)  # fmt: skip
    return [choice], [*change, show]


_MOST_CHARTS = 6
_MOST_SAMPLES = 60


def draw_sessions(rows: list[Row]) -> Sequence[Chart]:
    """Return one chart for each session and clock, newest first."""
    drawn: list[Chart] = []
    x, y = charts.Axis(label="block"), charts.Axis(label="ms per call", scale="log")
    for arms in list(group_rows(rows, ["session_id", "clock"]).values())[:_MOST_CHARTS]:
        first = arms[0]
        series = [
            charts.Series(
                label=arm["arm"],
                x=[float(block) for block in arm["blocks"][:_MOST_SAMPLES]],
                y=[float(ms) for ms in arm["samples_ms"][:_MOST_SAMPLES]],
            )
            for arm in arms
        ]
        axes = f" {first['axes']}" if first["axes"] else ""
        disturbed = ", disturbed" if any(arm["disturbed"] for arm in arms) else ""
        reason = first["ranks_nothing"]
        note = f"{axes}; ranks nothing: {reason}" if reason else f"{axes}{disturbed}"
        title = f"{first['device']}, clock {first['clock'] or 'unknown'}, workload "
        svg = charts.draw_scatter("session", series, x, y)
        drawn.append(Chart(svg=svg, title=f"{title}{first['workload']}{note}"))
    return drawn


_MOST_IN_COLUMN = 9
_ROW, _TOP, _BOX = 36, 22, 26
_NAMES = {
    -1: "led to", 0: "this kernel", 1: "made from", 2: "two steps back", 3: "three steps back",
}  # fmt: skip


def draw_lineage(kernel_id: str, edges: Sequence[Row], link: Callable[[str], str]) -> str:
    """Return the graph of a kernel as SVG.

    Args:
        kernel_id: The kernel in the center.
        edges: child, parent, their distances (0 is the kernel, -1 its children) and speedups.
        link: Returns the address of a kernel.
    """
    columns: dict[int, dict[str, float | None]] = {0: {kernel_id: None}}
    for edge in edges:
        for end in ("parent", "child"):
            column = columns.setdefault(edge[f"{end}_distance"], {})
            if edge[end] in column or len(column) < _MOST_IN_COLUMN:
                column[edge[end]] = edge[f"{end}_speedup"]
    order = sorted(columns, reverse=True)
    left = {distance: 100 * place / len(order) for place, distance in enumerate(order)}
    width = 100 / len(order)
    rows = max(map(len, columns.values()))
    top = {
        (distance, one): _TOP + _ROW * (place + (rows - len(columns[distance])) / 2)
        for distance in order
        for place, one in enumerate(columns[distance])
    }
    parts: list[str] = []
    for edge in edges:
        start, end = ((edge[f"{side}_distance"], edge[side]) for side in ("parent", "child"))
        if start in top and end in top:
            y1, y2 = (top[place] + _BOX / 2 for place in (start, end))
            parts.append(
                f'<line class="edge" x1="{left[start[0]] + width * 0.78:.2f}%" '
                f'x2="{left[end[0]]:.2f}%" y1="{y1:.0f}" y2="{y2:.0f}"/>'
            )
    for distance in order:
        name = _NAMES[distance]
        parts.append(f'<text class="label" x="{left[distance]:.2f}%" y="12">{name}</text>')
        for one, speedup in columns[distance].items():
            times = "" if speedup is None else f" {format_value('speedup', speedup)}{TIMES}"
            text = f"{one[:6]}{times}"
            place = f'x="{left[distance]:.2f}%" y="{top[distance, one]:.0f}"'
            mine = ' class="own"' if one == kernel_id else ""
            parts.append(
                f'<a href="{escape(link(one))}" aria-label="{text}"{mine}>'
                f'<rect class="node" {place} width="{width * 0.78:.2f}%" height="{_BOX}" rx="4"/>'
                f'<svg {place} overflow="visible"><text x="7" y="17">{text}</text></svg></a>'
            )
    height = _TOP + _ROW * rows + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart graph" height="{height}" '
        f'role="group" aria-label="Lineage of the kernel">{"".join(parts)}</svg>'
    )
