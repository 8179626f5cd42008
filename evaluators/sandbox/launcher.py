"""Where untrusted code runs: start a worker under limits, talk to it under a clock, end it.

What is enforced: a process of its own that was forked from a warm fork server (never from anything
that holds the lake), a white-listed environment, a fresh directory, a session of its own, resource
limits, no new privileges, wall limits per request, and a kill that reaches every descendant. What
else stands around it depends on the machine (`_isolation`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from evaluators.processes import messages
from evaluators.processes.freezer import Freezer, StillRunning, open_freezer
from evaluators.processes.process_tree import descendants
from evaluators.sandbox import isolation
from store.errors import SandboxFailed

_PACKAGE = str(Path(__file__).resolve().parent.parent / "__init__.py")
_MARKER = "FLYWHEEL_FORK_SERVER"
_START_LIMIT_S = 120.0
_END_LIMIT_S = 60.0
_LOOK_S = 0.2
_MOST_JOBS = 32  # each some five processes of a compiler
_LOG_PART_BYTES = 16 * 1024
# The package by its path: the folder that it lies in may hold a lake, and is not to be listed. At
# the end the process goes at once: Python would take torch apart first, which takes a while.
_START = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("evaluators", sys.argv[1])
sys.modules["evaluators"] = importlib.util.module_from_spec(spec)
from evaluators.sandbox import isolation
isolation.begin_fork_server(*sys.argv[4:6])
from evaluators.worker.fork_server import main
main(int(sys.argv[2]), sys.argv[3])
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


class TimedOut(Exception):
    """A worker has not answered within the limit of its request."""

    def __init__(self, compiling: bool) -> None:
        super().__init__()
        self.compiling = compiling
        """Whether other processes, such as a compiler, were at work below the worker."""


class Died(Exception):
    """A worker has ended instead of answering."""


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
    """Processes, the worker's own and those below it. Each takes its time to end."""
    threads: int = 2048
    """Threads of all of them."""
    disk_bytes: int = 8 * 2**30
    """All its files together."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a worker ended."""

    code: int
    """Exit code; -n where signal n ended it."""
    peak_memory_bytes: int | None
    """Largest resident memory of the process."""
    strays: int
    """Processes it left behind, killed by the sweep."""
    excess: str | None
    """What it had more of than its limits allow, where that ended it."""
    log: str
    """What it wrote to stdout and stderr, cut to a limit."""


@dataclass(frozen=True)
class OpenFolder:
    """A folder by its path, and by a descriptor that no exchange of names can lead elsewhere."""

    path: Path
    descriptor: int


