"""Format a verdict for a terminal."""

from __future__ import annotations

import itertools
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evaluators.judging.flags import FLAGS, REASONS
from evaluators.judging.other_shapes import name_outcome
from evaluators.timing.intervals import classify_speedup
from evaluators.timing.surprising_wins import (
    compute_speedups,
    find_best_baseline,
    ranks_nothing,
    select_ranking_rows,
)
from store.commandline import echo
from store.commandline.escape import escape_lines, escape_terminal, fold, quote_name

if TYPE_CHECKING:
    from evaluators.scheduling import contract

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
_THAN_EAGER = {
    "faster": "faster than eager",
    "same": "no clear difference from eager",
    "slower": "slower than eager",
}
_EXCUSED = "beyond the judge's own tolerance"
"""How the line of the log begins that a kernel with the flag accepted_by_task has."""
_OTHER_RATIO = math.log(1.02)
"""How far a speedup is from the ratio of two printed times before a note says what it is."""
_LOG_LINES = 20
_WIDTH = 80
_FRAME = re.compile(r'  File "(.*)", line (\d+)(?:, in (.*))?')
_LEFT_OUT = (
    *("During handling of the above", "The above exception was", "Traceback (most recent"),
    "entry point ",
)
_COMPILER_ERROR = re.compile(r"(/[^:(]*)[:(](\d+)(?::\d+:|\):) (?:fatal )?(error.*)")
_TRITON = re.compile(r"[\w.]*CompilationError: at (\d+):\d+:")
_OTHER_ARGUMENTS = re.compile(r"__init__\(\) (?:takes|missing|got)|ModelNew\(\) takes no arg")
_GUTTER = re.compile(r" *\d* \|(?= |$)")
PARTS = {
    "reference": "running the task's own code",
    "start": "starting the kernel's process",
    "build": "building and importing the kernel",
    "verdict": "checking its answers",
    "warm_up": "warming up",
    "timing": "timing it and the baselines",
    "timed_answers": "checking the answers of timed calls",
    "robustness": "checking answers to other inputs",
    "diagnosis": "profiling it",
    "eager_alone": "timing eager alone",
    "drawing": "drawing other shapes",
    "second_session": "timing a surprising win again",
    "end": "ending the kernel's process",
}
"""What the judge does in the parts of a judgment (`CaseResult.time_part`)."""
_NO_INTERVAL = "no interval: the session was too disturbed"
"""What a session says that has fewer than seven blocks left, which bound nothing."""
_NEXT = {
    "evaluator_error": "judge it again; `evaluators doctor` says what this machine lacks",
    "contended": "judge it again when this machine has nothing else to do",
    "unresolved": "judge it at larger inputs: `evaluators check --workload M=4096,N=4096`",
    "unranked": "judge it again; `evaluators doctor` says what this machine's clocks can measure",
    "reference": "change the task, or the inputs that --workload names",
    "binding": "bind the function: PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
    ' { m.def("forward", &forward); }',
    "failed": "change the kernel; `evaluators check --watch` judges each save",
    "constructor": "give ModelNew the constructor of the task's Model: it gets what the task's"
    " get_init_inputs() returns",
    "slower": "the profile says where the time goes; `evaluators check --watch` judges each save",
}
"""What to do about a verdict."""


