"""Leases on names: work that one process at a time does, on any host that uses the lake."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import faults
from store.errors import LakeUnreachable, summarize_error

if TYPE_CHECKING:
    import psycopg


class Leases(ABC):
    """Names that this process holds and no other process does. Use as a context manager.

    A lease ends when it is released or when its holder ends, even if it is killed. It says who
    works on something; it does not keep anyone from writing.
    """

    @abstractmethod
    def take(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that this process holds now; the others are held elsewhere.

        Raises LakeUnreachable.
        """

    @abstractmethod
    def release(self, names: Iterable[str]) -> None:
        """Let other processes take these names."""

    @abstractmethod
    def close(self) -> None:
        """Release every name."""

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FolderLeases(Leases):
    """Locks of single bytes of one file, which the kernel releases when the process ends.

    The file stays empty. The kernel releases all locks of a process on a file as soon as the
    process closes any descriptor of it. Therefore all leases of a process on one file share a
    descriptor, and nothing else opens the file.
    """

    def __init__(self, file: Path) -> None:
        """Open the file. Raises LakeUnreachable."""
        with faults.at(file, LakeUnreachable):
            self._locks = _share_locks(file, os.O_RDWR | os.O_CREAT)

    def take(self, names: Sequence[str]) -> set[str]:
        holders = self._locks.holders
        with _mutex:
            for name in names:
                if name not in holders and self._locks.try_lock(name):
                    holders[name] = self
            return {name for name in names if holders.get(name) is self}

    def release(self, names: Iterable[str]) -> None:
        with _mutex:
            for name in names:
                if self._locks.holders.get(name) is self:
                    self._locks.unlock(name)
                    del self._locks.holders[name]

    def close(self) -> None:
        with _mutex:
            self.release(list(self._locks.holders))
            self._locks.leave()


def find_held(file: Path, names: Iterable[str]) -> set[str]:
    """Return the names that any process of this host, this one included, has leased in a file.

    No lease changes, and no right to write is needed.
    """
    try:
        with _mutex:
            locks = _share_locks(file, os.O_RDONLY)
            try:
                return {name for name in names if name in locks.holders or locks.is_locked(name)}
            finally:
                locks.leave()
    except FileNotFoundError:  # nobody has taken a lease yet
        return set()


class _Locks:
    """The descriptor of a file that all leases of this process on it share."""

    def __init__(self, descriptor: int, key: tuple[int, int]) -> None:
        self._descriptor, self._key = descriptor, key
        self.users = 0
        self.holders: dict[str, FolderLeases] = {}
        """Names that this process has leased."""

    def try_lock(self, name: str) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, hash_name(name))
        except BlockingIOError:
            return False
        return True

    def unlock(self, name: str) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, hash_name(name))

    def is_locked(self, name: str) -> bool:
        """Return whether another process has locked the byte of a name."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, hash_name(name), 1, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked)
        return struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK

    def leave(self) -> None:
        """Close the descriptor after its last user."""
        self.users -= 1
        if not self.users:
            os.close(self._descriptor)
            _shared.pop(self._key, None)


def _share_locks(file: Path, flags: int) -> _Locks:
    """Return the locks on a file, and count their user. Raises OSError."""
    with _mutex:
        with suppress(FileNotFoundError):
            state = file.stat()
            locks = _shared.get((state.st_dev, state.st_ino))
            if locks is not None:
                locks.users += 1
                return locks
        descriptor = os.open(file, flags | os.O_CLOEXEC, 0o644)
        state = os.fstat(descriptor)
        key = (state.st_dev, state.st_ino)
        locks = _shared[key] = _Locks(descriptor, key)
        locks.users += 1
        return locks


def _forget_locks() -> None:
    """Begin a fork without leases, because it has none of its parent's locks."""
    global _mutex
    _mutex = threading.RLock()
    for locks in _shared.values():
        locks.holders.clear()


_FLOCK = "@hhqqi"
"""The struct flock of Linux: type, whence, start, length, process."""
_shared: dict[tuple[int, int], _Locks] = {}
_mutex = threading.RLock()
os.register_at_fork(after_in_child=_forget_locks)


def hash_name(name: str) -> int:
    """Return a number below 2^62 for a name: a byte of a file, or a key of an advisory lock."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


class ServerLeases(Leases):
    """Advisory locks of one session, which the server releases when the session ends."""

    def __init__(self, session: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
        """Take over an open session."""
        self._session = session
        self._schema = schema
        self._held: set[str] = set()

    def take(self, names: Sequence[str]) -> set[str]:
        import psycopg

        wanted = {hash_name(f"{self._schema} {name}"): name for name in names}
        asked = [key for key, name in wanted.items() if name not in self._held]
        try:
            rows = self._session.execute(
                "SELECT key FROM unnest(%s::bigint[]) AS asked (key) "
                "WHERE pg_try_advisory_lock(key)",
                [asked],
            ).fetchall()
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"the leases of this run are lost: {summarize_error(error)}",
                "Run this again; what was stored is kept.",
            ) from error
        self._held |= {wanted[key] for (key,) in rows}
        return self._held.intersection(names)

    def find_held(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that any session holds. Raises LakeUnreachable."""
        import psycopg

        keys = {hash_name(f"{self._schema} {name}"): name for name in names}
        try:
            rows = self._session.execute(
                # An advisory lock of a 64-bit key shows as its two halves.
                "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks "
                "WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"the leases of this lake cannot be read: {summarize_error(error)}"
            ) from error
        return {keys[key] for (key,) in rows if key in keys}

    def release(self, names: Iterable[str]) -> None:
        import psycopg

        gone = self._held.intersection(names)
        self._held -= gone
        keys = [hash_name(f"{self._schema} {name}") for name in gone]
        with suppress(psycopg.Error):
            self._session.execute(
                "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)", [keys]
            )

    def close(self) -> None:
        self._session.close()
