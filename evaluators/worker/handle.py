"""The judge's handle to one worker process: typed requests, and a status for every failure.

Values pass in memory that both share: inputs in the slots of an inbox (`Inbox`). The judge reads
outputs at the places that the worker names (`OutputReader`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import math
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

import torch
from torch import Tensor

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds
from evaluators.device.timing_conditions import flush_caches
from evaluators.diagnosis.bottleneck import Profile, read_profile
from evaluators.memory.cuda_driver import OpenedMemory
from evaluators.memory.tensors import (
    ALIGN_BYTES,
    DTYPES,
    Box,
    LaidOut,
    MappedBox,
    OpenedBox,
    count_extent,
    create_sealed_file,
    lay_out,
    map_tensors,
    mark_pending,
    paginate,
    read_pending,
    tensors_of,
)
from evaluators.memory.values import build_value, iterate_entries
from evaluators.processes.messages import PACKET_LIMIT_BYTES, Malformed, make_readable
from evaluators.references.task import ReferenceFailed, SizesExceeded
from evaluators.sandbox.failures import Failed, Stage, explain_end, explain_error, explain_timeout
from evaluators.sandbox.launcher import (
    Died,
    Ended,
    ForkServer,
    Late,
    Limits,
    Meanwhile,
    Share,
    TimedOut,
    WorkerProcess,
)
from evaluators.worker.build_cache import Build
from store.errors import SandboxFailed

_SLACK_BYTES = 64 * 1024
_MOST_SLOTS = 256
_SLOTS_BYTES = 256 << 20
_GPU_SLOTS_BYTES = 4 << 30
_GPU_SHARE = 0.05
"""Of a GPU's memory that the slots of one worker may take, at most."""
_TWO_SLOTS_BYTES = 1 << 30
"""Up to this size, inputs get a second slot, so that calls can alternate between memory."""
_TENSOR_BYTES = 256
"""What describes one tensor of an output in a worker's reply besides its layout."""
_STRIDE_BYTES = 24


