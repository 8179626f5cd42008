"""One worker as the judge sees it: typed requests, and every way to fail mapped to a status."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from evaluators._channel import Malformed
from evaluators._reference import ReferenceFailed
from evaluators._sandbox import (
    Cell,
    Died,
    Ended,
    Limits,
    Nursery,
    TimedOut,
    readable,
    shared_memory,
)
from evaluators._tensors import Box
from store.errors import SandboxFailed

Stage: TypeAlias = Literal["load", "construct", "first_call", "call"]

_SLACK_BYTES = 64 * 1024
_LONGEST_NS = 10**15
_BUILD_ERRORS = {"CalledProcessError", "CompilationError", "CompileTimeAssertionFailure"}
_BUILD_TEXTS = ("Error building extension", "Error compiling", "Kernel compilation failed", "nvrtc")
_MEMORY_ERRORS = {"OutOfMemoryError", "MemoryError"}
_MEMORY_TEXTS = ("can't allocate memory", "out of memory", "not enough memory")


class Failed(Exception):
    """A worker failed at a request, with the status and reason that stand for it."""

    def __init__(self, status: str, reason: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a worker may take, in seconds."""

    import_s: float
    build_s: float
    first_call_s: float
    call_s: float
    total_s: float


@dataclass(frozen=True)
class Sample:
    """One timed request."""

    reported_ns: int
    """By the worker's own clock, all calls together."""
    wall_ns: int
    """By the judge's clock, from request to answer."""


class Arm:
    """One worker with its shared memory.

    Methods raise Failed; those of a trusted worker, which runs the task's own module, raise
    ReferenceFailed, so that no fault of a baseline is laid at a candidate's door.
    """

    def __init__(
        self,
        nursery: Nursery,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Limits,
        patience: Patience,
        inbox_bytes: int,
        outbox_bytes: int,
        trusted: bool,
    ) -> None:
        self._trusted = trusted
        self.patience = patience
        self.device = str(setting["device"])
        self._started = time.monotonic()
        self._ended: Ended | None = None
        sizes = {
            "inbox_bytes": inbox_bytes + _SLACK_BYTES,
            "outbox_bytes": outbox_bytes + _SLACK_BYTES,
        }
        fds = [shared_memory(size) for size in sizes.values()]
        self._inbox = Box(fds[0], sizes["inbox_bytes"])
        self._outbox = Box(fds[1], sizes["outbox_bytes"])
        self._cell: Cell = nursery.start(
            files, setting={**setting, **sizes}, limits=limits, inbox=fds[0], outbox=fds[1]
        )
        for fd in fds:
            os.close(fd)

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        try:
            self._ask("prepare", "load")
        except (Failed, ReferenceFailed) as failed:
            self.end()
            raise SandboxFailed(f"a worker cannot be prepared: {failed}") from failed

    def load(self, path: str, entry_point: str, names: Mapping[str, Any]) -> None:
        """Import the file and find the entry point in it."""
        answer = self._ask("load", "load", path=path, entry_point=entry_point, names=dict(names))
        if answer.get("found") is not True:
            message = f"the file defines no {entry_point}"
            raise Failed("compile_error", "no_entry_point", message)

    def construct(self, seed: int, arguments: list[Any]) -> None:
        """Make the module under a seed."""
        self._ask("construct", "construct", seed=seed, arguments=self._inbox.put(arguments))

    def fill(self, slot: int, inputs: list[Any]) -> None:
        """Copy inputs into one of the worker's slots, over what was there."""
        self._ask("fill", "call", slot=slot, inputs=self._inbox.put(inputs))

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and take its output."""
        return self._output(self._ask("call", "first_call" if first else "call", slot=slot))

    def output(self, back: int) -> Any:
        """Take the last output (0) or the one before it (1) once more."""
        return self._output(self._ask("output", "call", back=back))

    def inputs(self, slot: int) -> Any:
        """Take the inputs of a slot as they are now."""
        answer = self._ask("inputs", "call", slot=slot)
        return self._take(answer.get("inputs"), self.device)

    def flush(self) -> None:
        """Flush the caches from inside the worker."""
        self._ask("flush", "call")

    def check_clocks(self) -> None:
        """Raise Failed where the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call").get("replaced")
        if replaced != []:
            message = f"the code replaces {readable(str(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def time(self, slots: list[int]) -> Sample:
        """Call the module once per slot named, timed inside and outside."""
        answer = self._ask("time", "call", slots=slots)
        self._refuse_odd(answer.get("odd"))
        reported_ns = answer.get("elapsed_ns")
        if type(reported_ns) is not int or abs(reported_ns) > _LONGEST_NS:
            raise Failed("rejected", "malformed_output", "a timing is not a number of nanoseconds")
        return Sample(reported_ns, self._cell.wall_ns)

    def cpu_ns(self) -> int:
        """Processor time used so far."""
        return self._cell.cpu_ns()

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            self._ended = self._cell.end()
        return self._ended

    def _output(self, answer: Mapping[str, Any]) -> Any:
        self._refuse_odd(answer.get("odd"))
        devices = answer.get("devices")
        if not isinstance(devices, list):
            raise Failed("rejected", "malformed_output", "an output does not name its devices")
        names = [str(name)[:20] for name in devices]
        wrong = [name for name in names if name != self.device]
        if wrong:
            raise Failed("incorrect", "incorrect_device", f"an output lies on {wrong[0]}")
        # What is larger than the reference's answer is described without its data.
        where = "meta" if answer.get("full") else self.device
        return self._take(answer.get("output"), where)

    def _take(self, spec: Any, device: str) -> Any:
        try:
            return self._outbox.get(spec, device)
        except Malformed as error:
            raise Failed("rejected", "malformed_output", str(error)) from error

    def _refuse_odd(self, odd: Any) -> None:
        if odd is None:
            return
        if not isinstance(odd, dict):
            raise Failed("rejected", "malformed_output", "an output's type is not described")
        name = readable(str(odd.get("type"))[:80])
        if odd.get("lazy"):
            message = f"an output is a {name}, a subclass of torch.Tensor that may compute later"
            raise Failed("rejected", "lazy_output", message)
        raise Failed("incorrect", "incorrect_type", f"an output is a {name}")

    def _ask(self, do: str, stage: Stage, **fields: Any) -> dict[str, Any]:
        try:
            return self._answer(do, stage, fields)
        except Failed as failed:
            if self._trusted:
                message = f"the eager baseline failed: {failed.message}"
                raise ReferenceFailed(message) from failed
            raise

    def _answer(self, do: str, stage: Stage, fields: Mapping[str, Any]) -> dict[str, Any]:
        patience = self.patience
        left_s = patience.total_s - (time.monotonic() - self._started)
        if left_s <= 0:
            message = f"not done after {patience.total_s:g} s in all"
            raise Failed("timeout", "total_timeout", message)
        limit_s = {
            "load": patience.import_s,
            "construct": patience.import_s,
            "first_call": patience.first_call_s,
            "call": patience.call_s,
        }[stage]
        try:
            answer = self._cell.ask(
                do, min(limit_s, left_s), min(patience.build_s, left_s), **fields
            )
        except TimedOut as error:
            raise _timeout(stage, limit_s, patience.build_s, error.compiling) from error
        except Died as error:
            raise _death(self.end()) from error
        except Malformed as error:
            raise Failed("rejected", "malformed_output", readable(str(error))) from error
        if "error" in answer:
            raise _failure(stage, answer["error"])
        return answer


