"""A task's own code: its inputs, answers and weights. Runs in the task's worker only.

A module may remember earlier calls, for example in batch statistics. The reference therefore
answers once for every call of a candidate, in the same order, after a `reset` at the candidate's
start. A module may draw random numbers in its call, as dropout does. Both sides are therefore
seeded before every call, with a number that the candidate may know.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch

from evaluators.memory.tensors import (
    compute_fingerprint,
    has_same_bits,
    layout,
    move_to_device,
    tensors_of,
)
from evaluators.references.choices import Choice, add_exact_values, record
from evaluators.references.weight_seed import WEIGHT_SEED

_MODULE_NAME = "flywheel_task"
_COPIED = (torch.nn.Module, torch.Tensor)
"""What is copied out of closures."""


class TaskFailed(Exception):
    """The task's own code fails; the text says which part."""


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
            # Seeded again, because get_init_inputs may have drawn numbers of its own.
            torch.manual_seed(WEIGHT_SEED)
            self._pristine = module.Model(*self.arguments)
            layout(self.arguments)
            self.reset()
        except Exception as error:
            raise TaskFailed(f"the task cannot be built: {error}") from error

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        self._model = _copy_module(self._pristine).to(self._device)
        self._double = _to_double(_copy_module(self._model))
        self._double_device = self._device

    def module(self) -> torch.nn.Module:
        """Return a copy of the module as it was made, on the device."""
        return _copy_module(self._pristine).to(self._device)

    def state(self, *, now: bool = False) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name: as made, or with `now` as after the calls."""
        held = (self._model if now else self._pristine).state_dict().items()
        return {name: value for name, value in held if isinstance(value, torch.Tensor)}

    def parameters(self) -> set[str]:
        """Return the names in the state that are parameters and not buffers."""
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
        """Return inputs of the task's own distribution."""
        self._seed(seed)
        try:
            with torch.device(self._device):
                made = move_to_device(list(self._get_inputs()), self._device)
            layout(made)
        except Exception as error:
            raise TaskFailed(f"get_inputs() failed: {error}") from error
        return made

    def answer(self, inputs: list[Any], seed: int) -> tuple[Any, list[torch.Tensor | None]]:
        """Return the reference's answer, and its tensors in double precision where that works.

        `seed` is the seed of the module's own random numbers.
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
                self.mutates = not all(has_same_bits(one, other) for one, other in pairs)
            del given
            return value, self._compute_exact(inputs, list(tensors_of(value)))

    def value(self, inputs: list[Any], seed: int) -> Any:
        """Return the reference's answer in its own precision."""
        given = inputs if self.mutates is False else _clone_inputs(inputs)
        self._seed(seed)
        with torch.no_grad():
            try:
                value = self._model(*given)
                layout(value)
            except Exception as error:
                raise TaskFailed(f"forward() failed: {error}") from error
        return value

    def count_bytes(self, seed: int) -> tuple[int, int] | None:
        """Return the bytes of a call's inputs and of its answer; None if they need a real call.

        Nothing is computed: the module is called on the meta device.
        """
        try:
            self._seed(seed)
            with torch.device("meta"), torch.no_grad():
                inputs = move_to_device(list(self._get_inputs()), "meta")
                answer = _copy_module(self._pristine).to("meta")(*inputs)
            return _sum_bytes(inputs), _sum_bytes(answer)
        except Exception:
            return None

    def depends_on_tf32(self, seed: int) -> bool:
        """Whether the answer to new inputs changes with the flag for TF32 in convolutions."""
        inputs = self.inputs(seed)

        def answer(allowed: bool) -> str:
            torch.backends.cudnn.allow_tf32 = allowed
            model = self.module()
            self._seed(seed)
            with torch.no_grad():
                return compute_fingerprint(model(*_clone_inputs(inputs)))

        before = torch.backends.cudnn.allow_tf32
        try:
            return answer(True) != answer(False)
        except Exception as error:
            raise TaskFailed(f"forward() failed: {error}") from error
        finally:
            torch.backends.cudnn.allow_tf32 = before

    def choices(self, inputs: list[Any], seed: int) -> list[Choice]:
        """Return the choices of indices in a call of a copy, which leaves no memory of it."""
        self._seed(seed)
        model = _copy_module(self._model)
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
            double, device = _copy_module(self._double), self._double_device
            with torch.no_grad():
                wide = record(lambda: double(*_clone_inputs(inputs, double=True, device=device)))
        except Exception:
            return own  # code that fixes its element type has no numbers in double precision
        finally:
            torch.set_default_dtype(default)
        return add_exact_values(own, wide)

    def _seed(self, seed: int) -> None:
        """Seed the generators that the task may draw from, as `torch.manual_seed` would.

        On a processor, torch.manual_seed takes longer than drawing a small input, since it records
        the stack for every kind of device that is not in use.
        """
        if self._device == "cuda":
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def _compute_exact(
        self, inputs: list[Any], own: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the answer in double precision, or its own numbers where that is impossible.

        It is impossible for code that fixes its element type, and for code that draws numbers,
        since another element type draws others.
        """
        if not self.draws:
            try:
                exact = list(tensors_of(self._run_in_double(inputs)))
                if [t.shape for t in exact] == [t.shape for t in own]:
                    pairs = zip(own, exact, strict=True)
                    return [x if _classify(x) == _classify(t) else _to_exact(t) for t, x in pairs]
            except Exception:
                pass
        return [_to_exact(tensor) for tensor in own]

    def _run_in_double(self, inputs: list[Any]) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self._double(*_clone_inputs(inputs, double=True, device=self._double_device))
        except torch.OutOfMemoryError:
            if self._double_device == "cpu":
                raise
            # Not every GPU has twice the memory; the processor is slow but has enough.
            self._double_device = "cpu"
            self._double = _to_double(self._double.to("cpu"))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return self._double(*_clone_inputs(inputs, double=True, device="cpu"))
        finally:
            torch.set_default_dtype(default)


def _classify(tensor: torch.Tensor) -> str:
    """Return the kind of numbers; whole ones are compared exactly, others with a tolerance."""
    if tensor.is_complex():
        return "complex"
    return "floating" if tensor.is_floating_point() else "whole"


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _to_exact(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if _classify(tensor) == "whole" else _upcast(tensor)


def _read_generators(device: str) -> list[torch.Tensor]:
    """Return the states of the generators that a call can draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def _sum_bytes(value: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(value))


def _copy_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in which `self.f = lambda x: part(x)` calls the copy of `part`.

    copy.deepcopy keeps functions as they are, and with them the modules of their closures.
    """
    memo: dict[int, Any] = {}
    copied = copy.deepcopy(module, memo)
    for part in copied.modules():
        for name, value in vars(part).items():
            if isinstance(value, FunctionType) and value.__closure__:
                setattr(part, name, _copy_function(value, memo))
    return copied


def _copy_function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """Return a function whose closure holds copies of modules and tensors.

    memo: Of copy.deepcopy, with the copies that exist. Other contents, such as an imported Python
    module, may have no copy and are shared.
    """
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    cells = [
        CellType(copy.deepcopy(value, memo) if isinstance(value, _COPIED) else value)
        for value in held
    ]
    own = (function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copied = FunctionType(*own, tuple(cells))
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _to_double(model: torch.nn.Module) -> torch.nn.Module:
    """Return the module in double precision, including tensors that are plain attributes."""
    model = model.double()
    for part in model.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and _classify(value) != "whole":
                setattr(part, name, _upcast(value))
    return model


def _execute(code: str, axes: Mapping[str, Any]) -> ModuleType:
    """Run the task's code as a module; axes replace module-level names."""
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
    """Return copies for one call, since a reference may write into its inputs."""

    def copy_value(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if double and _classify(value) != "whole":
                dtype = torch.complex128 if value.is_complex() else torch.float64
            else:
                dtype = value.dtype
            return value.to(device or value.device, dtype, copy=True)
        if isinstance(value, list | tuple):
            return type(value)(copy_value(item) for item in value)
        return value

    return [copy_value(value) for value in inputs]
