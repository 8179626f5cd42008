"""Parameters and buffers of a task's module, as its worker sends them in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluators.memory.tensors import ALIGN_BYTES, is_inexact
from evaluators.references.connection import TaskConnection

_PERTURBATION = 0.3
_MOST_TENSORS = 100_000
_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 30
_PAGE_NAMES = 1 << 16


@dataclass(frozen=True)
class ModuleState:
    """Parameters and buffers of a module by name, on the processor."""

    values: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    parameters: set[str] = field(default_factory=set[str])
    """Names that are parameters and not buffers."""
    owners: dict[str, int] = field(default_factory=dict[str, int])
    """A number for each name, the same for names of the same memory."""

    def perturb(self, seed: int) -> dict[str, torch.Tensor]:
        """Return the state with noise of 0.3 on floating and complex values.

        Tied tensors stay tied. A buffer without negative values, such as a running variance, keeps
        none.
        """
        noise = torch.Generator().manual_seed(seed)
        moved: dict[tuple[Any, ...], torch.Tensor] = {}
        perturbed: dict[str, torch.Tensor] = {}
        for name, value in self.values.items():
            perturbed[name] = value
            if not is_inexact(value.dtype):
                continue
            tied = (self.owners[name], value.dtype, value.shape)
            if tied not in moved:
                dtype = torch.complex64 if value.is_complex() else torch.float32
                step = _PERTURBATION * torch.randn(value.shape, generator=noise, dtype=dtype)
                # Types such as float8 have no arithmetic.
                wide = value.float() if value.element_size() == 1 else value
                changed = wide + step.to(wide.dtype)
                positive = name not in self.parameters and not (
                    value.is_complex() or bool((wide < 0).any())
                )
                moved[tied] = (changed.abs() if positive else changed).to(value.dtype)
            perturbed[name] = moved[tied]
        return perturbed


def read_state(connection: TaskConnection, *, now: bool) -> ModuleState:
    """Read a module's state: as it was made, or with `now` as it is after the calls.

    Raises ReferenceFailed.
    """
    state = ModuleState()
    while True:
        answer = connection.ask("state", start=len(state.values), now=now)
        page = answer["page"]
        values = connection.take_list(answer, "cpu", "the state")
        if len(page) != len(values):
            raise connection.break_off("the state is not described")
        for (name, is_parameter, owner), value in zip(page, values, strict=True):
            if name in state.values or not isinstance(value, torch.Tensor):
                raise connection.break_off("the state is not described")
            state.values[name] = value
            state.owners[name] = owner
            if is_parameter:
                state.parameters.add(name)
        if len(state.values) >= answer["total"]:
            return state
        if not page or len(state.values) > _MOST_TENSORS:
            raise connection.break_off("the state has no end")


def split_pages(state: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Yield the names of a state in pages that one message and one box can hold."""
    page: list[str] = []
    size = letters = 0
    for name, value in state.items():
        if page and (
            len(page) >= _PAGE_ENTRIES
            or size + value.nbytes > _PAGE_BYTES
            or letters + len(name) > _PAGE_NAMES
        ):
            yield page
            page, size, letters = [], 0, 0
        page.append(name)
        size += -(-value.nbytes // ALIGN_BYTES) * ALIGN_BYTES
        letters += len(name)
    if page:
        yield page
