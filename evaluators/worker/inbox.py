"""The memory that the judge shares with one worker: its sizes, its boxes, and slots for inputs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.memory.tensors import (
    ALIGN_BYTES,
    Box,
    LaidOut,
    MappedBox,
    OpenedBox,
    create_sealed_file,
    lay_out,
    tensors_of,
)
from evaluators.processes.messages import PACKET_LIMIT_BYTES
from evaluators.references.task import SizesExceeded

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

    def close_fds(self) -> None:
        """Close the descriptors that the worker has."""
        for fd in self.fds:
            os.close(fd)

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
        self._box: Box | None = None

    def attach(self, box: Box) -> None:
        """Use this memory from now on."""
        self._box = box

    @property
    def box(self) -> Box:
        """The memory, once it is attached."""
        assert self._box is not None
        return self._box

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
        """Return the first byte of a slot's new region, the first gap that is large enough."""
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
