"""The shared memory that a worker needs for the inputs and outputs of its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from evaluators.memory.tensors import ALIGN_BYTES

_SLACK_BYTES = 64 * 1024
_MOST_SLOTS = 256
_SLOTS_BYTES = 256 << 20
_TWO_SLOTS_BYTES = 1 << 30
"""Up to this size, inputs get a second slot, so that calls can alternate between memory."""


@dataclass(frozen=True)
class Sizes:
    """Shared memory that the inputs and outputs of one call need, in bytes."""

    inputs: int
    outputs: int
    slots: int = 4
    """Sets of inputs that a worker holds at a time."""

    @classmethod
    def of(cls, inputs: int, outputs: int) -> Self:
        """Return sizes for a task's inputs and outputs, with as many slots as are affordable."""
        affordable = _SLOTS_BYTES // max(1, inputs)
        fewest = 2 if inputs <= _TWO_SLOTS_BYTES else 1
        return cls(inputs, outputs, max(fewest, min(_MOST_SLOTS, affordable)))

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