class ForkServer:
    """A warm process that forks workers, one at a time. Use as a context manager.

    Its workers find the modules `warm` imported, beside torch.
    """

    def __init__(
        self,
        threads: int,
        environment: Mapping[str, str] | None = None,
        warm: Sequence[str] = ("triton",),
    ) -> None:
        self._threads = threads
        self._given = dict(environment or {})
        self._marker = secrets.token_hex(16)
        self._scratch = tempfile.mkdtemp(prefix="flywheel-")
        self._control, theirs = messages.pair()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-u", "-c", _START, _PACKAGE, str(theirs.fileno())),
                ",".join(warm),
                ",".join(isolation.inherited),
                str(isolation.mounts.fileno()) if isolation.mounts is not None else "",
            ],
            env=self._environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *_mount_fds()],
            start_new_session=True,
        )
        theirs.close()
        self.limits: list[str] = []
        self.missing: dict[str, str] = {}
        """Walls that it cannot put up, each with the reason; known as soon as `limits` are."""
        self.helpers: list[int] = []
        """Processes below it that stay as long as it does, and run nothing foreign."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its number among processes."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait for the first sign of life. Raises SandboxFailed when there is none."""
        if not self.limits:
            ready = self.hear(_START_LIMIT_S)
            self.limits, self.missing = ready["limits"], ready["missing"]
            self.helpers = ready["helpers"]

    def hear(self, limit_s: float) -> dict[str, Any]:
        """The next message of the fork server itself. Raises SandboxFailed."""
        ready, _, _ = select.select([self._control], [], [], limit_s)
        try:
            if ready:
                return messages.receive(self._control)
        except (messages.Closed, messages.Malformed):
            pass
        raise SandboxFailed(
            "the process that starts workers does not answer",
            hint="try `python -c 'import torch'`; if that works, run the command again",
        )

    def tell(self, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        """Send an order to the fork server. Raises SandboxFailed when it is gone."""
        try:
            messages.send(self._control, message, fds or [])
        except messages.Closed as error:
            raise SandboxFailed("the process that starts workers is gone") from error

    def start(
        self,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Limits,
        inbox: int,
        outbox: int,
        build: OpenFolder | None = None,
        loop: Literal["candidate", "task"] = "candidate",
    ) -> WorkerProcess:
        """Fork a worker into a fresh directory that holds only `files` (path to text).

        Extensions are compiled in the folder `build`, which the worker may write to as well. `loop`
        says what the worker does: call a module that is given, or run a task's text. Raises
        SandboxFailed, also where a file would lie outside the directory.
        """
        self.wait_ready()
        directory = Path(tempfile.mkdtemp(dir=self._scratch))
        write_files(directory, files)
        log = os.open(directory.with_suffix(".log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        ours, theirs = messages.pair()
        order = {
            "do": "start",
            "directory": str(directory),
            "folders": [str(directory), *([str(build.path)] if build is not None else [])],
            "environment": _private_environment(directory, build.path if build else None),
            "limits": vars(limits),
            "setting": dict(setting),
            "loop": loop,
        }
        # Nothing of the candidate runs yet that could have put something else in its place.
        own = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        folders = [own, *([build.descriptor] if build is not None else [])]
        try:
            self.tell(order, [theirs.fileno(), inbox, outbox, log, *folders])
            started = self.hear(_START_LIMIT_S)
            pid = started.get("started")
            if not isinstance(pid, int):
                raise SandboxFailed("a worker cannot be started")
        except SandboxFailed:
            ours.close()
            os.close(log)
            raise
        finally:
            os.close(own)
            theirs.close()
        freezer = open_freezer(started.get("group"), pid)
        return WorkerProcess(self, ours, self._control, pid, directory, log, freezer)

    def close(self) -> None:
        """End the fork server and everything below it."""
        self._control.close()
        if not self.limits:
            self._process.kill()  # it has no worker, and would hear of the end after its imports
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _sweep_marked(self._marker)
        remove(Path(self._scratch))

    def _environment(self) -> dict[str, str]:
        """The white list. Anything else of our own environment stays here."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        threads = str(self._threads)
        return kept | {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": self._scratch,
            "TMPDIR": self._scratch,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # Threads that wait by spinning take the cores from those that are waited for.
            "OMP_WAIT_POLICY": "PASSIVE",
            "MAX_JOBS": str(min(_MOST_JOBS, len(os.sched_getaffinity(0)))),
            _MARKER: self._marker,
            **self._given,
        }


Late: TypeAlias = tuple[float, Callable[[], None]]
"""Seconds after which a request is late, and what to do once then."""


class WorkerProcess:
    """One worker process, seen from the judge. It runs only while a request is pending."""

    def __init__(
        self,
        fork_server: ForkServer,
        channel: socket.socket,
        control: socket.socket,
        pid: int,
        directory: Path,
        log: int,
        freezer: Freezer,
    ) -> None:
        self._fork_server = fork_server
        self._channel = channel
        self._control = control
        self._directory = directory
        self._log = log
        self._freezer = freezer
        self._freezes = False
        self._how: dict[str, Any] | None = None
        self.pid = pid
        self.wall_ns = 0
        """Time from the last request to the moment at which nothing of the worker runs any more."""

    def ask(
        self,
        do: str,
        limit_s: float,
        build_limit_s: float,
        late: Late | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send one request, let the worker run until it has answered, and return its answer.

        The clock starts before the worker is thawed and stops when everything it has started is
        frozen again, so that no work outside of it is possible. Past `limit_s` the wait goes on, up
        to `build_limit_s`, only while processes such as a compiler are at work below the worker.
        Raises TimedOut, Died, and _channel.Malformed when the answer is none of this request.
        """
        if select.select([self._channel], [], [], 0)[0]:
            self._refuse_unasked()
        number = secrets.token_hex(8)
        with contextlib.suppress(messages.Closed):
            messages.send(self._channel, {"do": do, "number": number, **fields})
        begin = time.perf_counter_ns()
        if self._freezes:
            self._freezer.thaw()
        ends = [self._channel, self._control]
        ready: list[socket.socket] = []
        if late is not None:
            ready, _, _ = select.select(ends, [], [], min(late[0], limit_s))
            if not ready:
                late[1]()
        if not ready:
            ready, _, _ = select.select(ends, [], [], limit_s)
        while not ready:
            compiling = bool(descendants(self.pid))
            if not compiling or time.perf_counter_ns() - begin > build_limit_s * 1e9:
                raise TimedOut(compiling=compiling)
            ready, _, _ = select.select(ends, [], [], _LOOK_S)
        if self._channel not in ready:
            self._hear_end(0)
            raise Died
        self._freeze()
        self.wall_ns = time.perf_counter_ns() - begin
        try:
            answer = messages.receive(self._channel)
        except messages.Closed:
            # A closed channel is no exit: orphans may hold it, or the worker may have dropped it.
            self._freezer.thaw()
            self._hear_end(2.0)
            raise Died from None
        if answer.pop("number", None) != number:
            raise messages.Malformed("the answer does not carry the number of its request")
        return answer

    def freeze_between_requests(self) -> None:
        """Freeze the worker now and after every answer; called before anything foreign runs in it.

        Until then it runs on, since CUDA opens the memory of a process with its help.
        """
        self._freezes = True
        self._freeze()

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Let the worker run for what the driver of a GPU needs it for."""
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
        """Processor time of everything the worker has started, as the kernel counts it."""
        return self._freezer.cpu_ns()

    def others_with(self, device: str) -> set[int]:
        """Other processes of the worker that hold a device file whose name begins so."""
        return {pid for pid in self._freezer.processes() - {self.pid} if _holds(pid, device)}

    def end(self) -> Ended:
        """Kill the worker and all it has started, and read what it left. Raises SandboxFailed."""
        self._channel.close()
        self._freezer.close()  # what is frozen can be killed as it is
        try:
            if self._how is None:
                self._fork_server.tell({"do": "kill"})
                self._hear_end(_END_LIMIT_S)
            if self._how is None:
                raise SandboxFailed("a worker cannot be ended")
            log = self._read_log()
        finally:
            os.close(self._log)
        remove(self._directory)
        self._directory.with_suffix(".log").unlink(missing_ok=True)
        return Ended(
            code=self._how["code"],
            peak_memory_bytes=self._how["peak_memory_bytes"],
            strays=self._how["strays"],
            excess=self._how["excess"],
            log=log,
        )

    def _read_log(self) -> str:
        size = os.fstat(self._log).st_size
        log = os.pread(self._log, _LOG_PART_BYTES, 0)
        if size > 2 * _LOG_PART_BYTES:
            log += f"\n… {size - 2 * _LOG_PART_BYTES} bytes left out …\n".encode()
        log += os.pread(self._log, _LOG_PART_BYTES, max(_LOG_PART_BYTES, size - _LOG_PART_BYTES))
        return readable(log.decode("utf-8", "backslashreplace"))

    def _refuse_unasked(self) -> None:
        try:
            messages.receive(self._channel)
        except messages.Closed:
            self._freezer.thaw()
            self._hear_end(2.0)
            raise Died from None
        raise messages.Malformed("a message came that nobody had asked for")

    def _hear_end(self, limit_s: float) -> None:
        """Note how the worker ended, where the fork server says so within the limit."""
        if self._how is None and select.select([self._control], [], [], limit_s)[0]:
            try:
                self._how = self._fork_server.hear(_END_LIMIT_S)["ended"]
            except SandboxFailed:
                # Nothing but its worker runs beside a fork server. It goes, and the worker with it.
                self._how = {
                    "code": -signal.SIGKILL,
                    "peak_memory_bytes": None,
                    "strays": 0,
                    "excess": None,
                }


def _holds(pid: int, device: str) -> bool:
    """Whether a process has a device file open; one that cannot be looked at counts as if."""
    try:
        fds = list(Path(f"/proc/{pid}/fd").iterdir())
        return any(str(fd.readlink()).startswith(device) for fd in fds)
    except FileNotFoundError:
        return False  # it has ended
    except OSError:
        return True


def shared_memory(size_bytes: int) -> int:
    """File descriptor of new shared memory. Its size is sealed, so no worker can cut it short."""
    fd = os.memfd_create("flywheel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def strays(files: Iterable[str]) -> list[str]:
    """Names of files that do not lie inside the folder they are written to.

    >>> strays(["a.py", "b/c.cu", "../d", "/etc/e", "f/../../g", ""])
    ['../d', '/etc/e', 'f/../../g', '']
    """
    paths = {name: PurePosixPath(name) for name in files}
    return [
        name
        for name, path in paths.items()
        if path.is_absolute() or ".." in path.parts or not path.name or "\x00" in name
    ]


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a new folder. Raises SandboxFailed where that cannot be, and writes none."""
    outside = strays(files)
    if outside:
        raise SandboxFailed(f"a file of the kernel is called {outside[0]!r:.200}")
    try:
        for name, text in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:  # one name is a folder of another, or too long
        raise SandboxFailed(f"the files of a kernel cannot be written: {error}") from error


def remove(top: Path) -> None:
    """Remove a folder that untrusted code has filled; nobody works in it any more.

    Links are removed and never followed, names may be any bytes, folders may be closed to their
    owner or nested deeper than a path can be long: a folder's folders are moved up before it goes,
    so that neither recursion nor open files grow with the depth.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(top).st_mode):
            os.unlink(top)
            return
        os.chmod(top, 0o700)
        folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            while names := os.listdir(folder):
                for name in names:
                    _remove_entry(folder, name)
        finally:
            os.close(folder)
        os.rmdir(top)


def _remove_entry(folder: int, name: str) -> None:
    """Remove an entry, or if it is a folder move its folders up first."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    os.chmod(name, 0o700, dir_fd=folder)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(entry, 0o700, dir_fd=inner)  # to move a folder is to write into it
                upper = secrets.token_hex(16)
                os.rename(entry, upper, src_dir_fd=inner, dst_dir_fd=folder)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def readable(text: str) -> str:
    """Text that can be stored and printed: valid UTF-8 without NUL.

    >>> readable("a\\x00b\\ud800")
    'ab\\\\ud800'
    """
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")


def _private_environment(directory: Path, build: Path | None) -> dict[str, str]:
    inside = {
        "TMPDIR": "tmp",
        "TORCH_EXTENSIONS_DIR": "extensions",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "CUDA_CACHE_PATH": "cuda",
    }
    (directory / "tmp").mkdir(exist_ok=True)
    private = {"HOME": str(directory), **{k: str(directory / v) for k, v in inside.items()}}
    return private if build is None else {**private, "TORCH_EXTENSIONS_DIR": str(build)}


def _mount_fds() -> list[int]:
    return [] if isolation.mounts is None else [isolation.mounts.fileno()]


def _sweep_marked(marker: str) -> None:
    """Kill what still carries the fork server's mark in the environment it was started with."""
    mark = f"{_MARKER}={marker}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