def summarize(
    name: str, device: str, tables: contract.Tables, spreads: Mapping[str, float]
) -> tuple[str, str, str]:
    """Return the first line of a verdict: what is before its status, the status, and the rest.

    It says whether the kernel is correct, how fast it is, on what, and whether it ranks.
    """
    evaluation = tables["evaluations"][0]
    head = f"{quote_name(name)} on {escape_terminal(device)}: "
    if evaluation["status"] != "correct":
        reason = evaluation.get("reason")
        return head, evaluation["status"], f" ({reason})" if reason else ""
    sessions = _group_sessions(tables.get("timings", []), evaluation)
    session = next((one for one in sessions if not ranks_nothing(one)), next(iter(sessions), []))
    clock = session[0]["clock"] if session else ""
    bounds = compute_speedups(session, spreads.get(clock)) if session else {}
    speed = ""
    if "eager" in bounds:
        ranking = select_ranking_rows(session)
        is_least = ranking["kernel"].get("unresolved")
        low, middle, high = bounds["eager"]
        word = classify_speedup(low, high)
        if ranking["eager"].get("unresolved") or (is_least and word != "faster"):
            # The bound of a disturbed session can be any number.
            is_bound = math.isfinite(high) and not any(map(_is_disturbed, ranking.values()))
            most = f" (at most {math.exp(high):.1f}x)" if is_bound else ""
            speed = f", too short to resolve on clock {clock}{most}"
        elif not math.isfinite(low + high):
            speed = f", about {math.exp(middle):.2f}x over eager by clock {clock}, {_NO_INTERVAL}"
        else:
            speed = (
                f", {_THAN_EAGER[word]}: {'at least ' if is_least else ''}{math.exp(middle):.2f}x "
                f"[{math.exp(low):.2f}, {math.exp(high):.2f}] by clock {clock}"
            )
    why = _explain_rank(evaluation, sessions)
    if why is not None:
        return head, "correct", f"{speed}; does not rank: {why}"
    return head, "correct", f"{speed}; ranks" if sessions else ""


def _explain_rank(
    evaluation: Mapping[str, Any], sessions: Sequence[list[dict[str, Any]]]
) -> str | None:
    """Return why a correct kernel does not rank, or None if it ranks."""
    flags = evaluation.get("flags") or ()
    if evaluation.get("equivalent") is False:
        return "its flags show that it computes a different function than its task"
    if evaluation.get("protocol") in ("training", "shape"):
        return f"it was judged by the protocol {evaluation['protocol']}"
    if "weak_task" in flags:
        return FLAGS["weak_task"].partition(" (")[0]
    for flag in flags:
        what, ranks, _ = FLAGS.get(flag, "").partition(": ranks ")
        if ranks:
            return what
    if not sessions or not all(map(ranks_nothing, sessions)):
        return None
    rows = [select_ranking_rows(session) for session in sessions]
    if all(row["eager"].get("unresolved") for row in rows if "eager" in row):
        return "eager is too short for the clock"
    return "the timing was disturbed"


