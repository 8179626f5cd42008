"""Kernel: how fast it is, its code, changes, raw samples, analyses, lineage and datasets."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import escape

from store.dossier import pages
from store.explore.page import charts
from store.explore.page.answers import make_interval, show_times
from store.explore.page.model import (
    Choice,
    Fact,
    Page,
    Panel,
    Row,
    Told,
    View,
    group_rows,
    list_choices,
)
from store.explore.page.tables import format_value
from store.explore.page.texts import TIMES, show_code, show_diff

PATH = "/kernel/{kernel}"
_TABS = {
    "verdict": "Verdict and code",
    "changes": "Changes",
    "timings": "Timings",
    "lineage": "Lineage",
}
_WHOLE_ID = re.compile("[0-9a-f]{64}")
_REFERENCE, _PARENT = "reference", "parent"


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    kernel_id = view.parts["kernel"]
    if not _WHOLE_ID.fullmatch(kernel_id):
        kernel_id = await find_kernel(view, kernel_id)
    tab = view.choose_tab(*_TABS)
    names = ["kernel/head", *(["kernel/parent"] if tab == "changes" else [])]
    kernel, *parents = await asyncio.gather(*(view.one(name, kernel=kernel_id) for name in names))
    if kernel is None:
        await find_kernel(view, kernel_id)
    assert kernel is not None
    values: dict[str, Any] = {"kernel": kernel_id}
    choices: Sequence[Choice] = ()
    if tab == "changes":
        # The diff against the parent, the reference, or the kernel in the address.
        parent = parents[0]
        usual = _REFERENCE if parent is None else _PARENT
        label = "Changes against (parent, reference or the id of a kernel)"
        choices = [Choice(name="against", label=label, placeholder=usual)]
        against = view.get("against", usual) or usual
        other: str | None = None
        if against == _PARENT and parent is not None:
            other = parent["kernel_id"]
        elif against not in (_PARENT, _REFERENCE):
            other = await find_kernel(view, against)
        reference = kernel["task_id"] or "" if other is None else None
        values |= {"other": other, "reference": reference}
        title = f"Changes against {f'kernel {other[:12]}' if other else 'the reference'}"
        panels = [
            *([Panel(name="change")] if other else []),
            Panel(
                name="diff",
                title=title,
                template="diff",
                prepare=show_diff,
                is_required=True,
                rows=1,
            ),
        ]
    elif tab == "timings":
        choices = await list_choices(view, "device", "clock", "precision")
        values |= {one.name: view.choose(one) for one in choices}
        panels = [
            Panel(name="sessions", tell=tell_sessions, rows=60, is_required=True, table="folded",
                  hidden=("samples_ms", "blocks", "session_id")),
            Panel(name="roofline"),
            Panel(name="speedups", table="folded", rows=200),
            Panel(name="analyses", template="analyses", rows=3),
        ]  # fmt: skip
    elif tab == "lineage":

        def tell_lineage(edges: list[Row]) -> Told:
            ends = [
                {row[end] for row in edges if row[f"{end}_distance"] == distance}
                for end, distance in (("parent", 1), ("child", -1))
            ]
            return (
                f"Parents: {len(ends[0])}; children: {len(ends[1])}.",
                draw_lineage(kernel_id, edges, lambda id: view.link(f"/kernel/{id}")),
            )

        names = ("parents", "children", "origins", "prompts", "datasets")
        panels = [
            Panel(name="graph", tell=tell_lineage, rows=60, table="none"),
            *(Panel(name=name, rows=25) for name in names),
        ]
    else:
        marks = await view.rows("kernel/marks", kernel=kernel_id)
        panels = [
            Panel(name="answer", tell=tell_speedups, table="folded", is_required=True),
            Panel(name="withheld"),
            Panel(name="findings", template="findings"),
            Panel(
                name="code",
                template="code",
                rows=10,
                prepare=functools.partial(show_code, marks=marks),
            ),
            Panel(name="shapes", tell=_tell_shapes),
            Panel(name="claims", table="folded"),
            Panel(name="verdicts", table="folded"),
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
        ],
        links=[
            (f"/compare/kernels?a={kernel_id}", "Compare with another kernel"),
            (f"/kernel/{kernel_id}/receipt.json", "Receipt of its numbers"),
        ],
        tabs=_TABS,
        choices=choices,
        values=values,
        panels=panels,
    )  # fmt: skip


async def find_kernel(view: View, text: str) -> str:
    """Return the one kernel id that begins with a text; raises UnknownName."""
    hint = "Search for it at the top."
    return await view.read(lambda lake: pages.find_kernel(lake, text, hint=hint))


def tell_speedups(rows: list[Row]) -> Told:
    """Tell how much faster than eager a kernel is, whether it is correct, and where it ranks."""
    first = rows[0]
    task = f" for {first['task']}" if first["task"] else ""
    status = first["status"] + (f" ({first['reason']})" if first["reason"] else "")
    timed = [row for row in rows if row["speedup"] is not None]
    if not timed:
        return f"{status} on {first['device']}{task}, without a timing session that ranks.", ""
    place = "not ranked (Timings says why)"
    if first["rank"] is not None:
        place = f"rank {first['rank']} of {first['ranked']}"
    shapes = f" At other shapes, it is correct at {first['shapes']}." if first["shapes"] else ""
    intervals: list[charts.Interval] = []
    for (device,), mine in group_rows(timed, ["device"]).items():
        intervals.append(charts.Interval(label=device))
        intervals += [make_interval(f"over {row['baseline']}", row) for row in mine]
    axis = charts.Axis(label="speedup, 95 % interval", scale="ratio")
    return (
        f"{show_times(first)} over {first['baseline']} on {first['device']}, {status}, "
        f"{place}{task}.{shapes}",
        charts.draw_intervals("speedups", intervals, axis),
    )


def _tell_shapes(rows: list[Row]) -> Told:
    held = sum(row["outcome"] == "held" for row in rows)
    return f"It is correct at {held} of {len(rows)} other shapes.", ""


_MOST_SAMPLES = 60


def tell_sessions(rows: list[Row]) -> Told:
    """Tell the median times of the newest sessions of one device, and draw all their samples."""
    [(device, precision), shown], *_ = group_rows(rows, ["device", "precision"]).items()
    arms: list[charts.Interval] = []
    told: list[str] = []
    unranked: list[str] = []
    # A GPU's own work first: that clock ranks where it was measured.
    for (clock,), mine in sorted(group_rows(shown, ["clock"]).items(), key=lambda one: one[0]):
        newest = [row for row in mine if row["session_id"] == mine[0]["session_id"]]
        newest.sort(key=lambda row: (row["arm"] != "kernel", row["arm"] != "eager", row["arm"]))
        reason = newest[0]["ranks_nothing"]
        disturbed = ", disturbed" if any(row["disturbed"] for row in newest) else ""
        note = ", ranks nothing" if reason else disturbed
        arms.append(charts.Interval(label=f"clock {clock}{note}"))
        arms += [
            charts.Interval(
                label=row["arm"], middle=row["median_ms"],
                samples=[float(ms) for ms in row["samples_ms"][:_MOST_SAMPLES]],
                text=f"{format_value('ms', row['median_ms'])} ms",
                tone="c1" if row["arm"] == "kernel" else "plain",
            )
            for row in newest
        ]  # fmt: skip
        if not told:
            told = [
                f"{format_value('ms', row['median_ms'])} ms ({row['arm']})" for row in newest[:2]
            ]
            told[-1] += f" by the clock {clock}"
        if reason:
            unranked.append(f" By the clock {clock} it ranks nothing: {reason}.")
    axis = charts.Axis(label="ms per call: samples and their median", scale="log")
    return (
        f"A call takes {' against '.join(told)} on {device}"
        f"{f', precision {precision}' if precision else ''}."
        f"{''.join(unranked)}",
        charts.draw_intervals("sessions", arms, axis),
    )


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
