"""Format a verdict for a terminal."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from evaluators.judging.flags import REASONS
from evaluators.judging.other_shapes import name_outcome
from evaluators.timing.intervals import classify_speedup
from evaluators.timing.surprising_wins import (
    compute_speedups,
    find_best_baseline,
    select_ranking_rows,
)
from store.commandline.escape import escape_lines, escape_terminal, quote_name

_COLORS = {
    "correct": "32",
    "evaluator_error": "33",
    "faster": "32",
    "same": "33",
    "slower": "31",
}
_FAILED = "31"
_MEANINGS = {"held": "correct", "raises": "same", "wrong": "incorrect"}
_SHAPE_NOTES = ("shape ", "shapes left out ", "other shapes: ")
_UNRANKED = {
    "custom_required": "it spends no device time outside library kernels (--kernels)",
    "contended": "other work ran on this host",
    "timed_outputs_unverified": "no timed call could be checked, because the task draws random "
    "numbers or keeps state, or answers have another layout in memory in every call",
}
_EXCUSED = "beyond the judge's own tolerance"
"""How the line of the log begins that a kernel with the flag accepted_by_task has."""
_LOG_LINES = 20
_WIDTH = 80


def format_lines(
    name: str,
    device: str,
    tables: dict[str, list[dict[str, Any]]],
    *,
    notes: Sequence[str] = (),
    spreads: Mapping[str, float] = MappingProxyType({}),
    color: bool = False,
    width: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a verdict: status, a table of speedups, flags, then the candidate's text.

    All text of the candidate is escaped, and each line of it has a prefix.

    Args:
        notes: What was judged, and by which rule of the task; printed below the status.
        spreads: Spread of sessions by clock (`timing.spreads`); by default that of a GPU without an
            estimate.
    """

    def paint(text: str, meaning: str) -> str:
        return f"\x1b[{_COLORS.get(meaning, _FAILED)}m{text}\x1b[0m" if color else text

    evaluation, *at_shapes = tables["evaluations"]
    status = paint(evaluation["status"], evaluation["status"])
    reason = f" ({evaluation['reason']})" if evaluation.get("reason") else ""
    yield f"{quote_name(name)} on {escape_terminal(device)}: {status}{reason}"
    if evaluation.get("reason") in REASONS:
        yield from _wrap(REASONS[evaluation["reason"]], width or _WIDTH)
    if evaluation.get("message"):
        yield from escape_lines(evaluation["message"], width=width)
    for note in notes:
        yield from _wrap(note, width or _WIDTH)
    sessions = _group_sessions(tables.get("timings", []), evaluation)
    for number, session in enumerate(sessions, start=1):
        if len(sessions) > 1:
            yield f"  process {number} of {len(sessions)}"
        spread = spreads.get(session[0]["clock"])
        yield from _format_session(session, spread, paint, width or _WIDTH)
    for row in tables.get("analyses", []):
        yield from escape_lines(row["body"], width=width)
    for row in at_shapes:
        [name] = (w["name"] for w in tables["workloads"] if w["workload_id"] == row["workload_id"])
        yield from _format_shape(name, row, tables["timings"], paint, width or _WIDTH)
    for line in (evaluation.get("log") or "").splitlines():
        if line.startswith(_SHAPE_NOTES):
            yield from escape_lines(line, width=width)
    if evaluation.get("equivalent") is False:
        yield "  not ranked: its flags show that it computes a different function than its task"
    for flag in evaluation.get("flags") or ():
        if flag in _UNRANKED:
            yield from _wrap(f"not ranked: {_UNRANKED[flag]}", width or _WIDTH)
    if "accepted_by_task" in (evaluation.get("flags") or ()):
        lines = (evaluation.get("log") or "").splitlines()
        yield from escape_lines(
            next((line for line in lines if line.startswith(_EXCUSED)), ""), width=width
        )
    if evaluation.get("flags"):
        yield from _wrap(f"flags: {', '.join(evaluation['flags'])}", width or _WIDTH)
    if evaluation["status"] != "correct" and evaluation.get("log"):
        yield from escape_lines(evaluation["log"], width=width)[-_LOG_LINES:]


