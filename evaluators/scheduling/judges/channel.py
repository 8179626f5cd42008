"""The channel to a judge process: start the process, exchange lines of JSON with it, end it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import list_visible_devices
from evaluators.judging.host import count_oom_kills, require_room
from evaluators.processes import cgroup, memory_group
from evaluators.sandbox.folders import remove_folder
from evaluators.worker.builds.cache import default_root
from store.commandline import echo, interrupts
from store.errors import DeviceUnavailable, HostUnfit, SandboxFailed

_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from evaluators.scheduling.judges.loop import main; main(int(sys.argv[2]))"
)
# No token, no address of a lake.
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "CC", "CXX", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST"),
    "FLYWHEEL_CATALOG",
)
_DEVICE_LIMIT_S = 3600.0
"""How long a process waits for a device that others use: a training may have it for minutes."""
_NOTICE_S = 20.0
"""Seconds after which the user learns that a process waits for its device, once per process."""
_MESSAGE_BYTES = 64 << 20
_TEXT_LIMIT = 4000
_LAST_WORDS_S = 2.0
_HINT = "Its output above may say why. Run the command again to continue."

log = logging.getLogger(__name__)


class Channel:
    """A judge process and the socket to it."""

    def __init__(self, device: str, cores: Sequence[int] | None, order: Mapping[str, Any]) -> None:
        """Start the process and send it its order.

        Args:
            device: auto, cpu, or a GPU such as cuda:0; the process sees no other GPU, and inherits
                the lock of its device.
            cores: Processor cores of the process; None for all.
            order: The first message: what to judge with.

        Raises:
            SandboxFailed: the process is gone already.
            HostUnfit: there is no disk or memory to judge any kernel.
            DeviceUnavailable: CUDA_VISIBLE_DEVICES has no such GPU.
        """
        environment = _environment(device)
        require_room("cpu" if device == "cpu" else "cuda")
        self._device = device
        self._told_to_wait = False
        self._lock = DeviceLock.of_device(device, cores)
        self._memory_lock = DeviceLock.of_memory(device)
        ours, theirs = socket.socketpair()
        self._scratch = Path(tempfile.mkdtemp(prefix="flywheel-"))
        self._oom_kills = count_oom_kills()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _ROOT, str(theirs.fileno())],
            env={**environment, "TMPDIR": str(self._scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[
                theirs.fileno(),
                *(fd for pair in (*self._lock.fds, *self._memory_lock.fds) for fd in pair),
            ],
            start_new_session=True,
        )
        theirs.close()
        assert self._process.stderr is not None
        self._relay = threading.Thread(
            target=echo.relay, args=(self._process.stderr,), name="relay", daemon=True
        )
        self._relay.start()
        self._group: cgroup.Group | None = None
        with contextlib.suppress(OSError):
            self._group = cgroup.Group(holds_groups=True)
            self._group.take(self._process.pid)
        self._socket = ours
        self._received = bytearray()
        # Groups of workers are made below this one.
        groups = [str(self._group.folder)] if self._group is not None else []
        self._memory: Path | None = None
        with contextlib.suppress(OSError):
            self._memory = memory_group.make_group()
            (self._memory / "cgroup.procs").write_text(str(self._process.pid))
            groups.append(str(self._memory))
        try:
            locks = {"locks": self._lock.fds, "memory_locks": self._memory_lock.fds}
            self.send({**order, "groups": groups, **locks})
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. Raises SandboxFailed where the process is gone."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._describe_end() from error

    def receive(self, limit_s: float) -> dict[str, Any]:
        """Return the next message of the process.

        limit_s: Seconds that it may take, not counting those in which it waits for its device.

        Raises:
            SandboxFailed: the process is gone or stuck, has failed, or sends something else.
            DeviceUnavailable: the process refuses its device, or others use it for too long.
            HostUnfit: the host lacks what the kernel needs.
        """
        waits = False
        left_s = limit_s
        while True:
            begin = time.monotonic()
            try:
                wait_s = _DEVICE_LIMIT_S if self._told_to_wait else _NOTICE_S
                message = self._receive_message(wait_s if waits else left_s)
            except TimeoutError:
                if not waits:
                    raise SandboxFailed("the judge process is stuck", _HINT) from None
                if self._told_to_wait:
                    raise DeviceUnavailable(
                        f"others have used {self._device} for {_DEVICE_LIMIT_S / 60:.0f} minutes",
                        "Wait for the trainings and judges that use it, or end them.",
                    ) from None
                self._told_to_wait = True
                log.warning("waiting for %s: another judge or a training uses it", self._device)
                continue
            if not waits:
                left_s -= time.monotonic() - begin
            match message:
                case {"waits": bool(waits)}:
                    pass
                case {"refused": [str(why), hint]}:
                    raise DeviceUnavailable(why, clip_text(hint))
                case {"unfit": [str(why), hint]}:
                    raise HostUnfit(str(clip_text(why)), clip_text(hint))
                case {"fault": str(why)}:
                    raise SandboxFailed(f"the judge process failed: {why[:_TEXT_LIMIT]}")
                case dict():
                    return message
                case _:
                    raise SandboxFailed("the judge process sent a malformed message")

    def interrupt(self) -> None:
        """Let the process end, which another thread waits for."""
        self._process.terminate()

    def close(self) -> None:
        """End the process, its worker processes and its control groups; remove its files."""
        self._socket.close()
        self._process.terminate()
        with interrupts.wait_for("a judge process to end"):
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._group is not None:
            self._group.kill()
            self._group.remove()
            self._group = None
        if self._memory is not None:
            memory_group.remove_group(self._memory)
        self._relay.join(_LAST_WORDS_S)
        if self._process.stderr is not None and not self._relay.is_alive():
            self._process.stderr.close()
        remove_folder(self._scratch)
        self._lock.close()
        self._memory_lock.close()

    def _receive_message(self, limit_s: float) -> Any:
        """Return the next message, of any form. Raises TimeoutError, SandboxFailed."""
        try:
            return json.loads(self._receive_line(limit_s))
        except (ValueError, RecursionError) as error:
            raise SandboxFailed("the judge process sent a malformed message") from error

    def _receive_line(self, limit_s: float) -> bytes:
        """Return the next line of the process, within a time and of a moderate length."""
        until = time.monotonic() + limit_s
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > _MESSAGE_BYTES:
                raise SandboxFailed("the judge process sent a message that is too long")
            left_s = max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], left_s)[0]:
                raise TimeoutError
            try:
                piece = self._socket.recv(1 << 20)
            except OSError:
                piece = b""
            if not piece:
                raise self._describe_end()
            self._received += piece
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _describe_end(self) -> SandboxFailed:
        """Return the error that says how the process has ended."""
        self._relay.join(_LAST_WORDS_S)
        try:
            code = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return SandboxFailed("the judge process has closed its channel", _HINT)
        if code >= 0:
            return SandboxFailed(f"the judge process left with exit code {code}", _HINT)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        message = f"the judge process was ended by {name}"
        if code == -signal.SIGKILL and count_oom_kills() > self._oom_kills:
            return SandboxFailed(
                f"{message}: the machine ran out of memory",
                "Run fewer judges at once, or use a machine with more memory.",
            )
        return SandboxFailed(message, _HINT)


def clip_text(value: Any) -> str | None:
    """Return a text that a judge process has sent, of moderate length, or None for nothing."""
    return None if value is None else str(value)[:_TEXT_LIMIT]


def _environment(device: str) -> dict[str, str]:
    """Return the variables to pass on; the wanted GPU alone is visible, as number 0."""
    kind, _, number = device.partition(":")
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment["FLYWHEEL_CACHE"] = str(default_root().parent)  # its HOME and TMPDIR are others
    if kind == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif kind == "cuda":
        index = int(number or 0)
        names = list_visible_devices()
        if names and index >= len(names):
            raise DeviceUnavailable(
                f"no device {device}: CUDA_VISIBLE_DEVICES names {len(names)}",
                f"Choose one of cuda:0 to cuda:{len(names) - 1}.",
            )
        environment["CUDA_VISIBLE_DEVICES"] = names[index] if names else str(index)
    return environment
