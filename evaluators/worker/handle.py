"""One worker as the judge sees it: typed requests, and every way to fail mapped to a status."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds
from evaluators.diagnosis.bottleneck import Profile, read
from evaluators.memory.cuda_memory import OpenedMemory
from evaluators.memory.frozen_gpu_memory import Pieces
from evaluators.memory.frozen_memory import (
    Unreadable,
    build_value,
    is_permitted,
    memory_spans,
    read_value,
)
from evaluators.memory.sealed_file import create_sealed_file
from evaluators.memory.tensors import ALIGN_BYTES, DTYPES, Box, layout, mapped, tensors_of
from evaluators.processes.messages import Malformed
from evaluators.processes.text import make_readable
from evaluators.references.task import ReferenceFailed
from evaluators.sandbox.failures import Failed, Stage, died, failed_with, timed_out
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.worker_process import Died, Ended, Late, TimedOut, WorkerProcess
from evaluators.worker.build_cache import Build
from store.errors import SandboxFailed

_SLACK_BYTES = 64 * 1024
_MOST_PARAMETERS = 100_000
_MOST_PIECES = 200
_LAUNCH_S = 2.0
"""How long launching the calls of one sample may take before they count as waiting for the GPU."""
_WIDEST_BYTES = torch.complex128.itemsize
"""A candidate may hold its state in any element type."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long a worker may take, in seconds."""

    import_s: float
    build_s: float
    first_call_s: float
    call_s: float
    total_s: float


class LaunchBlocked(Exception):
    """Calls cannot be launched without waiting for the GPU, which waits for the judge."""


