"""Control groups (version 2): one write ends a whole tree of processes, whatever it forks.

Groups are made below the group of this process, which needs permission for that. A group with
processes of its own cannot delegate controllers, so the judge process is in a leaf of the judge's
group, and the groups of its workers are beside that leaf.
"""

from __future__ import annotations

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
_TRIED_S = 1.0


class Group:
    """A group of processes, empty at first."""

    def __init__(self, *, holds_groups: bool = False) -> None:
        """Make the group.

        Args:
            holds_groups: Whether its processes make groups with limits of their own.

        Raises:
            OSError: this process may not make groups, or the system has none.
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
            _remove(self.folder)
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
        with contextlib.suppress(OSError):
            _remove(self.folder)


def find_own_group() -> Path:
    """Return the folder of this process's group. Raises OSError where there is none."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        fields, _, kind = line.partition(" - ")
        root, place = fields.split()[3:5]
        if path is not None and kind.startswith("cgroup2 "):
            below = os.path.relpath(path, root)
            if not below.startswith(".."):
                return Path(place, below)
    raise FileNotFoundError("this process is in no control group of version 2")


def is_available() -> bool:
    """Whether groups can be made, entered and killed here."""
    try:
        try_kill()
    except OSError:
        return False
    return True


def try_kill() -> None:
    """Make a group, enter it and kill it. Raises OSError where that fails."""
    group = Group()
    child = os.fork()
    if child == 0:
        try:
            group.take()
            group.kill()
            time.sleep(_TRIED_S)
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


def _wait_for(file: Path, line: str) -> None:
    until = time.monotonic() + _TRIED_S
    while line not in file.read_text("utf-8").splitlines():
        if time.monotonic() > until:
            raise TimeoutError(f"no {line!r} in {file.name} after {_TRIED_S:g} s")
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
    """Remove groups that killed processes left behind."""
    for folder in parent.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_ctime > _STALE_S:
                _remove(folder)


def _remove(folder: Path) -> None:
    for below in folder.glob(_PREFIX + "*"):
        _remove(below)
    folder.rmdir()
