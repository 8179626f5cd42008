"""What a lake in a folder needs of its host: user, private folders, durable files, and locks."""

from __future__ import annotations

import atexit
import fcntl
import functools
import getpass
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Timer

from store.commandline.escape import escape_terminal
from store.errors import FlywheelError, LakeUnreachable
from store.faults import replace_file

log = logging.getLogger(__name__)
NOTE_AFTER_S = 1.5
"""Seconds until a note says who holds the lock that a process waits for."""
_MOST_BYTES = 4096
"""Longest text about the holder of a lock."""
NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|fuse\.sshfs|afs")
"""File systems on which SQLite's locks and shared memory do not protect a catalog."""


def find_filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system of a folder, such as ext4, or None if it is unknown.

    `mounts` is the text of Linux's /proc/self/mountinfo, which is read without it.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return None  # not Linux
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        # A later mount at the same point hides an earlier one.
        fields, _, rest = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if folder.is_relative_to(point) and (found is None or len(point) >= found[0]):
            found = len(point), rest.split(" ")[0]
    return None if found is None else found[1]


def require_local(folder: Path) -> None:
    """Raise LakeUnreachable if a folder is on a network file system."""
    kind = find_filesystem(folder)
    if kind is not None and NETWORK.fullmatch(kind):
        raise LakeUnreachable(
            f"{folder} is on a network file system ({kind}), which cannot hold the catalog of a "
            "lake: SQLite's locks do not work there",
            "Name a folder of a local disk, or keep the catalog on a PostgreSQL server and only "
            f"the data files there: postgresql://HOST/DATABASE?data={folder}/data "
            "(docs/cluster.md).",
        )


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
            with suppress(OSError):  # its process lives
                abandoned = _lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if abandoned is not None:
                    shutil.rmtree(other, ignore_errors=True)
                    os.close(abandoned)
    return folder


def _remove_own(pid: int, folder: Path) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path, kind: int) -> int | None:
    """Return a descriptor that locks a folder, or None if it was removed before it was locked.

    Raises OSError if the folder cannot be locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with ExitStack() as opened:
        opened.callback(os.close, descriptor)
        fcntl.flock(descriptor, kind)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                opened.pop_all()
                return descriptor
    return None


def name_user() -> str:
    """Return the user's login name, or a name with the user id where no account has it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def find_home() -> Path | None:
    """Return the user's home; None where neither HOME nor an account names one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def choose_cache(name: str) -> Path:
    """Return the folder of this user's files of one kind that may be deleted at any time.

    It is in FLYWHEEL_CACHE, else in XDG_CACHE_HOME or the home's folder for caches. A user who can
    write to neither has it in the folder for temporary files.
    """
    given = os.environ.get("FLYWHEEL_CACHE")
    if given:
        return Path(given).absolute() / name
    base, home = os.environ.get("XDG_CACHE_HOME"), find_home()
    if base:
        return Path(base) / "flywheel" / name
    if home is not None:
        cache = home / ".cache" / "flywheel" / name
        if os.access(next(part for part in cache.parents if part.exists()), os.W_OK):
            return cache
    return find_user_scratch(Path(tempfile.gettempdir())) / "cache" / name


def choose_state() -> Path:
    """Return the folder of this user's lasting files on this host. Raises FlywheelError."""
    base, home = os.environ.get("XDG_STATE_HOME"), find_home()
    if base:
        return Path(base)
    if home is None:
        raise FlywheelError(
            f"user id {os.getuid()} has no account and HOME is not set, so that no folder keeps"
            " rows until they are committed",
            "Set XDG_STATE_HOME or HOME to a folder that you can write to.",
        )
    return home / ".local" / "state"


def write_durably(file: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole, by default readable by its owner only."""
    with (
        replace_file(file) as partial,
        open(partial, "wb", opener=lambda path, flags: os.open(path, flags, mode)) as handle,
    ):
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    sync(file.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file that no part of this process has open; its content is on disk before."""
    with open(source, "rb") as handle:
        os.fsync(handle.fileno())
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Force a file to disk, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def name_holder(describe: Callable[[], str]) -> Generator[None]:
    """Log what is waited for, if the block takes longer than a moment."""
    timer = Timer(NOTE_AFTER_S, lambda: log.info("waiting for %s", describe()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def take_lock(descriptor: int, file: Path, author: str, *, wait: bool = True) -> bool:
    """Lock an open file, and write into it who has it now; return whether it is locked.

    Unless told to wait, it is not locked while another holder has it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            return False
        with name_holder(lambda: describe_holder(file)):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    text = json.dumps({"author": author, "pid": os.getpid(), "since": time.time()})
    with suppress(OSError):  # a full disk or a read-only file: the lock holds without the text
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    return True


def describe_holder(file: Path) -> str:
    """Return who has locked a file, as far as its text says; nothing else depends on the text."""
    try:
        with open(file, "rb") as handle:
            holder = json.loads(handle.read(_MOST_BYTES))
        author, pid = escape_terminal(str(holder["author"])[:80]), int(holder["pid"])
        seconds = max(0, round(time.time() - float(holder["since"])))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "another process"
    return f"{author} (pid {pid}), which took the lock {seconds} s ago"
