"""Control groups (version 2): one write that ends a whole tree of processes, whatever it forks.

Groups are made below that of this process, which has to be allowed to. They set no limits: these
need controllers, which a group that has processes of its own cannot hand down.
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


class Group:
    """A group of processes, without any at first."""

    def __init__(self) -> None:
        """Make it; raises OSError where that is not allowed, or there are no such groups."""
        parent = own()
        _remove_stale(parent)
        self.folder = parent / (_PREFIX + secrets.token_hex(8))
        self.folder.mkdir()
        try:
            # Open, so that a process can use them that may not open a file any more.
            self._kill = os.open(self.folder / "cgroup.kill", os.O_WRONLY)
            self._processes = os.open(self.folder / "cgroup.procs", os.O_WRONLY)
        except OSError:  # before Linux 5.14 there is no cgroup.kill
            self.folder.rmdir()
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


def own() -> Path:
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


def works() -> bool:
    """Whether a group can be made here, entered and killed, found by trying."""
    try:
        group = Group()
    except OSError:
        return False
    child = os.fork()
    if child == 0:
        try:
            group.take()
            group.kill()
            time.sleep(1.0)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    group.remove()
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


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
