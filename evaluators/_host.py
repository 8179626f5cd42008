"""The process in which an evaluator runs: it imports torch, so that the command line need not.

The parent sends one JSON line per case and gets one line of rows back. It holds no lake.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from evaluators import _allocator, _cgroup, _isolation
from evaluators._sandbox import remove
from evaluators.sandbox import memory_group
from store.errors import DeviceUnavailable, EvaluatorError, SandboxFailed

if TYPE_CHECKING:
    from evaluators._bench import Bench
    from evaluators._case import Case
    from evaluators._tools import Tool

_ROOT = str(Path(__file__).resolve().parent.parent)
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from evaluators._host import main; "
    "main(int(sys.argv[2]))"
)
# What a task's text may see: no token, no address of a lake.
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "CC", "CXX", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST"),
    *("FLYWHEEL_CACHE", "XDG_CACHE_HOME", "FLYWHEEL_CATALOG"),
)
_START_LIMIT_S = 180.0
_GRACE_S = 900.0


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
        self._sick: str | None = None
        # Beside the candidate's own time: compiling baselines, and measuring a win once more.
        self._limit_s = 2 * float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._scratch = Path(tempfile.mkdtemp(prefix="flywheel-"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _ROOT, str(theirs.fileno())],
            env={**_environment(self._device), "TMPDIR": str(self._scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._group: _cgroup.Group | None = None
        with contextlib.suppress(OSError):
            self._group = _cgroup.Group(holds_groups=True)
            self._group.take(self._process.pid)
        self._socket = ours
        self._lines = ours.makefile("rwb")
        # Groups of workers are made below this one.
        groups = [str(self._group.folder)] if self._group is not None else []
        self._memory: Path | None = None
        with contextlib.suppress(OSError):
            self._memory = memory_group.make_folder()
            (self._memory / "cgroup.procs").write_text(str(self._process.pid))
            groups.append(str(self._memory))
        self._tell({**self._order, "groups": groups})
        try:
            started = self._hear(_START_LIMIT_S)
        except BaseException:
            self.close()
            raise
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this host's device."""
        self.arch: str | None = started["arch"]
        """Architecture that extensions are compiled for there, such as 9.0."""
        self.toolchain: str = started["toolchain"]
        """What a build there depends on besides its sources."""

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
        """Rows of one case.

        Raises SandboxFailed when the process is gone or stuck, and DeviceUnavailable where the
        case before has left the device in a state that cannot be measured on.
        """
        if self._sick is not None:
            raise DeviceUnavailable(self._sick, "Look at it with nvidia-smi; then run again.")
        self._tell(case)
        answer = self._hear(self._limit_s)
        self._sick = answer.get("sick")
        return answer["tables"]

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
        self._sick = answer["sick"]
        return answer["timings"], answer["failed"]

    def audit(self, task: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The row of `task_audits` for a task, or None and why it cannot be run.

        Raises SandboxFailed when the process is gone or stuck.
        """
        self._tell({"audit": task})
        answer = self._hear(self._limit_s)
        return answer["row"], answer["why"]

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
        if answer["why"] is not None:
            raise SandboxFailed(*answer["why"])
        return answer["tables"]

    def restart(self) -> None:
        """End the process and start another one. Raises SandboxFailed, DeviceUnavailable."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process, even in the middle of a case; its own workers end with it."""
        with contextlib.suppress(OSError):
            self._lines.close()
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
            memory_group.remove_folder(self._memory)
        remove(self._scratch)

    def _tell(self, message: Mapping[str, Any]) -> None:
        try:
            self._lines.write(json.dumps(message).encode() + b"\n")
            self._lines.flush()
        except OSError as error:
            raise SandboxFailed("the process that judges is gone") from error

    def _hear(self, limit_s: float) -> dict[str, Any]:
        ready, _, _ = select.select([self._socket], [], [], limit_s)
        line = self._lines.readline() if ready else b""
        if not line:
            raise SandboxFailed(
                "the process that judges is gone" if ready else "the process that judges is stuck",
                "What it wrote on its way stands above; run the command again to go on.",
            )
        message = json.loads(line)
        if "refused" in message:
            raise DeviceUnavailable(*message["refused"])
        return message


def main(fd: int) -> None:
    """Judge one case after the other until the parent is gone.

    The walls around this process come before torch, whose threads they would not reach, and before
    any task's text, which is as foreign as a candidate's.
    """
    from evaluators._builds import default_root, prepare
    from store import room

    signal.signal(signal.SIGTERM, _end)
    _allocator.reuse_memory()
    lines = socket.socket(fileno=fd).makefile("rwb")
    order = json.loads(lines.readline())
    member = room.member("evaluators", order["evaluator"]).load()
    config = member.Config(**order["config"])
    builds = default_root()
    prepare(builds)
    os.environ["HOME"] = os.environ["TMPDIR"]
    _isolation.confine_judge(
        read=[
            *(str(Path(_ROOT, name)) for name in ("evaluators", "store", "catalog.yaml")),
            *(str(Path(name).absolute().parent) for name in [member.__file__] if name),
            str(builds),
        ],
        # What is kept for others is the builders' to write: a task's text runs in this process.
        write=[os.environ["TMPDIR"], str(builds / "live"), *order["groups"]],
    )

    from evaluators._bench import Bench
    from evaluators._builder import toolchain
    from evaluators._builds import Builds
    from evaluators._device import architecture

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
    try:
        arch = architecture(device)
        tools = toolchain(arch)
        bench = Bench(device, Builds(builds, tools, Path(os.environ["TMPDIR"], "kept")))
    except EvaluatorError as error:
        tell({"refused": [error.message, error.hint]})
        return
    with contextlib.suppress(_Ended), bench:
        tell({"device": bench.row, "arch": arch, "toolchain": tools})
        try:
            for line in lines:
                fields = json.loads(line)
                if "walls" in fields:
                    tell(bench.walls())
                    continue
                if "audit" in fields:
                    tell(_audited(fields["audit"], bench))
                    continue
                if "remeasure" in fields:
                    tell(_remeasured(member, _case(fields["remeasure"]), bench, config))
                    continue
                if "look" in fields:
                    tell(_looked_at(_case(fields["look"]), bench, fields["tool"]))
                    continue
                tables = member.judge(_case(fields), bench, config)
                failed = tables["evaluations"][0]["status"] in ("crash", "timeout")
                tell({"tables": tables, "sick": bench.ailment() if failed else None})
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the clean-up runs to its end
    sys.stderr.flush()
    _isolation.end_helpers()
    os._exit(0)  # at once: Python would take torch apart first, which takes a while


class _Ended(SystemExit):
    """The pool has let this process go."""


def _end(*_: object) -> None:
    raise _Ended(143)


def _case(fields: Mapping[str, Any]) -> Case:
    from evaluators._case import Case

    given = dict(fields)
    given["other_files"] = tuple((path, code) for path, code in fields["other_files"])
    given.pop("compiles", None)  # of use to the fleet alone
    return Case(**given)


def _remeasured(member: ModuleType, case: Case, bench: Bench, config: Any) -> dict[str, Any]:
    from evaluators._failures import Failed
    from evaluators._reference import ReferenceFailed

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
        "sick": bench.ailment() if lost else None,
    }


def _looked_at(case: Case, bench: Bench, tool: Tool) -> dict[str, Any]:
    from evaluators._reference import ReferenceFailed
    from evaluators._tools import look

    try:
        return {"tables": look(case, bench, tool), "why": None}
    except EvaluatorError as error:
        return {"tables": {}, "why": [error.message, error.hint]}
    except ReferenceFailed as failed:
        return {"tables": {}, "why": [str(failed), None]}


def _audited(task: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    from evaluators._reference import ReferenceFailed
    from evaluators._weak import row

    try:
        return {"row": row(task, bench), "why": ""}
    except ReferenceFailed as failed:
        return {"row": None, "why": str(failed)}


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
