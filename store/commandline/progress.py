"""Shows the progress of long work: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from store.commandline import echo
from store.commandline.escape import escape_terminal

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the number done, the total, and what is counted."""

_LINE_EVERY_S = 30.0


def ignore_progress(done: int, of: int, what: str) -> None:
    """Do nothing."""


@contextmanager
def show_progress(*, quiet: bool = False) -> Generator[Progress]:
    """Yield a function that shows progress on stderr, with the rate and the time left.

    Without a terminal it prints a line every 30 s, so short work prints nothing. While a bar is
    shown, other output to `sys.stderr` appears above it.
    """
    began = last = time.monotonic()

    def rate(done: int) -> str:
        per_s = done / max(time.monotonic() - began, 1e-9)
        return f"{per_s:.0f}/s" if per_s >= 10 else f"{per_s * 60:.1f}/min"

    def write(done: int, of: int, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_EVERY_S:
            last = now
            left = (of - done) * (now - began) / max(done, 1)
            time_left = f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"
            echo.print_note(f"{what}: {done} of {of}, {rate(done)}, {time_left} left")

    if quiet:
        yield ignore_progress
    elif not sys.stderr.isatty():
        yield write
    else:
        from rich import progress as bars

        columns = (
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TimeRemainingColumn(compact=True),
        )
        with bars.Progress(*columns, console=echo.open_console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None, rate="")

            def move(done: int, of: int, what: str) -> None:
                bar.update(
                    task,
                    completed=done,
                    total=of,
                    description=escape_terminal(what),
                    rate=rate(done),
                )

            yield move
