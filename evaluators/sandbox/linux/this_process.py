"""What a process gives up, asks of the kernel and the C library, and the namespaces it makes."""

import ctypes
import os
import signal
from pathlib import Path

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
"""Namespaces: of mounts, System V memory, users, processes, and the network."""
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CLEAR_AMBIENT = 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_REUSED = 32 << 20
"""The most that glibc accepts."""

LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, place: str | None = None) -> int:
    """Return what a call of the C library has returned. Raises OSError where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
    return result


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own."""
    LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Hide memory, environment and descriptors of this process and its forks from its own user."""
    LIBC.prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """Let no program that this process starts gain privileges. Raises OSError."""
    if LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("new privileges cannot be given up")


def drop_capabilities() -> None:
    """Give up whatever root may do, for this process and what it starts. Raises OSError."""
    for capability in range(_CAPABILITIES):
        LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    LIBC.prctl(_PR_CAP_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    check(LIBC.capset(header, nothing))


def unshare(flags: int) -> None:
    """Make the namespaces that the flags name, for this process. Raises OSError.

    With NEWPID, the next fork is the first process of a namespace, whose end ends all in it.
    """
    check(LIBC.unshare(flags))


def enter_user_namespace() -> None:
    """Enter a user namespace in which this user keeps its id and may make other namespaces."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def mount_private_shm() -> None:
    """Mount a /dev/shm that no other process sees and that ends with the last process in it."""
    unshare(NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def mount(source: str | None, at: str, kind: str | None, flags: int, data: str | None) -> None:
    """Mount something at a place. Raises OSError."""
    texts = [text.encode() if text is not None else None for text in (source, at, kind, data)]
    check(LIBC.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), at)


def reuse_memory() -> None:
    """Keep freed blocks of up to 32 MiB for the next allocation, and return larger ones.

    Otherwise blocks are returned to the system and faulted in again page by page, in some calls and
    not in others, which can take as long as computing an output. Larger blocks are faulted in again
    in every call. If they were kept, a small answer that stays in the place of a large block would
    make the next block take new memory, call by call. Forks inherit this. C libraries other than
    glibc have no such setting and keep theirs.
    """
    mallopt = getattr(LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_M_TRIM_THRESHOLD, -1)
