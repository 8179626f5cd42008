"""Requests to a task's worker, and the values that pass to it and back in shared memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluators.limits.kinds import refuse_limit
from evaluators.memory.boxes import MappedBox, OpenedBox, Side, find_place, round_up
from evaluators.memory.cuda_memory import release_unused_memory
from evaluators.memory.sealed_file import create_sealed_file
from evaluators.memory.tensors import ALIGN_BYTES, Box, is_inexact, layout, tensors_of
from evaluators.processes.messages import Malformed
from evaluators.processes.text import make_readable
from evaluators.sandbox.failures import explain_end, explain_timeout
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.worker_process import Died, TimedOut, WorkerProcess
from store.errors import HostUnfit, SandboxFailed

_TASK_FILE = "task.py"
CALL_LIMIT_S = 300.0
_BUILD_LIMIT_S = 300.0
"""Time limit for making the module, and for an answer while a compiler is running."""
_MOST_TEXT = 4000
_KEPT_BYTES = 2 << 30
"""A larger box is freed once it has been read."""


class ReferenceFailed(Exception):
    """The task itself cannot be built or run; never the candidate's fault."""

    reason = "reference_failed"
    """Reason of the row of such a case, whose status is evaluator_error."""


class SizesExceeded(ReferenceFailed):
    """Inputs or an answer are larger than those for which a worker's memory was made."""

    def __init__(self, input_bytes: int, answer_bytes: int) -> None:
        detail = f"a call takes {max(input_bytes, answer_bytes)} bytes, more than those before it"
        super().__init__(refuse_limit("value_bytes", detail))
        self.input_bytes = input_bytes
        self.answer_bytes = answer_bytes


