"""Private folders for temporary data; the next process removes those of a process that was killed.

Every process locks its folder. A lock ends with its process, whatever the number of the process is
and in which container it runs.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from store.lake.host.mounts import find_filesystem

_LOCAL = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|bcachefs|tmpfs|overlay")
"""File systems on which a lock is seen by every process that can see the folder. On others, such as
NFS, 9p or virtiofs, processes of other hosts may hold locks that this one does not see."""


def choose_scratch(purpose: str) -> Path:
    """Return a new path in the private folder of this process.

    The caller, or DuckDB, makes the folder and removes it; the end of the process removes it too.
    """
    base = find_user_scratch(Path(tempfile.gettempdir()))
    try:
        own = _make_own(os.getpid(), base)
    except OSError:
        # Such as a full disk. A query that needs the folder fails with the reason; most need none.
        own = base
    return own / f"{purpose}-{secrets.token_hex(4)}"


@contextmanager
def open_scratch(purpose: str) -> Generator[Path]:
    """Make a private folder, and remove it at the end."""
    folder = choose_scratch(purpose)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def find_user_scratch(parent: Path) -> Path:
    """Return the folder of this user's processes in the folder for temporary files."""
    base = parent / f"kernel-flywheel-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(base)
    except OSError:
        return base
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
        return base
    # Another user owns the folder, or it is open to others.
    own = Path(tempfile.mkdtemp(prefix="kernel-flywheel-", dir=parent))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


@functools.cache
def _make_own(pid: int, base: Path) -> Path:
    """Make and lock the folder of a process; a fork makes its own. Raises OSError."""
    while True:
        folder = base / f"process-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        # The descriptor stays open until the process ends.
        if _lock(folder, fcntl.LOCK_SH) is not None:
            break  # else another process took it for an abandoned one before it was locked
    atexit.register(_remove_own, pid, folder)
    kind = find_filesystem(base)
    if kind is None or _LOCAL.fullmatch(kind):
        for other in base.glob("process-*"):
            _remove_abandoned(other)
    return folder


def _remove_own(pid: int, folder: Path) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove the folder of a process that has ended."""
    try:
        descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # its process lives
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _lock(folder: Path, kind: int) -> int | None:
    """Return a descriptor that locks a folder, or None if it was removed before it was locked.

    Raises OSError if the folder cannot be locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, kind)
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
