"""The process in which an evaluator runs: it imports torch, so that the command line need not.

The parent sends one JSON line per case and gets one line of rows back. It holds no lake.
"""

from __future__ import annotations

import contextlib
import functools
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
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from evaluators.device.lock import DeviceLock
from evaluators.judging.weak_tasks import VERSION as AUDITOR_VERSION
from evaluators.processes import allocator, cgroup, memory_group
from evaluators.sandbox import isolation
from evaluators.sandbox.folders import remove_folder
from evaluators.scheduling import answers
from store.commandline import echo, members
from store.errors import DeviceUnavailable, EvaluatorError, SandboxFailed

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.judging.case import Case
    from evaluators.judging.nvidia_tools import Tool

_ROOT = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from evaluators.scheduling.judge_process import main; main(int(sys.argv[2]))"
)
# No token, no address of a lake.
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "CC", "CXX", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST"),
    *("FLYWHEEL_CACHE", "XDG_CACHE_HOME", "FLYWHEEL_CATALOG"),
)
_START_LIMIT_S = 180.0
_GRACE_S = 900.0
_ANSWER_BYTES = 64 << 20
_TEXT_LIMIT = 4000
_LAST_WORDS_S = 2.0
_STARTS = 3
_PAUSE_S = 2.0

log = logging.getLogger(__name__)