@dataclass(frozen=True)
class Sizes:
    """Shared memory that the inputs and outputs of one call need, in bytes."""

    inputs: int
    outputs: int
    slots: int = 4
    """Sets of inputs that a worker holds at a time."""
    reply_calls: int = _MOST_SLOTS
    """Calls whose outputs fit one reply of a worker, at most."""

    @classmethod
    def of(cls, inputs: list[Any], answer: Any, least: tuple[int, int] = (0, 0)) -> Self:
        """Return the sizes for a task's inputs and answer, with as many slots as are affordable.

        least: Bytes of the inputs and of the answer at least, for a task whose sizes vary.
        """
        input_bytes = max(lay_out(inputs).end, least[0])
        laid_out = lay_out(answer)
        answer_bytes = max(laid_out.end, least[1])
        slots_bytes = _SLOTS_BYTES
        if gpus := [tensor.device for tensor in tensors_of(inputs) if tensor.is_cuda]:
            total_bytes = torch.cuda.get_device_properties(gpus[0]).total_memory
            slots_bytes = min(_GPU_SLOTS_BYTES, int(_GPU_SHARE * total_bytes))
        # The answers of a burst stay as well.
        affordable = slots_bytes // max(1, input_bytes, answer_bytes)
        fewest = 2 if input_bytes <= _TWO_SLOTS_BYTES else 1
        slots = max(fewest, min(_MOST_SLOTS, affordable))
        described_bytes = len(json.dumps(laid_out.spec)) + sum(
            _TENSOR_BYTES + _STRIDE_BYTES * tensor.dim() for tensor in tensors_of(answer)
        )
        reply_calls = max(1, PACKET_LIMIT_BYTES // described_bytes)
        return cls(input_bytes, max(input_bytes, answer_bytes), slots, reply_calls)

    @property
    def slot_bytes(self) -> int:
        """Memory of one set of inputs."""
        return -(-self.inputs // ALIGN_BYTES) * ALIGN_BYTES

    @property
    def shared_bytes(self) -> int:
        """Memory of the part of the inbox for any value, which comes before the slots."""
        return self.slot_bytes + _SLACK_BYTES

    @property
    def boxes(self) -> tuple[int, int]:
        """Memory of the inbox and of the outbox."""
        return self.shared_bytes + self.slots * self.slot_bytes, self.outputs + _SLACK_BYTES


class SharedBoxes:
    """Two pieces of memory that the judge and one worker see, and a GPU's gate between them."""

    def __init__(self, device: str, sizes: Sequence[int]) -> None:
        """Make sealed files of these sizes, in bytes, or on a GPU only the file of the gate."""
        self._on_gpu = device == "cuda"
        self._opened: list[OpenedBox] = []
        self.gate: Gate | None = None
        """The gate, on a GPU once the memory is open."""
        self.fds = [create_sealed_file(GATE_BYTES if self._on_gpu else size) for size in sizes]
        """Descriptors to pass to the worker."""
        self._gate_fd = os.dup(self.fds[0]) if self._on_gpu else None
        self.boxes: Sequence[Box] = (
            []
            if self._on_gpu
            else [MappedBox(fd, size) for fd, size in zip(self.fds, sizes, strict=True)]
        )

    def open(self, handles: Sequence[str], sizes: Sequence[int]) -> None:
        """Open memory of these sizes that a worker on a GPU names. Raises RuntimeError, ValueError.

        Does nothing on a processor.
        """
        for handle, size in zip(handles, sizes, strict=False):
            self._opened.append(OpenedBox(handle, size))
        if self._gate_fd is not None:
            self.gate = Gate(self._gate_fd)
        if self._opened:
            self.boxes = self._opened

    def close(self) -> None:
        """Close what is open."""
        for memory in self._opened:
            memory.close()
        if self.gate is not None:
            self.gate.close()
        if self._gate_fd is not None:
            os.close(self._gate_fd)


class Inbox:
    """Memory through which values go to a worker. The judge writes it while the worker is frozen.

    Inputs of a slot are staged first and written later, so that writing them can be timed.

    A candidate has the inputs of a timed sample only in the request that is timed: they are written
    after any other request, and erased before the next one. Whatever its code does in a request
    that nobody times, it can neither begin the next sample there nor finish the last one.
    """

    def __init__(self, sizes: Sizes, *, trusted: bool) -> None:
        self._sizes = sizes
        self._trusted = trusted
        self.specs: dict[int, dict[str, Any]] = {}
        """Structure of the inputs in each slot that the worker reads from the inbox."""
        self._laid_out: dict[int, LaidOut] = {}
        """Inputs that are to be staged next."""
        self._regions: dict[int, tuple[int, int]] = {}
        """First byte and size of the memory of each slot."""
        self._staged: dict[int, LaidOut] = {}
        self._fresh: set[int] = set()
        """Slots written since the last request."""
        self._timed: set[int] = set()
        """Slots of the last sample of a candidate, until they are erased."""
        self.box: Box
        """The memory, once the worker is prepared."""

    def put(self, value: Any, *, dense: bool = False) -> dict[str, Any]:
        """Copy a value into the part for any value; returns its structure."""
        return self.box.put(value, dense=dense)

    def lay_out(self, slot: int, inputs: list[Any], known: LaidOut | None = None) -> LaidOut:
        """Return the places that inputs have in a slot; `stage` is to follow.

        known: The places of these inputs in another worker, which are mostly the same.

        Raises SizesExceeded for inputs so much larger than the first that no memory is left.
        """
        start, size = self._regions.get(slot, (0, 0))
        laid_out = known if known and known.start == start else lay_out(inputs, start)
        if laid_out.end - start > size:
            start = self._claim(slot, max(laid_out.end - start, self._sizes.slot_bytes))
            laid_out = lay_out(inputs, start)
        self._laid_out[slot] = laid_out
        return laid_out

    def stage(self, slot: int) -> None:
        """Keep the inputs that were laid out last for a slot, to be written into it."""
        self._staged[slot] = self._laid_out.pop(slot)

    def has_staged(self, slot: int) -> bool:
        """Whether inputs of a slot are still to be written."""
        return slot in self._staged

    def restage(self, slots: Iterable[int], device: str) -> None:
        """Stage inputs again that are already written: a sample includes writing them."""
        for slot in set(slots) - set(self._staged):
            self.lay_out(slot, self.read(slot, device))
            self.stage(slot)

    def unstage(self, slots: Iterable[int]) -> None:
        """Forget what is staged, since another way has written it."""
        for slot in slots:
            self._staged.pop(slot, None)

    def write(self, slots: Iterable[int]) -> None:
        """Write what is staged for slots, if anything, in one step."""
        staged = {slot: self._staged.pop(slot) for slot in slots if slot in self._staged}
        if staged:
            self.box.copy_in(list(staged.values()))
            self.box.wait_for_copy()
            self._fresh.update(staged)
            self._timed.difference_update(staged)

    def note_timed(self, slots: Iterable[int]) -> None:
        """Have these slots of a candidate erased before a request that does not use them."""
        # Inputs without tensors, or only with empty ones, take no memory.
        self._timed = set() if self._trusted else {*slots} & self._regions.keys()

    @contextlib.contextmanager
    def expose(self, fields: Mapping[str, Any]) -> Generator[None]:
        """Erase what a request with these fields must not see; fresh inputs are for it alone."""
        groups = fields.get("groups") or [fields.get("slots") or [fields.get("slot")]]
        used = {slot for group in groups for slot in group}
        if not (self._trusted or self._fresh <= used):
            raise AssertionError("a request would see inputs that are written for another one")
        for slot in self._timed - used:
            self.box.clear(*self._regions[slot])
        self._timed &= used
        try:
            yield
        finally:
            self._fresh.clear()

    def read(self, slot: int, device: str) -> Any:
        """Return the inputs of a slot as they are now, copied to a device."""
        return self.box.get(self.specs[slot], device)

    def pair_staged(self, slot: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the bytes of each storage in a slot with those of what is staged for it."""
        return self.box.pair(self._staged[slot])

    def _claim(self, slot: int, size: int) -> int:
        self._regions.pop(slot, None)
        start = self._sizes.shared_bytes
        for begin, length in sorted(self._regions.values()):
            if start + size <= begin:
                break
            start = max(start, begin + length)
        if start + size > self.box.size_bytes:
            raise SizesExceeded(size, 0)
        self._regions[slot] = (start, size)
        return start


# Reading a value from the memory of a frozen worker, by address, shape and strides.
#
# The worker says where its tensors are, and the judge reads their contents while nothing of the
# worker runs. An answer in memory that cannot be read this way, such as a page that a fault handler
# would fill, is refused. On a GPU, the worker names the allocations that its answer is in, and the
# judge opens them.

TensorEntry: TypeAlias = tuple[torch.dtype, list[int], list[int], int]
"""Element type, shape, strides and address of a tensor."""
Place: TypeAlias = Sequence[Sequence[int]]
"""Addresses of the tensors of an output, and the number of elements of each."""
_MOST_RUNS = 1024
_DENSE = 4
"""A tensor whose memory spans up to this many times its own bytes is read in one piece."""
_DENSE_BYTES = 64 << 20

_C = ctypes.CDLL(None, use_errno=True)


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Unreadable(Exception):
    """The memory of an answer cannot be read."""


class Uncaptured(Exception):
    """What an answer consists of was not read when the clock stopped."""


def can_read_memory(pid: int) -> bool:
    """Whether this process may read the memory of another."""
    span = _Span(None, 1)
    held = (ctypes.c_char * 1)()
    ours = _Span(ctypes.addressof(held), 1)
    _C.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(span), 1, 0)
    return ctypes.get_errno() == errno.EFAULT  # nothing is mapped at address 0


def read_value(pid: int, spec: Any, limit_bytes: int) -> Any:
    """Return the value that a worker describes, its tensors copied from its memory.

    Tensors that exceed `limit_bytes` together come without data, on the device `meta`.

    spec: A structure, as the schema has checked it. A tensor is [dtype, shape, strides,
        address, pending conjugation and negation].

    Raises Unreadable: the memory cannot be read.
    """
    return build_read_value(spec, functools.partial(_read_tensor, pid), limit_bytes)


def build_read_value(
    spec: Any, read: Callable[[TensorEntry], torch.Tensor], limit_bytes: int
) -> Any:
    """Return the value that a worker describes, with tensors from `read`.

    Takes and raises what `read_value` does.
    """
    held = sum(math.prod(shape) * dtype.itemsize for dtype, shape, _, _ in read_entries(spec))

    def build_tensor(entry: Any) -> torch.Tensor:
        told = _read_entry(entry)
        if held <= limit_bytes:
            tensor = read(told)
        else:  # expanded, since the bytes of an expanded tensor may exceed 64 bits
            tensor = torch.empty((), dtype=told[0], device="meta").expand(told[1])
        return mark_pending(tensor, entry[-1])

    return build_value(spec, build_tensor)


@dataclass(frozen=True)
class Captured:
    """The bytes of an output that were read before the worker described it."""

    entries: Sequence[TensorEntry]
    """The layouts in which they were read."""
    tensors: Sequence[torch.Tensor] | None
    """None where the memory could not be read."""

    def build_value(self, spec: Any, limit_bytes: int) -> Any:
        """Return the described value with these bytes.

        Raises Uncaptured where its tensors are not what was read; otherwise as `read_value` does.
        """
        entries = read_entries(spec)
        if len(entries) != len(self.entries):
            raise Uncaptured
        for one, other in zip(entries, self.entries, strict=True):
            if (one[0], one[3], math.prod(one[1])) != (other[0], other[3], math.prod(other[1])):
                raise Uncaptured
            # Contiguous elements are the same ones in whichever shape.
            if one[1:3] != other[1:3] and any(_split_dimensions(*e[1:3])[1] for e in (one, other)):
                raise Uncaptured
        if self.tensors is None:
            raise Unreadable("it could not be read when the clock stopped")
        rest = iter(self.tensors)
        return build_read_value(spec, lambda entry: next(rest).view(entry[1]), limit_bytes)


def capture(pid: int, place: Place, layouts: Sequence[TensorEntry], limit_bytes: int) -> Captured:
    """Read the memory of an output that is not described yet.

    Nothing is read where the output exceeds `limit_bytes` or has another number of tensors.

    layouts: The tensors of another output of the same worker. A tensor of as many elements is read
        by the same shape and strides, any other as contiguous.
    """
    entries = [
        (dtype, shape, strides, address)
        if math.prod(shape) == count
        else (dtype, [count], [1], address)
        for address, count, (dtype, shape, strides, _) in zip(*place, layouts, strict=False)
    ]
    held = sum(math.prod(shape) * dtype.itemsize for dtype, shape, _, _ in entries)
    if len(place[0]) != len(layouts) or held > limit_bytes:
        return Captured([], [])
    try:
        return Captured(entries, [_read_tensor(pid, entry) for entry in entries])
    except Unreadable:
        return Captured(entries, None)


def read_entries(spec: Any) -> list[TensorEntry]:
    """Return the described tensors."""
    return list(map(_read_entry, iterate_entries(spec)))


def _read_entry(entry: Any) -> TensorEntry:
    name, shape, strides, address, _ = entry
    return DTYPES[name], shape, strides, address


def _read_tensor(pid: int, entry: TensorEntry) -> torch.Tensor:
    dtype, shape, strides, address = entry
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    elements = count_extent(shape, strides)
    if elements <= _DENSE * count or elements * dtype.itemsize <= _DENSE_BYTES:
        raw = _read(pid, [(address, elements * dtype.itemsize)])
        flat = torch.frombuffer(raw, dtype=dtype)
        return flat.as_strided(shape, strides).contiguous()
    run, outer = _split_dimensions(shape, strides)
    size, raw = dtype.itemsize, bytearray()
    # In parts: a list of all runs can take far more memory than the tensor.
    offsets = torch.zeros((), dtype=torch.int64)
    for length, stride in zip(shape[:outer], strides[:outer], strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(length) * stride
    for part in offsets.reshape(-1).split(_MOST_RUNS):
        raw += _read(pid, [(address + at * size, run * size) for at in part.tolist()])
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def _split_dimensions(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the contiguous elements of the last dimensions, and the number of other dimensions."""
    run, outer = 1, len(shape)
    while outer and (strides[outer - 1] == run or shape[outer - 1] == 1):
        run *= shape[outer - 1]
        outer -= 1
    return run, outer


def _read(pid: int, spans: Sequence[tuple[int, int]]) -> bytearray:
    """Return bytes of another process, span after span. Raises Unreadable."""
    held = bytearray(sum(length for _, length in spans))
    target = (ctypes.c_char * len(held)).from_buffer(held)
    done = 0
    while done < len(held):  # one call moves at most 2 GiB
        ours = _Span(ctypes.addressof(target) + done, len(held) - done)
        rest: list[tuple[int, int]] = []
        before = done  # of the spans, what is moved already
        for base, length in spans:
            taken = min(before, length)
            before -= taken
            rest.append((base + taken, length - taken))
        theirs = (_Span * len(spans))(*rest)
        moved = _C.process_vm_readv(pid, ctypes.byref(ours), 1, theirs, len(spans), 0)
        if moved <= 0:
            raise Unreadable(os.strerror(ctypes.get_errno()))
        done += moved
    return held


_C.process_vm_readv.restype = ctypes.c_ssize_t
_C.process_vm_readv.argtypes = (
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong),
    *(ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong),
)


_MOST_OPEN = 32


class Pieces:
    """Pieces of one worker's GPU memory that are open in this process.

    `let_run` lets the worker run meanwhile: CUDA needs the owner's process to open memory.
    """

    def __init__(self, let_run: Callable[[], AbstractContextManager[None]]) -> None:
        self._let_run = let_run
        self._open: dict[str, OpenedMemory] = {}
        self._at: dict[int, tuple[int, OpenedMemory]] = {}

    def open(self, pieces: Sequence[tuple[int, int, str]]) -> None:
        """Open the pieces that a worker names, each an address, bytes and a handle.

        Raises Unreadable where a piece cannot be opened.
        """
        missing = [(size, handle) for _, size, handle in pieces if handle not in self._open]
        if missing:
            with self._let_run():
                for size, handle in missing:
                    try:
                        if handle not in self._open:
                            self._open[handle] = OpenedMemory(handle, size)
                    except (RuntimeError, ValueError) as error:
                        raise Unreadable(str(error)) from error
        self._at = {address: (size, self._open[handle]) for address, size, handle in pieces}

    def trim(self) -> None:
        """Close all pieces if there are many; views of them become invalid."""
        if len(self._open) > _MOST_OPEN:
            self.close()

    def view(self, entry: TensorEntry) -> Tensor:
        """Return a described tensor in the worker's own memory. Raises Unreadable."""
        dtype, shape, strides, address = entry
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype, device="cuda")
        size_bytes = count_extent(shape, strides) * dtype.itemsize
        for base, (piece_bytes, memory) in self._at.items():
            start = address - base
            if start >= 0 and start + size_bytes <= piece_bytes and start % dtype.itemsize == 0:
                flat = memory.bytes[start : start + size_bytes].view(dtype)
                return flat.as_strided(shape, strides)
        raise Unreadable("it is in none of the pieces of memory that the worker names")

    def close(self) -> None:
        """Close all pieces."""
        for memory in self._open.values():
            memory.close()
        self._open.clear()
        self._at.clear()


class OutputReader:
    """Reads the outputs of one frozen worker. Raises Failed for answers of another form.

    An output that is larger than the outbox comes without its data, on the device `meta`.
    """

    def __init__(self, pid: int, device: str, outbox: Box, pieces: Pieces) -> None:
        self._pid = pid
        self._device = device
        self._outbox = outbox
        self._pieces = pieces
        self._limit_bytes = outbox.size_bytes
        self._layouts: list[TensorEntry] = []
        """Tensors of the last described output."""

    @functools.cached_property
    def can_read_memory(self) -> bool:
        """Whether the judge can read the worker's memory itself."""
        return self._device == "cuda" or can_read_memory(self._pid)

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Return an output as it is now."""
        return self.read_all([answer])[0]

    def read_all(self, answers: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return outputs as they are now."""
        values: list[Any] = []
        for answer in answers:
            self._refuse_misplaced(answer)
            if self._device == "cuda":
                # Copies that share nothing, whatever the strides are.
                values.append(map_tensors(self._view(answer), _copy_tensor))
            elif "boxed" in answer:
                values.append(self.take(answer["boxed"], self._device))
            else:
                limit_bytes = self._limit_bytes if self.can_read_memory else -1
                spec = answer["output"]
                self._layouts = read_entries(spec)
                read = functools.partial(read_value, self._pid, spec, limit_bytes)
                values.append(_refuse_malformed(read))
        if self._device == "cuda":
            torch.cuda.synchronize()
        return values

    def capture(self, place: Place) -> Captured:
        """Read the memory of an output that a worker on a processor has not described yet."""
        return capture(self._pid, place, self._layouts, self._limit_bytes)

    def read_captured(
        self, answer: Mapping[str, Any], captured: Captured | None
    ) -> tuple[Any, bool]:
        """Return a described output, and whether it consists of what has been captured."""
        self._refuse_misplaced(answer)
        if captured is not None:
            with contextlib.suppress(Uncaptured):
                build = functools.partial(captured.build_value, answer["output"], self._limit_bytes)
                return _refuse_malformed(build), True
        return self.read(answer), False

    def prepare(
        self, answer: Mapping[str, Any]
    ) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return an output without its data, and what to copy into it once the data is there."""
        self._refuse_misplaced(answer)
        views: list[torch.Tensor] = []

        def allocate(view: torch.Tensor) -> torch.Tensor:
            if view.is_meta:
                return view
            views.append(view)
            return _allocate_like(view)

        value = map_tensors(self._view(answer), allocate)
        ours = [tensor for tensor in tensors_of(value) if not tensor.is_meta]
        return value, list(zip(ours, views, strict=True))

    def take(self, spec: Any, device: str) -> Any:
        """Return a value that the worker has put into its outbox."""
        return _refuse_malformed(lambda: self._outbox.get(spec, device))

    def _view(self, answer: Mapping[str, Any]) -> Any:
        def build() -> Any:
            if "boxed" in answer:
                return self._outbox.view(answer["boxed"])
            self._pieces.open(answer.get("pieces", []))
            return build_read_value(answer["output"], self._pieces.view, self._limit_bytes)

        return _refuse_malformed(build)

    def _refuse_misplaced(self, answer: Mapping[str, Any]) -> None:
        _refuse_odd(answer)
        wrong = [name for name in answer["devices"] if name != self._device]
        if wrong:
            raise Failed("incorrect", "incorrect_device", f"an output is on {wrong[0][:20]}")


def _refuse_odd(answer: Mapping[str, Any]) -> None:
    odd = answer.get("odd")
    if odd is None:
        return
    name = make_readable(odd["type"][:80])
    if odd["lazy"]:
        message = f"an output is a {name}, which may compute later"
        raise Failed("rejected", "lazy_output", message)
    raise Failed("incorrect", "incorrect_type", f"an output is a {name}")


def read_outputs(answer: Mapping[str, Any], calls: int) -> list[Any]:
    """Return the descriptions of a sample's outputs, one per call. Raises Failed."""
    outputs = answer["outputs"]
    if len(outputs) != calls:
        message = f"{len(outputs)} outputs of {calls} calls are described"
        raise Failed("rejected", "malformed_output", message)
    for output in outputs:
        _refuse_odd(output)
    return outputs


def read_places(answer: Mapping[str, Any], calls: int) -> list[Place]:
    """Return the places of a sample's outputs, one per call. Raises Failed."""
    if len(answer["places"]) != calls:
        message = f"{len(answer['places'])} outputs of {calls} calls have places"
        raise Failed("rejected", "malformed_output", message)
    return answer["places"]


def share_memory(answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether outputs of two calls share memory."""
    spans = [
        (address, address + count_extent(shape, strides) * dtype.itemsize, call)
        for call, answer in enumerate(answers)
        for dtype, shape, strides, address in read_entries(answer["output"])
        if math.prod(shape)
    ]
    end, owner = 0, -1
    for first, past, call in sorted(spans):
        if first < end and call != owner:
            return True
        if past > end:
            end, owner = past, call
    return False


def _refuse_malformed(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Malformed as error:
        raise Failed("rejected", "malformed_output", str(error)) from error
    except Unreadable as error:
        message = f"an output is in memory that cannot be read: {error}"
        raise Failed("rejected", "lazy_output", message) from error


def _copy_tensor(view: torch.Tensor) -> torch.Tensor:
    return view if view.is_meta else _allocate_like(view).copy_(view)


def _allocate_like(view: torch.Tensor) -> torch.Tensor:
    """Return memory for a copy, of the same strides, so that copying takes no longer."""
    memory = torch.empty_like(view)
    return mark_pending(memory, read_pending(view) ^ read_pending(memory))


Manner: TypeAlias = Literal["in_burst", "end_to_end", "behind_gate"]
"""How a sample is timed.

in_burst: The judge writes all inputs while the worker is frozen. A sample begins before it is
    thawed and contains all between its calls. The calls are made in a row or, cold, each when the
    judge has the report of the one before. A sample ends when all processes of the worker are
    frozen again. On a GPU it ends when the judge has the report that all streams are done, and what
    the rest takes longer than that of an empty call counts as well (`EmptyRounds`).
end_to_end: On a GPU, a sample begins before its inputs are written, and ends when the judge has the
    answers.
behind_gate: On a GPU, calls are launched first, and each is timed while the worker is frozen.
"""


class LaunchBlocked(Exception):
    """Calls cannot be launched without waiting for the GPU, which waits for the judge."""


@dataclass(frozen=True)
class Sample:
    """One timed request."""

    elapsed_ns: int
    """Time of all calls together by the judge's clock, with the cost of passing values."""
    kept: Sequence[int]
    """Slots of the calls whose outputs are kept, in the order of the outputs."""
    rounds: Sequence[RoundTime] = ()
    """The time of each call behind a gate, or that of a burst on a GPU."""
    early_ns: int = 0
    """Time in which a burst on a GPU had some of its inputs before its first call."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long a worker may take, in seconds."""

    import_s: float
    """To import the file, and to construct the module."""
    build_s: float
    """For any request, while a compiler runs below the worker."""
    first_call_s: float
    call_s: float
    total_s: float
    """For the worker's whole life."""


_MOST_PARAMETERS = 100_000
_WIDEST_BYTES = torch.complex128.itemsize
"""A candidate may hold its state in any element type."""

Piece: TypeAlias = tuple[str, int, int]
"""Elements in a row of a parameter or buffer: its name, the first element, the count."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of a worker's module, as the worker describes it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StartedWorker:
    """A worker's process that waits for its first request."""

    process: WorkerProcess
    boxes: SharedBoxes
    device: str
    threads: int
    """Number of threads of its loops."""
    build: Build | None

    def end(self, *, keeps_build: bool = False) -> Ended:
        """End the process and return how it ended. Raises SandboxFailed.

        keeps_build: keep what it has compiled, for later workers with the same files.
        """
        self.boxes.close()
        try:
            ended = self.process.end()
            # Nothing of the candidate runs any more.
            if self.build is not None and keeps_build:
                self.build.keep()
        finally:
            if self.build is not None:
                self.build.release()
        return ended


def start_worker(
    fork_server: ForkServer,
    files: Mapping[str, str],
    *,
    setting: Mapping[str, Any],
    limits: Limits,
    sizes: Sizes | None,
    build: Build | None = None,
) -> StartedWorker:
    """Start a worker's process with some files (path to text) in its folder. Raises SandboxFailed.

    Args:
        setting: Fields of `evaluators.worker.loop.Setting`.
        limits: The memory that it shares with the judge is added to them.
        sizes: Sizes of that memory. On a GPU they may be unknown so far (None), since the worker
            allocates the memory when it is prepared.
    """
    device = str(setting["device"])
    box_bytes = sizes.boxes if sizes is not None else (0, 0)
    if limits.memory_bytes is not None:
        limits = replace(limits, memory_bytes=limits.memory_bytes + sum(box_bytes))
    boxes = SharedBoxes(device, box_bytes)
    try:
        process = fork_server.start(
            files,
            setting=setting,
            limits=limits,
            inbox=boxes.fds[0],
            outbox=boxes.fds[1],
            build=build.folder if build is not None else None,
        )
    except SandboxFailed:
        boxes.close()
        if build is not None:
            build.release()
        raise
    finally:
        for fd in boxes.fds:  # the worker has them
            os.close(fd)
    return StartedWorker(process, boxes, device, int(setting["threads"]), build)


_LAUNCH_S = 2.0
"""How long launching the calls of one sample may take before they count as waiting for the GPU."""
_Answers: TypeAlias = list[list[dict[str, Any]]]
"""Descriptions of the outputs of the last request, and of the one before it."""
_Timed: TypeAlias = tuple[Sample, _Answers, Mapping[int, Any] | None, list[Place]]
"""A sample, the descriptions of its outputs, and the outputs. Those of a burst are not read yet. On
a processor, or where they need not be checked, they are not described either, and there are only
their places."""


@dataclass(frozen=True)
class _Request:
    slots: list[int]
    variant: str | None
    cold: bool
    copies: bool
    describes: bool


class WorkerHandle:
    """One worker with its shared memory.

    Methods raise Failed; those of a trusted worker, which runs the task's own module, raise
    ReferenceFailed, so that a candidate is never blamed for a baseline.
    """

    def __init__(
        self,
        started: StartedWorker,
        sizes: Sizes,
        *,
        deadlines: Deadlines,
        trusted: bool,
        flushed: torch.Tensor | None = None,
        share: Share | None = None,
    ) -> None:
        """Take a process that has been started; `prepare` makes it ready for requests.

        Args:
            trusted: Whether it runs the task's own module.
            flushed: Memory of a GPU to write in order to flush its caches.
            share: The device, which other judges may have while this worker compiles, and between
                two of its calls.
        """
        self._started = started
        self._process: WorkerProcess = started.process
        self._sizes = sizes
        self._trusted = trusted
        self.deadlines = deadlines
        self._started_s = time.monotonic()
        self.device = started.device
        self._share = share
        # Trusted workers start beside a candidate, in threads of the judge that hold no lock.
        self._share_while_building = None if trusted else share
        self.threads = started.threads
        """Number of threads of its loops."""
        self.slots = sizes.slots
        """Number of sets of inputs that it can hold at a time."""
        self.reply_calls = sizes.reply_calls
        """Number of calls whose outputs fit one of its replies."""
        self._inbox = Inbox(sizes, trusted=trusted)
        self._pieces = Pieces(self._process.let_run)
        self._flushed = flushed
        self._ended: Ended | None = None
        self.keeps_build = False
        """Whether what it has compiled is kept for later workers with the same files."""
        self._answers: list[list[dict[str, Any]]] = [[], []]
        self._taken: Mapping[int, Any] | None = None
        """Outputs of timed calls that the judge has read."""
        self._places: list[Place] = []
        self._captured: dict[int, Captured] = {}
        self._passed = 0
        """Number of the last time that the gate was passed."""

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        boxes, (inbox_bytes, outbox_bytes) = self._started.boxes, self._sizes.boxes
        try:
            answer = self._ask(
                "prepare", "load", inbox_bytes=inbox_bytes, outbox_bytes=outbox_bytes
            )
            boxes.open(answer["handles"], (inbox_bytes, outbox_bytes))
            self._process.freeze_between_requests()
            inbox, outbox = boxes.boxes
        except (Failed, ReferenceFailed, RuntimeError, TimedOut, ValueError) as failed:
            self.end()
            raise SandboxFailed(f"a worker cannot be prepared: {failed}") from failed
        self._inbox.box = inbox
        self._outputs = OutputReader(self._process.pid, self.device, outbox, self._pieces)

    def load(self, path: str, entry_point: str, names: Mapping[str, Any]) -> None:
        """Import the file and find the entry point in it."""
        answer = self._ask(
            "load",
            "load",
            share=self._share_while_building,
            path=path,
            entry_point=entry_point,
            names=dict(names),
        )
        self.keeps_build = True
        if not answer["found"]:
            message = f"the file defines no {entry_point}"
            raise Failed("compile_error", "no_entry_point", message)

    def construct(
        self, seed: int, arguments: list[Any], *, places: bool = False
    ) -> list[Parameter]:
        """Make the module under a seed and return its parameters and buffers.

        places: Whether its calls make tensors on the device where they name none.
        """
        self._ask(
            "construct",
            "construct",
            share=self._share_while_building,
            seed=seed,
            arguments=self._inbox.put(arguments),
            places=places,
        )
        parameters: list[Parameter] = []
        while True:
            answer = self._ask("state", "call", start=len(parameters))
            parameters += [
                Parameter(name, DTYPES[dtype], tuple(shape))
                for name, dtype, shape in answer["state"]
            ]
            count = len(parameters)
            if not answer["state"] or count >= _MOST_PARAMETERS or count == answer["total"]:
                return parameters

    def adopt(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name, in as many messages as the inbox needs."""
        room_bytes = self._sizes.shared_bytes // 2
        pieces: list[tuple[str, int, torch.Tensor]] = []
        for name, tensor in state.items():
            flat = tensor.detach().reshape(-1)
            most = max(1, room_bytes // flat.element_size())
            starts = range(0, flat.numel(), most)
            pieces += [(name, start, flat[start : start + most]) for start in starts]
        for page in paginate(pieces, lambda piece: piece[2].nbytes, room_bytes):
            values = self._inbox.put([value for _, _, value in page], dense=True)
            names = [(name, start) for name, start, _ in page]
            self._ask("adopt", "call", pieces=names, values=values)

    def current_state(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return parameters and buffers as they are now, in the shapes and types of `wanted`."""
        taken = {name: [tensor.new_empty(0, device="cpu")] for name, tensor in wanted.items()}
        most = max(1, self._started.boxes.boxes[1].size_bytes // 2 // _WIDEST_BYTES)
        pieces = [
            (name, start, min(most, tensor.numel() - start))
            for name, tensor in wanted.items()
            for start in range(0, tensor.numel(), most)
        ]
        for (name, _, _), value in zip(pieces, self.read_pieces(pieces), strict=True):
            taken[name].append(value.to(wanted[name].dtype))
        return {name: torch.cat(parts).view(wanted[name].shape) for name, parts in taken.items()}

    def read_pieces(self, pieces: Iterable[Piece]) -> list[torch.Tensor]:
        """Return pieces of parameters and buffers as they are now."""
        taken: list[torch.Tensor] = []
        room_bytes = self._started.boxes.boxes[1].size_bytes
        for page in paginate(pieces, lambda piece: piece[2] * _WIDEST_BYTES, room_bytes):
            answer = self._ask("current_state", "call", pieces=page)
            values = self._outputs.take(answer["values"], "cpu")
            shapes = [(count,) for _, _, count in page]
            if (
                not isinstance(values, list)
                or not all(isinstance(value, torch.Tensor) for value in values)
                or [tuple(value.shape) for value in values] != shapes
            ):
                message = "the module's state is not described"
                raise Failed("rejected", "malformed_output", message)
            taken += values
        return taken

    def rehearse(self, inputs: Any) -> None:
        """Call the module on inputs without data, for what it compiles in its first call."""
        self._ask("rehearse", "load", inputs=self._inbox.put(inputs))

    def reseed(self, seed: int) -> None:
        """Seed the generators of the worker, for modules that draw numbers in a call."""
        self._ask("reseed", "call", seed=seed)

    def poison(self, sizes: list[int]) -> None:
        """Fill freed memory with NaN, in blocks of these sizes in bytes."""
        self._ask("poison", "call", sizes=sizes)

    def prepare_variant(self, name: str, slot: int, *, compiles: bool) -> float:
        """Prepare one way of running a trusted module on a slot's inputs; returns its seconds.

        compiles: Whether it mostly compiles, and other judges may time meanwhile.
        """
        self._inbox.write([slot])
        share = self._share if compiles else None
        paused_s = self._process.paused_s
        answer = self._ask("variant", "construct", share=share, name=name, slot=slot)
        return float(answer["seconds"]) - (self._process.paused_s - paused_s)

    def require_room(self, answer: Any) -> None:
        """Raise SizesExceeded where the outbox has no room for an answer.

        Its size may depend on the numbers, and so differ from that of the first answer.
        """
        answer_bytes = lay_out(answer).end
        if answer_bytes > self._sizes.boxes[1]:
            raise SizesExceeded(0, answer_bytes)

    def fill(
        self,
        slot: int,
        inputs: list[Any],
        *,
        known: LaidOut | None = None,
        strided: bool = False,
        copied: bool = False,
    ) -> LaidOut | None:
        """Replace the inputs of a slot. Raises SizesExceeded where there is no room for them.

        The judge writes them while the worker is frozen, right before a call.
        The worker gets a request only for a new layout, and for inputs that it copies.

        known: What this has returned for the same inputs and another worker, which saves time.
        """
        if strided or copied:
            self._inbox.specs.pop(slot, None)
            spec = self._inbox.put(inputs, dense=strided)
            self._ask("fill", "call", slot=slot, inputs=spec, strided=strided, copied=copied)
            return None
        laid_out = self._inbox.lay_out(slot, inputs, known)
        if self._inbox.specs.get(slot) != laid_out.spec:
            self._ask("fill", "call", slot=slot, inputs=laid_out.spec)
            self._inbox.specs[slot] = laid_out.spec
        self._inbox.stage(slot)
        return laid_out

    def has_staged(self, slot: int) -> bool:
        """Whether inputs of a slot are still to be written before a call."""
        return self._inbox.has_staged(slot)

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and return its output."""
        self._inbox.write([slot])
        self._pieces.trim()
        stage: Stage = "first_call" if first else "call"
        answer = self._ask("call", stage, share=self._share if first else None, slot=slot)
        self._answers, self._taken, self._places = [[answer], self._answers[0]], None, []
        with self._blame_task():
            return self.output(0)

    def output(self, index: int, *, before: bool = False) -> Any:
        """Return an output of the last request, or of the one before it, as it is now.

        The judge reads it from the frozen worker's memory; where the system forbids that, the
        worker copies it. An output that was timed on a GPU is as it was at the end of its call.
        """
        if self._places and not before:
            return self.timed_outputs([index])[0][0]
        if self._taken is not None and not before:
            return self._taken[index]
        answer: Mapping[str, Any] = self._answers[int(before)][index]
        if not self._outputs.can_read_memory or (before and "boxed" in answer):
            answer = self._ask("output", "call", index=index, before=before)
        return self._outputs.read(answer)

    def capture_outputs(self, calls: Sequence[int]) -> None:
        """Read outputs of timed calls from the memory that the worker has named within their time.

        To be called before the next request: what the worker does in it is then of no effect.
        """
        if self.device == "cuda":
            if self._taken is None:
                with self._blame_task():
                    values = self._outputs.read_all([self._answers[0][call] for call in calls])
                self._taken = dict(zip(calls, values, strict=True))
        elif self._outputs.can_read_memory:
            places = {call: self._places[call] for call in calls if self._places}
            self._captured = {call: self._outputs.capture(at) for call, at in places.items()}

    def timed_outputs(self, calls: Sequence[int]) -> list[tuple[Any, bool]]:
        """Return outputs of timed calls, and whether each consists of what has been captured."""
        if self._taken is not None:
            return [(self._taken[call], True) for call in calls]
        if not self._outputs.can_read_memory:
            ask = functools.partial(self._ask, "output", "call", before=False)
            return [(self._outputs.read(ask(index=call)), True) for call in calls]
        captured = [self._captured.get(call) for call in calls]
        with self._blame_task():
            answers = self._describe(calls)
            return list(map(self._outputs.read_captured, answers, captured))

    def _describe(self, calls: Sequence[int]) -> list[dict[str, Any]]:
        return read_outputs(self._ask("describe", "call", calls=list(calls)), len(calls))

    def inputs(self, slot: int) -> Any:
        """Return the inputs of a slot as they are now."""
        self._inbox.write([slot])
        if slot in self._inbox.specs:
            return self._inbox.read(slot, self.device)
        answer = self._ask("inputs", "call", slot=slot)
        return self._outputs.take(answer["inputs"], self.device)

    def check_clocks(self) -> None:
        """Raise Failed if the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call")["replaced"]
        if replaced:
            message = f"the code replaces {make_readable(', '.join(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def prepare_empty(self, slot: int, *, launches: bool = False) -> None:
        """Prepare the variant `empty` of a trusted worker, which returns a ready answer.

        launches: Whether it launches a kernel that does nothing.
        """
        self._inbox.write([slot])
        self._ask("empty", "call", slot=slot, launches=launches)

    def time_empty(self, calls: int, *, alone: bool) -> int:
        """Return the nanoseconds of calls of `empty` by the clock of a trusted worker itself.

        alone: Wait for the GPU after each call.
        """
        return int(self._ask("time_empty", "call", calls=calls, alone=alone)["taken_ns"])

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        *,
        cold: bool = False,
        copies: bool = False,
        manner: Manner = "end_to_end",
        describes: bool = True,
    ) -> Sample:
        """Time one call of the module, or of a variant of it, per slot, and keep the outputs.

        Args:
            slots: The slots to call it on, in order.
            variant: A prepared way of running a trusted module.
            cold: Flush the caches of a GPU before each call; those of a processor before the first,
                and make each call alone.
            copies: Copy each output before the next call, within the sample.
            manner: How to time it; calls on a processor are always timed in a burst.
            describes: Whether a burst on a GPU ends with a description of its outputs, so that they
                can be checked. Otherwise they are described when they are asked for.

        Raises LaunchBlocked where launching has to wait for the GPU.
        """
        self._pieces.trim()
        self.release_outputs()  # this sample's outputs can take their memory
        self._inbox.restage(slots, self.device)
        request = _Request(slots, variant, cold=cold, copies=copies, describes=describes)
        gate = self._started.boxes.gate
        if gate is None:
            timed = self._time_in_burst(request)
        elif manner == "behind_gate":
            timed = self._time_behind_gate(request, gate)
        elif manner == "in_burst":
            timed = self._time_in_burst_on_gpu(request, gate)
        else:
            timed = self._time_end_to_end(request)
        sample, self._answers, self._taken, self._places = timed
        self._captured = {}
        self._inbox.note_timed(slots)
        return sample

    def _time_in_burst(self, request: _Request) -> _Timed:
        slots = request.slots
        self._write_inputs(slots, cold=request.cold)

        def pass_turns(is_over: Callable[[], bool]) -> None:
            for _ in slots[1:]:
                if not self._process.pass_turn(is_over):
                    return

        answer = self._ask(
            "time",
            "call",
            meanwhile=pass_turns if request.cold else None,
            slots=slots,
            variant=request.variant,
            copies=request.copies,
            alone=request.cold,
        )
        begin_ns, end_ns = self._process.begin_ns, self._process.end_ns
        with self._blame_task():
            places = read_places(answer, len(slots))
        return Sample(end_ns - begin_ns, slots), [[], []], None, places

    def _time_in_burst_on_gpu(self, request: _Request, gate: Gate) -> _Timed:
        slots, first = request.slots, self._passed + 1
        last = self._passed = first + (len(slots) - 1 if request.cold else 0)
        written_ns = time.perf_counter_ns()
        self._write_inputs(slots, cold=request.cold)
        done_ns: list[int] = []

        def follow_calls(is_over: Callable[[], bool]) -> None:
            told_ns = gate.follow_calls(first, last, is_over)
            gate.open_now(last)
            if told_ns is not None:
                done_ns.append(told_ns)

        gate.open_now(first)
        answer = self._ask(
            "call_in_burst",
            "call",
            meanwhile=follow_calls,
            slots=slots,
            first=first,
            variant=request.variant,
            copies=request.copies,
            alone=request.cold,
            describes=request.describes,
        )
        begin_ns, end_ns = self._process.begin_ns, self._process.end_ns
        with self._blame_task():
            answers = [read_outputs(answer, len(slots) if request.describes else 0), []]
            if not done_ns:
                raise Failed("rejected", "timer_mismatch", "a call has not reported its end")
        call_ns = done_ns[0] - begin_ns
        times = [RoundTime(call_ns, rest_ns=end_ns - done_ns[0])]
        places: list[Place] = [] if request.describes else [([], [])] * len(slots)
        return Sample(call_ns, slots, times, begin_ns - written_ns), answers, None, places

    def _time_end_to_end(self, request: _Request) -> _Timed:
        slots = request.slots
        begin_ns = time.perf_counter_ns()
        self._write_inputs(slots, cold=request.cold)
        self._ask("time", "call", slots=slots, variant=request.variant, copies=request.copies)
        with self._blame_task():
            answer = self._ask("describe", "call", calls=list(range(len(slots))))
            answers = [read_outputs(answer, len(slots)), []]
            taken = dict(enumerate(self._outputs.read_all(answers[0])))
        return Sample(time.perf_counter_ns() - begin_ns, slots), answers, taken, []

    def _write_inputs(self, slots: list[int], *, cold: bool) -> None:
        self._inbox.write(slots)
        if cold and self._flushed is not None:
            flush_caches(self._flushed)
        if self._started.boxes.gate is not None:
            torch.cuda.synchronize()

    def _time_behind_gate(self, request: _Request, gate: Gate) -> _Timed:
        first, slots = self._passed + 1, request.slots
        last = self._passed = self._passed + len(slots)
        late: list[bool] = []

        def open_gate() -> None:
            late.append(True)
            gate.open_now(last)

        try:
            answer = self._ask(
                "launch",
                "call",
                late=(_LAUNCH_S, open_gate),
                slots=slots,
                first=first,
                variant=request.variant,
            )
            if late:
                self._ask("wait_for_copy", "call")
                raise LaunchBlocked
            with self._blame_task():
                answers = [read_outputs(answer, len(slots)), []]
                taken = [self._outputs.prepare(output) for output in answers[0]]
            rounds = [
                Round(self._inbox.pair_staged(slot), copies)
                for slot, (_, copies) in zip(slots, taken, strict=True)
            ]
            flushed = self._flushed if request.cold else None
            times = time_rounds(gate, first, rounds, flushed, self.deadlines.call_s)
        except Unfinished:
            self._ask("wait_for_copy", "call")
            message = f"not done after {self.deadlines.call_s:g} s"
            raise Failed("timeout", "call_timeout", message) from None
        finally:
            gate.open_now(last)
        self._inbox.unstage(slots)
        elapsed_ns = sum(round_time.call_ns for round_time in times)
        values = {number: value for number, (value, _) in enumerate(taken)}
        return Sample(elapsed_ns, slots, times), answers, values, []

    def release_outputs(self) -> None:
        """Free the judge's copies of the last outputs; `output` then reads the worker's memory."""
        self._taken = None

    def outputs_overlap(self) -> bool:
        """Whether outputs of two calls of the last request share memory."""
        count = len(self._places)
        return share_memory(self._describe(range(count)) if count else self._answers[0])

    def profile(self, slot: int) -> Profile:
        """Return a profile of one call, as the worker reports it."""
        self._inbox.write([slot])
        return read_profile(self._ask("profile", "first_call", slot=slot))

    def step_aside(self) -> float:
        """Let another judge that wants the device have it now; return the seconds of that."""
        if self._share is None or not self._share.is_wanted():
            return 0.0
        aside_s = self._share.step_aside()
        self.excuse(aside_s)
        return aside_s

    def excuse(self, seconds: float) -> None:
        """Do not count time in which the worker waited for the judge."""
        self._started_s += seconds

    def cpu_ns(self) -> int:
        """Return the processor time that the worker and all it has started have used so far."""
        return self._process.cpu_ns()

    def running_ns(self) -> int:
        """Return the time in which a worker on a processor has not been frozen so far."""
        return self._process.running_ns

    def pin(self, cores: Collection[int]) -> bool:
        """Let every thread of the worker run on these cores only; whether that was possible."""
        return self._process.pin(cores)

    def is_pinned(self, cores: Collection[int]) -> bool:
        """Whether every thread of the worker runs on these cores only."""
        return self._process.list_cores() == {*cores}

    def shares_device(self) -> bool:
        """Whether another process of the worker holds the GPU as well."""
        return self.device == "cuda" and bool(self._process.find_other_holders("/dev/nvidia"))

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            self._pieces.close()
            self._ended = self._started.end(keeps_build=self.keeps_build)
        return self._ended

    def _ask(
        self,
        do: str,
        stage: Stage,
        late: Late | None = None,
        meanwhile: Meanwhile | None = None,
        share: Share | None = None,
        **fields: Any,
    ) -> Any:
        with self._blame_task():
            if self._ended is not None:  # a call that only raises flags may have ended it
                raise Failed("crash", "early_exit", "the process has ended before")
            deadlines, process = self.deadlines, self._process
            # Without a compiler at work.
            limits = {"first_call": deadlines.first_call_s, "call": deadlines.call_s}
            limit_s, paused_s = limits.get(stage, deadlines.import_s), process.paused_s
            with self._inbox.expose(fields):
                left_s = deadlines.total_s - (time.monotonic() - self._started_s)
                if left_s <= 0:
                    message = f"not done after {deadlines.total_s:g} s in all"
                    raise Failed("timeout", "total_timeout", message)
                try:
                    answer = process.ask(
                        do,
                        min(limit_s, left_s),
                        min(deadlines.build_s, left_s),
                        late=late,
                        meanwhile=meanwhile,
                        share=share,
                        **fields,
                    )
                except TimedOut as error:
                    compiling = error.compiling
                    raise explain_timeout(stage, limit_s, deadlines.build_s, compiling) from error
                except Malformed as error:
                    raise Failed(
                        "rejected", "malformed_output", make_readable(str(error))
                    ) from error
                except ValueError as error:  # it describes inputs or names of the task
                    reason = f"the task has too many inputs or names: {error}"
                    raise ReferenceFailed(reason) from error
                except Died as error:
                    raise explain_end(self.end()) from error
                finally:
                    self.excuse(process.paused_s - paused_s)
                if "error" in answer:
                    raise explain_error(stage, answer["error"])
                return answer

    @contextlib.contextmanager
    def _blame_task(self) -> Generator[None]:
        """Turn a failure of a trusted worker into one of the task."""
        try:
            yield
        except Failed as failed:
            if self._trusted:
                message = f"the eager baseline failed: {failed.message}"
                raise ReferenceFailed(message) from failed
            raise
