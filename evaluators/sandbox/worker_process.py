"""One worker process as its starter sees it: requests under a clock, freezing, and its end."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from evaluators.processes import messages, schema
from evaluators.processes.freezer import Freezer, StillRunning
from evaluators.processes.process_tree import find_descendants
from evaluators.processes.text import make_readable
from evaluators.sandbox.folders import remove_folder
from store.errors import SandboxFailed

_END_LIMIT_S = 60.0
_LOOK_S = 0.2
_SHARE_S = 0.05
"""Seconds between two looks at whether another judge wants the device."""
_LOG_PART_BYTES = 16 * 1024


class Starter(Protocol):
    """The fork server that has started a worker process."""

    def receive(self, event: schema.Event, limit_s: float) -> dict[str, Any]:
        """Return its next message, which tells of an event. Raises SandboxFailed."""
        ...

    def send(self, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        """Send it an order. Raises SandboxFailed."""
        ...


class Share(Protocol):
    """A device that the judge shares with other judges."""

    def is_wanted(self) -> bool:
        """Whether another judge waits to have the device for itself."""
        ...

    def step_aside(self) -> float:
        """Let it have the device, while the worker is frozen; return the seconds of that."""
        ...


class TimedOut(Exception):
    """A worker did not answer before its deadline."""

    def __init__(self, compiling: bool) -> None:
        super().__init__()
        self.compiling = compiling
        """Whether other processes, such as a compiler, were running below the worker."""


class Died(Exception):
    """A worker ended instead of answering."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a worker ended."""

    code: int
    """Exit code; -n where signal n ended it."""
    peak_memory_bytes: int | None
    """Largest resident memory of the process."""
    strays: int
    """Number of processes that it left behind and that were killed."""
    excess: str | None
    """The limit that it exceeded, where that ended it."""
    log: str
    """What it wrote to stdout and stderr, shortened."""


Late: TypeAlias = tuple[float, Callable[[], None]]
"""Seconds after which a request is late, and a function to call once then."""


Meanwhile: TypeAlias = Callable[[Callable[[], bool]], object]
"""What the judge does while a worker runs. The argument tells whether the worker has answered, has
ended, or is past its limit."""


