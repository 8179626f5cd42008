"""Control groups (version 2): one write that ends a whole tree of processes, whatever it forks.

Groups are made below that of this process, which has to be allowed to. A group with processes of
its own cannot hand controllers down, so a judge's own process is in a leaf of the judge's group,
and the groups of its workers are beside that leaf.
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
    """A group of processes, without any at first."""

    def __init__(self, *, holds_groups: bool = False) -> None:
        """Make it.

        Args:
            holds_groups: Its processes make groups with limits of their own.

        Raises:
            OSError: that is not allowed, or there are no such groups.
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
            # Open, so that a process can use them that may not open a file any more.
            self._kill = os.open(self.folder / "cgroup.kill", os.O_WRONLY)
            self._processes = os.open(held / "cgroup.procs", os.O_WRONLY)
        except OSError:  # before Linux 5.14 there is no cgroup.kill
            _remove(self.folder)
            raise

    def take(self, pid: int = 0) -> None:
        """Move a process into the group, by default this one; what it forks will be there too."""
        os.write(self._processes, str(pid).encode())

    def kill(self) -> None:
        """Kill every process in the group and in the groups below at one moment."""
        os.write(self._kill, b"1")

    def remove(self) -> None:
        """Remove the group; one with processes left stays, and is removed later by another."""
        os.close(self._processes)
        os.close(self._kill)
        with contextlib.suppress(OSError):
            _remove(self.folder)


def find_own_group() -> Path:
    """The folder of the group that this process is in. Raises OSError where there is none."""
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
    """Whether a group can be made here, entered and killed, found by trying."""
    try:
        try_kill()
    except OSError:
        return False
    return True


def try_kill() -> None:
    """Make a group, enter it and kill it. Raises OSError where that cannot be done."""
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
    """Freeze a forked child, hear of it, and thaw it. Raises OSError where that cannot be done."""
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
    """Let groups below one have limits of memory where that is possible.

    A group that was made for this process alone, as by `systemd-run --scope`, is left for a leaf of
    it first. Groups that have other processes stay as they are.
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
    """Remove groups that killed processes have left behind."""
    for folder in parent.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_ctime > _STALE_S:
                _remove(folder)


def _remove(folder: Path) -> None:
    for below in folder.glob(_PREFIX + "*"):
        _remove(below)
    folder.rmdir()
