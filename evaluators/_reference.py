"""The trusted side of correctness: a task's own code, the inputs it makes, the answers it wants.

A module may remember: batch statistics, a hidden state. Both sides then have to be called alike, so
the reference answers once for every call of a candidate, in the same order, after a `reset` at the
candidate's start. A module may draw numbers in its call, as dropout does: both sides are seeded
before every call with a number that the candidate may know.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from evaluators._case import WEIGHT_SEED
from evaluators._tensors import layout, tensors_of, to_device
from evaluators.judging.choices import Choice, record, with_exact

_MODULE_NAME = "flywheel_task"
_PERTURBATION = 0.3


class ReferenceFailed(Exception):
    """The task itself cannot be built or run; never the candidate's fault."""


@dataclass(frozen=True)
class Expected:
    """What the reference answers to one set of inputs."""

    value: Any
    """The answer in the task's own element types."""
    exact: list[torch.Tensor | None]
    """The same tensors computed in double precision; None where there is no such answer."""
    inputs: Sequence[Any] = ()
    """What was answered to."""


def call_seed(seed: int) -> int:
    """The seed of a call's own random numbers: follows from the input seed, and does not tell it.

    >>> call_seed(7) == call_seed(7) != call_seed(8)
    True
    """
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:6])


class Reference:
    """One task on one device: makes inputs from seeds and answers them. Raises ReferenceFailed."""

    def __init__(self, code: str, axes: Mapping[str, Any], device: str) -> None:
        self.device = device
        self.draws = False
        """Whether a call draws random numbers; known after the first answer."""
        self.mutates: bool | None = None
        """Whether a call changes its inputs; None before the first answer."""
        self.remembers = False
        """Whether an answer depends on the calls before; whoever sees it sets it."""
        self.refused: set[str] = set()
        """Flags of the inputs that end the process in which the task's module gets them."""
        try:
            module = _executed(code, axes)
            self._get_inputs = module.get_inputs
            torch.manual_seed(WEIGHT_SEED)
            self.arguments: list[Any] = list(module.get_init_inputs())
            # Seeded again right before: get_init_inputs may have drawn numbers of its own.
            torch.manual_seed(WEIGHT_SEED)
            self._pristine = module.Model(*self.arguments)
            layout(self.arguments)
            self.reset()
        except Exception as error:
            raise ReferenceFailed(f"the task cannot be built: {error}") from error

    @property
    def repeatable(self) -> bool:
        """Whether an answer follows from the inputs alone, so that any call can be verified."""
        return not (self.draws or self.remembers)

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        self._model = copy.deepcopy(self._pristine).to(self.device)
        self._double = _doubled(copy.deepcopy(self._model))
        self._double_device = self.device

    def module(self) -> torch.nn.Module:
        """A copy of the module as it was made, on the device."""
        return copy.deepcopy(self._pristine).to(self.device)

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as they were made, by name, on the processor."""
        held = self._pristine.state_dict().items()
        return {name: value for name, value in held if isinstance(value, torch.Tensor)}

    def current_state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as they are now, after the calls, by name, on the processor."""
        held = self._model.state_dict().items()
        return {name: value.cpu() for name, value in held if isinstance(value, torch.Tensor)}

    def parameters(self) -> set[str]:
        """Names in the state that are parameters and no buffers."""
        named = self._pristine.named_parameters(remove_duplicate=False)
        return {name for name, _ in named} & set(self.state())

    def perturbed(self, seed: int) -> dict[str, torch.Tensor]:
        """The state with noise of 0.3 on what is floating. What may not be negative stays so.

        Which buffers those are (a running variance, say) is told by their first values.
        """
        noise = torch.Generator().manual_seed(seed)
        parameters = self.parameters()
        moved: dict[int, torch.Tensor] = {}
        found: dict[str, torch.Tensor] = {}
        for name, value in self.state().items():
            found[name] = value
            if not value.is_floating_point():
                continue
            if value.data_ptr() not in moved:  # tied parameters stay tied
                step = _PERTURBATION * torch.randn(value.shape, generator=noise)
                changed = value + step.to(value.dtype)
                positive = name not in parameters and bool((value >= 0).all())
                moved[value.data_ptr()] = changed.abs() if positive else changed
            found[name] = moved[value.data_ptr()]
        return found

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
            with torch.device(self.device):
                made = to_device(list(self._get_inputs()), self.device)
            layout(made)
        except Exception as error:
            raise ReferenceFailed(f"get_inputs() failed: {error}") from error
        return made

    def answer(self, inputs: list[Any], seed: int = 0) -> Expected:
        """The reference's answer, and the same in double precision where it can be had.

        `seed` is what the module's own random numbers follow from.
        """
        given = inputs if self.mutates is False else _cloned(inputs)
        self._seed(seed)
        before = _generators(self.device)
        with torch.no_grad():
            try:
                value = self._model(*given)
                layout(value)
            except Exception as error:
                raise ReferenceFailed(f"forward() failed: {error}") from error
            drawn = _generators(self.device)
            self.draws |= not all(torch.equal(a, b) for a, b in zip(before, drawn, strict=True))
            if self.mutates is None:
                pairs = zip(tensors_of(inputs), tensors_of(given), strict=True)
                self.mutates = not all(same_bits(one, other) for one, other in pairs)
            del given
            return Expected(value, self._exact(inputs, list(tensors_of(value))), inputs)

    def choices(self, inputs: list[Any], seed: int = 0) -> list[Choice]:
        """What a call chooses indices by; a call of a copy, which nothing remembers."""
        self._seed(seed)
        model = copy.deepcopy(self._model)
        try:
            with torch.no_grad():
                own = record(lambda: model(*_cloned(inputs)))
        except Exception as error:
            raise ReferenceFailed(f"forward() failed: {error}") from error
        if self.draws:
            return own
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            double, device = copy.deepcopy(self._double), self._double_device
            with torch.no_grad():
                wide = record(lambda: double(*_cloned(inputs, double=True, device=device)))
        except Exception:
            return own
        finally:
            torch.set_default_dtype(default)
        return with_exact(own, wide)

    def _seed(self, seed: int) -> None:
        """Seed the generators that the task may draw from, as `torch.manual_seed` would.

        For every kind of device that is not in use, that one keeps the stack as text for later: on
        a processor it would take longer than to draw a small input.
        """
        if self.device == "cuda":
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
                    return [x if _kind(x) == _kind(t) else _as_exact(t) for t, x in pairs]
            except Exception:
                pass
        return [_as_exact(tensor) for tensor in own]

    def _in_double(self, inputs: list[Any]) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self._double(*_cloned(inputs, double=True, device=self._double_device))
        except torch.OutOfMemoryError:
            if self._double_device == "cpu":
                raise
            # Twice the memory is not there on every card; the processor is slow and has it.
            self._double_device = "cpu"
            self._double = _doubled(self._double.to("cpu"))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return self._double(*_cloned(inputs, double=True, device="cpu"))
        finally:
            torch.set_default_dtype(default)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes, so that NaN equals itself."""
    if one.shape != other.shape:
        return False
    held = [_bytes(one), _bytes(other).to(one.device)]
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in held):
        held = [each.view(torch.int64) for each in held]  # single bytes are compared far slower
    return torch.equal(*held)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    # Of one element or none any stride counts as contiguous, but cannot be viewed otherwise.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def _kind(tensor: torch.Tensor) -> str:
    """Whether numbers are compared exactly (whole) or within a tolerance."""
    if tensor.is_complex():
        return "complex"
    return "floating" if tensor.is_floating_point() else "whole"


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _as_exact(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if _kind(tensor) == "whole" else _upcast(tensor)


def _generators(device: str) -> list[torch.Tensor]:
    """States of the generators that a call can draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def _doubled(model: torch.nn.Module) -> torch.nn.Module:
    """The module in double precision, tensors that are plain attributes included."""
    model = model.double()
    for part in model.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and _kind(value) != "whole":
                setattr(part, name, _upcast(value))
    return model


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


def _cloned(inputs: list[Any], *, double: bool = False, device: str | None = None) -> list[Any]:
    """Copies for one call, since a reference may write into its inputs."""

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if double and _kind(value) != "whole":
                dtype = torch.complex128 if value.is_complex() else torch.float64
            else:
                dtype = value.dtype
            return value.to(device or value.device, dtype, copy=True)
        if isinstance(value, list | tuple):
            return type(value)(copied(item) for item in value)
        return value

    return [copied(value) for value in inputs]
