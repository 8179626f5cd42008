"""A task as the judge sees it: inputs from seeds, and the answers that are wanted.

The task's text is as foreign as a candidate's. It runs in a worker of its own (`references.worker`)
and never in the process that judges: what comes back is checked for its form, copied into memory of
this process, and decides about kernels of that task alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from evaluators.device.roofline import Counts
from evaluators.memory.boxes import MappedBox, OpenedBox, Side, place_of, rounded
from evaluators.memory.sealed_file import create_sealed_file
from evaluators.memory.tensors import ALIGN_BYTES, Box, layout, same_bits, tensors_of
from evaluators.processes.messages import Malformed
from evaluators.processes.text import make_readable
from evaluators.references.choices import Choice, read_choice
from evaluators.sandbox.failures import died, timed_out
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.worker_process import Died, TimedOut, WorkerProcess
from store.errors import SandboxFailed

__all__ = ["Expected", "Reference", "ReferenceFailed", "call_seed", "same_bits"]

_PERTURBATION = 0.3
_TASK_FILE = "task.py"
_BUILD_S = 300.0
"""Longest time to make the module, and longest to answer while a compiler is at work."""
_CALL_S = 300.0
_MOST_STATE = 100_000
_MOST_NAME = 4000
_MOST_COUNT = 1 << 62
_KEPT_BYTES = 2 << 30
"""A larger box is given back once it has been read."""
_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 30
_PAGE_NAMES = 1 << 16


class ReferenceFailed(Exception):
    """The task itself cannot be built or run; never the candidate's fault."""


@dataclass(frozen=True)
class Expected:
    """What the reference answers to one set of inputs."""

    value: Any
    """The answer in the task's own element types."""
    exact: list[torch.Tensor | None]
    """The same tensors computed in double precision; None where there is no such answer."""
    inputs: Sequence[Any] = ()
    """What was answered to."""


def call_seed(seed: int) -> int:
    """The seed of a call's own random numbers: follows from the input seed, and does not tell it.

    >>> call_seed(7) == call_seed(7) != call_seed(8)
    True
    """
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:6])


