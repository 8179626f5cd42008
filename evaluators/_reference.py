"""The trusted side of correctness: a task's own code, the inputs it makes, the answers it wants."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from evaluators._tensors import layout, tensors_of, to_device

WEIGHT_SEED = 42
"""Seed under which both sides construct their module. Public: kernels match weights by it."""
_MODULE_NAME = "flywheel_task"


class ReferenceFailed(Exception):
    """The task itself cannot be built or run; never the candidate's fault."""


@dataclass(frozen=True)
class Expected:
    """What the reference answers to one set of inputs."""

    value: Any
    """The answer in the task's own element types."""
    exact: list[torch.Tensor | None]
    """The same tensors computed in double precision; None where they are not floating."""


class Reference:
    """One task on one device: makes inputs from seeds and answers them. Raises ReferenceFailed."""

    def __init__(self, code: str, axes: Mapping[str, Any], device: str) -> None:
        self.device = device
        try:
            module = _executed(code, axes)
            self._get_inputs = module.get_inputs
            torch.manual_seed(WEIGHT_SEED)
            self.arguments: list[Any] = list(module.get_init_inputs())
            # Seeded again right before: get_init_inputs may have drawn numbers of its own.
            torch.manual_seed(WEIGHT_SEED)
            self._model = module.Model(*self.arguments).to(device)
            layout(self.arguments)
            self._double = copy.deepcopy(self._model).double()
        except Exception as error:
            raise ReferenceFailed(f"the task cannot be built: {error}") from error

    def inputs(self, seed: int) -> list[Any]:
        """Inputs of the task's own distribution."""
        torch.manual_seed(seed)
        try:
            with torch.device(self.device):
                made = to_device(list(self._get_inputs()), self.device)
            layout(made)
        except Exception as error:
            raise ReferenceFailed(f"get_inputs() failed: {error}") from error
        return made

    def answer(self, inputs: list[Any]) -> Expected:
        """The reference's answer, and the same in double precision where it can be had."""
        with torch.no_grad():
            try:
                value = self._model(*_cloned(inputs))
                layout(value)
            except Exception as error:
                raise ReferenceFailed(f"forward() failed: {error}") from error
            tensors = list(tensors_of(value))
            try:
                exact: list[Any] = list(tensors_of(self._in_double(inputs)))
            except Exception:
                # Some code fixes its element type; then its own answer is the best there is.
                exact = [t.double() if t.is_floating_point() else None for t in tensors]
        for index, (own, double) in enumerate(zip(tensors, exact, strict=True)):
            if double is not None and not (double.is_floating_point() and own.is_floating_point()):
                exact[index] = None
        return Expected(value, exact)

    def _in_double(self, inputs: list[Any]) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self._double(*_cloned(inputs, torch.float64))
        finally:
            torch.set_default_dtype(default)


def _executed(code: str, axes: Mapping[str, Any]) -> ModuleType:
    """The task's text as a module. An axis replaces a module-level name of the same meaning."""
    module = ModuleType(_MODULE_NAME)
    sys.modules[_MODULE_NAME] = module
    exec(compile(code, f"<{_MODULE_NAME}>", "exec"), module.__dict__)
    unknown = sorted(set(axes) - set(vars(module)))
    if unknown:
        raise ValueError(f"the workload sets {', '.join(unknown)}, which the task does not define")
    vars(module).update(axes)
    return module


def _cloned(inputs: list[Any], dtype: torch.dtype | None = None) -> list[Any]:
    """Copies for one call, since a reference may write into its inputs."""

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            wanted = dtype if dtype is not None and value.is_floating_point() else value.dtype
            return value.to(wanted, copy=True)
        if isinstance(value, list | tuple):
            return type(value)(copied(item) for item in value)
        return value

    return [copied(value) for value in inputs]
