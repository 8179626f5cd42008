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
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from store.errors import DeviceUnavailable, EvaluatorError, SandboxFailed

_ROOT = str(Path(__file__).resolve().parent.parent)
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from evaluators._host import main; "
    "main(int(sys.argv[2]))"
)
_START_LIMIT_S = 180.0
_GRACE_S = 120.0


class Host:
    """A process that judges cases with one evaluator on one device. Use as a context manager."""

    def __init__(self, evaluator: str, device: str, config: Any) -> None:
        self._order = {
            "evaluator": evaluator,
            "device": device.partition(":")[0],
            "config": asdict(config),
        }
        self._device = device
        self._limit_s = float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _ROOT, str(theirs.fileno())],
            env=_environment(self._device),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._socket = ours
        self._lines = ours.makefile("rwb")
        self._tell(self._order)
        try:
            started = self._hear(_START_LIMIT_S)
        except BaseException:
            self.close()
            raise
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this host's device."""

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
        """Rows of one case. Raises SandboxFailed when the process is gone or stuck."""
        self._tell(case)
        return self._hear(self._limit_s)["tables"]

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
    """Judge one case after the other until the parent is gone."""
    from evaluators._bench import Bench
    from evaluators._case import Case
    from store import room

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lines = socket.socket(fileno=fd).makefile("rwb")

    def tell(message: Mapping[str, Any]) -> None:
        lines.write(json.dumps(message).encode() + b"\n")
        lines.flush()

    order = json.loads(lines.readline())
    member = room.member("evaluators", order["evaluator"]).load()
    config = member.Config(**order["config"])
    device = order["device"]
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        bench = Bench(device)
    except EvaluatorError as error:
        tell({"refused": [error.message, error.hint]})
        return
    with bench:
        tell({"device": bench.row})
        try:
            for line in lines:
                fields = json.loads(line)
                fields["other_files"] = tuple((path, code) for path, code in fields["other_files"])
                tell({"tables": member.judge(Case(**fields), bench, config)})
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the clean-up runs to its end


def _environment(device: str) -> dict[str, str]:
    """Our own environment, with only the wanted GPU visible under the number 0."""
    kind, _, number = device.partition(":")
    environment = dict(os.environ)
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
