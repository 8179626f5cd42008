"""Starts worker processes: fork servers, and the limits of a worker.

Every worker is forked from a warm fork server, never from a process that holds the lake. It gets a
white-listed environment, a fresh directory, a session of its own, resource limits, no new
privileges, a deadline per request, and a kill that reaches every descendant. Which other walls it
gets depends on the machine (`isolation`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from evaluators.processes import messages, schema
from evaluators.processes.freezer import open_freezer
from evaluators.sandbox import isolation
from evaluators.sandbox.folders import OpenFolder, remove_folder, write_files
from evaluators.sandbox.template import Template
from evaluators.sandbox.worker_process import WorkerProcess
from store.errors import SandboxFailed

_START_LIMIT_S = 120.0
_END_LIMIT_S = 60.0


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


class ForkServer:
    """A warm process that forks workers, one at a time. Use it as a context manager."""

    def __init__(
        self,
        template: Template,
        environment: Mapping[str, str] | None = None,
        warm: Sequence[str] = ("triton",),
    ) -> None:
        """Prepare to start it; `begin` or the first worker starts it.

        Args:
            template: The process to fork it from.
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

    def __enter__(self) -> Self:
        return self

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
        _kill_marked(self.marker)
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


def _kill_marked(marker: str) -> None:
    """Kill every process that was started with the fork server's mark in its environment."""
    mark = f"{isolation.MARKER}={marker}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
