"""Interrupt commands at random times on a busy machine; print how each of them ends.

    python benchmarks/interrupt.py --interrupts 400 --seed 0

As many processes as the machine has cores spin meanwhile. Each command runs on a copy of one lake,
and is interrupted at a random time within the seconds that `COMMANDS` states. Every other interrupt
goes to the whole process group, as that of a terminal does. A command that has not ended after
`SECOND_S` gets a second interrupt.

| column | counts |
|---|---|
| interrupted | interrupts that met the command before its end |
| hung | no end within `HUNG_S` after the second interrupt; it was killed then |
| late | no end within `LATE_S`, and no line that says what it waits for |
| said | no end within `LATE_S`, and such a line |
| ignored | exit code 0, though it ran for `LATE_S` longer |
| other exits | other codes than 0, 130 and, where Python itself starts, that of the signal |
| noisy | more than one line about the interrupt, or a traceback |
| left | processes of it that were there `LEFT_S` after its end |
| unclean | lakes in which `store check` then found a problem |

Exits with 1 unless hung, late, ignored, other exits, left and unclean are 0. Where a
machine has other work, the variable PATIENCE multiplies all of these limits.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

QUERY = "SELECT count(*) FROM kernels a, kernels b, kernels c, kernels d WHERE a.code < b.code"
COMMANDS = {  # each with the seconds within which it is interrupted
    "import": ("store import starter", 6.0),
    "query": (f"store query '{QUERY}'", 4.0),
    "check": ("store check --full", 4.0),
    "compact": ("store compact", 3.0),
    "export": ("store export parquet OUT", 4.0),
    "backup": ("store backup OUT", 3.0),
    "pipelines": ("pipelines run preference-pairs", 6.0),
    "evaluators": ("evaluators run --on cpu --limit 4", 12.0),
    "audit": ("evaluators audit", 8.0),
    "trainers": ("trainers run contrastive --preset tiny --out OUT", 20.0),
}
WRITERS = ("import", "compact", "pipelines", "evaluators", "audit", "trainers")
PATIENCE = float(os.environ.get("PATIENCE", "1"))
LATE_S = 2.0 * PATIENCE
SECOND_S = 10.0 * PATIENCE
HUNG_S = 10.0 * PATIENCE
LEFT_S = 5.0 * PATIENCE
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Outcome:
    """What became of the interrupts of one command."""

    seconds: list[float] = field(default_factory=list[float])
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def count(self, what: str, number: int = 1) -> None:
        """Add to a column."""
        self.counts[what] = self.counts.get(what, 0) + number


FAULTS = ("hung", "late", "ignored", "other exits", "left", "unclean")
COLUMNS = ("hung", "late", "said", "ignored", "other exits", "noisy", "left", "unclean")


def main() -> None:
    """Interrupt all commands in turn, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--interrupts", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(COMMANDS), nargs="*", default=list(COMMANDS))
    given = parser.parse_args()
    draws = random.Random(given.seed)
    # A shell that starts this program in the background makes it ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What a command leaves behind becomes a child of this process, which then sees it.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="interrupt-") as scratch, spin() as spinning:
        start = Path(scratch) / "start"
        _run(COMMANDS["import"][0], start, Path(scratch) / "out", None, False)
        for number in range(given.interrupts):
            name = given.only[number % len(given.only)]
            lake, out = _prepare(name, start, Path(scratch))
            outcome = outcomes.setdefault(name, Outcome())
            command, within_s = COMMANDS[name]
            at = draws.uniform(0.05, within_s)
            _try(outcome, command, lake, out, at, bool(number // len(given.only) % 2))
            left = _end_left(spinning)
            outcome.count("left", len(left))
            if name in WRITERS and (lake / "catalog.sqlite").exists():
                _, code, err, _ = _run("store check", lake, out, None, False)
                outcome.count("unclean", int(code != 0))
                if code:
                    sys.stderr.write(f"{name} at {at:.2f} s: {err}\n")
            if left:
                sys.stderr.write(f"{name} at {at:.2f} s left {left}\n")
    _print_table(outcomes)
    sys.exit(any(one.counts.get(what) for one in outcomes.values() for what in FAULTS))


@contextmanager
def spin() -> Generator[list[int]]:
    """Keep every core busy; yield the ids of the processes that do."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield [one.pid for one in spinning]
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _prepare(name: str, start: Path, scratch: Path) -> tuple[Path, Path]:
    """Return a fresh copy of the lake, none for an import, and the path of a folder to make."""
    lake, out = scratch / "lake", scratch / "out"
    shutil.rmtree(lake, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    if name != "import":
        shutil.copytree(start, lake)
    return lake, out


def _try(outcome: Outcome, command: str, lake: Path, out: Path, at: float, group: bool) -> None:
    seconds, code, err, was_hung = _run(command, lake, out, at, group)
    if seconds < 0:  # it had ended before
        return
    outcome.seconds.append(seconds)
    said = "interrupted; waiting for" in err
    outcome.count("hung", int(was_hung))
    if seconds > LATE_S:
        outcome.count("said" if said else "late")
    if code == 0 and seconds > LATE_S:
        outcome.count("ignored")
    elif code not in (0, 130, -signal.SIGINT) and not was_hung:
        outcome.count("other exits")
    lines = [line for line in err.splitlines() if line.startswith("interrupted")]
    is_noisy = len(lines) - said > 1 or "Traceback" in err or "Exception ignored" in err
    outcome.count("noisy", int(is_noisy))
    if is_noisy or seconds > LATE_S or code not in (0, 130):
        sys.stderr.write(f"{command} at {at:.2f} s: {code} after {seconds:.2f} s\n{err[-2000:]}\n")


def _run(
    command: str, lake: Path, out: Path, at: float | None, group: bool
) -> tuple[float, int, str, bool]:
    """Run a command, interrupted at a time or not at all.

    Returns the seconds that it took, from the interrupt on (negative: it had ended before), its
    exit code, its messages, and whether it hung.
    """
    words = [str(out) if word == "OUT" else word for word in shlex.split(command)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**os.environ, "FLYWHEEL_LAKE": str(lake), "FLYWHEEL_LOCKS": str(lake.parent)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        was_hung = False
        if at is None:
            running.wait()
        else:
            with suppress(subprocess.TimeoutExpired):
                running.wait(at)
                return -1.0, running.returncode, "", False
            began = time.monotonic()
            for wait_s in (SECOND_S, HUNG_S):
                (os.killpg if group else os.kill)(running.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    running.wait(wait_s)
                    break
            else:
                was_hung = True
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        seconds = time.monotonic() - began
        errors.seek(0)
        return seconds, running.returncode, errors.read().decode(errors="replace"), was_hung


def _end_left(spinning: list[int]) -> list[str]:
    """Return the processes that a command has left behind after a while, and kill them."""
    until = time.monotonic() + LEFT_S
    while (left := _list_left(spinning)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return list(left.values())


def _list_left(spinning: list[int]) -> dict[int, str]:
    """Return command lines of the children of this process, other than those that spin."""
    with suppress(ChildProcessError):
        for pid in _list_children():
            if pid not in spinning:
                os.waitpid(pid, os.WNOHANG)
    left: dict[int, str] = {}
    for pid in _list_children():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            if pid not in spinning and words:
                left[pid] = words.decode(errors="replace")[:200]
    return left


def _list_children() -> list[int]:
    return [
        int(pid)
        for pid in Path("/proc/self/task")
        .joinpath(str(os.getpid()), "children")
        .read_text()
        .split()
    ]


def _print_table(outcomes: dict[str, Outcome]) -> None:
    heads = ("command", "within", "interrupted", *COLUMNS, "median", "p95", "max")
    lines: list[tuple[str, ...]] = [heads, ("---", *["---:"] * (len(heads) - 1))]
    for name, one in outcomes.items():
        lines.append(_make_row(f"`{COMMANDS[name][0]}`", f"{COMMANDS[name][1]:g} s", [one]))
    lines.append(_make_row("all", "", list(outcomes.values())))
    for line in lines:
        sys.stdout.write(f"| {' | '.join(line)} |\n")


def _make_row(name: str, whole: str, outcomes: list[Outcome]) -> tuple[str, ...]:
    seconds = sorted(second for one in outcomes for second in one.seconds)
    counts = [sum(one.counts.get(what, 0) for one in outcomes) for what in COLUMNS]
    if not seconds:
        return (name, whole, "0", *map(str, counts), "", "", "")
    p95 = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
    times = (statistics.median(seconds), p95, seconds[-1])
    return (name, whole, str(len(seconds)), *map(str, counts), *(f"{t:.2f} s" for t in times))


if __name__ == "__main__":
    main()
