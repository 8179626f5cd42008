"""One worker as the judge sees it: typed requests, and every way to fail mapped to a status."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from evaluators._tensors import ALIGN_BYTES, DTYPES, Box
from store.errors import SandboxFailed

_SLACK_BYTES = 64 * 1024
_LONGEST_NS = 10**15
_MOST_PARAMETERS = 100_000
_MOST_PIECES = 200
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

    reported_ns: int
    """By the worker's own clock, all calls together."""
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
        self._sizes = (inbox_bytes + _SLACK_BYTES, outbox_bytes + _SLACK_BYTES)
        # On a GPU the worker makes the boxes in its own memory and names them in `prepare`.
        on_gpu = self.device == "cuda"
        fds = [shared_memory(_SLACK_BYTES if on_gpu else size) for size in self._sizes]
        if not on_gpu:
            pairs = zip(fds, self._sizes, strict=True)
            self._inbox, self._outbox = (Box.mapped(fd, size) for fd, size in pairs)
        named = zip(("inbox_bytes", "outbox_bytes"), self._sizes, strict=True)
        self._cell: Cell = nursery.start(
            files,
            setting={**setting, **dict(named)},
            limits=limits,
            inbox=fds[0],
            outbox=fds[1],
            build=build.path if build is not None else None,
        )
        for fd in fds:
            os.close(fd)

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        try:
            handles = self._ask("prepare", "load").get("handles") or []
            for handle, size in zip(handles, self._sizes, strict=False):
                self._opened.append(OpenedMemory(str(handle), size))
        except (Failed, ReferenceFailed, RuntimeError, ValueError) as failed:
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
            most = max(1, self._sizes[0] // 2 // flat.element_size())
            for start in range(0, flat.numel(), most):
                piece = flat[start : start + most]
                size = piece.numel() * piece.element_size()
                if pieces and (held + size > self._sizes[0] // 2 or len(pieces) >= _MOST_PIECES):
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
        """Copy inputs into one of the worker's slots, over what was there."""
        self._ask("fill", "call", slot=slot, inputs=self._inbox.put(inputs), strided=strided)

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

    def time(self, slots: list[int], variant: str | None = None, *, cold: bool = False) -> Sample:
        """Call the module, or a variant of it, once per slot named, timed inside and outside.

        `cold` flushes the caches first: on a GPU right before the calls, and on a processor by a
        request of its own, which no clock sees.
        """
        if cold and self.device != "cuda":
            self.flush()
        flushed = cold and self.device == "cuda"
        answer = self._ask("time", "call", slots=slots, variant=variant, cold=flushed)
        self._refuse_odd(answer.get("odd"))
        reported_ns = answer.get("elapsed_ns")
        if type(reported_ns) is not int or abs(reported_ns) > _LONGEST_NS:
            raise Failed("rejected", "malformed_output", "a timing is not a number of nanoseconds")
        return Sample(reported_ns, self._cell.wall_ns)

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
        """Processor time used so far."""
        return self._cell.cpu_ns()

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            for memory in self._opened:
                memory.close()
            try:
                self._ended = self._cell.end()
            finally:
                if self._build is not None:
                    if self._imported:
                        self._build.keep()
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