class Host:
    """A process that judges cases with one evaluator on one device. Use as a context manager."""

    def __init__(
        self, evaluator: str, device: str, config: Any, cores: Sequence[int] | None = None
    ) -> None:
        self._order = {
            "evaluator": evaluator,
            "device": device.partition(":")[0],
            "config": asdict(config),
            "cores": list(cores) if cores is not None else None,
        }
        self._device = device
        self._lock = DeviceLock.of(_parts(device, cores))
        self._sick: str | None = None
        # Beside the candidate's own time: compiling baselines, and measuring a win once more.
        self._limit_s = 2 * float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._start()

    def _start(self) -> None:
        left = _STARTS
        while True:
            left -= 1
            try:
                started = self._launch()
                break
            except SandboxFailed as failed:
                if not left:
                    raise
                log.warning("a judge is started again: %.300s", failed.message)
                time.sleep(_PAUSE_S)
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this host's device."""
        self.arch: str | None = started["arch"]
        """Architecture that extensions are compiled for there, such as 9.0."""
        self.toolchain: str = started["toolchain"]
        """What a build there depends on besides its sources."""

    def _launch(self) -> dict[str, Any]:
        """Start the process and return what it says of its device.

        Raises SandboxFailed, DeviceUnavailable.
        """
        ours, theirs = socket.socketpair()
        self._scratch = Path(tempfile.mkdtemp(prefix="flywheel-"))
        self._oom_kills = _oom_kills()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _ROOT, str(theirs.fileno())],
            env={**_environment(self._device), "TMPDIR": str(self._scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno(), *(fd for pair in self._lock.fds for fd in pair)],
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
        self._heard = bytearray()
        # Groups of workers are made below this one.
        groups = [str(self._group.folder)] if self._group is not None else []
        self._memory: Path | None = None
        with contextlib.suppress(OSError):
            self._memory = memory_group.make_group()
            (self._memory / "cgroup.procs").write_text(str(self._process.pid))
            groups.append(str(self._memory))
        try:
            self._tell({**self._order, "groups": groups, "locks": self._lock.fds})
            return self._hear(_START_LIMIT_S)
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def judge(self, case: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Rows of one case, and of nothing else.

        An answer that is none becomes a row with the status evaluator_error. Raises SandboxFailed
        when the process is gone or stuck, and DeviceUnavailable where the case before has left the
        device in a state that cannot be measured on.
        """
        if self._sick is not None:
            raise DeviceUnavailable(self._sick, "Look at it with nvidia-smi; then run again.")
        self._tell(case)
        answer = self._hear(self._limit_s)
        self._sick = _text(answer.get("sick"))
        asked = self._asked(case)
        try:
            return answers.judgement(answer.get("tables"), asked)
        except answers.Unaccepted as error:
            log.warning("an answer of the evaluator is refused: %s", error)
            return answers.fault(asked, f"the evaluator's answer is refused: {error}")

    def remeasure(
        self, case: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Rows of a second timing session of a case, or how the kernel failed in it.

        Neither where our own machinery failed. Raises as `judge` does.
        """
        if self._sick is not None:
            raise DeviceUnavailable(self._sick, "Look at it with nvidia-smi; then run again.")
        self._tell({"remeasure": case})
        answer = self._hear(self._limit_s)
        self._sick = _text(answer.get("sick"))
        try:
            return answers.session(answer.get("timings"), answer.get("failed"), self._asked(case))
        except answers.Unaccepted as error:
            raise SandboxFailed(f"a second session is refused: {error}") from error

    def audit(self, task: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The row of `task_audits` for a task, or None and why it cannot be run.

        Raises SandboxFailed when the process is gone or stuck.
        """
        self._tell({"audit": task})
        answer = self._hear(self._limit_s)
        if answer.get("row") is None:
            return None, str(_text(answer.get("why")))
        about = {name: task[name] for name in ("task_id", "workload_id")} | {
            "device_id": self.row["device_id"],
            "auditor_version": AUDITOR_VERSION,
        }
        try:
            return answers.audit(answer["row"], about), ""
        except answers.Unaccepted as error:
            return None, f"the audit's answer is refused: {error}"

    def walls(self) -> tuple[list[str], dict[str, str]]:
        """Walls around candidates that hold here, and why each of the others does not.

        Raises SandboxFailed when the process is gone or stuck.
        """
        self._tell({"walls": True})
        answer = self._hear(self._limit_s)
        return answer["holds"], answer["reasons"]

    def look(self, case: Mapping[str, Any], tool: str) -> dict[str, list[dict[str, Any]]]:
        """Rows of `analyses` and `findings` of a case by one of NVIDIA's tools (`_tools`).

        Raises SandboxFailed where the tool gives none, or the process is gone or stuck.
        """
        self._tell({"look": case, "tool": tool})
        answer = self._hear(self._limit_s)
        match answer.get("why"):
            case [message, hint]:
                raise SandboxFailed(str(_text(message)), _text(hint))
            case _:
                pass
        try:
            return answers.remarks(answer.get("tables"), self._asked(case))
        except answers.Unaccepted as error:
            raise SandboxFailed(f"what {tool} shows is refused: {error}") from error

    def restart(self) -> None:
        """End the process and start another one. Raises SandboxFailed, DeviceUnavailable."""
        self._end()
        self._start()

    def close(self) -> None:
        """End the process, even in the middle of a case; its own workers end with it."""
        self._end()
        self._lock.close()

    def _end(self) -> None:
        self._socket.close()
        self._process.terminate()
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

    def _tell(self, message: Mapping[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> SandboxFailed:
        """Say how the process has ended."""
        self._relay.join(_LAST_WORDS_S)
        hint = "What it wrote on its way stands above; run the command again to go on."
        try:
            code = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return SandboxFailed("the process that judges has closed its channel", hint)
        if code >= 0:
            return SandboxFailed(f"the process that judges left with exit code {code}", hint)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        message = f"the process that judges was ended by {name}"
        if code == -signal.SIGKILL and _oom_kills() > self._oom_kills:
            message += ": the machine ran out of memory"
            hint = "Run fewer judges at once, or on a machine with more memory."
        return SandboxFailed(message, hint)

    def _hear(self, limit_s: float) -> dict[str, Any]:
        line = self._line(limit_s)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SandboxFailed("the process that judges says what is no message") from error
        match message:
            case {"refused": [str(why), hint]}:
                raise DeviceUnavailable(why, _text(hint))
            case {"fault": str(why)}:
                raise SandboxFailed(f"the process that judges failed: {why[:_TEXT_LIMIT]}")
            case dict():
                return message
            case _:
                raise SandboxFailed("the process that judges says what is no message")

    def _line(self, limit_s: float) -> bytes:
        """The next line of the process, within a time and of a moderate length."""
        until = time.monotonic() + limit_s
        hint = "What it wrote on its way stands above; run the command again to go on."
        seen = 0
        while (end := self._heard.find(b"\n", seen)) < 0:
            seen = len(self._heard)
            if seen > _ANSWER_BYTES:
                raise SandboxFailed("the process that judges says more than can be an answer")
            left_s = max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], left_s)[0]:
                raise SandboxFailed("the process that judges is stuck", hint)
            try:
                piece = self._socket.recv(1 << 20)
            except OSError:
                piece = b""
            if not piece:
                raise self._gone()
            self._heard += piece
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return line

    def _asked(self, case: Mapping[str, Any]) -> answers.Asked:
        """What an answer about a case has to be about."""
        evaluator = str(self._order["evaluator"]).replace("_", "-")
        return answers.Asked(
            kernel_id=case["kernel_id"],
            task_id=case["task_id"],
            workload_id=case["workload_id"],
            device_id=self.row["device_id"],
            evaluator=evaluator,
            version=_version(evaluator),
            files=tuple(path for path, _ in case["other_files"]),
        )


def main(fd: int) -> None:
    """Judge one case after the other until the parent is gone.

    No text of a task or a candidate runs in it. The walls around it come before torch, whose
    threads they would not reach, and bound what a fault of the judge's own could do.
    """
    from evaluators.worker.build_cache import default_root, make_folders

    signal.signal(signal.SIGTERM, _end)
    allocator.reuse_memory()
    lines = socket.socket(fileno=fd).makefile("rwb")
    order = json.loads(lines.readline())
    member = members.find_member("evaluators", order["evaluator"]).load()
    config = member.Config(**order["config"])
    builds = default_root()
    make_folders(builds)
    os.environ["HOME"] = os.environ["TMPDIR"]
    isolation.confine_judge(
        read=[
            *(str(Path(_ROOT, name)) for name in ("evaluators", "store", "catalog.yaml")),
            *(str(Path(name).absolute().parent) for name in [member.__file__] if name),
            str(builds),
        ],
        write=[os.environ["TMPDIR"], str(builds / "live"), str(builds / "kept"), *order["groups"]],
    )

    from evaluators.device.fingerprint import find_architecture
    from evaluators.judging.bench import Bench
    from evaluators.scheduling.prebuild import toolchain
    from evaluators.worker.build_cache import Builds

    def tell(message: Mapping[str, Any]) -> None:
        lines.write(json.dumps(message).encode() + b"\n")
        lines.flush()

    if order["cores"] is not None:
        os.sched_setaffinity(0, order["cores"])
    # A task's modules warn of what they like, and so does torch of GPUs that it is not to see.
    warnings.simplefilter("ignore")
    device = order["device"]
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    lock = DeviceLock([(turnstile, held) for turnstile, held in order["locks"]])
    try:
        # One after the other: drivers have failed where several processes began to use a GPU.
        with lock.exclusive():
            arch = find_architecture(device)
            tools = toolchain(arch)
            bench = Bench(device, Builds(builds, tools), lock)
    except EvaluatorError as error:
        tell({"refused": [error.message, error.hint]})
        return
    except Exception as error:
        tell({"fault": f"{type(error).__name__}: {error}"})
        raise
    with contextlib.suppress(_Ended), bench:
        tell({"device": bench.row, "arch": arch, "toolchain": tools})
        try:
            for line in lines:
                try:
                    answer = _answer(json.loads(line), member, bench, config)
                except Exception as error:
                    tell({"fault": f"{type(error).__name__}: {error}"})
                    raise
                tell(answer)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the clean-up runs to its end
    sys.stderr.flush()
    isolation.end_helpers()
    os._exit(0)  # at once: Python would take torch apart first, which takes a while


def _answer(
    fields: dict[str, Any], member: ModuleType, bench: Bench, config: Any
) -> dict[str, Any]:
    """Do what a message of the parent asks for."""
    if "walls" in fields:
        return bench.read_isolation()
    if "audit" in fields:
        return _audited(fields["audit"], bench)
    if "remeasure" in fields:
        return _remeasured(member, _case(fields["remeasure"]), bench, config)
    if "look" in fields:
        return _looked_at(_case(fields["look"]), bench, fields["tool"])
    tables = member.judge(_case(fields), bench, config)
    return {"tables": tables, "sick": bench.find_device_fault() if _is_lost(tables) else None}


class _Ended(SystemExit):
    """The pool has let this process go."""


def _end(*_: object) -> None:
    raise _Ended(143)


def _case(fields: Mapping[str, Any]) -> Case:
    from evaluators.judging.case import Case

    given = dict(fields)
    given["other_files"] = tuple((path, code) for path, code in fields["other_files"])
    given.pop("compiles", None)  # of use to the fleet alone
    return Case(**given)


def _is_lost(tables: object) -> bool:
    """Whether a judgement says that the kernel's process was lost, which a device may suffer from.

    It is read loosely, since an evaluator may be the user's own; the parent checks what it says.
    """
    match tables:
        case {"evaluations": [{"status": "crash" | "timeout"}, *_]}:
            return True
        case _:
            return False


def _remeasured(member: ModuleType, case: Case, bench: Bench, config: Any) -> dict[str, Any]:
    from evaluators.references.task import ReferenceFailed
    from evaluators.sandbox.failures import Failed

    rows: list[dict[str, Any]] = []
    failed: Failed | None = None
    try:
        rows = member.remeasure(case, bench, config)
    except Failed as error:
        failed = error
    except (ReferenceFailed, SandboxFailed):
        bench.end_baselines()
    lost = failed is not None and failed.status in ("crash", "timeout")
    return {
        "timings": rows,
        "failed": vars(failed) if failed is not None else None,
        "sick": bench.find_device_fault() if lost else None,
    }


def _looked_at(case: Case, bench: Bench, tool: Tool) -> dict[str, Any]:
    from evaluators.judging.nvidia_tools import run_tool
    from evaluators.references.task import ReferenceFailed

    try:
        return {"tables": run_tool(case, bench, tool), "why": None}
    except EvaluatorError as error:
        return {"tables": {}, "why": [error.message, error.hint]}
    except ReferenceFailed as failed:
        return {"tables": {}, "why": [str(failed), None]}


def _audited(task: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    from evaluators.judging.weak_tasks import build_audit_row
    from evaluators.references.task import ReferenceFailed

    try:
        return {"row": build_audit_row(task, bench), "why": ""}
    except (ReferenceFailed, SandboxFailed) as failed:
        return {"row": None, "why": str(failed)}


@functools.cache
def _version(evaluator: str) -> int:
    """Version of an evaluator's rules, as its file has it."""
    return int(members.find_member("evaluators", evaluator).load().VERSION)


def _text(value: Any) -> str | None:
    """A text that a judging process has sent, or None for nothing."""
    return None if value is None else str(value)[:_TEXT_LIMIT]


def _parts(device: str, cores: Sequence[int] | None) -> list[str]:
    """What a judge has for itself while it times: its GPU, or the cores of a processor."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return [f"cpu-{core}" for core in cores or sorted(os.sched_getaffinity(0))]
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    index = int(number or 0)
    return [f"gpu-{visible[index] if index < len(visible) else index}".replace(os.sep, "-")]


def _oom_kills() -> int:
    """How often the kernel has ended a process for want of memory since the machine started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _environment(device: str) -> dict[str, str]:
    """What is passed on of our own environment; the wanted GPU alone is visible, as number 0."""
    kind, _, number = device.partition(":")
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if kind == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif kind == "cuda":
        index = int(number or 0)
        visible = environment.get("CUDA_VISIBLE_DEVICES", "")
        names = [name for name in visible.split(",") if name]
        if names and index >= len(names):
            raise DeviceUnavailable(
                f"no device {device}: CUDA_VISIBLE_DEVICES names {len(names)}",
                f"Choose one of cuda:0 to cuda:{len(names) - 1}.",
            )
        environment["CUDA_VISIBLE_DEVICES"] = names[index] if names else str(index)
    return environment
