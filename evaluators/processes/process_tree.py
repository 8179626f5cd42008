"""The processes below a process: find, freeze and end them, and count their memory."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

_SWEEP_LIMIT_S = 30.0
_LOOK_S = 0.002


def _read_stat(pid: int) -> list[bytes]:
    """Return what /proc tells of a process from its state on; nothing where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def count_threads_below(root: int) -> dict[int, int]:
    """Return the running processes below a process, each with its number of threads."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _read_stat(int(name))
        if not fields:
            continue
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


_LIMIT_S = 20.0
_SPIN_S = 0.001
_PAUSE_S = 0.0002


class StillRunning(Exception):
    """Processes did not stop in time."""


class GroupFreezer:
    """Stops and continues a control group of version 2, clones and grandchildren included.

    The group reports when its last process has stopped.
    """

    def __init__(self, folder: Path) -> None:
        """Open the group's files. Raises OSError where they cannot be used."""
        fds: list[int] = []
        with contextlib.ExitStack() as opened:
            for name in ("cgroup.freeze", "cgroup.events", "cpu.stat", "cgroup.procs"):
                fds.append(os.open(folder / name, os.O_WRONLY if name == "cgroup.freeze" else 0))
                opened.callback(os.close, fds[-1])
            self._freeze, self._events, self._usage, self._processes = fds
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
    """Stops a process and what has descended from it by signals, one by one.

    A process that forks at that moment can escape.
    """

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
        while _read_stat(self._pid)[:1] not in ([b"T"], [b"t"], [b"Z"], [b"X"], []):
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


Freezer: TypeAlias = GroupFreezer | SignalFreezer
"""Stops and continues the processes of one worker while no request is pending."""


def open_freezer(group: str | None, pid: int) -> Freezer:
    """Return a freezer by the worker's control group, or by signals where it has none."""
    if group is not None:
        with contextlib.suppress(OSError):
            return GroupFreezer(Path(group))
    return SignalFreezer(pid)


MACHINE_IS_SHORT = "the machine has hardly any memory left"
"""What is said of a worker that is ended while other processes hold the memory as well."""
_BLOCK_BYTES = 512
_SHM = "/dev/shm"
_WITHOUT_NAME = "/memfd:"


def count_held_bytes(pids: Iterable[int], excluded: Collection[int] = ()) -> int:
    """Return the bytes of private pages and of files in memory: mapped, open, or in a /dev/shm.

    A file counts once, even if several processes have it open. Of memory that is mapped without a
    descriptor, the process with the most counts. Processes that cannot be inspected count with
    their private pages only.

    excluded: Inodes of files in memory that are not the tree's own.
    """
    private = mapped = 0
    files: dict[int, int] = {}
    known = {_find_device(_SHM), None}
    shared = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/statm").read_text().split()
            private += (int(fields[1]) - int(fields[2])) * resource.getpagesize()
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    # A file with a name is counted in its folder.
                    if os.readlink(entry.path).startswith(_WITHOUT_NAME):
                        known_file = os.stat(entry.path)
                        files[known_file.st_ino] = known_file.st_blocks * _BLOCK_BYTES
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
                if line.startswith("RssShmem:"):
                    mapped = max(mapped, int(line.split()[1]) * 1024)
        folder = f"/proc/{pid}/root{_SHM}"
        if (device := _find_device(folder)) not in known:
            known.add(device)
            shared += read_used_bytes(folder)
    excluded_bytes = sum(size for inode, size in files.items() if inode in excluded)
    opened = sum(files.values()) - excluded_bytes
    return private + max(opened, mapped - excluded_bytes, 0) + shared


def _find_device(folder: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(folder).st_dev
    return None


def read_used_bytes(folder: str) -> int:
    """Return the bytes in use on the file system of a folder; 0 where there is none."""
    with contextlib.suppress(OSError):
        known = os.statvfs(folder)
        return (known.f_blocks - known.f_bfree) * known.f_frsize
    return 0
