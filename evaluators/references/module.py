"""A task's own code at work: its inputs, its answers, its weights. Runs in the task's worker alone.

A module may remember: batch statistics, a hidden state. Both sides then have to be called alike, so
the reference answers once for every call of a candidate, in the same order, after a `reset` at the
candidate's start. A module may draw numbers in its call, as dropout does: both sides are seeded
before every call with a number that the candidate may know.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from evaluators.memory.tensors import layout, move_to_device, same_bits, tensors_of
from evaluators.references.choices import Choice, add_exact_values, record

WEIGHT_SEED = 42
"""Seed under which both sides construct their module. Public: kernels match weights by it."""

_MODULE_NAME = "flywheel_task"


class TaskFailed(Exception):
    """The task's own code cannot be run; the text says which part of it."""


class TaskModule:
    """One task on one device: makes inputs from seeds and answers them. Raises TaskFailed."""

    def __init__(self, code: str, axes: Mapping[str, Any], device: str) -> None:
        self._device = device
        self.draws = False
        """Whether a call draws random numbers; known after the first answer."""
        self.mutates: bool | None = None
        """Whether a call changes its inputs; None before the first answer."""
        try:
            module = _execute(code, axes)
            self._get_inputs = module.get_inputs
            torch.manual_seed(WEIGHT_SEED)
            self.arguments: list[Any] = list(module.get_init_inputs())
            # Seeded again right before: get_init_inputs may have drawn numbers of its own.
            torch.manual_seed(WEIGHT_SEED)
            self._pristine = module.Model(*self.arguments)
            layout(self.arguments)
            self.reset()
        except Exception as error:
            raise TaskFailed(f"the task cannot be built: {error}") from error

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        self._model = copy.deepcopy(self._pristine).to(self._device)
        self._double = _to_double(copy.deepcopy(self._model))
        self._double_device = self._device

    def module(self) -> torch.nn.Module:
        """A copy of the module as it was made, on the device."""
        return copy.deepcopy(self._pristine).to(self._device)

    def state(self, *, now: bool = False) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name: as they were made, or as they are after the calls."""
        held = (self._model if now else self._pristine).state_dict().items()
        return {name: value for name, value in held if isinstance(value, torch.Tensor)}

    def parameters(self) -> set[str]:
        """Names in the state that are parameters and no buffers."""
        named = self._pristine.named_parameters(remove_duplicate=False)
        return {name for name, _ in named}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name until the next `reset`."""
        with torch.no_grad():
            for model in (self._model, self._double):
                held = model.state_dict()
                for name, value in state.items():
                    held[name].copy_(value)

    def inputs(self, seed: int) -> list[Any]:
        """Inputs of the task's own distribution."""
        self._seed(seed)
        try:
            with torch.device(self._device):
                made = move_to_device(list(self._get_inputs()), self._device)
            layout(made)
        except Exception as error:
            raise TaskFailed(f"get_inputs() failed: {error}") from error
        return made

    def answer(self, inputs: list[Any], seed: int) -> tuple[Any, list[torch.Tensor | None]]:
        """The reference's answer, and its tensors in double precision where they can be had.

        `seed` is what the module's own random numbers follow from.
        """
        given = inputs if self.mutates is False else _clone_inputs(inputs)
        self._seed(seed)
        before = _read_generators(self._device)
        with torch.no_grad():
            try:
                value = self._model(*given)
                layout(value)
            except Exception as error:
                raise TaskFailed(f"forward() failed: {error}") from error
            drawn = _read_generators(self._device)
            self.draws |= not all(torch.equal(a, b) for a, b in zip(before, drawn, strict=True))
            if self.mutates is None:
                pairs = zip(tensors_of(inputs), tensors_of(given), strict=True)
                self.mutates = not all(same_bits(one, other) for one, other in pairs)
            del given
            return value, self._exact(inputs, list(tensors_of(value)))

    def choices(self, inputs: list[Any], seed: int) -> list[Choice]:
        """What a call chooses indices by; a call of a copy, which nothing remembers."""
        self._seed(seed)
        model = copy.deepcopy(self._model)
        try:
            with torch.no_grad():
                own = record(lambda: model(*_clone_inputs(inputs)))
        except Exception as error:
            raise TaskFailed(f"forward() failed: {error}") from error
        if self.draws:
            return own
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            double, device = copy.deepcopy(self._double), self._double_device
            with torch.no_grad():
                wide = record(lambda: double(*_clone_inputs(inputs, double=True, device=device)))
        except Exception:
            return own  # code that fixes its element type has no other numbers to choose by
        finally:
            torch.set_default_dtype(default)
        return add_exact_values(own, wide)

    def _seed(self, seed: int) -> None:
        """Seed the generators that the task may draw from, as `torch.manual_seed` would.

        For every kind of device that is not in use, that one keeps the stack as text for later: on
        a processor it would take longer than to draw a small input.
        """
        if self._device == "cuda":
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def _exact(self, inputs: list[Any], own: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """The answer in double precision; what cannot be had so is exact as it stands.

        That is so for code that fixes its element type, and for code that draws numbers, since
        another element type draws others.
        """
        if not self.draws:
            try:
                exact = list(tensors_of(self._in_double(inputs)))
                if [t.shape for t in exact] == [t.shape for t in own]:
                    pairs = zip(own, exact, strict=True)
                    return [x if _classify(x) == _classify(t) else _to_exact(t) for t, x in pairs]
            except Exception:
                pass
        return [_to_exact(tensor) for tensor in own]

    def _in_double(self, inputs: list[Any]) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self._double(*_clone_inputs(inputs, double=True, device=self._double_device))
        except torch.OutOfMemoryError:
            if self._double_device == "cpu":
                raise
            # Twice the memory is not there on every card; the processor is slow and has it.
            self._double_device = "cpu"
            self._double = _to_double(self._double.to("cpu"))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return self._double(*_clone_inputs(inputs, double=True, device="cpu"))
        finally:
            torch.set_default_dtype(default)


def _classify(tensor: torch.Tensor) -> str:
    """Whether numbers are compared exactly (whole) or within a tolerance."""
    if tensor.is_complex():
        return "complex"
    return "floating" if tensor.is_floating_point() else "whole"


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _to_exact(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if _classify(tensor) == "whole" else _upcast(tensor)


def _read_generators(device: str) -> list[torch.Tensor]:
    """States of the generators that a call can draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def _to_double(model: torch.nn.Module) -> torch.nn.Module:
    """The module in double precision, tensors that are plain attributes included."""
    model = model.double()
    for part in model.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and _classify(value) != "whole":
                setattr(part, name, _upcast(value))
    return model


def _execute(code: str, axes: Mapping[str, Any]) -> ModuleType:
    """The task's text as a module. An axis replaces a module-level name of the same meaning."""
    module = ModuleType(_MODULE_NAME)
    sys.modules[_MODULE_NAME] = module
    exec(compile(code, f"<{_MODULE_NAME}>", "exec"), module.__dict__)
    unknown = sorted(set(axes) - set(vars(module)))
    if unknown:
        raise ValueError(f"the workload sets {', '.join(unknown)}, which the task does not define")
    vars(module).update(axes)
    return module


def _clone_inputs(
    inputs: list[Any], *, double: bool = False, device: str | None = None
) -> list[Any]:
    """Copies for one call, since a reference may write into its inputs."""

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if double and _classify(value) != "whole":
                dtype = torch.complex128 if value.is_complex() else torch.float64
            else:
                dtype = value.dtype
            return value.to(device or value.device, dtype, copy=True)
        if isinstance(value, list | tuple):
            return type(value)(copied(item) for item in value)
        return value

    return [copied(value) for value in inputs]
