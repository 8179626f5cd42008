"""Starts worker processes, sends them requests, and ends them.

A judge starts one template, a process that imports torch once and forks the fork servers of the
judge. Every worker is forked from a warm fork server, never from a process that holds the lake. It
gets a white-listed environment, a fresh directory, a session of its own, resource limits, no new
privileges, a deadline per request, and a kill that reaches every descendant. Which other walls it
gets depends on the machine (`isolation`). `evaluators.worker.fork_server` is the other side.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias

from evaluators.processes import messages, schema
from evaluators.processes.messages import make_readable
from evaluators.processes.process_tree import Freezer, StillRunning, find_descendants, open_freezer
from evaluators.sandbox import isolation
from evaluators.sandbox.folders import OpenFolder, remove_folder, write_files
from store.errors import SandboxFailed

_PACKAGE = str(Path(__file__).resolve().parent.parent / "__init__.py")
_START_LIMIT_S = 120.0
_END_LIMIT_S = 60.0
_LOOK_S = 0.2
_SHARE_S = 0.05
"""Seconds between two looks at whether another judge wants the device."""
_LOG_PART_BYTES = 16 * 1024
_MOST_JOBS = 32  # each is about five processes of a compiler
# The package is loaded by its path, because its parent folder may hold a lake and must not be
# listed. Collecting garbage would take a tenth of the time of the imports. The process exits
# without Python's cleanup, which takes a while once torch is loaded.
_START = """
import gc, importlib.util, os, sys
gc.disable()
spec = importlib.util.spec_from_file_location("evaluators", sys.argv[1])
sys.modules["evaluators"] = importlib.util.module_from_spec(spec)
from evaluators.sandbox import isolation
isolation.begin_template(*sys.argv[3:5])
from evaluators.worker.fork_server import run_template
run_template(int(sys.argv[2]))
isolation.end_helpers()
os._exit(0)
"""
_PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "LD_LIBRARY_PATH",
    "TORCH_CUDA_ARCH_LIST",
    "CC",
    "CXX",
)


class Template(contextlib.AbstractContextManager["Template"]):
    """A process that forks fork servers. Use it as a context manager.

    It starts with `begin` or the first fork server, and again with the next one where it has ended.
    Its fork servers end with it.
    """

    def __init__(self, threads: int, environment: Mapping[str, str] | None = None) -> None:
        """Take the threads of each loop in the workers, and variables besides the white-listed."""
        self._threads = threads
        self._given = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process number; 0 before the first fork server."""
        return 0 if self._process is None else self._process.pid

    def begin(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._scratch = tempfile.mkdtemp(prefix="flywheel-")
        self._control, theirs = messages.make_pair()
        mounts = [] if isolation.mounts is None else [isolation.mounts.fileno()]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        threads = str(self._threads)
        # White-listed variables; the rest of our environment is not passed on.
        environment = _read_passed_on() | {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": self._scratch,
            "TMPDIR": self._scratch,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # Threads that spin while they wait take the cores from the threads that compute.
            "OMP_WAIT_POLICY": "PASSIVE",
            "MAX_JOBS": str(min(_MOST_JOBS, len(os.sched_getaffinity(0)))),
            isolation.MARKER: bytes(isolation.MARK_BYTES).hex(),
            **self._given,
        }
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-u", "-c", _START, _PACKAGE, str(theirs.fileno())),
                *(",".join(isolation.inherited), ",".join(map(str, mounts))),
            ],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *mounts],
            start_new_session=True,
        )
        theirs.close()

    def fork(
        self,
        marker: str,
        control: socket.socket,
        environment: Mapping[str, str],
        warm: Sequence[str],
    ) -> None:
        """Begin to fork a fork server, which its marker names. Raises SandboxFailed."""
        self.begin()
        order = {
            "do": "fork",
            "marker": marker,
            # The architecture of the GPU is known only after the template has begun.
            "environment": _read_passed_on() | dict(environment),
            "warm": list(warm),
        }
        try:
            messages.send(self._control, order, [control.fileno()])
        except messages.Closed as error:
            raise SandboxFailed(
                "the process that imports torch has ended",
                "If the machine has too little memory, use fewer judges. Run the command again.",
            ) from error

    @property
    def has_started(self) -> bool:
        """Whether it has imported torch, or has ended since."""
        return self._process is not None and bool(select.select([self._control], [], [], 0)[0])

    def kill(self, marker: str) -> None:
        """Kill a fork server. Where the template has ended, the fork server has as well."""
        if self._process is None:
            return
        with contextlib.suppress(messages.Closed):
            messages.send(self._control, {"do": "kill", "marker": marker})

    def close(self) -> None:
        """End the process, and the fork servers that are left."""
        if self._process is None:
            return
        if not self.has_started:
            self._process.kill()  # it would notice the end of its channel only after its imports
        self._control.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        remove_folder(Path(self._scratch))


