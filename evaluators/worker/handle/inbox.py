"""The inbox of a worker: one part for any value, and slots for sets of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from evaluators.memory.tensors import Box, layout, tensors_of
from evaluators.worker.handle.sizes import Sizes


class Inbox:
    """Memory through which values go to a worker. The judge writes it while the worker is frozen.

    Inputs of a slot are staged first and written later, so that writing them can be timed.
    """

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self.specs: dict[int, dict[str, Any]] = {}
        """Structure of the inputs in each slot that the worker reads from the inbox."""
        self._staged: dict[int, list[Any]] = {}
        self._box: Box | None = None

    def attach(self, box: Box) -> None:
        """Use this memory from now on."""
        self._box = box

    @property
    def box(self) -> Box:
        """The memory, once it is attached."""
        assert self._box is not None
        return self._box

    def put(self, value: Any) -> dict[str, Any]:
        """Copy a value into the part for any value; returns its structure."""
        return self.box.put(value)

    def lay_out(self, slot: int, inputs: list[Any]) -> dict[str, Any]:
        """Return the structure that inputs have in a slot."""
        return layout(inputs, self._start(slot))[0]

    def stage(self, slot: int, inputs: list[Any]) -> None:
        """Keep inputs that are to be written into a slot."""
        self._staged[slot] = inputs

    def restage(self, slots: Iterable[int], device: str) -> None:
        """Stage inputs again that are already written: a sample includes writing them."""
        for slot in set(slots) - set(self._staged):
            self._staged[slot] = self.read(slot, device)

    def unstage(self, slots: Iterable[int]) -> None:
        """Forget what is staged, since another way has written it."""
        for slot in slots:
            self._staged.pop(slot, None)

    def write(self, slot: int) -> None:
        """Write what is staged for a slot, if anything."""
        staged = self._staged.pop(slot, None)
        if staged is not None:
            self.box.put(staged, self._start(slot))

    def read(self, slot: int, device: str) -> Any:
        """Return the inputs of a slot as they are now, copied to a device."""
        return self.box.get(self.specs[slot], device)

    def pair_staged(self, slot: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each tensor's memory in a slot with what is staged for it."""
        views = self.box.views(self.specs[slot])
        return list(zip(views, tensors_of(self._staged[slot]), strict=True))

    def _start(self, slot: int) -> int:
        return self._sizes.shared_bytes + slot * self._sizes.slot_bytes
