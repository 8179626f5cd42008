"""Memory limits by control groups, for all memory of a tree of processes including files in it.

A limit of address space bounds one process only, and resident memory leaves out files that no
process maps, such as those of memfd_create. A control group charges every page to the group that
touched it first, and ends a process of the group when no page is left. This uses version 2 where
the worker's group has the controller, and otherwise version 1.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path

_PREFIX = "flywheel-"
_STALE_S = 3600.0
_KERNEL_BYTES = 64 << 20
"""Allowance for page tables and kernel buffers, which are charged as well."""
_TRIED_BYTES = 16 << 20
_TRIED_S = 10.0


class MemoryGroup:
    """A group whose processes have a common memory limit."""

    def __init__(self, limit_bytes: int, group: Path | None) -> None:
        """Set the limit.

        Args:
            limit_bytes: The most that all processes of the group may hold.
            group: The worker's group of version 2, if it has one.

        Raises:
            OSError: there is no memory controller, or this process may not use it.
        """
        allowed = limit_bytes + _KERNEL_BYTES
        self._own_folder: Path | None = None
        if group is not None and (group / "memory.max").exists():
            (group / "memory.max").write_text(str(allowed))
            (group / "memory.oom.group").write_text("1")
            with contextlib.suppress(OSError):  # exists where the kernel counts swap
                (group / "memory.swap.max").write_text("0")
            self._open(group, "memory.events")
            return
        parent = find_own_group()
        _remove_stale(parent)
        self._own_folder = parent / (_PREFIX + secrets.token_hex(8))
        self._own_folder.mkdir()
        try:
            (self._own_folder / "memory.limit_in_bytes").write_text(str(allowed))
            with contextlib.suppress(OSError):
                (self._own_folder / "memory.memsw.limit_in_bytes").write_text(str(allowed))
            self._open(self._own_folder, "memory.oom_control")
        except OSError:
            self._own_folder.rmdir()
            raise

    def _open(self, folder: Path, events: str) -> None:
        # Kept open for processes that may no longer open files.
        self._processes = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        self._events = os.open(folder / events, os.O_RDONLY | os.O_CLOEXEC)

    def take(self, pid: int = 0) -> None:
        """Move a process, by default this one, into the group, where its forks will be as well."""
        os.write(self._processes, str(pid).encode())

    def is_exceeded(self) -> bool:
        """Whether the kernel has ended a process of the group at the limit."""
        lines = os.pread(self._events, 4096, 0).splitlines()
        return any(line.startswith(b"oom_kill ") and line != b"oom_kill 0" for line in lines)

    def remove(self) -> None:
        """Remove the group; another process removes it later if processes are left in it."""
        os.close(self._processes)
        os.close(self._events)
        if self._own_folder is not None:
            with contextlib.suppress(OSError):
                self._own_folder.rmdir()


def find_own_group() -> Path:
    """Return the version 1 group that counts this process's memory. Raises OSError."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    fields = [line.split(":", 2) for line in lines]
    path = next((path for _, names, path in fields if "memory" in names.split(",")), None)
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        place, _, kind = line.partition(" - ")
        root, at = place.split()[3:5]
        if (
            path is not None
            and kind.startswith("cgroup ")
            and "memory" in kind.split()[2].split(",")
        ):
            below = os.path.relpath(path, root)
            if not below.startswith(".."):
                return Path(at, below)
    raise FileNotFoundError("no memory controller has been given to this process's control group")


def make_group() -> Path:
    """Make a version 1 group without a limit, to hold other groups. Raises OSError."""
    folder = find_own_group() / (_PREFIX + secrets.token_hex(8))
    folder.mkdir()
    return folder


def remove_group(folder: Path) -> None:
    """Remove a group made by `make_group` and the groups below it, unless they have processes."""
    for below in folder.glob(_PREFIX + "*"):
        remove_group(below)
    with contextlib.suppress(OSError):
        folder.rmdir()


def try_limit(group: Path | None) -> None:
    """Let a forked child exceed a limit. Raises OSError where the limit does not end it."""
    memory = MemoryGroup(_TRIED_BYTES - _KERNEL_BYTES, group)
    try:
        child = os.fork()
        if child == 0:
            try:
                memory.take()
                # Pages of a file in memory that no process maps.
                fd = os.memfd_create("flywheel")
                for _ in range(4 * _TRIED_BYTES >> 20):
                    os.write(fd, bytes(1 << 20))
            finally:
                os._exit(0)
        until = time.monotonic() + _TRIED_S
        ended = (0, 0)
        while not ended[0] and time.monotonic() < until:
            ended = os.waitpid(child, os.WNOHANG)
            time.sleep(0.001)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not memory.is_exceeded():
            raise OSError("a limit of a memory group is without effect")
    finally:
        memory.remove()


def _remove_stale(parent: Path) -> None:
    """Remove groups that killed processes left behind."""
    for folder in parent.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_ctime > _STALE_S:
                remove_group(folder)