def _read_passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one worker may use."""

    memory_bytes: int | None
    """Address space beyond the fork server's own; None where a driver reserves address space."""
    file_bytes: int
    """Size of one file, the captured output included."""
    open_files: int
    """Open files."""
    cpu_s: int
    """Processor time over all threads."""
    processes: int = 256
    """The worker's process and all below it, since ending each takes time."""
    threads: int = 2048
    """Threads of all processes together."""
    disk_bytes: int = 8 * 2**30
    """Size of all its files together."""


class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """A warm process that forks workers, one at a time. Use it as a context manager."""

    def __init__(
        self,
        template: Template,
        environment: Mapping[str, str] | None = None,
        warm: Sequence[str] = ("triton",),
    ) -> None:
        """Prepare to start it; `begin` or the first worker starts it.

        Args:
            environment: Variables to add to those of the template.
            warm: Modules that it imports before it forks workers.
        """
        self._template = template
        self._warm = warm
        self.marker = secrets.token_hex(isolation.MARK_BYTES)
        """Value of an environment variable that only its workers inherit."""
        self.scratch = tempfile.mkdtemp(prefix="flywheel-")
        """Folder of the workers' folders."""
        self._environment = {"HOME": self.scratch, "TMPDIR": self.scratch, **(environment or {})}
        self._control, self._theirs = messages.make_pair()
        self._has_begun = False
        self.pid = 0
        """Its process number, known once `wait_ready` returns."""
        self.limits: list[str] = []
        self.missing: dict[str, str] = {}
        """Walls that it cannot put up, each with the reason; known once `wait_ready` returns."""

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        """Whether the process is running, or has not yet been started."""
        return not self._has_ended(0)

    def _has_ended(self, limit_s: float) -> bool:
        """Whether the channel is closed, here or by every process that has its other end."""
        if self._control.fileno() < 0:
            return True
        ends = select.poll()
        ends.register(self._control, 0)  # tells only of a channel that is closed
        return bool(ends.poll(limit_s * 1000))

    def begin(self) -> None:
        """Begin to start the process, unless that is done. Raises SandboxFailed."""
        if not self._has_begun:
            self._has_begun = True
            with self._theirs:
                self._template.fork(self.marker, self._theirs, self._environment, self._warm)

    def wait_ready(self) -> None:
        """Wait until the process can fork workers. Raises SandboxFailed if it does not start."""
        self.begin()
        if not self.limits:
            ready = self.receive("ready", _START_LIMIT_S)
            self.pid, self.limits, self.missing = ready["pid"], ready["limits"], ready["missing"]

    def receive(self, event: schema.Event, limit_s: float) -> dict[str, Any]:
        """Return the next message of the fork server, which tells of an event.

        Raises SandboxFailed when there is none, or it has another form.
        """
        ready, _, _ = select.select([self._control], [], [], limit_s)
        try:
            if ready:
                message = messages.receive(self._control)
                schema.check_event(event, message)
                return message
        except (messages.Closed, messages.Malformed):
            pass
        raise SandboxFailed(
            "the process that starts workers does not answer",
            "Try `python -c 'import torch'`. If that works, run the command again.",
        )

    def send(self, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        """Send an order to the fork server. Raises SandboxFailed when it has ended."""
        try:
            messages.send(self._control, message, fds or [])
        except messages.Closed as error:
            raise SandboxFailed(
                "the process that starts workers has ended",
                "If the machine has too little memory, use fewer judges. Run the command again.",
            ) from error

    def start(
        self,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Limits,
        inbox: int,
        outbox: int,
        build: OpenFolder | None = None,
        loop: schema.Loop = "candidate",
    ) -> WorkerProcess:
        """Fork a worker into a fresh directory that holds only `files` (path to text).

        The worker compiles extensions in the folder `build`, which it may write to. `loop` selects
        whether the worker calls a candidate's module or runs a task's code. Raises SandboxFailed,
        also where a file would be outside the directory.
        """
        self.wait_ready()
        directory = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            write_files(directory, files)
        except SandboxFailed:
            remove_folder(directory)
            raise
        log = os.open(directory.with_suffix(".log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        ours, theirs = messages.make_pair()
        order = {
            "do": "start",
            "directory": str(directory),
            "folders": [str(directory), *([str(build.path)] if build is not None else [])],
            "environment": _make_environment(directory, build.path if build else None),
            "limits": vars(limits),
            "setting": dict(setting),
            "loop": loop,
        }
        # Nothing of the candidate runs yet that could have exchanged the directory.
        own = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        folders = [own, *([build.descriptor] if build is not None else [])]
        try:
            self.send(order, [theirs.fileno(), inbox, outbox, log, *folders])
            started = self.receive("started", _START_LIMIT_S)
            if "ended" in started:
                raise SandboxFailed(
                    "a worker cannot be started",
                    "`evaluators doctor` says what this machine grants. Check the free memory and "
                    "`ulimit -u`.",
                )
        except SandboxFailed:
            ours.close()
            os.close(log)
            raise
        finally:
            os.close(own)
            theirs.close()
        pid = started["started"]
        freezer = open_freezer(started["group"], pid)
        return WorkerProcess(self, ours, self._control, pid, directory, log, freezer, loop)

    def close(self) -> None:
        """End the fork server and everything below it."""
        self._theirs.close()
        with contextlib.suppress(OSError):  # it has ended
            self._control.shutdown(socket.SHUT_WR)
        if not self.limits:
            self._template.kill(self.marker)  # it would notice the end only after its imports
        if (self.limits or self._template.has_started) and not self._has_ended(_END_LIMIT_S):
            self._template.kill(self.marker)
            self._has_ended(_END_LIMIT_S)
        self._control.close()
        mark = f"{isolation.MARKER}={self.marker}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)
        remove_folder(Path(self.scratch))


def _make_environment(directory: Path, build: Path | None) -> dict[str, str]:
    inside = {
        "TMPDIR": "tmp",
        "TORCH_EXTENSIONS_DIR": "extensions",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "CUDA_CACHE_PATH": "cuda",
    }
    (directory / "tmp").mkdir(exist_ok=True)
    private = {"HOME": str(directory), **{k: str(directory / v) for k, v in inside.items()}}
    private["LOGNAME"] = "worker"  # torch.compile asks for a name, and a user id may have none
    return private if build is None else {**private, "TORCH_EXTENSIONS_DIR": str(build)}


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
        fork_server: ForkServer,
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
            try:
                messages.receive(self._channel)
            except messages.Closed:
                self._end_closed()
            raise messages.Malformed("a message came that answers no request")
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
            self._end_closed()
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
        share = share if self._freezes else None
        looked_s = 0.0  # from the request to the last look
        own_s = 0.0  # of that, without a process below the worker
        while True:
            pause_s = min(_LOOK_S, limit_s - own_s)
            if late is not None:
                pause_s = min(pause_s, late[0] - looked_s)
            stop = time.monotonic() + max(0.0, pause_s)
            while True:
                left_s = stop - time.monotonic()
                part_s = left_s if share is None else min(left_s, _SHARE_S)
                ready, _, _ = select.select(ends, [], [], max(0.0, part_s))
                if ready:
                    return ready
                if share is None or left_s <= 0:
                    break
                if share.is_wanted():
                    begin = time.perf_counter_ns()
                    self._freeze()
                    self.paused_s += share.step_aside()
                    self._freezer.thaw()
                    begin_ns += time.perf_counter_ns() - begin
                    break
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
        if self._freezes:
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
        return Ended(log=log, **{name: self._end_report[name] for name in schema.KILLED})

    def _read_log(self) -> str:
        size = os.fstat(self._log).st_size
        log = os.pread(self._log, _LOG_PART_BYTES, 0)
        if size > 2 * _LOG_PART_BYTES:
            log += f"\n… {size - 2 * _LOG_PART_BYTES} bytes left out …\n".encode()
        log += os.pread(self._log, _LOG_PART_BYTES, max(_LOG_PART_BYTES, size - _LOG_PART_BYTES))
        return make_readable(log.decode("utf-8", "backslashreplace"))

    def _end_closed(self) -> NoReturn:
        """Raise Died: the worker has closed its channel, which proves no exit."""
        self._freezer.thaw()
        self._receive_end(2.0)
        raise Died from None

    def _receive_end(self, limit_s: float) -> None:
        """Store how the worker ended, where the fork server reports it within the limit."""
        if self._end_report is None and select.select([self._control], [], [], limit_s)[0]:
            try:
                self._end_report = self._fork_server.receive("ended", _END_LIMIT_S)["ended"]
            except SandboxFailed:  # the fork server has ended, and its only worker with it
                self._end_report = schema.KILLED


def _holds(pid: int, device: str) -> bool:
    """Whether a process has a device file open, or cannot be inspected."""
    try:
        fds = list(Path(f"/proc/{pid}/fd").iterdir())
        return any(str(fd.readlink()).startswith(device) for fd in fds)
    except FileNotFoundError:
        return False  # it has ended
    except OSError:
        return True