def format_lines(
    name: str,
    device: str,
    tables: dict[str, list[dict[str, Any]]],
    *,
    notes: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    spreads: Mapping[str, float] = MappingProxyType({}),
    add_command: str | None = None,
    in_one_line: bool = False,
    color: bool = False,
    width: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a verdict, from the answer to what to do next.

    All text of the candidate is escaped, and each line of it has a prefix.

    Args:
        notes: What was judged, and by which rule of the task; printed below the status.
        files: Texts of the candidate by path. Of tracebacks and of compilers' output, only what is
            about them is shown.
        spreads: Spread of sessions by clock (`timing.spreads`); by default that of a GPU without an
            estimate.
        add_command: Stores the kernel with its verdict.
        in_one_line: Yield only the first line, with the message of a failure.
    """

    def paint(text: str, meaning: str) -> str:
        return f"\x1b[{_COLORS.get(meaning, _FAILED)}m{text}\x1b[0m" if color else text

    evaluation, *at_shapes = tables["evaluations"]
    message = evaluation.get("message") or ""
    head, status, answer = summarize(name, device, tables, spreads)
    said = f": {escape_terminal(message)}" if in_one_line and message else ""
    first, *further = fold(
        head + status + answer + said, None if width is None else max(width - 4, 40)
    )
    if first.startswith(head + status):
        first = head + paint(status, status) + first.removeprefix(head + status)
    yield first
    yield from (f"    {line}" for line in further)
    if in_one_line:
        return
    if evaluation.get("reason") in REASONS:
        yield from _wrap(REASONS[evaluation["reason"]], width or _WIDTH)
    log = evaluation.get("log") or ""
    errors = _find_compiler_errors(log, files) if evaluation.get("reason") == "build_failed" else []
    if message and not errors:
        yield from escape_lines(message, width=width)
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
        outcome = name_outcome(row)
        text = f"shape {escape_terminal(name)}: {paint(outcome, _MEANINGS[outcome])}"
        if row["status"] != "correct":
            why = " ".join(filter(None, (row["reason"], row.get("message"))))
            text += f", {escape_terminal(why)}"
        for session in _group_sessions(tables["timings"], row):
            text += f", {math.exp(compute_speedups(session)['eager'][1]):.2f} over eager"
        yield from _wrap(text, width or _WIDTH)
    for line in log.splitlines():
        if line.startswith(_SHAPE_NOTES):
            yield from escape_lines(line, width=width)
    if "accepted_by_task" in (evaluation.get("flags") or ()):
        excuse = next((line for line in log.splitlines() if line.startswith(_EXCUSED)), "")
        yield from escape_lines(excuse, width=width)
    if evaluation.get("flags"):
        yield from _wrap(f"flags: {', '.join(evaluation['flags'])}", width or _WIDTH)
    if errors:
        yield from escape_lines("\n".join(errors[:_LOG_LINES]), width=width)
    elif evaluation["status"] != "correct" and log:
        shown = _leave_out_frames(log, files, message)
        if any(shown):
            yield from escape_lines("\n".join(shown).strip("\n"), width=width)[-_LOG_LINES:]
    if (step := _choose_next_step(evaluation, answer, add_command)) is not None:
        yield from _wrap(f"next: {echo.name_commands(step)}", width or _WIDTH)


def _choose_next_step(
    evaluation: Mapping[str, Any], answer: str, add_command: str | None
) -> str | None:
    """Return what to do about a verdict whose first line ends with an answer."""
    message = evaluation.get("message") or ""
    if evaluation.get("reason") == "init_failed" and _OTHER_ARGUMENTS.search(message):
        return _NEXT["constructor"]
    if evaluation.get("reason") == "reference_failed":
        return _NEXT["reference"]
    if evaluation.get("reason") == "import_failed" and "module export function" in message:
        return _NEXT["binding"]
    if evaluation["status"] != "correct":
        return _NEXT["evaluator_error" if evaluation["status"] == "evaluator_error" else "failed"]
    if "too short" in answer:
        return _NEXT["unresolved"]
    if answer and not answer.endswith("; ranks"):
        flags = evaluation.get("flags") or ()
        is_final = (
            evaluation.get("equivalent") is False
            or evaluation.get("protocol") in ("training", "shape")
            or "weak_task" in flags
        )
        return None if is_final else _NEXT["contended" if "contended" in flags else "unranked"]
    if "slower than" in answer:
        return _NEXT["slower"]
    if not answer or add_command is None:
        return None
    return f"`{add_command}` stores it with its verdict"


def _leave_out_frames(log: str, files: Mapping[str, str], message: str) -> list[str]:
    """Return the lines of a log; of tracebacks, only the frames in the candidate's files.

    >>> log = '  File "/a/judge.py", line 1\\n  File "/tmp/k.py", line 2, in f\\n    x\\n    ^\\n'
    >>> _leave_out_frames(log + "NameError", {"k.py": ""}, "k.py, line 2: NameError")
    ['k.py, line 2, in f', '    x', '    ^']
    """
    lines = log.splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.fullmatch(line)]
    if not files or not frames:
        return lines
    if not any(line.startswith("Traceback (most recent") for line in lines[: frames[0]]):
        lines = lines[frames[0] :]  # the log begins within a traceback
    shown: list[str] = []
    is_own = is_within = False
    for number, line in enumerate(lines, start=1):
        following = lines[number] if number < len(lines) else ""
        if frame := _FRAME.fullmatch(line):
            path = next((path for path in files if frame[1].endswith(f"/{path}")), None)
            is_own, is_within = path is not None, True
            if is_own:
                shown.append(f"{path}, line {frame[2]}" + (f", in {frame[3]}" if frame[3] else ""))
        elif is_within and line.startswith("    "):
            shown += [line] if is_own else []
        elif compiling := _TRITON.fullmatch(line):  # its text quotes the function
            is_within = False
            quoted = lines[number : number + int(compiling[1])]
            place = _find_line(quoted[-1] if quoted else "", files)
            shown.append(line if place is None else f"{place}: {compiling[0].rpartition('.')[2]}")
        else:
            is_whole = not following.strip() or following.startswith(_LEFT_OUT)
            is_known = is_within and line in message and is_whole  # a longer text is shown
            shown += [] if is_known or line.startswith(_LEFT_OUT) else [line]
            is_within = False
    return shown


def _find_compiler_errors(log: str, files: Mapping[str, str]) -> list[str]:
    """Return the errors of GCC and NVCC in a log: file, line and message, and the quoted lines.

    A candidate that compiles a text has its lines in another file, so that they are looked for.
    """
    lines = log.splitlines()
    own: list[str] = []
    others: list[str] = []
    for number, line in enumerate(lines, start=1):
        if error := _COMPILER_ERROR.match(line):
            quoted = itertools.takewhile(lambda line: line.startswith(" "), lines[number:])
            quoted = [_GUTTER.sub("", line).rstrip() for line in quoted]
            path = Path(error[1]).name
            place = _find_line(quoted[0] if quoted else "", files)
            found = own if place is not None or path in files else others
            found += [f"{place or f'{path}, line {error[2]}'}: {error[3]}", *quoted]
    return own or others


def _find_line(text: str, files: Mapping[str, str]) -> str | None:
    """Return the only place of a line in the candidate's files, whatever spaces it has."""
    places = [
        f"{path}, line {number}"
        for path, code in files.items()
        for number, line in enumerate(code.splitlines(), start=1)
        if line.split() == text.split() and line.strip()
    ]
    return places[0] if len(places) == 1 else None


def _is_disturbed(row: Mapping[str, Any]) -> bool:
    return row.get("disturbed", row["noisy"])


def _group_sessions(
    timings: list[dict[str, Any]], evaluation: dict[str, Any]
) -> list[list[dict[str, Any]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in timings:
        if row["evaluation_id"] == evaluation["evaluation_id"]:
            sessions.setdefault(row["session_id"], []).append(row)
    return list(sessions.values())


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
        name: "too short"
        if name not in resolved
        else f"[{math.exp(low):.2f}, {math.exp(high):.2f}]"
        if math.isfinite(low + high)
        else "none"
        for name, (low, _, high) in bounds.items()
    }
    wide = max(map(len, ("baseline", *bounds)))
    wider = max(map(len, intervals.values()))
    yield f"  {'':6} speedup  {'interval':{wider}}  {'baseline':{wide}}  {'ms':>9}  kernel ms"
    is_other_ratio = False
    for name, (low, middle, high) in bounds.items():
        if name not in resolved:
            yield f"  {'':6} {'':7}  {intervals[name]:{wider}}  {name}"
            continue
        meaning = classify_speedup(low, high) if math.isfinite(low + high) else ""
        baseline_ms = statistics.median(ranking[name]["samples_ms"])
        word = (meaning and paint(meaning, meaning)) + " " * (6 - len(meaning))
        is_other_ratio |= abs(math.log(baseline_ms / kernel_ms) - middle) > _OTHER_RATIO
        times = f"{baseline_ms:9.4g}  {kernel_ms:9.4g}"
        yield f"  {word} {math.exp(middle):7.2f}  {intervals[name]:{wider}}  {name:{wide}}  {times}"
    notes = [f"clock {kernel['clock']}", f"n = {len(kernel['blocks'])}"]
    if _is_disturbed(kernel):
        notes.append("disturbed, not for ranking")
    if is_other_ratio:
        notes.append("speedup is the median of paired ratios")
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
