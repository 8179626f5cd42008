"""Namespaces of Linux that a process makes for itself and the processes below it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
_SHM = "/dev/shm"

_C = ctypes.CDLL(None, use_errno=True)


def leave_network() -> None:
    """Move this process to a network namespace without any device. Raises OSError."""
    unshare(_NEWNET)


def leave_ipc() -> None:
    """Move this process to an IPC namespace of its own. Raises OSError."""
    unshare(_NEWIPC)


def start_process_namespace() -> None:
    """Make the next fork the first process of a PID namespace, whose end ends all in it."""
    unshare(_NEWPID)


def enter_user_namespace() -> None:
    """Enter a user namespace in which this user keeps its id and may make other namespaces."""
    user, group = os.geteuid(), os.getegid()
    unshare(_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def mount_private_shm() -> None:
    """Mount a /dev/shm that no other process sees and that ends with the last process in it."""
    unshare(_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    _mount("tmpfs", _SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")


def _mount(source: str | None, at: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, at, kind, data)]
    if _C.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), at)


def unshare(flags: int) -> None:
    """Make the namespaces that the flags name, for this process. Raises OSError."""
    if _C.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