def _timeout(stage: Stage, limit_s: float, build_s: float, compiling: bool) -> Failed:
    if compiling:
        message = f"still building after {build_s:g} s"
        return Failed("timeout", "build_timeout", message)
    if stage in ("load", "construct"):
        what = "imported" if stage == "load" else "constructed"
        return Failed("timeout", "import_timeout", f"not {what} after {limit_s:g} s")
    return Failed("timeout", "call_timeout", f"no answer to a call after {limit_s:g} s")


def _death(ended: Ended) -> Failed:
    if ended.code == -signal.SIGXCPU:
        return Failed("timeout", "total_timeout", "used up its processor time")
    if ended.code < 0:
        try:
            name = signal.Signals(-ended.code).name
        except ValueError:
            name = f"signal {-ended.code}"
        return Failed("crash", "signal", f"ended by {name}")
    message = f"left with exit code {ended.code} before it had answered"
    return Failed("crash", "early_exit", message)


def _failure(stage: Stage, error: Any) -> Failed:
    if not isinstance(error, dict):
        return Failed("rejected", "malformed_output", "an error is not described")
    types = {str(name) for name in error.get("types") or []}
    text = readable(str(error.get("text", "")))
    name = readable(str(error.get("type", "")))
    message = f"{name}: {text.strip().splitlines()[0] if text.strip() else ''}"[:500]
    detail = readable(str(error.get("trace", "")))
    if types & _MEMORY_ERRORS or any(part in text for part in _MEMORY_TEXTS):
        return Failed("crash", "out_of_memory", message, detail)
    if types & _BUILD_ERRORS or any(part in text for part in _BUILD_TEXTS):
        return Failed("compile_error", "build_failed", message, detail)
    if stage == "load":
        reason = "syntax_error" if "SyntaxError" in types else "import_failed"
        return Failed("compile_error", reason, message, detail)
    if stage == "construct":
        return Failed("compile_error", "init_failed", message, detail)
    return Failed("crash", "exception", message, detail)
