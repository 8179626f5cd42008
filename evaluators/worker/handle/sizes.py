"""The shared memory that a worker needs for the inputs and outputs of its calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

import torch

from evaluators.memory.tensors import ALIGN_BYTES, layout, tensors_of
from evaluators.processes.messages import PACKET_LIMIT_BYTES

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
        input_bytes = max(layout(inputs)[1], least[0])
        structure, first_bytes = layout(answer)
        answer_bytes = max(first_bytes, least[1])
        slots_bytes = _SLOTS_BYTES
        if gpus := [tensor.device for tensor in tensors_of(inputs) if tensor.is_cuda]:
            total_bytes = torch.cuda.get_device_properties(gpus[0]).total_memory
            slots_bytes = min(_GPU_SLOTS_BYTES, int(_GPU_SHARE * total_bytes))
        # The answers of a burst stay as well.
        affordable = slots_bytes // max(1, input_bytes, answer_bytes)
        fewest = 2 if input_bytes <= _TWO_SLOTS_BYTES else 1
        slots = max(fewest, min(_MOST_SLOTS, affordable))
        described_bytes = len(json.dumps(structure)) + sum(
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
