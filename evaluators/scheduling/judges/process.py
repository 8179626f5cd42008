"""A judge process: it judges cases on one device with one evaluator, and holds no lake."""

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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import Place, list_visible_devices
from evaluators.judging.case import Case
from evaluators.judging.host import count_oom_kills, find_unfit
from evaluators.judging.weak_tasks import VERSION as AUDITOR_VERSION
from evaluators.processes import cgroup
from evaluators.sandbox.folders import remove_folder
from evaluators.scheduling import answers, contract
from evaluators.worker.build_cache import default_root
from store import faults
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


_START_LIMIT_S = 180.0
_GRACE_S = 900.0
_STARTS = 3
_PAUSE_S = 2.0


class JudgeProcess:
    """A process that judges cases on one device. Its context begins when it is ready."""

    def __init__(
        self,
        evaluator: str | None,
        device: str,
        config: Any = None,
        cores: Sequence[int] | None = None,
        timing_cores: Sequence[int] = (),
    ) -> None:
        """Start the process; `wait_ready` comes next.

        Args:
            evaluator: Name of the evaluator; None for a process that audits tasks, runs NVIDIA's
                tools and describes its walls, and judges nothing.
            device: auto, cpu, or a GPU such as cuda:0.
            cores: Processor cores of the process; None for all.
            timing_cores: Cores on which it times; none for the same.

        Raises:
            UnknownName: no evaluator has this name.
            SandboxFailed: the process cannot be started.
            DeviceUnavailable: CUDA_VISIBLE_DEVICES has no such GPU.
            FlywheelError: torch is not installed.
        """
        faults.require_packages("torch")
        self._evaluator, self._version = "", 0
        if evaluator is not None:
            module = contract.load(evaluator)
            self._evaluator, self._version = contract.name_of(module), module.VERSION
        self._order: dict[str, Any] = {
            "evaluator": evaluator,
            "device": device.partition(":")[0],
            "config": asdict(config) if config is not None else {},
            "cores": list(cores) if cores is not None else None,
            "timing_cores": list(timing_cores),
        }
        self._device = device
        self._is_given_up = False
        self._sick: str | None = None
        self.on_part: Callable[[str], None] | None = None
        """Called with the name of each part of a judgment as it begins."""
        # Beside the candidate's own time: compiling baselines, and measuring a win once more.
        self._limit_s = 2 * float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._start()

    def _start(self) -> None:
        """Start a process and send it the order: what to judge with.

        It sees no other GPU, and inherits the locks of its device.
        """
        environment = _environment(self._device)
        if unfit := find_unfit((), "cpu" if self._device == "cpu" else "cuda"):
            raise unfit
        self._told_to_wait = False
        self._lock = DeviceLock.of_device(self._device, self._order["cores"])
        self._memory_lock = DeviceLock.of_memory(self._device)
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
            self._memory = cgroup.make_memory_group()
            (self._memory / "cgroup.procs").write_text(str(self._process.pid))
            groups.append(str(self._memory))
        try:
            locks = {"locks": self._lock.fds, "memory_locks": self._memory_lock.fds}
            self._send({**self._order, "groups": groups, **locks})
        except BaseException:
            self.close()
            raise

    def wait_ready(self) -> None:
        """Wait until the process has its device. One that fails before is started again.

        Raises:
            SandboxFailed: no process starts. The last one has ended.
            DeviceUnavailable: the device is not there, or cannot be measured on, or others use it
                for too long. The process has ended.
        """
        left = _STARTS
        while True:
            try:
                started = self._receive(_START_LIMIT_S)
                break
            except SandboxFailed as failed:
                self.close()
                left -= 1
                if not left or self._is_given_up:
                    raise
                log.warning("a judge process is started again: %.300s", failed.message)
                time.sleep(_PAUSE_S)
                self._start()
            except BaseException:
                self.close()
                raise
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this process's device."""
        self.arch: str | None = started["arch"]
        """Architecture that extensions are compiled for there, such as 9.0."""
        self.toolchain: str = started["toolchain"]
        """What a build there depends on besides its sources."""

    def __enter__(self) -> Self:
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id; another one after `restart`."""
        return self._process.pid

    def judge(self, case: Case) -> contract.Tables:
        """Return the rows of one case, and of nothing else (`answers.accept_judgment`).

        A refused answer becomes a row with the status evaluator_error.

        Raises:
            SandboxFailed: the process is gone or stuck.
            HostUnfit: the host lacks what the kernel needs.
            DeviceUnavailable: the previous case has left the device in a state that cannot be
                measured on, or others use it for too long.
        """
        if self._sick is not None:  # found so after the previous case
            raise DeviceUnavailable(
                f"{self.row['name']} cannot be measured on: {self._sick}",
                "Check it with nvidia-smi, then run again.",
            )
        answer = self._ask({"judge": case.write()})
        self._sick = clip_text(answer.get("sick"))
        try:
            return answers.accept_judgment(answer.get("tables"), self._subject(case))
        except answers.RefusedAnswer as error:
            log.warning("an answer of the evaluator is refused: %s", error)
            return self.build_fault(case, f"the evaluator's answer is refused: {error}")

    def build_fault(self, case: Case, why: str) -> contract.Tables:
        """Return the rows of a case that could not be judged, through no fault of its own."""
        return answers.build_fault(self._subject(case), why)

    def audit(self, task: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any] | None, str]:
        """Return the row of `task_audits` for a task, or None and why it cannot be run.

        Raises SandboxFailed when the process is gone, or has not answered after `limit_s`.
        """
        self._send({"audit": task})
        answer = self._receive(limit_s)
        if answer.get("row") is None:
            return None, str(clip_text(answer.get("why")))
        expected = {name: task[name] for name in ("task_id", "workload_id")} | {
            "device_id": self.row["device_id"],
            "auditor_version": AUDITOR_VERSION,
        }
        try:
            return answers.accept_audit(answer["row"], expected), ""
        except answers.RefusedAnswer as error:
            return None, f"the audit's answer is refused: {error}"

    def read_walls(self) -> tuple[list[str], dict[str, str]]:
        """Return the walls around candidates that hold here, and why each of the others does not.

        Raises SandboxFailed when the process is gone or stuck.
        """
        answer = self._ask({"walls": True})
        return answer["holds"], answer["reasons"]

    def run_tool(self, case: Case, tool: str) -> contract.Tables:
        """Return rows of `analyses` and `findings` of a case by one of NVIDIA's tools.

        Raises SandboxFailed where the tool gives none, or the process is gone or stuck.
        """
        answer = self._ask({"look": case.write(), "tool": tool})
        match answer.get("why"):
            case [message, hint]:
                raise SandboxFailed(str(clip_text(message)), clip_text(hint))
            case _:
                pass
        try:
            return answers.accept_remarks(answer.get("tables"), self._subject(case))
        except answers.RefusedAnswer as error:
            raise SandboxFailed(f"the answer of {tool} is refused: {error}") from error

    def restart(self) -> None:
        """End the process and start another one. Raises SandboxFailed, DeviceUnavailable."""
        self.close()
        self._start()
        self.wait_ready()

    def give_up(self) -> None:
        """Let `wait_ready`, in which another thread is, end with SandboxFailed."""
        self._is_given_up = True
        self._process.terminate()

    def close(self) -> None:
        """End the process, even in the middle of a case, with its workers and control groups."""
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
            cgroup.remove_group(self._memory)
        self._relay.join(_LAST_WORDS_S)
        if self._process.stderr is not None and not self._relay.is_alive():
            self._process.stderr.close()
        remove_folder(self._scratch)
        self._lock.close()
        self._memory_lock.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._describe_end() from error

    def _receive(self, limit_s: float) -> dict[str, Any]:
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
                message = json.loads(self._receive_line(wait_s if waits else left_s))
            except (ValueError, RecursionError) as error:
                raise SandboxFailed("the judge process sent a malformed message") from error
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
                case {"part": str(part)}:
                    if self.on_part is not None:
                        self.on_part(part)
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

    def _receive_line(self, limit_s: float) -> bytes:
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
        self._relay.join(_LAST_WORDS_S)
        try:
            code = self._process.wait(5 * _LAST_WORDS_S)  # on a busy host
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

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._send(message)
        return self._receive(self._limit_s)

    def _subject(self, case: Case) -> answers.Subject:
        device_id = self.row["device_id"]
        return answers.Subject(case, device_id, evaluator=self._evaluator, version=self._version)


@contextmanager
def start_judges(
    evaluator: str | None, places: Sequence[Place], config: Any = None
) -> Generator[list[JudgeProcess]]:
    """Start judge processes at places of this machine side by side, and end them afterwards.

    Wait for each with `wait_ready`. Raises what `JudgeProcess` raises.
    """
    with ExitStack() as stack:
        judges: list[JudgeProcess] = []
        for place in places:  # all import torch at the same time, while the first is waited for
            cores = place.cores, place.timing_cores
            judges.append(JudgeProcess(evaluator, place.device, config, *cores))
            stack.callback(judges[-1].close)
        yield judges