@dataclass(frozen=True)
class Sample:
    """One timed request."""

    elapsed_ns: int
    """Time of all calls together by the judge's clock, with the cost of handing over and taking
    back."""
    rounds: Sequence[RoundTime] = ()
    """On a GPU whose calls were launched beforehand: the time of each."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of a worker's module, as the worker describes it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class WorkerHandle:
    """One worker with its shared memory.

    Methods raise Failed; those of a trusted worker, which runs the task's own module, raise
    ReferenceFailed, so that no fault of a baseline is laid at a candidate's door.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Limits,
        deadlines: Deadlines,
        inbox_bytes: int,
        outbox_bytes: int,
        trusted: bool,
        slots: int = 1,
        build: Build | None = None,
        flushed: torch.Tensor | None = None,
    ) -> None:
        self._trusted = trusted
        self.deadlines = deadlines
        self.device = str(setting["device"])
        self._started = time.monotonic()
        self._ended: Ended | None = None
        self._opened: list[OpenedMemory] = []
        self._build = build
        self._imported = False
        self._flushed = flushed
        self.threads = int(setting["threads"])
        """Threads that its loops are to use."""
        self._answers: list[list[dict[str, Any]]] = [[], []]
        self._taken: list[Any] | None = None
        self._gate: Gate | None = None
        self._calls = 0
        self._slots: dict[int, dict[str, Any]] = {}
        self._staged: dict[int, list[Any]] = {}
        self._outbox_bytes = outbox_bytes
        self._slot_bytes = -(-inbox_bytes // ALIGN_BYTES) * ALIGN_BYTES
        self._first_slot = self._slot_bytes + _SLACK_BYTES
        self.slots = slots
        """Sets of inputs that it can hold beside each other."""
        # The slots follow the part through which all else goes in.
        inbox = self._first_slot + slots * self._slot_bytes
        self._sizes = (inbox, outbox_bytes + _SLACK_BYTES)
        if limits.memory_bytes is not None:
            limits = replace(limits, memory_bytes=limits.memory_bytes + sum(self._sizes))
        # On a GPU the worker makes the boxes in its own memory and names them in `prepare`.
        on_gpu = self.device == "cuda"
        fds = [create_sealed_file(GATE_BYTES if on_gpu else size) for size in self._sizes]
        if not on_gpu:
            pairs = zip(fds, self._sizes, strict=True)
            self._inbox, self._outbox = (Box.mapped(fd, size) for fd, size in pairs)
        named = zip(("inbox_bytes", "outbox_bytes"), self._sizes, strict=True)
        try:
            self._process: WorkerProcess = fork_server.start(
                files,
                setting={**setting, **dict(named)},
                limits=limits,
                inbox=fds[0],
                outbox=fds[1],
                build=build.folder if build is not None else None,
            )
            self._pieces = Pieces(self._process.running)
            self._gate_fd = os.dup(fds[0]) if on_gpu else None
        except SandboxFailed:
            if build is not None:
                build.release()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        try:
            handles = self._ask("prepare", "load").get("handles") or []
            for handle, size in zip(handles, self._sizes, strict=False):
                self._opened.append(OpenedMemory(str(handle), size))
            if self._gate_fd is not None:
                self._gate = Gate(self._gate_fd)
            self._process.freeze_between_requests()
        except (Failed, ReferenceFailed, RuntimeError, TimedOut, ValueError) as failed:
            self.end()
            raise SandboxFailed(f"a worker cannot be prepared: {failed}") from failed
        if self._opened:
            self._inbox, self._outbox = (Box(memory.bytes) for memory in self._opened)

    def load(self, path: str, entry_point: str, names: Mapping[str, Any]) -> None:
        """Import the file and find the entry point in it."""
        answer = self._ask("load", "load", path=path, entry_point=entry_point, names=dict(names))
        self._imported = True
        if answer.get("found") is not True:
            message = f"the file defines no {entry_point}"
            raise Failed("compile_error", "no_entry_point", message)

    def construct(self, seed: int, arguments: list[Any]) -> list[Parameter]:
        """Make the module under a seed; returns its parameters and buffers, none of a function."""
        self._ask("construct", "construct", seed=seed, arguments=self._inbox.put(arguments))
        found: list[Parameter] = []
        while True:
            answer = self._ask("state", "call", start=len(found))
            page = _parameters(answer.get("state"))
            found += page
            if not page or len(found) >= _MOST_PARAMETERS or len(found) == answer.get("total"):
                return found

    def adopt(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name, in as many messages as the inbox needs."""
        pieces: list[tuple[str, int]] = []
        values: list[torch.Tensor] = []
        held = 0
        for name, tensor in state.items():
            flat = tensor.detach().reshape(-1)
            most = max(1, self._first_slot // 2 // flat.element_size())
            for start in range(0, flat.numel(), most):
                piece = flat[start : start + most]
                size = piece.numel() * piece.element_size()
                if pieces and (held + size > self._first_slot // 2 or len(pieces) >= _MOST_PIECES):
                    self._adopt(pieces, values)
                    pieces, values, held = [], [], 0
                pieces.append((name, start))
                values.append(piece)
                held += -(-size // ALIGN_BYTES) * ALIGN_BYTES
        if pieces:
            self._adopt(pieces, values)

    def current_state(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Take parameters and buffers as they are now, in the shapes and types that are wanted."""
        taken = {name: [tensor.new_empty(0, device="cpu")] for name, tensor in wanted.items()}
        for page in _pages(wanted, self._sizes[1]):
            answer = self._ask("current_state", "call", pieces=page)
            values = self._take(answer.get("values"), "cpu")
            if not _are_pieces(values, page):
                message = "the module's state is not described"
                raise Failed("rejected", "malformed_output", message)
            for (name, _, _), value in zip(page, values, strict=True):
                taken[name].append(value.to(wanted[name].dtype))
        return {name: torch.cat(parts).view(wanted[name].shape) for name, parts in taken.items()}

    def reseed(self, seed: int) -> None:
        """Seed the generators of the worker, for modules that draw numbers in a call."""
        self._ask("reseed", "call", seed=seed)

    def poison(self, sizes: list[int]) -> None:
        """Fill free memory with NaN, in blocks of so many bytes (those of the expected outputs)."""
        self._ask("poison", "call", sizes=sizes)

    def variant(self, name: str, slot: int) -> float:
        """Prepare one way of running a trusted module on a slot's inputs; returns its seconds."""
        self._write(slot)
        return float(self._ask("variant", "construct", name=name, slot=slot)["seconds"])

    def fill(self, slot: int, inputs: list[Any], *, strided: bool = False) -> None:
        """Have inputs ready for one of the worker's slots, in place of what was there.

        They are written while the worker is frozen, those of a GPU only right before a call. The
        worker is asked only where the layout is new.
        """
        if strided:
            self._slots.pop(slot, None)
            self._ask("fill", "call", slot=slot, inputs=self._inbox.put(inputs), strided=True)
            return
        spec = layout(inputs, self._slot_start(slot))[0]
        if self._slots.get(slot) != spec:
            self._ask("fill", "call", slot=slot, inputs=spec)
            self._slots[slot] = spec
        self._staged[slot] = inputs
        if self.device != "cuda":
            self._write(slot)

    def _slot_start(self, slot: int) -> int:
        return self._first_slot + slot * self._slot_bytes

    def _write(self, slot: int) -> None:
        """Write what is staged for a slot, if anything."""
        staged = self._staged.pop(slot, None)
        if staged is not None:
            self._inbox.put(staged, self._slot_start(slot))

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and take its output."""
        self._write(slot)
        self._pieces.trim()
        answer = self._ask("call", "first_call" if first else "call", slot=slot)
        self._answers = [[answer], self._answers[0]]
        self._taken = None
        with self._blamed():
            return self.output(0)

    def output(self, index: int, *, before: bool = False) -> Any:
        """Take an output of the last request, or of the one before it, as it is now.

        It is read from the worker's memory while nothing of the worker runs; where the system does
        not allow that, the worker copies it. What was timed on a GPU is as the judge has taken it
        at the end of its call.
        """
        if self._taken is not None and not before:
            return self._taken[index]
        answer: Mapping[str, Any] = self._answers[int(before)][index]
        if not self.is_readable or (before and "boxed" in answer):
            answer = self._ask("output", "call", index=index, before=before)
        return self._output(answer)

    @functools.cached_property
    def is_readable(self) -> bool:
        """Whether the judge can read the worker's memory itself."""
        return self.device == "cuda" or is_permitted(self._process.pid)

    def inputs(self, slot: int) -> Any:
        """Take the inputs of a slot as they are now."""
        self._write(slot)
        if slot in self._slots:
            return self._inbox.get(self._slots[slot], self.device)
        answer = self._ask("inputs", "call", slot=slot)
        return self._take(answer.get("inputs"), self.device)

    def check_clocks(self) -> None:
        """Raise Failed where the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call").get("replaced")
        if replaced != []:
            message = f"the code replaces {make_readable(str(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def prepare_empty(self, slot: int) -> None:
        """Prepare the variant `empty` of a trusted worker, which hands back what it has."""
        self._write(slot)
        self._ask("empty", "call", slot=slot)

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        *,
        cold: bool = False,
        copies: bool = False,
        gated: bool = False,
    ) -> Sample:
        """Call the module, or a variant of it, once per slot named, and take the outputs.

        `gated`, for a GPU, launches the calls beforehand and times what the GPU does for each,
        while the worker is frozen. Else a sample takes from before its inputs are written, or on a
        processor from before the worker is thawed, to when the answers are the judge's.

        `cold` flushes the caches of a GPU before each call; those of a processor are the caller's
        to flush. `copies` copies each output before the next call, which takes its time.

        Raises LaunchBlocked where calls that are `gated` cannot be launched so.
        """
        self._pieces.trim()
        if self.device == "cuda":
            self._stage_again(slots)
        if gated:
            return self._time_behind_gate(slots, variant, cold=cold)
        begin_ns = time.perf_counter_ns()
        for slot in slots:
            self._write(slot)
        if cold and self._flushed is not None:
            self._flushed.add_(1)
            torch.cuda.synchronize()
        answer = self._ask("time", "call", slots=slots, variant=variant, copies=copies)
        with self._blamed():
            self._keep_answers(answer, len(slots))
            if self.device != "cuda":
                return Sample(self._process.wall_ns)
            self._taken = [self._output(one) for one in self._answers[0]]
        return Sample(time.perf_counter_ns() - begin_ns)

    def _stage_again(self, slots: Sequence[int]) -> None:
        """Have inputs written once more that were written before: a sample includes it."""
        for slot in set(slots) - set(self._staged):
            self._staged[slot] = self._inbox.get(self._slots[slot], self.device)

    def _time_behind_gate(self, slots: list[int], variant: str | None, *, cold: bool) -> Sample:
        gate, first = self._gate, self._calls + 1
        assert gate is not None
        self._calls += len(slots)
        late: list[bool] = []

        def open_gate() -> None:
            late.append(True)
            gate.open_now(self._calls)

        fields = {"slots": slots, "first": first, "variant": variant}
        try:
            answer = self._ask("launch", "call", late=(_LAUNCH_S, open_gate), **fields)
            if late:
                self._ask("settle", "call")
                raise LaunchBlocked
            with self._blamed():
                self._keep_answers(answer, len(slots))
                taken = [self._prepare_output(one) for one in self._answers[0]]
            rounds = [
                Round(self._written(slot), copies)
                for slot, (_, copies) in zip(slots, taken, strict=True)
            ]
            flushed = self._flushed if cold else None
            times = time_rounds(gate, first, rounds, flushed, self.deadlines.call_s)
        except Unfinished:
            self._ask("settle", "call")
            message = f"not done after {self.deadlines.call_s:g} s"
            raise Failed("timeout", "call_timeout", message) from None
        finally:
            gate.open_now(self._calls)
        for slot in slots:
            self._staged.pop(slot, None)
        self._taken = [value for value, _ in taken]
        return Sample(sum(one.call_ns for one in times), times)

    def _written(self, slot: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Memory of a slot, each tensor with what is staged for it."""
        views = self._inbox.views(self._slots[slot])
        return list(zip(views, tensors_of(self._staged[slot]), strict=True))

    def _prepare_output(
        self, answer: Mapping[str, Any]
    ) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
        """An output without its contents, and what to copy into it once they are there."""
        self._refuse_misplaced(answer)
        views: list[torch.Tensor] = []
        value = self._view_output(answer)

        def own(view: torch.Tensor) -> torch.Tensor:
            if view.is_meta:
                return view
            views.append(view)
            return torch.empty_like(view)  # of the same strides, so that copying takes no longer

        taken = mapped(value, own)
        ours = [tensor for tensor in tensors_of(taken) if not tensor.is_meta]
        return taken, list(zip(ours, views, strict=True))

    def _keep_answers(self, answer: Mapping[str, Any], calls: int) -> None:
        outputs = answer.get("outputs")
        if not isinstance(outputs, list) or len(outputs) != calls:
            message = "the outputs of a sample are not described"
            raise Failed("rejected", "malformed_output", message)
        for output in outputs:
            self._refuse_odd(output.get("odd") if isinstance(output, dict) else "no object")
        self._answers = [outputs, []]
        self._taken = None

    def outputs_overlap(self) -> bool:
        """Whether outputs of two calls of the last request share memory."""
        try:
            ends = [memory_spans(output.get("output")) for output in self._answers[0]]
        except Malformed as error:
            raise Failed("rejected", "malformed_output", str(error)) from error
        end, owner = 0, -1
        for first, past, call in sorted(
            (*span, n) for n, spans in enumerate(ends) for span in spans
        ):
            if first < end and call != owner:
                return True
            if past > end:
                end, owner = past, call
        return False

    def profile(self, slot: int) -> Profile:
        """Profile the module on a slot, as the worker tells it."""
        self._write(slot)
        try:
            return read(self._ask("profile", "first_call", slot=slot))
        except ValueError as error:
            raise Failed(
                "rejected", "malformed_output", f"a profile is no profile: {error}"
            ) from error

    def excuse(self, seconds: float) -> None:
        """Leave time in which the worker had to wait for us out of its total."""
        self._started += seconds

    def cpu_ns(self) -> int:
        """Processor time that the worker and all it has started have used so far."""
        return self._process.cpu_ns()

    def shares_device(self) -> bool:
        """Whether another process of the worker's holds the GPU as well."""
        return self.device == "cuda" and bool(self._process.find_other_holders("/dev/nvidia"))

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            self._pieces.close()
            for memory in self._opened:
                memory.close()
            if self._gate is not None:
                self._gate.close()
            if self._gate_fd is not None:
                os.close(self._gate_fd)
            try:
                self._ended = self._process.end()
                # Only now does nothing of the candidate run any more.
                if self._build is not None and self._imported:
                    self._build.keep()
            finally:
                if self._build is not None:
                    self._build.release()
        return self._ended

    def _adopt(self, pieces: list[tuple[str, int]], values: list[torch.Tensor]) -> None:
        self._ask("adopt", "call", pieces=pieces, values=self._inbox.put(values))

    def _output(self, answer: Mapping[str, Any]) -> Any:
        self._refuse_misplaced(answer)
        if self.device == "cuda":
            value = mapped(self._view_output(answer), _copy_tensor)
            torch.cuda.synchronize()
            return value
        if "boxed" in answer:
            return self._take(answer["boxed"], self.device)
        # What is larger than the reference's answer comes without its data.
        limit_bytes = self._outbox_bytes + _SLACK_BYTES if self.is_readable else -1
        return self._read(answer.get("output"), limit_bytes)

    def _refuse_misplaced(self, answer: Mapping[str, Any]) -> None:
        self._refuse_odd(answer.get("odd"))
        devices = answer.get("devices")
        if not isinstance(devices, list):
            raise Failed("rejected", "malformed_output", "an output does not name its devices")
        names = [str(name)[:20] for name in devices]
        wrong = [name for name in names if name != self.device]
        if wrong:
            raise Failed("incorrect", "incorrect_device", f"an output is on {wrong[0]}")

    def _view_output(self, answer: Mapping[str, Any]) -> Any:
        """An output in GPU memory with its tensors where the worker has them.

        What is larger than the reference's answer comes without its data, on the device `meta`.
        """
        try:
            if "boxed" in answer:
                return self._outbox.view(answer["boxed"])
            self._pieces.open(answer.get("pieces", []))
            limit_bytes = self._outbox_bytes + _SLACK_BYTES
            return build_value(answer.get("output"), self._pieces.view, limit_bytes)
        except Malformed as error:
            raise Failed("rejected", "malformed_output", str(error)) from error
        except Unreadable as error:
            message = f"an output is in memory that cannot be read: {error}"
            raise Failed("rejected", "lazy_output", message) from error

    def _read(self, spec: Any, limit_bytes: int) -> Any:
        """The value of a description, read from the frozen worker's memory."""
        try:
            return read_value(self._process.pid, spec, limit_bytes)
        except Malformed as error:
            raise Failed("rejected", "malformed_output", str(error)) from error
        except Unreadable as error:
            message = f"an output is in memory that cannot be read: {error}"
            raise Failed("rejected", "lazy_output", message) from error

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
        name = make_readable(str(odd.get("type"))[:80])
        if odd.get("lazy"):
            message = f"an output is a {name}, which may compute later"
            raise Failed("rejected", "lazy_output", message)
        raise Failed("incorrect", "incorrect_type", f"an output is a {name}")

    def _ask(
        self, do: str, stage: Stage, late: Late | None = None, **fields: Any
    ) -> dict[str, Any]:
        with self._blamed():
            return self._answer(do, stage, late, fields)

    @contextlib.contextmanager
    def _blamed(self) -> Generator[None]:
        """Lay a failure of a trusted worker at the task's door."""
        try:
            yield
        except Failed as failed:
            if self._trusted:
                message = f"the eager baseline failed: {failed.message}"
                raise ReferenceFailed(message) from failed
            raise

    def _answer(
        self, do: str, stage: Stage, late: Late | None, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self._ended is not None:  # a call that only raises flags may have ended it
            raise Failed("crash", "early_exit", "the process has ended before")
        deadlines = self.deadlines
        left_s = deadlines.total_s - (time.monotonic() - self._started)
        if left_s <= 0:
            message = f"not done after {deadlines.total_s:g} s in all"
            raise Failed("timeout", "total_timeout", message)
        limit_s = {
            "load": deadlines.import_s,
            "construct": deadlines.import_s,
            "first_call": deadlines.first_call_s,
            "call": deadlines.call_s,
        }[stage]
        try:
            answer = self._process.ask(
                do, min(limit_s, left_s), min(deadlines.build_s, left_s), late=late, **fields
            )
        except TimedOut as error:
            raise timed_out(stage, limit_s, deadlines.build_s, error.compiling) from error
        except Died as error:
            raise died(self.end()) from error
        except Malformed as error:
            raise Failed("rejected", "malformed_output", make_readable(str(error))) from error
        if "error" in answer:
            raise failed_with(stage, answer["error"])
        return answer


def _copy_tensor(view: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor in GPU memory, of its own whatever the strides are."""
    if view.is_meta:
        return view
    return torch.empty_like(view).copy_(view)


def _pages(
    wanted: Mapping[str, torch.Tensor], room_bytes: int
) -> Iterator[list[tuple[str, int, int]]]:
    """Name, first element and count of pieces, as many in a page as the outbox has room for."""
    most = max(1, room_bytes // 2 // _WIDEST_BYTES)
    page: list[tuple[str, int, int]] = []
    room = room_bytes
    for name, tensor in wanted.items():
        for start in range(0, tensor.numel(), most):
            count = min(most, tensor.numel() - start)
            size = count * _WIDEST_BYTES + ALIGN_BYTES
            if page and (size > room or len(page) >= _MOST_PIECES):
                yield page
                page, room = [], room_bytes
            page.append((name, start, count))
            room -= size
    if page:
        yield page


def _are_pieces(values: Any, page: Sequence[tuple[str, int, int]]) -> bool:
    """Whether values are flat tensors of the sizes asked for."""
    return (
        isinstance(values, list)
        and len(values) == len(page)
        and all(
            isinstance(value, torch.Tensor) and value.shape == (count,)
            for value, (_, _, count) in zip(values, page, strict=True)
        )
    )


def _parameters(page: Any) -> list[Parameter]:
    try:
        return [
            Parameter(str(name), DTYPES[dtype], tuple(int(n) for n in shape))
            for name, dtype, shape in page
        ]
    except (TypeError, ValueError, KeyError) as error:
        message = "the module's parameters are not described"
        raise Failed("rejected", "malformed_output", message) from error
