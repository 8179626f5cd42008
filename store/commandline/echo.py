"""Prints the output of commands: results on stdout, notes and errors on stderr.

Each function takes plain text and escapes it. As a second defense, `sys.stdout` and `sys.stderr`
escape everything that is written to them while a command runs, such as a warning of a library or a
traceback. Colors and bars come from a console of `open_console`, which escapes texts before it adds
its own sequences.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeAlias, cast

from store.commandline.escape import (
    PREFIX,
    encode_json,
    escape_lines,
    escape_terminal,
    escape_text,
    fold,
)
from store.errors import FlywheelError

if TYPE_CHECKING:
    from rich.console import Console


_PAINT = re.compile(r"(\x1b\[[0-9]+m)")
_LONGEST_LINE = 1 << 16
_TERMINALS_WIDTH = 80
_INDENT = "  "
_names: dict[str, str] = {}
"""Commands that are printed by another name, from `use_names`."""


def count_nouns(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_nouns(1, "kernel"), count_nouns(2, "kernel")
    ('1 kernel', '2 kernels')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def use_names(names: Mapping[str, str]) -> None:
    """Print these commands by other names from now on, as `kf` does with those of the rooms."""
    _names.update(names)


def name_commands(text: str) -> str:
    """Return our own text with the commands in it as the user types them."""
    if not _names:
        return text
    known = "|".join(map(re.escape, _names))
    return re.sub(rf"(?<![\w/.-])({known})(?![\w-])", lambda found: _names[found[1]], text)


def print_result(line: str) -> None:
    """Write one line of the result to stdout."""
    _print_line(line, sys.stdout)


def print_painted(line: str) -> None:
    """Write one line of the result to stdout and keep our own color sequences."""
    parts = _PAINT.split(line)
    text = "".join(part if _PAINT.fullmatch(part) else escape_terminal(part) for part in parts)
    _unwrap(sys.stdout).write(text + "\n")


def print_note(line: str) -> None:
    """Write one line about the work to stderr."""
    _print_line(name_commands(line), sys.stderr)


def print_lines(text: str) -> None:
    """Write a text of our own to stdout, such as the SQL of a view; each line is escaped."""
    sys.stdout.write("".join(f"{line}\n" for line in escape_lines(text, prefix="")))


def print_json(value: Any) -> None:
    """Write a value to stdout as JSON that is safe to print and decodes to the stored text."""
    sys.stdout.write(encode_json(value) + "\n")


def print_foreign(text: str, file: TextIO | None = None) -> None:
    """Write foreign text of any number of lines, each behind a prefix (default: to stdout)."""
    target = file or sys.stdout
    target.write("\n".join(escape_lines(text, width=terminal_width(target))) + "\n")


def print_error(error: FlywheelError) -> None:
    """Write an error and its hint to stderr; all lines but the first of each have a prefix."""
    _print_message(f"error: {error.message}", sys.stderr)
    if error.hint is not None:
        _print_message(error.hint, sys.stderr)


def relay(stream: IO[bytes]) -> None:
    """Copy the output of another process to stderr until it ends, each line behind a prefix."""
    while line := stream.readline(_LONGEST_LINE):
        print_foreign(line.decode("utf-8", "backslashreplace"), sys.stderr)


def open_console(
    *, stderr: bool = False, file: TextIO | None = None, width: int | None = None
) -> Console:
    """Return a rich console that escapes texts but not its own sequences."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class EscapingConsole(Console):
        """Escapes every text when it has become a segment to print."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control is None:
                    lines = segment.text.split("\n")
                    yield Segment("\n".join(map(escape_terminal, lines)), segment.style)
                else:
                    yield segment

        def on_broken_pipe(self) -> None:
            raise  # `members.run` ends the command

    target = file or (sys.stderr if stderr else sys.stdout)
    return EscapingConsole(file=cast("IO[str]", _unwrap(target)), width=width)


class NoteHandler(logging.Handler):
    """Writes log records to stderr, warnings with their level, further lines behind a prefix."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        _print_message(f"{level}{text}", sys.stderr)


class EscapingStream:
    """A text stream that escapes what is written to it, except newlines and tabs.

    Progress bars of other libraries redraw their line. On a terminal, a carriage return at the
    start of a write and writes that only move the cursor up therefore pass unchanged.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        with self._name_errors():
            is_plain = text.isascii() and text.isprintable()
            self.unguarded.write(text if is_plain else self._escape(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._name_errors():
            self.unguarded.flush()

    @contextmanager
    def _name_errors(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = getattr(self.unguarded, "name", "the output")
            raise

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)

    def _escape(self, text: str) -> str:
        start = ""
        if text.startswith(("\r", "\x1b[A")) and self.unguarded.isatty():
            if not text.replace("\x1b[A", "").replace("\n", ""):
                return text
            if text[0] == "\r":
                start, text = "\r", text[1:]
        return start + escape_text(text)


@contextmanager
def escape_streams() -> Generator[None]:
    """Escape all output to `sys.stdout` and `sys.stderr`, and log warnings, in this context."""
    before = sys.stdout, sys.stderr
    # A process that is started with a closed stream has None in its place.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in before)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A character that the terminal cannot encode must not end the command.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout, sys.stderr = (
        cast("TextIO", EscapingStream(stream)) for stream in (sys.stdout, sys.stderr)
    )
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        sys.stdout, sys.stderr = before


def set_up_logging() -> None:
    """Send log records and Python's warnings to stderr, unless the program has handlers."""
    if not logging.root.handlers:
        handler = NoteHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logging.root.addHandler(handler)
        logging.root.setLevel(logging.WARNING)


def _print_line(line: str, file: TextIO) -> None:
    """Write one line; a terminal that is too narrow gets whole words, further lines indented."""
    width = terminal_width(file)
    room = None if width is None else max(width - len(_INDENT), 8)
    file.write(f"\n{_INDENT}".join(fold(escape_terminal(line), room)) + "\n")


def _print_message(text: str, file: TextIO) -> None:
    """Write our own message, which may quote foreign text: only its first line has no prefix."""
    first, *rest = name_commands(text).replace("\r\n", "\n").split("\n")
    folded = escape_lines(first, prefix="", width=terminal_width(file))
    lines = [folded[0], *(f"{PREFIX}{part}" for part in folded[1:])]
    if any(rest):
        lines += escape_lines("\n".join(rest), width=terminal_width(file))
    file.write("\n".join(lines) + "\n")


def _unwrap(stream: Any) -> Any:
    stream = getattr(stream, "rich_proxied_file", stream)  # of a bar
    return stream.unguarded if isinstance(stream, EscapingStream) else stream


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a terminal, or None if the stream is not a terminal."""
    if not stream.isatty():
        return None
    return shutil.get_terminal_size((_TERMINALS_WIDTH, 24)).columns


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
            print_note(f"{what}: {done} of {of}, {rate(done)}, {time_left} left")

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
        with bars.Progress(*columns, console=open_console(stderr=True), transient=True) as bar:
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


@contextmanager
def show_step(step: str, *, quiet: bool = False) -> Generator[Callable[[str], None]]:
    """Show on a terminal what a command does now and for how long; yield what names the next step.

    Other output to `sys.stderr` appears above it.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as bars

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}", markup=False),
        bars.TimeElapsedColumn(),
    )
    # Redrawn seldom, because this host may be timing a kernel.
    console = open_console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
        task = bar.add_task(escape_terminal(step), total=None)
        yield lambda following: bar.reset(task, description=escape_terminal(following))


def has_colors(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which colors are wanted."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain
