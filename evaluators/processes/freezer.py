"""Freezing a worker and everything it has started while no request is pending.

A control group (version 2) freezes all its processes, including clones and grandchildren, and
reports when the last one has stopped. Without one, signals stop the processes below the worker one
by one, which a process that forks at that moment can escape.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Protocol

from evaluators.processes.process_tree import find_descendants

_LIMIT_S = 20.0
_SPIN_S = 0.001
_PAUSE_S = 0.0002


class StillRunning(Exception):
    """Processes did not stop in time."""


class Freezer(Protocol):
    """Stops and continues the processes of one worker."""

    def freeze(self) -> None:
        """Stop every process and wait until all have stopped. Raises StillRunning."""
        ...

    def thaw(self) -> None:
        """Let every process continue."""
        ...

    def cpu_ns(self) -> int:
        """Return the processor time in nanoseconds that all processes have used so far."""
        ...

    def processes(self) -> set[int]:
        """Return the numbers of all processes, including the worker's own."""
        ...

    def close(self) -> None:
        """Release the freezer's resources; the processes stay as they are."""
        ...


class GroupFreezer:
    """Freezes a control group of version 2."""

    def __init__(self, folder: Path) -> None:
        """Open the group's files. Raises OSError where they cannot be used."""
        with contextlib.ExitStack() as opened:
            self._freeze = os.open(folder / "cgroup.freeze", os.O_WRONLY)
            opened.callback(os.close, self._freeze)
            self._events = os.open(folder / "cgroup.events", os.O_RDONLY)
            opened.callback(os.close, self._events)
            self._usage = os.open(folder / "cpu.stat", os.O_RDONLY)
            opened.callback(os.close, self._usage)
            self._processes = os.open(folder / "cgroup.procs", os.O_RDONLY)
            opened.callback(os.close, self._processes)
            self._opened = opened.pop_all()

    def freeze(self) -> None:
        """Stop every process and wait until all have stopped. Raises StillRunning."""
        try:
            os.pwrite(self._freeze, b"1", 0)
            begin = time.monotonic()
            while b"frozen 1" not in os.pread(self._events, 256, 0):
                waited = time.monotonic() - begin
                if waited > _LIMIT_S:
                    raise StillRunning(f"processes still run {_LIMIT_S:g} s after they were frozen")
                # Yielding leaves the core to processes that still have to stop.
                time.sleep(0 if waited < _SPIN_S else _PAUSE_S)
        except OSError:
            return  # the group is gone, and its processes with it

    def thaw(self) -> None:
        """Let every process continue."""
        with contextlib.suppress(OSError):  # the group is gone
            os.pwrite(self._freeze, b"0", 0)

    def cpu_ns(self) -> int:
        """Return the processor time in nanoseconds that all processes have used so far."""
        with contextlib.suppress(OSError):
            for line in os.pread(self._usage, 512, 0).splitlines():
                name, _, value = line.partition(b" ")
                if name == b"usage_usec":
                    return int(value) * 1000
        return 0

    def processes(self) -> set[int]:
        """Return the numbers of all processes, including the worker's own."""
        found = b""
        with contextlib.suppress(OSError):
            while part := os.pread(self._processes, 1 << 16, len(found)):
                found += part
        return {int(line) for line in found.split()}

    def close(self) -> None:
        """Close the group's files."""
        self._opened.close()


class SignalFreezer:
    """Stops a process and what has descended from it by signals."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped: set[int] = set()

    def freeze(self) -> None:
        """Stop the process and its descendants, until every descendant found has been stopped."""
        begin = time.monotonic()
        self._stopped = set()
        while fresh := {self._pid, *find_descendants(self._pid)} - self._stopped:
            for pid in fresh:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
            self._stopped |= fresh
            if time.monotonic() - begin > _LIMIT_S:
                raise StillRunning(f"processes still start {_LIMIT_S:g} s after they were stopped")
        while not _is_stopped(self._pid):
            if time.monotonic() - begin > _LIMIT_S:
                raise StillRunning(f"the worker still runs {_LIMIT_S:g} s after it was stopped")
            time.sleep(0)

    def thaw(self) -> None:
        """Let the stopped processes continue."""
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    def cpu_ns(self) -> int:
        """Return the processor time in nanoseconds of all threads of the worker's own process."""
        per_process_clock = (~self._pid << 3) | 2
        try:
            return time.clock_gettime_ns(per_process_clock)
        except OSError:
            return 0

    def processes(self) -> set[int]:
        """Return the numbers of all processes, including the worker's own."""
        return {self._pid, *find_descendants(self._pid)}

    def close(self) -> None:
        """Do nothing: signals need no open file."""


def open_freezer(group: str | None, pid: int) -> Freezer:
    """Return a freezer by the worker's control group, or by signals where it has none."""
    if group is not None:
        with contextlib.suppress(OSError):
            return GroupFreezer(Path(group))
    return SignalFreezer(pid)


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped, has ended, or cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return True
    return state in (b"T", b"t", b"Z", b"X")