class Reference:
    """One task on one device, in a worker of its own. Use as a context manager, or `close` it.

    Methods raise ReferenceFailed, where the task fails, dies, hangs or answers something else. The
    worker is gone then, and another Reference has to be made. Making one raises SandboxFailed where
    no worker can be started.
    """

    def __init__(
        self,
        code: str,
        axes: Mapping[str, Any],
        device: str,
        fork_server: ForkServer,
        threads: int = 1,
    ) -> None:
        self.device = device
        self.draws = False
        """Whether a call draws random numbers; known after the first answer."""
        self.mutates: bool | None = None
        """Whether a call changes its inputs; None before the first answer."""
        self.remembers = False
        """Whether an answer depends on the calls before; whoever sees it sets it."""
        self.refused: set[str] = set()
        """Flags of the inputs that end the process in which the task's module gets them."""
        self.arguments: list[Any] = []
        """What the task's constructor is given."""
        self._most_bytes = _half_of_memory()
        self._boxes: dict[tuple[Side, str], MappedBox | OpenedBox] = {}
        self._made: _State | None = None
        self._files: dict[Side, int] = {
            "inbox": create_sealed_file(self._most_bytes),
            "outbox": create_sealed_file(self._most_bytes),
        }
        self._process: WorkerProcess | None = None
        try:
            self._process = fork_server.start(
                {_TASK_FILE: code},
                setting={"device": device, "threads": threads},
                limits=_limits(device),
                inbox=self._files["inbox"],
                outbox=self._files["outbox"],
                loop="task",
            )
            self._process.freeze_between_requests()
            made = self._take(self._ask("load", path=_TASK_FILE, axes=dict(axes)), "cpu")
            self.arguments = self._list(made, "the constructor's arguments")
        except BaseException:
            self.close()
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

    @property
    def is_alive(self) -> bool:
        """Whether the worker is there and has never failed to answer."""
        return self._process is not None

    @property
    def repeatable(self) -> bool:
        """Whether an answer follows from the inputs alone, so that any call can be verified."""
        return not (self.draws or self.remembers)

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

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        self._ask("reset")

    def inputs(self, seed: int) -> list[Any]:
        """Inputs of the task's own distribution."""
        return self._list(self._take(self._ask("inputs", seed=seed), self.device), "the inputs")

    def answer(self, inputs: list[Any], seed: int = 0) -> Expected:
        """The reference's answer, and the same in double precision where it can be had.

        `seed` is what the module's own random numbers follow from.
        """
        place, spec = self._put(inputs)
        answer = self._ask("answer", place=place, inputs=spec, seed=seed)
        draws, mutates = answer.get("draws"), answer.get("mutates")
        if type(draws) is not bool or type(mutates) is not bool:
            raise self._broken("an answer does not tell what its call has done")
        # Where there was no room for double precision on a GPU, it was computed beside it.
        value, exact = self._take_pair(answer)
        self.draws |= draws
        self.mutates = mutates if self.mutates is None else self.mutates
        return Expected(value, exact, inputs)

    def choices(self, inputs: list[Any], seed: int = 0) -> list[Choice]:
        """What a call chooses indices by; a call of a copy, which nothing remembers."""
        place, spec = self._put(inputs)
        answer = self._ask("choices", place=place, inputs=spec, seed=seed)
        entries = self._list(self._take(answer, self.device), "the choices")
        try:
            return [read_choice(entry) for entry in entries]
        except ValueError as error:
            raise self._broken(str(error)) from error

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as they were made, by name, on the processor."""
        return dict(self._pristine().values)

    def current_state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as they are now, after the calls, by name, on the processor."""
        return self._read_state(now=True).values

    def parameters(self) -> set[str]:
        """Names in the state that are parameters and no buffers."""
        return set(self._pristine().parameters)

    def perturbed(self, seed: int) -> dict[str, torch.Tensor]:
        """The state with noise of 0.3 on what is floating. What may not be negative stays so.

        Which buffers those are (a running variance, say) is told by their first values.
        """
        noise = torch.Generator().manual_seed(seed)
        state = self._pristine()
        moved: dict[tuple[Any, ...], torch.Tensor] = {}
        found: dict[str, torch.Tensor] = {}
        for name, value in state.values.items():
            found[name] = value
            if not value.is_floating_point():
                continue
            tied = (state.owners[name], value.dtype, value.shape)
            if tied not in moved:  # tied parameters stay tied
                step = _PERTURBATION * torch.randn(value.shape, generator=noise)
                changed = value + step.to(value.dtype)
                positive = name not in state.parameters and bool((value >= 0).all())
                moved[tied] = changed.abs() if positive else changed
            found[name] = moved[tied]
        return found

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name until the next `reset`."""
        for page in _pages(state):
            place, spec = self._put([state[name] for name in page])
            self._ask("adopt", place=place, names=page, values=spec)

    def count(self, seeds: Sequence[int]) -> Counts:
        """What a call has to do at the least, from inputs of two seeds, as the worker counts it."""
        answer = self._ask("count", seeds=list(seeds))
        moved, operations, single = (
            answer.get(name) for name in ("moved_bytes", "operations", "single")
        )
        for number in (moved, operations):
            if type(number) is not int or not 0 <= number <= _MOST_COUNT:
                raise self._broken("a count is no number")
        if type(single) is not bool:
            raise self._broken("a count does not tell its element type")
        return Counts(int(moved or 0), int(operations or 0), single)

    def _pristine(self) -> _State:
        if self._made is None:
            self._made = self._read_state(now=False)
        return self._made

    def _read_state(self, *, now: bool) -> _State:
        state = _State({}, set(), {})
        while True:
            answer = self._ask("state", start=len(state.values), now=now)
            page, total = answer.get("page"), answer.get("total")
            values = self._list(self._take(answer, "cpu"), "the state")
            if not isinstance(page, list) or len(page) != len(values) or type(total) is not int:
                raise self._broken("the state is not described")
            for entry, value in zip(page, values, strict=True):
                match entry:
                    case [str(name), bool(is_parameter), int(owner)] if (
                        len(name) <= _MOST_NAME
                        and name not in state.values
                        and isinstance(value, torch.Tensor)
                    ):
                        state.values[name] = value
                        state.owners[name] = owner
                        if is_parameter:
                            state.parameters.add(name)
                    case _:
                        raise self._broken("the state is not described")
            if len(state.values) >= total:
                return state
            if not page or len(state.values) > _MOST_STATE:
                raise self._broken("the state has no end")

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer; the worker is gone where there is none."""
        if self._process is None:
            raise ReferenceFailed("the task's worker is gone")
        try:
            answer = self._process.ask(do, _CALL_S, _BUILD_S, **fields)
        except TimedOut as error:
            failed = timed_out("call", _CALL_S, _BUILD_S, error.compiling)
            raise self._broken(failed.message) from error
        except Died as error:
            process, self._process = self._process, None
            try:
                why = died(process.end()).message
            finally:
                self.close()
            raise ReferenceFailed(f"the task's worker is gone: {why}") from error
        except (Malformed, ValueError) as error:
            raise self._broken(str(error)) from error
        if "error" in answer:
            why = make_readable(str(answer["error"])[:_MOST_NAME])
            raise self._broken(why) if answer.get("lost") is True else ReferenceFailed(why)
        return answer

    def _broken(self, why: str) -> ReferenceFailed:
        """End a worker that does not keep to the protocol, and say so."""
        self.close()
        return ReferenceFailed(f"the task's worker is ended: {make_readable(why)}")

    def _put(self, value: list[Any]) -> tuple[str, dict[str, Any]]:
        """Put a value into the inbox; where it lies and its structure."""
        place = place_of(value, self.device)
        return place, self._box("inbox", place, layout(value)[1]).put(value)

    def _take(self, answer: Mapping[str, Any], device: str) -> Any:
        """The value of an answer, its tensors copied to a device."""
        with self._opened(answer) as (box, spec, _):
            return box.get(spec, device)

    def _take_pair(self, answer: Mapping[str, Any]) -> tuple[Any, list[torch.Tensor | None]]:
        with self._opened(answer) as (box, spec, place):
            match spec:
                case {"list": [value_spec, exact_spec]}:
                    value, exact = box.get(value_spec, self.device), box.get(exact_spec, place)
                case _:
                    raise Malformed("an answer is no pair")
            tensors = list(tensors_of(value))
            if not isinstance(exact, list) or len(exact) != len(tensors):
                raise Malformed("an answer has more tensors than exact ones, or fewer")
            if not all(_is_exact(one, of) for one, of in zip(exact, tensors, strict=True)):
                raise Malformed("an exact answer is of another form than the answer")
            return value, exact

    @contextlib.contextmanager
    def _opened(self, answer: Mapping[str, Any]) -> Generator[tuple[Box, Any, str]]:
        """The box in which a value lies, its structure and its place."""
        try:
            place = self._place(answer)
            if "needs" in answer:
                needed = answer["needs"]
                if type(needed) is not int or not 0 <= needed <= _MOST_COUNT:
                    raise Malformed("a value has no size")
                self._box("outbox", place, needed)
                answer = self._ask("fetch")
                if self._place(answer) != place:
                    raise Malformed("a value has moved")
            held = self._boxes.get(("outbox", place))
            if held is None:
                raise Malformed("a value lies nowhere")
            yield held.box, answer.get("spec"), place
        except (Malformed, RuntimeError, ValueError, OverflowError) as error:
            raise self._broken(str(error)) from error
        if held.box.size_bytes > _KEPT_BYTES:
            self._drop("outbox", place)

    def _place(self, answer: Mapping[str, Any]) -> str:
        place = answer.get("place")
        if place not in ("cpu", self.device):
            raise Malformed("a value lies in no known place")
        return str(place)

    def _box(self, side: Side, place: str, needed: int) -> Box:
        """A box of at least so many bytes."""
        held = self._boxes.get((side, place))
        if held is not None and held.box.size_bytes >= needed:
            return held.box
        if held is not None:
            self._drop(side, place)
        size = rounded(needed)
        most_bytes = self._most_bytes if place == "cpu" else torch.cuda.mem_get_info()[1]
        if size > most_bytes:
            raise self._broken(f"a value takes {needed} bytes, and may take {most_bytes}")
        order = {"side": side, "place": place, "size": size}
        try:
            answer = self._ask("box", **order)
        except ReferenceFailed:
            if place == "cpu" or not self.is_alive:
                raise
            torch.cuda.empty_cache()  # what this process has freed makes room
            answer = self._ask("box", **order)
        try:
            if place == "cpu":
                made = MappedBox(self._files[side], size)
            else:
                made = self._open_box(str(answer.get("handle")), size)
        except (OSError, RuntimeError, TimedOut, ValueError) as error:
            raise self._broken(f"there are no {size} bytes to pass a value: {error}") from error
        self._boxes[side, place] = made
        return made.box

    def _open_box(self, handle: str, size: int) -> OpenedBox:
        """Open memory of the worker, which CUDA needs the worker for."""
        if self._process is None:
            raise ReferenceFailed("the task's worker is gone")
        with self._process.running():
            return OpenedBox(handle, size)

    def _drop(self, side: Side, place: str) -> None:
        """Let go of a box, and have the worker free it."""
        self._boxes.pop((side, place)).close()
        self._ask("box", side=side, place=place, size=0)

    def _list(self, value: Any, what: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._broken(f"{what} are no list")
        return value


@dataclass(frozen=True)
class _State:
    """Parameters and buffers of a module, as the worker describes them."""

    values: dict[str, torch.Tensor]
    parameters: set[str]
    owners: dict[str, int]
    """A number for each name, the same for names of the same memory."""


def _is_exact(exact: Any, tensor: torch.Tensor) -> bool:
    """Whether something may be the exact answer beside a tensor; of whole numbers there is none."""
    if exact is None:
        return not (tensor.is_floating_point() or tensor.is_complex())
    return (
        isinstance(exact, torch.Tensor)
        and exact.shape == tensor.shape
        and exact.is_floating_point() == tensor.is_floating_point()
        and exact.is_complex() == tensor.is_complex()
    )


def _pages(state: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Names of a state in pages that one message and one box can hold."""
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


def _half_of_memory() -> int:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * page_bytes // 2 // page_bytes * page_bytes


def _limits(device: str) -> Limits:
    """A task's worker outlives candidates: what bounds it is the machine, and time per request."""
    memory_bytes = None if device == "cuda" else 2 * _half_of_memory()
    return Limits(memory_bytes=memory_bytes, file_bytes=1 << 30, open_files=1024, cpu_s=10**7)
