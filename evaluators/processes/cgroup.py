"""Control groups: one write ends or freezes a whole tree of processes, and limits bound its memory.

Groups of version 2 are made below the group of this process, which needs permission for that. A
group with processes of its own cannot delegate controllers, so the judge process is in a leaf of
the judge's group, and the groups of its workers are beside that leaf.

A limit of address space bounds one process only, and resident memory leaves out files that no
process maps, such as those of memfd_create. A control group charges every page to the group that
touched it first, and ends a process of the group when no page is left. Memory is limited by version
2 where the worker's group has the controller, and otherwise by version 1.
"""

import contextlib
import errno
import os
import secrets
import signal
import time
from pathlib import Path

_PREFIX = "flywheel-"
_LEAF = "flywheel-leaf"
_MEMORY = "memory"
_STALE_S = 3600.0
_KERNEL_BYTES = 64 << 20
"""Allowance for page tables and kernel buffers, which are charged as well."""
_TRIED_BYTES = 16 << 20
_TRIED_LIMIT_S = 10.0


class Group:
    """A group of processes, empty at first."""

    def __init__(self, *, holds_groups: bool = False) -> None:
        """Make the group.

        holds_groups: Whether its processes make groups with limits of their own.

        Raises OSError: this process may not make groups, or the system has none.
        """
        parent = find_own_group()
        if parent.name == _LEAF:
            parent = parent.parent
        _remove_stale(parent)
        if holds_groups:
            _hand_down_memory(parent)
        self.folder = parent / (_PREFIX + secrets.token_hex(8))
        self.folder.mkdir()
        held = self.folder
        try:
            if holds_groups and _MEMORY in _read_words(self.folder / "cgroup.controllers"):
                (self.folder / "cgroup.subtree_control").write_text("+" + _MEMORY)
                held = self.folder / _LEAF
                held.mkdir()
            # Kept open for processes that may no longer open files.
            self._kill = os.open(self.folder / "cgroup.kill", os.O_WRONLY)
            self._processes = os.open(held / "cgroup.procs", os.O_WRONLY)
        except OSError:  # before Linux 5.14 there is no cgroup.kill
            remove_group(self.folder)
            raise

    def take(self, pid: int = 0) -> None:
        """Move a process, by default this one, into the group, where its forks will be as well."""
        os.write(self._processes, str(pid).encode())

    def kill(self) -> None:
        """Kill every process in the group and in the groups below at once."""
        os.write(self._kill, b"1")

    def remove(self) -> None:
        """Remove the group; another process removes it later if processes are left in it."""
        os.close(self._processes)
        os.close(self._kill)
        remove_group(self.folder)


class MemoryGroup:
    """A group whose processes have a common memory limit."""

    def __init__(self, limit_bytes: int, group: Path | None) -> None:
        """Set the limit.

        group: The worker's group of version 2, if it has one.

        Raises OSError: there is no memory controller, or this process may not use it.
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
        parent = find_own_group(_MEMORY)
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


def find_own_group(controller: str | None = None) -> Path:
    """Return the folder of this process's group: of version 2, or of a version 1 controller.

    Raises OSError where there is none.
    """
    fields = [
        line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    ]
    paths = [
        path
        for number, names, path in fields
        if (number == "0" and not names if controller is None else controller in names.split(","))
    ]
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        mounted, _, kind = line.partition(" - ")
        root, place = mounted.split()[3:5]
        version, _, options = kind.split()[:3]
        fits = (
            version == "cgroup2"
            if controller is None
            else version == "cgroup" and controller in options.split(",")
        )
        if paths and fits:
            below = os.path.relpath(paths[0], root)
            if not below.startswith(".."):
                return Path(place, below)
    if controller is None:
        raise FileNotFoundError("this process is in no control group of version 2")
    raise FileNotFoundError(
        f"no {controller} controller has been given to this process's control group"
    )


def make_memory_group() -> Path:
    """Make a version 1 group without a limit, to hold other groups. Raises OSError."""
    folder = find_own_group(_MEMORY) / (_PREFIX + secrets.token_hex(8))
    folder.mkdir()
    return folder


def remove_group(folder: Path) -> None:
    """Remove a group and the groups below it, unless they have processes."""
    for below in folder.glob(_PREFIX + "*"):
        remove_group(below)
    with contextlib.suppress(OSError):
        folder.rmdir()


def try_kill() -> None:
    """Make a group, enter it and kill it. Raises OSError where that fails."""
    group = Group()
    child = os.fork()
    if child == 0:
        try:
            group.take()
            group.kill()
            time.sleep(_TRIED_LIMIT_S)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    group.remove()
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        raise OSError("a process cannot enter a group, or a group cannot be killed")


def try_freezer() -> None:
    """Freeze a forked child, wait for the report, and thaw it. Raises OSError where that fails."""
    group = Group()
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    try:
        group.take(child)
        (group.folder / "cgroup.freeze").write_text("1")
        _wait_for(group.folder / "cgroup.events", "frozen 1")
        (group.folder / "cgroup.freeze").write_text("0")
        _wait_for(group.folder / "cgroup.events", "frozen 0")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        group.remove()


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
        until = time.monotonic() + _TRIED_LIMIT_S
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


def _wait_for(file: Path, line: str) -> None:
    until = time.monotonic() + _TRIED_LIMIT_S
    while line not in file.read_text("utf-8").splitlines():
        if time.monotonic() > until:
            raise TimeoutError(f"no {line!r} in {file.name} after {_TRIED_LIMIT_S:g} s")
        time.sleep(0.001)


def _hand_down_memory(parent: Path) -> None:
    """Let groups below this one have memory limits where that is possible.

    A process that has its group to itself, as under `systemd-run --scope`, moves to a leaf first.
    Groups with other processes stay as they are.
    """
    if _MEMORY not in _read_words(parent / "cgroup.controllers"):
        return
    if _MEMORY in _read_words(parent / "cgroup.subtree_control"):
        return
    with contextlib.suppress(OSError):
        try:
            (parent / "cgroup.subtree_control").write_text("+" + _MEMORY)
        except OSError as error:
            if error.errno != errno.EBUSY or _read_words(parent / "cgroup.procs") != [
                str(os.getpid())
            ]:
                raise
            (parent / _LEAF).mkdir(exist_ok=True)
            (parent / _LEAF / "cgroup.procs").write_text("0")
            (parent / "cgroup.subtree_control").write_text("+" + _MEMORY)


def _read_words(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return file.read_text("utf-8").split()
    return []


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_ctime > _STALE_S:
                remove_group(folder)
