"""Trying something in a forked child, so that this process stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable

_LONGEST_REASON = 500


def is_possible(action: Callable[[], object]) -> bool:
    """Whether an action succeeds in a forked child."""
    return find_failure(action) is None


def find_failure(action: Callable[[], object]) -> str | None:
    """Return why an action fails in a forked child; None where it succeeds."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            os.write(writing, text.encode("utf-8", "replace")[:_LONGEST_REASON])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        status = os.waitpid(pid, 0)[1]
        # A process that the action has started may still hold the other end.
        reason = end.read() if status != 0 else b""
    if status == 0:
        return None
    return reason.decode("utf-8", "replace") or f"the trial ended with status {status}"


def expect_exception(kind: type[BaseException], action: Callable[[], object]) -> None:
    """Raise OSError unless an action fails with an exception of this kind."""
    try:
        action()
    except kind:
        return
    raise OSError("an action that should be refused is not")


def expect_errno(number: int, action: Callable[[], object]) -> None:
    """Raise OSError unless an action fails with this error number."""
    try:
        action()
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise OSError("an action that should be refused is not")


def expect_equal(found: int, wanted: int) -> None:
    """Raise OSError unless two numbers are equal."""
    if found != wanted:
        raise OSError(f"{found} is not {wanted}")
