"""Locks between the processes of one machine: a timed section has its device to itself.

Judges that make calls and trainers that sample share a device; a judge that times has it alone. The
locks are files of the machine, so they hold between commands, lakes and users. A judge process
shares its descriptors with the process that started it: a lock ends when both have ended, or when
one of them releases it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = "flywheel-locks"
_EVERY_USER = 0o666


@dataclass
class Hold:
    """A device that is held."""

    waited_s: float
    """Seconds of waiting for it."""
    shared: bool = False
    """Whether others may share it."""
    aside_s: float = 0.0
    """Seconds in which other judges had it meanwhile."""


class DeviceLock:
    """The locks of one device: a turnstile and a lock for each part of it.

    A judge that waits for a device holds its turnstile, so that a stream of judges that share the
    device cannot keep one that times waiting forever.
    """

    def __init__(self, fds: Sequence[tuple[int, int]] = ()) -> None:
        """Take descriptors of turnstiles and locks, in the same order in every judge."""
        self._fds = list(fds)
        self._hold: Hold | None = None

    @classmethod
    def of(cls, names: Iterable[str]) -> DeviceLock:
        """Open the locks of parts of a device; a part whose files cannot be opened has no lock."""
        opened: list[tuple[int, int]] = []
        for name in sorted(names):
            with contextlib.suppress(OSError):
                opened.append((_open(f"{name}.turn"), _open(f"{name}.lock")))
        return cls(opened)

    @classmethod
    def of_device(cls, device: str, cores: Sequence[int] | None = None) -> DeviceLock:
        """Open the locks of a GPU, such as cuda:0, or of cores of the processor (None: all)."""
        kind, _, number = device.partition(":")
        if kind == "cpu":
            return cls.of(f"cpu-{core}" for core in cores or sorted(os.sched_getaffinity(0)))
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        index = int(number or 0)
        name = visible[index] if index < len(visible) else str(index)
        return cls.of([f"gpu-{name}".replace(os.sep, "-")])

    @property
    def fds(self) -> list[tuple[int, int]]:
        """Descriptors to pass to another process, which makes a DeviceLock of them."""
        return list(self._fds)

    @contextlib.contextmanager
    def hold_shared(self) -> Generator[Hold]:
        """Hold the device together with others."""
        with self._take(fcntl.LOCK_SH) as hold:
            yield hold

    @contextlib.contextmanager
    def hold_exclusive(self) -> Generator[Hold]:
        """Hold the device alone."""
        with self._take(fcntl.LOCK_EX) as hold:
            yield hold

    @contextlib.contextmanager
    def _take(self, how: int) -> Generator[Hold]:
        begin = time.monotonic()
        with contextlib.ExitStack() as held:
            for turnstile, lock in self._fds:
                _pass_turnstile(turnstile, lock, how)
                held.callback(fcntl.flock, lock, fcntl.LOCK_UN)
            self._hold = Hold(time.monotonic() - begin, shared=how == fcntl.LOCK_SH)
            held.callback(setattr, self, "_hold", None)
            yield self._hold

    def is_wanted(self) -> bool:
        """Whether this judge shares the device and another one waits to have it alone."""
        if self._hold is None or not self._hold.shared:
            return False
        for turnstile, _ in self._fds:
            try:
                fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        return False

    def step_aside(self) -> float:
        """Let those that wait have the device, then share it again; return the seconds between."""
        begin = time.monotonic()
        for _, lock in self._fds:
            fcntl.flock(lock, fcntl.LOCK_UN)
        for turnstile, lock in self._fds:
            _pass_turnstile(turnstile, lock, fcntl.LOCK_SH)
        aside_s = time.monotonic() - begin
        if self._hold is not None:
            self._hold.aside_s += aside_s
        return aside_s

    def release(self) -> None:
        """Release what a process with the same descriptors held when it ended."""
        for pair in self._fds:
            for fd in pair:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the descriptors."""
        for pair in self._fds:
            for fd in pair:
                os.close(fd)
        self._fds = []


def _pass_turnstile(turnstile: int, lock: int, how: int) -> None:
    """Take a lock once those who came before have it."""
    fcntl.flock(turnstile, fcntl.LOCK_EX)
    try:
        fcntl.flock(lock, how)
    finally:
        fcntl.flock(turnstile, fcntl.LOCK_UN)


def _open(name: str) -> int:
    """Open a lock file that every user may lock. Raises OSError."""
    folder = Path(tempfile.gettempdir()) / _FOLDER
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(folder / name, flags)
    except FileNotFoundError:
        fd = os.open(folder / name, flags | os.O_CREAT, _EVERY_USER)
        with contextlib.suppress(OSError):
            os.fchmod(fd, _EVERY_USER)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{folder / name} is not a regular file")
    return fd
