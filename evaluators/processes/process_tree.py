"""The processes below a process, read from /proc, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_SWEEP_LIMIT_S = 5.0
_LOOK_S = 0.002


def count_threads_below(root: int) -> dict[int, int]:
    """Return the running processes below a process, each with its number of threads."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(name)] = int(fields[1])
        threads[int(name)] = 0 if fields[0] in (b"Z", b"X") else int(fields[17])
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return {pid: threads[pid] for pid in found if threads[pid]}


def find_descendants(root: int) -> set[int]:
    """Return the running processes below a process."""
    return set(count_threads_below(root))


def end_descendants() -> None:
    """Kill and reap every process below this one, including those in other sessions.

    This process has to be a subreaper, so that orphans become its children.
    """
    until = time.monotonic() + _SWEEP_LIMIT_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            for pid in find_descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
            time.sleep(_LOOK_S)