def _group_sessions(
    timings: list[dict[str, Any]], evaluation: dict[str, Any]
) -> list[list[dict[str, Any]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in timings:
        if row["evaluation_id"] == evaluation["evaluation_id"]:
            sessions.setdefault(row["session_id"], []).append(row)
    return list(sessions.values())


def _format_shape(
    name: str,
    row: dict[str, Any],
    timings: list[dict[str, Any]],
    paint: Callable[[str, str], str],
    width: int,
) -> list[str]:
    outcome = name_outcome(row)
    text = f"shape {escape_terminal(name)}: {paint(outcome, _MEANINGS[outcome])}"
    if row["status"] != "correct":
        why = " ".join(filter(None, (row["reason"], row.get("message"))))
        text += f", {escape_terminal(why)}"
    for session in _group_sessions(timings, row):
        middle = compute_speedups(session)["eager"][1]
        text += f", {math.exp(middle):.2f} over eager"
    return _wrap(text, width)


def _format_session(
    session: list[dict[str, Any]],
    spread: float | None,
    paint: Callable[[str, str], str],
    width: int,
) -> Iterator[str]:
    ranking = select_ranking_rows(session)
    bounds = compute_speedups(session, spread)
    if not bounds:
        return
    kernel = ranking["kernel"]
    kernel_ms = statistics.median(kernel["samples_ms"])
    resolved = {name: bounds[name] for name in bounds if not ranking[name].get("unresolved")}
    intervals = {
        name: f"[{math.exp(low):.2f}, {math.exp(high):.2f}]" if name in resolved else "too short"
        for name, (low, _, high) in bounds.items()
    }
    wide = max(map(len, ("baseline", *bounds)))
    wider = max(map(len, intervals.values()))
    yield f"  {'':6} speedup  {'interval':{wider}}  {'baseline':{wide}}  {'ms':>9}  kernel ms"
    for name, (low, middle, high) in bounds.items():
        if name not in resolved:
            yield f"  {'':6} {'':7}  {intervals[name]:{wider}}  {name}"
            continue
        meaning = classify_speedup(low, high)
        baseline_ms = statistics.median(ranking[name]["samples_ms"])
        word = paint(meaning, meaning) + " " * (6 - len(meaning))
        times = f"{baseline_ms:9.4g}  {kernel_ms:9.4g}"
        yield f"  {word} {math.exp(middle):7.2f}  {intervals[name]:{wider}}  {name:{wide}}  {times}"
    notes = [f"clock {kernel['clock']}", f"n = {len(kernel['blocks'])}"]
    if kernel.get("disturbed", kernel["noisy"]):
        notes.append("disturbed, not for ranking")
    if len(resolved) < len(bounds):
        notes.append("too short: below what this clock resolves")
    elif kernel.get("unresolved"):
        notes.append("the kernel is below what this clock resolves, and at least this fast")
    if len(resolved) > 1:
        notes.append(f"best baseline: {find_best_baseline(resolved)}")
    yield from _wrap("; ".join(notes), width)
    for clock in dict.fromkeys(row["clock"] for row in session):
        if clock == kernel["clock"]:
            continue
        arms = {row["arm"]: row for row in session if row["clock"] == clock}
        kernel_ms = statistics.median(arms["kernel"]["samples_ms"])
        ratios = (
            f"{name} is too short for it"
            if arms[name].get("unresolved")
            else f"{statistics.median(arms[name]['samples_ms']) / kernel_ms:.2f} over {name}"
            for name in bounds
            if name in arms
        )
        yield from _wrap(f"clock {clock}: {', '.join(ratios)}", width)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 40), initial_indent="  ", subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
