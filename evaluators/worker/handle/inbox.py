"""The inbox of a worker: one part for any value, and slots for sets of inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import torch

from evaluators.memory.tensors import Box, LaidOut, lay_out
from evaluators.references.connection import SizesExceeded
from evaluators.worker.handle.sizes import Sizes


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
            self.box.settle()
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
