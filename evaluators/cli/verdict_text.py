"""What a verdict looks like in a terminal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from evaluators.timing.intervals import classify_speedup
from evaluators.timing.surprising_wins import (
    compute_speedups,
    find_best_baseline,
    select_ranking_rows,
)
from store.commandline.escape import escape_lines, escape_terminal, quote_name

_COLOURS = {
    "correct": "32",
    "evaluator_error": "33",
    "faster": "32",
    "same": "33",
    "slower": "31",
}
_FAILED = "31"
_LOG_LINES = 20


def lines(
    name: str,
    device: str,
    tables: dict[str, list[dict[str, Any]]],
    *,
    colour: bool = False,
    width: int | None = None,
) -> Iterator[str]:
    """The verdict, a line per baseline with its interval, then what the candidate wrote.

    All text of the candidate is escaped, and each line of it stands behind a prefix.

    Args:
        name: Name of the candidate's file.
        device: Name of the device.
        tables: Rows of the case.
        colour: With the color sequences of a terminal.
        width: Columns of the terminal, where there is one.
    """

    def painted(text: str, meaning: str) -> str:
        return f"\x1b[{_COLOURS.get(meaning, _FAILED)}m{text}\x1b[0m" if colour else text

    [evaluation] = tables["evaluations"]
    status = painted(evaluation["status"], evaluation["status"])
    reason = f" ({evaluation['reason']})" if evaluation["reason"] else ""
    yield f"{quote_name(name)} on {escape_terminal(device)}: {status}{reason}"
    if evaluation["message"]:
        yield from escape_lines(evaluation["message"], width=width)
    sessions = _sessions(tables["timings"])
    for number, session in enumerate(sessions, start=1):
        if len(sessions) > 1:
            yield f"  process {number} of {len(sessions)}"
        for text, meaning in _speedup_lines(session):
            yield f"  {painted(meaning, meaning)}{' ' * (6 - len(meaning))} {text}"
    for row in tables.get("analyses", []):
        yield from escape_lines(row["body"], width=width)
    if evaluation.get("equivalent") is False:
        yield "  not ranked: another function than the task's module, by its flags"
    if evaluation["flags"]:
        yield f"  flags: {', '.join(evaluation['flags'])}"
    if evaluation["status"] != "correct" and evaluation["log"]:
        yield from escape_lines(evaluation["log"], width=width)[-_LOG_LINES:]


def _sessions(timings: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in timings:
        found.setdefault(row["session_id"], []).append(row)
    return list(found.values())


def _speedup_lines(session: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Text and meaning of each baseline's line; the baseline hardest to beat is marked."""
    ranking = select_ranking_rows(session)
    found = compute_speedups(session)
    kernel = ranking["kernel"]
    for baseline, (low, middle, high) in found.items():
        baseline_ms = statistics.median(ranking[baseline]["samples_ms"])
        kernel_ms = statistics.median(kernel["samples_ms"])
        times = f"{kernel['clock']} {baseline_ms:.4g} ms → {kernel_ms:.4g} ms"
        notes = [times, f"n = {len(kernel['blocks'])}"]
        for clock in dict.fromkeys(row["clock"] for row in session):
            arms = {row["arm"]: row["samples_ms"] for row in session if row["clock"] == clock}
            if clock != kernel["clock"] and baseline in arms:
                ratio = statistics.median(arms[baseline]) / statistics.median(arms["kernel"])
                notes.append(f"{clock} {ratio:.2f}")
        if kernel["noisy"]:
            notes.append("noisy, not for ranking")
        mark = (
            " (best baseline)" if len(found) > 1 and baseline == find_best_baseline(found) else ""
        )
        bounds = f"[{math.exp(low):.2f}, {math.exp(high):.2f}]"
        text = f"speedup {math.exp(middle):.2f} {bounds} over {baseline}{mark}"
        yield f"{text} ({', '.join(notes)})", classify_speedup(low, high)