class WorkerProcess:
    """One worker process. It runs only while a request is pending."""

    def __init__(
        self,
        fork_server: Starter,
        channel: socket.socket,
        control: socket.socket,
        pid: int,
        directory: Path,
        log: int,
        freezer: Freezer,
        loop: schema.Loop = "candidate",
    ) -> None:
        self._fork_server = fork_server
        self._channel = channel
        self._control = control
        self._directory = directory
        self._log = log
        self._freezer = freezer
        self._loop: schema.Loop = loop
        self._freezes = False
        self._end_report: dict[str, Any] | None = None
        self.pid = pid
        self.paused_s = 0.0
        """Seconds so far in which a request was frozen because another judge timed."""
        self.begin_ns = self.end_ns = 0
        """When the last request began, and when every process of the worker was frozen again, by
        `time.perf_counter_ns`."""
        self.running_ns = 0
        """Time of all requests so far."""

    def ask(
        self,
        do: str,
        limit_s: float,
        build_limit_s: float,
        late: Late | None = None,
        meanwhile: Meanwhile | None = None,
        share: Share | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send one request, let the worker run until it has answered, and return its answer.

        The clock starts before the worker is thawed and stops when everything it has started is
        frozen again, so that no work escapes it. `limit_s` limits the time in which no process
        such as a compiler runs below the worker, and `build_limit_s`, if longer, all of the time.
        While another judge wants the device of `share`, the worker is frozen and the clock of the
        limits stands still.
        Raises TimedOut, Died, Malformed where the answer has another form or belongs to another
        request, and ValueError where the request is too long.
        """
        if select.select([self._channel], [], [], 0)[0]:
            self._refuse_unrequested()
        number = secrets.token_hex(8)
        with contextlib.suppress(messages.Closed):
            messages.send(self._channel, {"do": do, "number": number, **fields})
        begin = time.perf_counter_ns()
        if self._freezes:
            self._freezer.thaw()
        ends = [self._channel, self._control]
        if meanwhile is not None:
            end_ns = begin + limit_s * 1e9
            meanwhile(
                lambda: bool(select.select(ends, [], [], 0)[0]) or time.perf_counter_ns() > end_ns
            )
        ready = self._wait(ends, begin, limit_s, max(limit_s, build_limit_s), late, share)
        if self._channel not in ready:
            self._receive_end(0)
            raise Died
        self._freeze()
        self.begin_ns, self.end_ns = begin, time.perf_counter_ns()
        self.running_ns += self.end_ns - begin
        try:
            answer = messages.receive(self._channel)
        except messages.Closed:
            # A closed channel proves no exit: the worker may have closed it and still run.
            self._freezer.thaw()
            self._receive_end(2.0)
            raise Died from None
        if answer.pop("number", None) != number:
            raise messages.Malformed("the answer does not carry the number of its request")
        schema.check_reply(self._loop, do, answer)
        return answer

    def pass_turn(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the report of a call, and let the worker make the next one.

        Returns False where the worker has ended, or `is_over` says that it will not report. What it
        reports has no effect: the clock runs on until it is frozen.
        """
        while not select.select([self._channel, self._control], [], [], _LOOK_S)[0]:
            if is_over():
                return False
        return messages.pass_turn(self._channel)

    def _wait(
        self,
        ends: Sequence[socket.socket],
        begin_ns: int,
        limit_s: float,
        whole_limit_s: float,
        late: Late | None,
        share: Share | None,
    ) -> list[socket.socket]:
        """Wait until an end can be read; return those that can. Raises TimedOut."""
        looked_s = 0.0  # from the request to the last look
        own_s = 0.0  # of that, without a process below the worker
        while True:
            pause_s = min(_LOOK_S, limit_s - own_s)
            if late is not None:
                pause_s = min(pause_s, late[0] - looked_s)
            ready, paused_ns = self._listen(ends, max(0.0, pause_s), share)
            if ready:
                return ready
            begin_ns += paused_ns
            passed_s = (time.perf_counter_ns() - begin_ns) / 1e9
            if late is not None and passed_s >= late[0]:
                late[1]()
                late = None
            compiling = bool(find_descendants(self.pid))
            if not compiling:
                own_s += passed_s - looked_s
            looked_s = passed_s
            if own_s >= limit_s or passed_s >= whole_limit_s:
                raise TimedOut(compiling=compiling)

    def _listen(
        self, ends: Sequence[socket.socket], seconds: float, share: Share | None
    ) -> tuple[list[socket.socket], int]:
        """Wait for an end, and step aside once if another judge wants the device.

        Returns the ends that can be read, and the nanoseconds in which the worker was frozen.
        """
        if share is None or not self._freezes:
            return select.select(ends, [], [], seconds)[0], 0
        stop = time.monotonic() + seconds
        while True:
            left_s = stop - time.monotonic()
            ready, _, _ = select.select(ends, [], [], max(0.0, min(left_s, _SHARE_S)))
            if ready or left_s <= 0:
                return ready, 0
            if share.is_wanted():
                begin = time.perf_counter_ns()
                self._freeze()
                self.paused_s += share.step_aside()
                self._freezer.thaw()
                return [], time.perf_counter_ns() - begin

    def freeze_between_requests(self) -> None:
        """Freeze the worker now and after every answer; called before anything foreign runs in it.

        Until then it keeps running, since CUDA opens the memory of a process with its help.
        """
        self._freezes = True
        self._freeze()

    @contextlib.contextmanager
    def let_run(self) -> Generator[None]:
        """Let the worker run while the driver of a GPU needs it."""
        self._freezer.thaw()
        yield
        self._freeze()

    def _freeze(self) -> None:
        """Raises TimedOut where processes do not stop."""
        if not self._freezes:
            return
        try:
            self._freezer.freeze()
        except StillRunning as error:
            raise TimedOut(compiling=False) from error

    def cpu_ns(self) -> int:
        """Return the processor time of everything the worker has started."""
        return self._freezer.cpu_ns()

    def pin(self, cores: Collection[int]) -> bool:
        """Let every thread run on these cores only; return whether that was possible."""
        try:
            for thread in self._list_threads():
                os.sched_setaffinity(thread, cores)
        except OSError:
            return False
        return True

    def list_cores(self) -> set[int]:
        """Return the cores on which any thread may run; none where one cannot be asked."""
        try:
            return {
                core for thread in self._list_threads() for core in os.sched_getaffinity(thread)
            }
        except OSError:
            return set()

    def _list_threads(self) -> list[int]:
        tasks = (Path(f"/proc/{pid}/task") for pid in self._freezer.processes())
        return [int(thread.name) for task in tasks for thread in task.iterdir()]

    def find_other_holders(self, device: str) -> set[int]:
        """Return other processes of the worker that hold a device file with this path prefix."""
        return {pid for pid in self._freezer.processes() - {self.pid} if _holds(pid, device)}

    def end(self) -> Ended:
        """Kill the worker and all it has started, and return how it ended. Raises SandboxFailed."""
        self._channel.close()
        self._freezer.close()  # what is frozen can be killed as it is
        try:
            if self._end_report is None:
                with contextlib.suppress(SandboxFailed):  # it has ended, as is found next
                    self._fork_server.send({"do": "kill"})
                self._receive_end(_END_LIMIT_S)
            if self._end_report is None:
                raise SandboxFailed("a worker cannot be ended")
            log = self._read_log()
        finally:
            os.close(self._log)
        remove_folder(self._directory)
        self._directory.with_suffix(".log").unlink(missing_ok=True)
        return Ended(
            code=self._end_report["code"],
            peak_memory_bytes=self._end_report["peak_memory_bytes"],
            strays=self._end_report["strays"],
            excess=self._end_report["excess"],
            log=log,
        )

    def _read_log(self) -> str:
        size = os.fstat(self._log).st_size
        log = os.pread(self._log, _LOG_PART_BYTES, 0)
        if size > 2 * _LOG_PART_BYTES:
            log += f"\n… {size - 2 * _LOG_PART_BYTES} bytes left out …\n".encode()
        log += os.pread(self._log, _LOG_PART_BYTES, max(_LOG_PART_BYTES, size - _LOG_PART_BYTES))
        return make_readable(log.decode("utf-8", "backslashreplace"))

    def _refuse_unrequested(self) -> None:
        try:
            messages.receive(self._channel)
        except messages.Closed:
            self._freezer.thaw()
            self._receive_end(2.0)
            raise Died from None
        raise messages.Malformed("a message came that answers no request")

    def _receive_end(self, limit_s: float) -> None:
        """Store how the worker ended, where the fork server reports it within the limit."""
        if self._end_report is None and select.select([self._control], [], [], limit_s)[0]:
            try:
                self._end_report = self._fork_server.receive("ended", _END_LIMIT_S)["ended"]
            except SandboxFailed:
                # The fork server has ended, and its only worker with it.
                self._end_report = {
                    "code": -signal.SIGKILL,
                    "peak_memory_bytes": None,
                    "strays": 0,
                    "excess": None,
                }


def _holds(pid: int, device: str) -> bool:
    """Whether a process has a device file open, or cannot be inspected."""
    try:
        fds = list(Path(f"/proc/{pid}/fd").iterdir())
        return any(str(fd.readlink()).startswith(device) for fd in fds)
    except FileNotFoundError:
        return False  # it has ended
    except OSError:
        return True
