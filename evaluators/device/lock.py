"""Locks between the processes of one machine: a timed section has its device to itself.

Judges that make calls and trainers that sample share a device; a judge that times has it alone. The
locks are files of the machine (/tmp/flywheel-locks, or the folder that FLYWHEEL_LOCKS names), so
they hold between commands, lakes and users. A judge process shares its descriptors with the process
that started it: a lock ends when both have ended, or when one of them closes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import stat
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from evaluators.device.placement import identify_gpu

_FOLDER = "/tmp/flywheel-locks"  # TMPDIR differs between the jobs of one machine
_EVERY_USER = 0o666
_PASSING_S = 0.02
"""Seconds after which who shares a device has passed its turnstile."""
_LONGEST_SHARE_S = 0.25
"""Seconds that a share lasts before its holder is asked to step aside, at most."""
_GATHERING_S = 0.5
"""Seconds for which a judge that wants to time waits, at most, for another one that does."""
_LOOK_S = 0.01
"""Seconds between two looks at a lock."""

log = logging.getLogger(__name__)


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
    device cannot keep one that times waiting forever. Those that time pass it together and take
    turns, because making all others step aside takes as long as a timing session. Each of them
    shares the device before it times again, and a share lasts as long as its holder waited for it,
    up to a quarter of a second, so those that time cannot starve one that shares. Use an instance
    in one thread. A device that is held can be held shared within that.
    """

    def __init__(
        self,
        fds: Sequence[tuple[int, int]] = (),
        report_wait: Callable[[bool], None] = lambda waits: None,
    ) -> None:
        """Take descriptors of turnstiles and locks, in the same order in every judge.

        report_wait: Called with True before a wait, and with False after it.
        """
        self.fds = list(fds)
        """Descriptors to pass to another process, which makes a DeviceLock of them."""
        self._report_wait = report_wait
        self._holds: list[Hold] = []
        self._keep_until = 0.0

    @classmethod
    def of(cls, names: Iterable[str]) -> DeviceLock:
        """Open the locks of parts of a device; warn of parts whose files cannot be opened."""
        opened: list[tuple[int, int]] = []
        failed: dict[str, OSError] = {}
        for name in sorted(names):
            try:
                opened.append(_open_pair(name))
            except OSError as error:
                failed[name] = error
        if failed:
            log.warning(
                "no lock on %s, so other commands may disturb the timing of kernels: %s",
                *(", ".join(failed), next(iter(failed.values()))),
            )
        return cls(opened)

    @classmethod
    def of_device(cls, device: str, cores: Sequence[int] | None = None) -> DeviceLock:
        """Open the locks of a GPU, such as cuda:0, or of cores of the processor (None: all)."""
        if device == "cpu":
            return cls.of(f"cpu-{core}" for core in cores or sorted(os.sched_getaffinity(0)))
        return cls.of([_name_gpu(device)])

    @classmethod
    def of_memory(cls, device: str) -> DeviceLock:
        """Open the lock of the memory of a GPU, such as cuda:0, or of this host for cpu."""
        return cls.of([f"{'cpu' if device == 'cpu' else _name_gpu(device)}-memory"])

    def hold_shared(self) -> AbstractContextManager[Hold]:
        """Hold the device together with others."""
        return self._take(fcntl.LOCK_SH)

    def hold_exclusive(self) -> AbstractContextManager[Hold]:
        """Hold the device alone."""
        return self._take(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _take(self, how: int) -> Generator[Hold]:
        if self._holds:
            if how == fcntl.LOCK_EX:
                raise AssertionError("a device that is held cannot be taken alone")
            self._holds.append(Hold(0.0, shared=True))
            try:
                yield self._holds[-1]
            finally:
                self._holds.pop()
            return
        try:
            self._holds.append(Hold(self._acquire(how), shared=how == fcntl.LOCK_SH))
            yield self._holds[0]
        finally:
            self._holds.clear()
            self._release()

    def _acquire(self, how: int) -> float:
        """Take every lock once those who came before have it; return the seconds of waiting."""
        begin = time.monotonic()
        waits = False
        turn = fcntl.LOCK_EX
        if how == fcntl.LOCK_EX:
            turn = fcntl.LOCK_SH
            self._gather(begin + _GATHERING_S)
        for turnstile, lock in self.fds:
            for fd, mode in ((turnstile, turn), (lock, how)):
                try:
                    fcntl.flock(fd, mode | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not waits:
                        self._report_wait(True)
                    waits = True
                    fcntl.flock(fd, mode)
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        if waits:
            self._report_wait(False)
        waited_s = time.monotonic() - begin
        self._keep_until = time.monotonic() + min(waited_s, _LONGEST_SHARE_S)
        return waited_s

    def _gather(self, stop: float) -> None:
        """Wait while others share the device and none of them waits to have it alone."""
        while time.monotonic() < stop and not self._is_turnstile_taken():
            if not any(_is_taken(lock) for _, lock in self.fds):
                return
            time.sleep(_LOOK_S)

    def _release(self) -> None:
        """Release what this process holds, or one with the same descriptors held when it ended."""
        for pair in self.fds:
            for fd in pair:
                fcntl.flock(fd, fcntl.LOCK_UN)

    @property
    def is_held(self) -> bool:
        """Whether this instance holds the device, shared or alone."""
        return bool(self._holds)

    @property
    def is_held_alone(self) -> bool:
        """Whether this instance holds the device alone."""
        return self.is_held and not self._holds[0].shared

    def is_wanted(self) -> bool:
        """Whether another judge waits for the device that this one has shared for long enough."""
        is_shared = self.is_held and not self.is_held_alone
        if not is_shared or time.monotonic() < self._keep_until:
            return False
        return self._is_turnstile_taken()

    def is_waited_for(self) -> bool:
        """Whether another judge waits for the device, and does not only come to share it."""
        if not self._is_turnstile_taken():
            return False
        time.sleep(_PASSING_S)
        return self._is_turnstile_taken()

    def _is_turnstile_taken(self) -> bool:
        return any(_is_taken(turnstile) for turnstile, _ in self.fds)

    def step_aside(self) -> float:
        """Let those that wait have the device, then share it again; return the seconds between."""
        self._release()
        aside_s = self._acquire(fcntl.LOCK_SH)
        for hold in self._holds:
            hold.aside_s += aside_s
        return aside_s

    def close(self) -> None:
        """Release the locks, also those of a process with the same descriptors that has ended."""
        self._release()
        for pair in self.fds:
            for fd in pair:
                os.close(fd)
        self.fds = []


def _is_taken(fd: int) -> bool:
    """Whether another process holds a file's lock, alone or shared."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _name_gpu(device: str) -> str:
    _, _, number = device.partition(":")
    return f"gpu-{identify_gpu(int(number or 0))}".replace(os.sep, "-")


def _open_pair(name: str) -> tuple[int, int]:
    folder = os.environ.get("FLYWHEEL_LOCKS", _FOLDER)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        turnstile = _open(f"{name}.turn", inside)
        try:
            return turnstile, _open(f"{name}.lock", inside)
        except OSError:
            os.close(turnstile)
            raise
    finally:
        os.close(inside)


def _open(name: str, folder: int) -> int:
    """Open a file of an open folder that every user may lock. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        fd = os.open(name, flags | os.O_CREAT, _EVERY_USER, dir_fd=folder)
        with contextlib.suppress(OSError):
            os.fchmod(fd, _EVERY_USER)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"the lock {name} is not a regular file")
    return fd


_PROBES = 8
_MOST_IDLE_S = 0.5e-3
"""A kernel that does nothing takes less on an idle GPU; on a busy one, it waits for its turn."""
_MOST_OF_IDLE = 1.5
"""The same, as a ratio to what it took when this judge had the GPU alone. On an H100, the median
was 0.13 ms while the GPU was idle, 0.22 ms beside small matrix products and 1.5 ms beside large
ones."""
_IDLING_S = 0.5
"""Seconds in which the device has to become idle once a judge's worker is frozen. As many pass
until the next attempt, so that a worker beside other programs loses half of its time at most."""


class SharedDevice:
    """The share of a judge in its device, while it holds the lock together with others.

    Judges share a device while they ask for answers, and one that times waits for all of them. A
    worker that compiles would keep it waiting for as long as that takes. Instead, its judge freezes
    the worker and lets the other one have the device. Then the worker continues.
    """

    def __init__(self, lock: DeviceLock, device: str, is_starting: Callable[[], bool]) -> None:
        """Store the lock, and time empty kernels while the caller has the device alone.

        is_starting: Returns whether another worker of the judge is starting on the device.
        """
        import torch

        self._lock = lock
        self._is_starting = is_starting
        self._probe = torch.zeros(1, device=device).add_(1) if device == "cuda" else None
        self._idle_s = 0.0 if self._probe is None else self._time_kernel()
        self._next_try = 0.0

    def is_wanted(self) -> bool:
        """Whether another judge waits to have the device for itself, and may have it."""
        if time.monotonic() < self._next_try or self._is_starting():
            return False
        return self._lock.is_wanted()

    def step_aside(self) -> float:
        """Let the judges that wait have the device; return the seconds of that.

        The caller has frozen its worker. If work of the worker still runs on a GPU, the lock is
        kept, so that it does not run during a timing session of another judge. The worker stays
        frozen for a while, since all judges have to freeze theirs before a GPU is idle.
        """
        most_s = min(_MOST_IDLE_S, _MOST_OF_IDLE * self._idle_s)
        begin = time.monotonic()
        while self._probe is not None and self._time_kernel() > most_s:
            now = time.monotonic()
            if now - begin > _IDLING_S:
                self._next_try = now + _IDLING_S
                return now - begin
            # Probes of several judges disturb each other.
            time.sleep(random.uniform(0, 2 * _LOOK_S))
        self._lock.step_aside()
        return time.monotonic() - begin

    def _time_kernel(self) -> float:
        import torch

        assert self._probe is not None
        seconds: list[float] = []
        for _ in range(_PROBES):
            begin = time.perf_counter()
            self._probe.add_(1)  # a kernel; the copy engines of a GPU need no turn
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)