class TaskConnection:
    """The judge's end of one task's worker.

    Methods raise ReferenceFailed if the worker fails, ends, hangs or breaks the protocol. The
    worker is then ended, unless it reported the error itself. The constructor raises SandboxFailed
    if no worker can be started.
    """

    def __init__(
        self,
        code: str,
        axes: Mapping[str, Any],
        fork_server: ForkServer,
        *,
        device: str,
        threads: int,
        convolution_tf32: bool,
    ) -> None:
        self._device = device
        self._most_bytes = _half_of_memory()
        self._boxes: dict[tuple[Side, str], MappedBox | OpenedBox] = {}
        self._files: dict[Side, int] = {
            "inbox": create_sealed_file(self._most_bytes),
            "outbox": create_sealed_file(self._most_bytes),
        }
        self._process: WorkerProcess | None = None
        self.arguments: list[Any] = []
        """Arguments of the task's constructor."""
        try:
            self._process = fork_server.start(
                {_TASK_FILE: code},
                setting={
                    "device": device,
                    "threads": threads,
                    "convolution_tf32": convolution_tf32,
                },
                limits=_limits(device),
                inbox=self._files["inbox"],
                outbox=self._files["outbox"],
                loop="task",
            )
            self._process.freeze_between_requests()
            answer = self.ask("load", path=_TASK_FILE, axes=dict(axes))
            self.arguments = self.take_list(answer, "cpu", "the constructor's arguments")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Process number of the worker; None once it has ended."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the worker; may be called again."""
        for box in self._boxes.values():
            box.close()
        self._boxes.clear()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(SandboxFailed):  # its fork server ends what is left of it
                process.end()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    def ask(self, do: str, limit_s: float = CALL_LIMIT_S, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer."""
        if self._process is None:
            raise ReferenceFailed("the task's worker is gone")
        if self._device == "cuda":
            release_unused_memory()
        try:
            answer = self._process.ask(do, limit_s, _BUILD_LIMIT_S, **fields)
        except TimedOut as error:
            failed = explain_timeout("call", limit_s, _BUILD_LIMIT_S, error.compiling)
            raise self.break_off(refuse_limit("task_time", failed.message)) from error
        except Died as error:
            process, self._process = self._process, None
            try:
                reason = explain_end(process.end()).message
            finally:
                self.close()
            raise ReferenceFailed(f"the task's worker is gone: {reason}") from error
        except (Malformed, ValueError) as error:
            raise self.break_off(str(error)) from error
        if "error" in answer:
            reason = make_readable(answer["error"][:_MOST_TEXT])
            if answer.get("lost"):
                raise self.break_off(reason)
            raise ReferenceFailed(reason)
        return answer

    def break_off(self, reason: str) -> ReferenceFailed:
        """End a worker that breaks the protocol, and return the error to raise."""
        self.close()
        return ReferenceFailed(f"the task's worker is ended: {make_readable(reason)}")

    def put(self, value: list[Any]) -> tuple[str, dict[str, Any]]:
        """Put a value into the inbox; returns its place (a device) and its structure."""
        place = find_place(value, self._device)
        return place, self._box("inbox", place, layout(value)[1]).put(value)

    def take(self, answer: Mapping[str, Any], device: str) -> Any:
        """Return the value of an answer, its tensors copied to a device."""
        with self._open_answer(answer) as (box, spec, _):
            return box.get(spec, device)

    def take_list(self, answer: Mapping[str, Any], device: str, what: str) -> list[Any]:
        """Return the value of an answer, which has to be a list. `what` names it in errors."""
        value = self.take(answer, device)
        if not isinstance(value, list):
            raise self.break_off(f"{what} are no list")
        return value

    def take_pair(self, answer: Mapping[str, Any]) -> tuple[Any, list[torch.Tensor | None]]:
        """Return a value and the exact counterparts of its tensors."""
        with self._open_answer(answer) as (box, spec, place):
            match spec:
                case {"list": [value_spec, exact_spec]}:
                    # Without room for double precision on a GPU, the exact part is on the CPU.
                    value, exact = box.get(value_spec, self._device), box.get(exact_spec, place)
                case _:
                    raise Malformed("an answer is no pair")
            tensors = list(tensors_of(value))
            if not isinstance(exact, list) or len(exact) != len(tensors):
                raise Malformed("an answer has more tensors than exact ones, or fewer")
            if not all(_is_exact(one, of) for one, of in zip(exact, tensors, strict=True)):
                raise Malformed("an exact answer is of another form than the answer")
            return value, exact

    @contextlib.contextmanager
    def _open_answer(self, answer: Mapping[str, Any]) -> Generator[tuple[Box, Any, str]]:
        """Yield the box of an answer's value, its structure and its place."""
        try:
            place = self._read_place(answer)
            if "needs" in answer:
                self._box("outbox", place, answer["needs"])
                answer = self.ask("fetch")
                if self._read_place(answer) != place:
                    raise Malformed("a value has moved")
            held = self._boxes.get(("outbox", place))
            if held is None:
                raise Malformed("a value has no memory")
            yield held.box, answer["spec"], place
        except (Malformed, RuntimeError, ValueError, OverflowError) as error:
            raise self.break_off(str(error)) from error
        if held.box.size_bytes > _KEPT_BYTES:
            self._drop("outbox", place)

    def _read_place(self, answer: Mapping[str, Any]) -> str:
        if answer["place"] not in ("cpu", self._device):
            raise Malformed("a value is on another device")
        return answer["place"]

    def _box(self, side: Side, place: str, needed: int) -> Box:
        """Return a box of at least `needed` bytes, a new one if the present one is too small."""
        held = self._boxes.get((side, place))
        if held is not None and held.box.size_bytes >= needed:
            return held.box
        if held is not None:
            self._drop(side, place)
        size = round_up(needed)
        most_bytes = self._most_bytes if place == "cpu" else torch.cuda.mem_get_info()[1]
        if size > most_bytes:
            raise self.break_off(f"a value takes {needed} bytes, and may take {most_bytes}")
        order: dict[str, Any] = {"side": side, "place": place, "size": size}
        try:
            answer = self.ask("box", **order)
        except ReferenceFailed:
            if place == "cpu" or self._process is None:
                raise
            torch.cuda.empty_cache()  # what this process has freed makes room
            answer = self.ask("box", **order)
        try:
            if place == "cpu":
                made = MappedBox(self._files[side], size)
            else:
                made = self._open_box(answer.get("handle", ""), size)
        except OSError as error:
            self.close()
            raise HostUnfit(
                f"this host has no {size} bytes of memory to pass a value: {error.strerror}",
                "End other processes, or use a machine with more memory.",
            ) from error
        except (RuntimeError, TimedOut, ValueError) as error:
            raise self.break_off(f"there are no {size} bytes to pass a value: {error}") from error
        self._boxes[side, place] = made
        return made.box

    def _open_box(self, handle: str, size: int) -> OpenedBox:
        """Open memory of the worker, which has to run while CUDA does."""
        if self._process is None:
            raise ReferenceFailed("the task's worker is gone")
        with self._process.let_run():
            return OpenedBox(handle, size)

    def _drop(self, side: Side, place: str) -> None:
        self._boxes.pop((side, place)).close()
        self.ask("box", side=side, place=place, size=0)


def _is_exact(exact: Any, tensor: torch.Tensor) -> bool:
    """Whether a value can be the exact counterpart of a tensor; whole numbers have none."""
    if exact is None:
        return not (tensor.is_floating_point() or tensor.is_complex())
    return (
        isinstance(exact, torch.Tensor)
        and exact.shape == tensor.shape
        and exact.is_floating_point() == tensor.is_floating_point()
        and exact.is_complex() == tensor.is_complex()
    )


def _half_of_memory() -> int:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * page_bytes // 2 // page_bytes * page_bytes


def _limits(device: str) -> Limits:
    """Return the limits of a task's worker: it outlives candidates, so few are finite."""
    memory_bytes = None if device == "cuda" else 2 * _half_of_memory()
    return Limits(memory_bytes=memory_bytes, file_bytes=1 << 30, open_files=1024, cpu_s=10**7)


_PERTURBATION = 0.3
_MOST_TENSORS = 100_000
_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 30
_PAGE_NAMES = 1 << 16


@dataclass(frozen=True)
class ModuleState:
    """Parameters and buffers of a module by name, on the processor."""

    values: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    parameters: set[str] = field(default_factory=set[str])
    """Names that are parameters and not buffers."""
    owners: dict[str, int] = field(default_factory=dict[str, int])
    """A number for each name, the same for names of the same memory."""

    def perturb(self, seed: int) -> dict[str, torch.Tensor]:
        """Return the state with noise of 0.3 on floating and complex values.

        Tied tensors stay tied. A buffer without negative values, such as a running variance, keeps
        none.
        """
        noise = torch.Generator().manual_seed(seed)
        moved: dict[tuple[Any, ...], torch.Tensor] = {}
        perturbed: dict[str, torch.Tensor] = {}
        for name, value in self.values.items():
            perturbed[name] = value
            if not is_inexact(value.dtype):
                continue
            tied = (self.owners[name], value.dtype, value.shape)
            if tied not in moved:
                dtype = torch.complex64 if value.is_complex() else torch.float32
                step = _PERTURBATION * torch.randn(value.shape, generator=noise, dtype=dtype)
                # Types such as float8 have no arithmetic.
                wide = value.float() if value.element_size() == 1 else value
                changed = wide + step.to(wide.dtype)
                positive = name not in self.parameters and not (
                    value.is_complex() or bool((wide < 0).any())
                )
                moved[tied] = (changed.abs() if positive else changed).to(value.dtype)
            perturbed[name] = moved[tied]
        return perturbed


def read_state(connection: TaskConnection, *, now: bool) -> ModuleState:
    """Read a module's state: as it was made, or with `now` as it is after the calls.

    Raises ReferenceFailed.
    """
    state = ModuleState()
    while True:
        answer = connection.ask("state", start=len(state.values), now=now)
        page = answer["page"]
        values = connection.take_list(answer, "cpu", "the state")
        if len(page) != len(values):
            raise connection.break_off("the state is not described")
        for (name, is_parameter, owner), value in zip(page, values, strict=True):
            if name in state.values or not isinstance(value, torch.Tensor):
                raise connection.break_off("the state is not described")
            state.values[name] = value
            state.owners[name] = owner
            if is_parameter:
                state.parameters.add(name)
        if len(state.values) >= answer["total"]:
            return state
        if not page or len(state.values) > _MOST_TENSORS:
            raise connection.break_off("the state has no end")


def split_pages(state: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Yield the names of a state in pages that one message and one box can hold."""
    page: list[str] = []
    size = letters = 0
    for name, value in state.items():
        if page and (
            len(page) >= _PAGE_ENTRIES
            or size + value.nbytes > _PAGE_BYTES
            or letters + len(name) > _PAGE_NAMES
        ):
            yield page
            page, size, letters = [], 0, 0
        page.append(name)
        size += -(-value.nbytes // ALIGN_BYTES) * ALIGN_BYTES
        letters += len(name)
    if page:
        yield page
