"""One worker as the judge sees it: typed requests, and every way to fail mapped to a status."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from evaluators._builds import Build
from evaluators._channel import Malformed
from evaluators._cuda_memory import OpenedMemory
from evaluators._diagnosis import Profile, read
from evaluators._failures import Failed, Stage, died, failed_with, timed_out
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
from evaluators._tensors import ALIGN_BYTES, DTYPES, Box, layout
from evaluators.sandbox.frozen_memory import (
    Unreadable,
    is_permitted,
    memory_spans,
    read_value,
)
from store.errors import SandboxFailed

_SLACK_BYTES = 64 * 1024
_LONGEST_NS = 10**15
_MOST_PARAMETERS = 100_000
_MOST_PIECES = 200
_MOST_BOXED = 16
_BOXED_BYTES = 256 << 20
_WIDEST_BYTES = torch.complex128.itemsize
"""A candidate may hold its state in any element type."""


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

    elapsed_ns: int
    """Time of all calls together: on a processor by the judge's clock, with the cost of handing
    over and taking back; on a GPU between two events, as the worker reports it."""
    wall_ns: int
    """By the judge's clock, from request to answer."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of a worker's module, as the worker describes it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


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
        slots: int = 1,
        build: Build | None = None,
    ) -> None:
        self._trusted = trusted
        self.patience = patience
        self.device = str(setting["device"])
        self._started = time.monotonic()
        self._ended: Ended | None = None
        self._opened: list[OpenedMemory] = []
        self._build = build
        self._imported = False
        self.walls_ns: dict[str, list[int]] = {}
        """Times from request to answer by the judge's own clock, for each kind of request."""
        self.threads = int(setting["threads"])
        """Threads that its loops are to use."""
        self._answers: list[list[dict[str, Any]]] = [[], []]
        self._slots: dict[int, dict[str, Any]] = {}
        self._outbox_bytes = outbox_bytes
        self._slot_bytes = -(-inbox_bytes // ALIGN_BYTES) * ALIGN_BYTES
        self._first_slot = self._slot_bytes + _SLACK_BYTES
        self.slots = slots
        """Sets of inputs that it can hold beside each other."""
        # The slots of a processor's worker follow the part through which all else goes in. On a GPU
        # the worker keeps them in its own memory.
        on_gpu = self.device == "cuda"
        held = 0 if on_gpu else slots * self._slot_bytes
        # There the outputs of all calls of a sample are copied side by side.
        self.most_calls = max(1, min(_MOST_BOXED, _BOXED_BYTES // max(1, outbox_bytes)))
        """Calls of one sample whose outputs fit into a GPU's outbox."""
        answers = self.most_calls if on_gpu else 1
        self._sizes = (self._first_slot + held, answers * outbox_bytes + _SLACK_BYTES)
        if limits.memory_bytes is not None:
            limits = replace(limits, memory_bytes=limits.memory_bytes + sum(self._sizes))
        # On a GPU the worker makes the boxes in its own memory and names them in `prepare`.
        fds = [shared_memory(_SLACK_BYTES if on_gpu else size) for size in self._sizes]
        if not on_gpu:
            pairs = zip(fds, self._sizes, strict=True)
            self._inbox, self._outbox = (Box.mapped(fd, size) for fd, size in pairs)
        named = zip(("inbox_bytes", "outbox_bytes"), self._sizes, strict=True)
        try:
            self._cell: Cell = nursery.start(
                files,
                setting={**setting, **dict(named)},
                limits=limits,
                inbox=fds[0],
                outbox=fds[1],
                build=build.folder if build is not None else None,
            )
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
            self._cell.freeze_between_requests()
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
        return float(self._ask("variant", "construct", name=name, slot=slot)["seconds"])

    def fill(self, slot: int, inputs: list[Any], *, strided: bool = False) -> None:
        """Copy inputs into one of the worker's slots, over what was there.

        On a processor the worker is frozen meanwhile, and asked only where the layout is new.
        """
        if strided or self.device == "cuda":
            spec = self._inbox.put(inputs)
            self._ask("fill", "call", slot=slot, inputs=spec, strided=strided)
            return
        at = self._first_slot + slot * self._slot_bytes
        spec = layout(inputs, at)[0]
        if self._slots.get(slot) != spec:
            self._ask("fill", "call", slot=slot, inputs=spec)
            self._slots[slot] = spec
        self._inbox.put(inputs, at)

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and take its output."""
        answer = self._ask("call", "first_call" if first else "call", slot=slot)
        self._answers = [[answer], self._answers[0]]
        return self.output(0)

    def output(self, index: int, *, before: bool = False) -> Any:
        """Take an output of the last request, or of the one before it, as it is now.

        On a processor it is read from the worker's memory while nothing of the worker runs; where
        the system does not allow that, the worker copies it. On a GPU the worker has copied the
        outputs of the last request behind what computes them.
        """
        answer: Mapping[str, Any] = self._answers[int(before)][index]
        if before if self.device == "cuda" else not self.is_readable:
            answer = self._ask("output", "call", index=index, before=before)
        return self._output(answer)

    @functools.cached_property
    def is_readable(self) -> bool:
        """Whether the judge can read the worker's memory itself."""
        return is_permitted(self._cell.pid)

    def inputs(self, slot: int) -> Any:
        """Take the inputs of a slot as they are now."""
        if slot in self._slots:
            return self._inbox.get(self._slots[slot])
        answer = self._ask("inputs", "call", slot=slot)
        return self._take(answer.get("inputs"), self.device)

    def check_clocks(self) -> None:
        """Raise Failed where the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call").get("replaced")
        if replaced != []:
            message = f"the code replaces {readable(str(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def prepare_empty(self, slot: int) -> None:
        """Prepare the variant `empty` of a trusted worker, which hands back what it has."""
        self._ask("empty", "call", slot=slot)

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        *,
        cold: bool = False,
        copies: bool = False,
    ) -> Sample:
        """Call the module, or a variant of it, once per slot named, and keep the outputs.

        `cold` flushes the caches of a GPU right before the calls; those of a processor are the
        caller's to flush. `copies` copies each output before the next call, which takes its time.
        """
        flushed = cold and self.device == "cuda"
        fields = {"slots": slots, "variant": variant, "cold": flushed, "copies": copies}
        answer = self._ask("time", "call", **fields)
        wall_ns = self._cell.wall_ns
        outputs = answer.get("outputs")
        if not isinstance(outputs, list) or len(outputs) != len(slots):
            message = "the outputs of a sample are not described"
            raise Failed("rejected", "malformed_output", message)
        for output in outputs:
            self._refuse_odd(output.get("odd") if isinstance(output, dict) else "no object")
        self._answers = [outputs, []]
        if self.device != "cuda":
            return Sample(wall_ns, wall_ns)
        reported_ns = answer.get("elapsed_ns")
        if type(reported_ns) is not int or abs(reported_ns) > _LONGEST_NS:
            raise Failed("rejected", "malformed_output", "a timing is not a number of nanoseconds")
        return Sample(reported_ns, wall_ns)

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
        return self._cell.cpu_ns()

    def shares_device(self) -> bool:
        """Whether another process of the worker's holds the GPU as well."""
        return self.device == "cuda" and bool(self._cell.others_with("/dev/nvidia"))

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            for memory in self._opened:
                memory.close()
            try:
                self._ended = self._cell.end()
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
        self._refuse_odd(answer.get("odd"))
        devices = answer.get("devices")
        if not isinstance(devices, list):
            raise Failed("rejected", "malformed_output", "an output does not name its devices")
        names = [str(name)[:20] for name in devices]
        wrong = [name for name in names if name != self.device]
        if wrong:
            raise Failed("incorrect", "incorrect_device", f"an output is on {wrong[0]}")
        if self.device != "cuda" and self.is_readable:
            return self._read(answer.get("output"), self._outbox_bytes + _SLACK_BYTES)
        if "boxed" in answer:
            return self._take(answer["boxed"], self.device)
        # What is larger than the reference's answer comes without its data.
        return self._read(answer.get("output"), limit_bytes=-1)

    def _read(self, spec: Any, limit_bytes: int) -> Any:
        """The value of a description, read from the frozen worker's memory."""
        try:
            return read_value(self._cell.pid, spec, limit_bytes)
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
        name = readable(str(odd.get("type"))[:80])
        if odd.get("lazy"):
            message = f"an output is a {name}, which may compute later"
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
        if self._ended is not None:  # a call that only raises flags may have ended it
            raise Failed("crash", "early_exit", "the process has ended before")
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
            raise timed_out(stage, limit_s, patience.build_s, error.compiling) from error
        except Died as error:
            raise died(self.end()) from error
        except Malformed as error:
            raise Failed("rejected", "malformed_output", readable(str(error))) from error
        self.walls_ns.setdefault(do, []).append(self._cell.wall_ns)
        if "error" in answer:
            raise failed_with(stage, answer["error"])
        return answer


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
