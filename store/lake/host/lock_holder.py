"""Who holds a lock: a line in its file, for the people who wait for it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

from store.commandline.escape import escape_terminal

log = logging.getLogger(__name__)
NOTE_AFTER_S = 1.5
_MOST_BYTES = 4096


@contextmanager
def name_holder(describe: Callable[[], str]) -> Generator[None]:
    """Log what is waited for, if the block takes longer than a moment."""
    timer = Timer(NOTE_AFTER_S, lambda: log.info("waiting for %s", describe()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def take_lock(descriptor: int, file: Path, author: str) -> None:
    """Lock an open file, wait for its holder if there is one, and write who has it now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with name_holder(lambda: describe_holder(file)):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    write_holder(descriptor, author)


def write_holder(descriptor: int, author: str) -> None:
    """Write into a locked file who has locked it."""
    text = json.dumps({"author": author, "pid": os.getpid(), "since": time.time()})
    with suppress(OSError):  # a full disk or a read-only file: the lock holds without the text
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def describe_holder(file: Path) -> str:
    """Return who has locked a file, as far as its text says; nothing else depends on the text."""
    try:
        with open(file, "rb") as handle:
            holder = json.loads(handle.read(_MOST_BYTES))
        author, pid = escape_terminal(str(holder["author"])[:80]), int(holder["pid"])
        seconds = max(0, round(time.time() - float(holder["since"])))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "another process"
    return f"{author} (pid {pid}), which took the lock {seconds} s ago"
