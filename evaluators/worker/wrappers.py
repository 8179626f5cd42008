"""Modules around the module under test: one that does nothing, and one that copies its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from evaluators.clock.empty_kernel import launch_empty_kernel
from evaluators.memory.tensors import map_tensors


class Empty(torch.nn.Module):
    """A candidate that does nothing, or only launches a kernel that does nothing."""

    def __init__(self, answer: Any, *, launches: bool = False) -> None:
        super().__init__()

        def launch(*_: Any, **__: Any) -> Any:
            launch_empty_kernel()
            return answer

        self.forward = launch if launches else lambda *_, **__: answer


def wrap_with_copy(module: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that copies every tensor of the module's output."""
    return lambda *args, **named: map_tensors(module(*args, **named), Tensor.clone)
