"""Ctrl-C, for the commands of all rooms.

The first Ctrl-C raises KeyboardInterrupt in the main thread, as everywhere in Python. That alone
does not end every command: DuckDB and pyarrow turn the exception into one of theirs, a finalizer
swallows it, an import that it leaves half done keeps its lock, and clean-up waits for a thread that
waits for this lock. Therefore a thread watches, which each signal wakes whatever the main thread
does. It ends the process after `GRACE_S`, or says what the command waits for, and ends the process
at once on the second Ctrl-C. A lake loses nothing when its writers are killed.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

GRACE_S = 1.5
"""Time that a command has to end after the first Ctrl-C."""
EXIT_CODE = 130
LINUX_ONLY = (
    "Kernel Flywheel runs on Linux. On another system, run it in a Linux container or in WSL 2; "
    "there, DuckDB or Polars alone read a lake that was made on Linux (docs/duckdb.md)."
)
_RELAY_S = 0.02
_RAISE_AGAIN, _DISMISS = 254, 255
"""Bytes for the watching thread, beside the numbers of signals."""


class _Watch:
    """The signals of one process, and the thread that watches them."""

    def __init__(self) -> None:
        self.note = ""
        self.waits: list[str] = []
        self.is_interrupted = False
        """Whether the command must end; set by the handler, and by the thread where a server or a
        library has a handler of its own."""
        self.last_line = threading.Lock()
        """Taken by the thread that writes the last line, since two threads may end the process."""
        self._raises = True
        self._count = self._own = 0
        self._main = threading.get_ident()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = (signal.getsignal(signal.SIGINT), sys.unraisablehook)
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        sys.unraisablehook = self._raise_again
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()
        signal.signal(signal.SIGINT, self._handle)

    def stop(self) -> None:
        """Handle signals as before."""
        handler, sys.unraisablehook = self._before
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(self._writing)  # ends the thread

    def dismiss(self) -> None:
        self.is_interrupted, self._raises = False, True
        os.write(self._writing, bytes([_DISMISS]))

    def describe(self) -> str:
        return f"interrupted; {self.note}" if self.note else "interrupted."

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt for the first signal; the thread answers the others."""
        if self._raises:
            self.is_interrupted, self._raises = True, False
            raise KeyboardInterrupt

    def _raise_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Have the interrupt that a finalizer or a callback has swallowed raised once more."""
        if lost.exc_type is KeyboardInterrupt and self.is_interrupted:
            os.write(self._writing, bytes([_RAISE_AGAIN]))
        else:
            self._before[1](lost)

    def _watch(self) -> None:
        """Follow the signals. Imports nothing: the main thread may hold the lock of any import."""
        until: float | None = None
        said = ""
        while True:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._reading], [], [], left_s)[0]:
                if not self.waits:
                    _end_now(self.describe() if self.last_line.acquire(blocking=False) else "")
                if said != (said := f"interrupted; waiting for {self.waits[-1]}"):
                    _write_line(f"{said}. Press Ctrl-C again to end at once.")
                until = time.monotonic() + GRACE_S
                continue
            numbers = os.read(self._reading, 64)
            if not numbers:
                os.close(self._reading)
                return
            for number in numbers:
                if number == _RAISE_AGAIN:
                    time.sleep(_RELAY_S)  # the main thread leaves the hook
                    self._raises, self._own = True, self._own + 1
                    signal.pthread_kill(self._main, signal.SIGINT)
                elif number == _DISMISS:
                    self._count, self.is_interrupted, until = 0, False, None
                elif number == signal.SIGINT and self._own:
                    self._own -= 1
                elif number == signal.SIGINT:
                    self._count, self.is_interrupted = self._count + 1, True
                    if self._count > 1:
                        _end_now()
                    until = time.monotonic() + GRACE_S


_watch: _Watch | None = None


def start(module: str) -> None:
    """Import the module of a room's command line and run its `main`.

    Commands begin here, so that an interrupt of the imports ends them like any other.
    """
    if sys.platform != "linux":
        sys.exit(f"error: {LINUX_ONLY}")
    try:
        with handle():
            importlib.import_module(module).main()
    except KeyboardInterrupt:  # just after the command
        _end()
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # All that is left is the end of the interpreter.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def handle() -> Generator[None]:
    """Run the command of this process; if it is interrupted, end the process with 130.

    Nested uses, uses in other threads than the main one, and uses where SIGINT is ignored or has
    another handler change nothing.
    """
    global _watch
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_outer = is_default and threading.current_thread() is threading.main_thread()
    if is_outer:
        _watch = _Watch()
    try:
        yield
    except BaseException as error:
        # After an interrupt, any other error is what a library made of it, or its consequence.
        if isinstance(error, KeyboardInterrupt) or (_watch is not None and _watch.is_interrupted):
            _end()
        raise
    finally:
        if _watch is not None and _watch.is_interrupted:
            _end()
        if is_outer and _watch is not None:
            _watch.stop()
            _watch = None


@contextmanager
def wait_for(what: str) -> Generator[None]:
    """Let this block end after an interrupt, also if it takes long: the user reads `what` then."""
    waits = [] if _watch is None else _watch.waits
    waits.append(what)
    try:
        yield
    finally:
        waits.remove(what)


def note(text: str, *, replace: bool = True) -> None:
    """Set what the last line of an interrupted command says about its work.

    Without `replace`, a note that is set already stays.
    """
    if _watch is not None and (replace or not _watch.note):
        _watch.note = text


def is_pending() -> bool:
    """Return whether an interrupt ends the command, whatever error was made of it."""
    return _watch is not None and _watch.is_interrupted


def dismiss() -> None:
    """Go on after a KeyboardInterrupt, as a prompt does."""
    if _watch is not None:
        _watch.dismiss()


def _end() -> NoReturn:
    """End this process from its main thread, while the other thread limits the time for it."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if _watch is None or _watch.last_line.acquire(blocking=False):
        with suppress(OSError, ValueError):
            sys.stderr.write(("interrupted." if _watch is None else _watch.describe()) + "\n")
            sys.stderr.flush()
    _end_children()
    # A normal exit waits for all threads, and some may never end.
    os._exit(EXIT_CODE)


def _end_now(text: str = "") -> NoReturn:
    """End this process from another thread than the main one, which may hold any lock."""
    if text:
        _write_line(text)
    _end_children()
    os._exit(EXIT_CODE)


def _write_line(text: str) -> None:
    """Write a line to stderr past Python's buffers, unless nobody reads the pipe that it is."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(0):
        shows_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a bar has hidden it
        with suppress(OSError):
            os.write(2, shows_cursor + text.encode() + b"\n")


def _end_children() -> None:
    parents: list[int | str] = ["self"]
    for parent in parents:  # grows: a shell is killed before what it has started
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                parents += map(int, file.read_text().split())
    for pid in parents[1:]:
        with suppress(OSError):
            if os.getsid(int(pid)) == os.getsid(0):
                os.kill(int(pid), signal.SIGKILL)


def _forget(*_: Any) -> None:
    global _watch
    if _watch is not None:
        _watch = None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)


os.register_at_fork(after_in_child=_forget)
