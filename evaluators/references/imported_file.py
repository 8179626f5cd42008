"""The file of a candidate or a task as a module of its worker, and what its modules hold.

`Module.to` and `Module.double` leave plain attributes, lists, dicts and closures as they are. A
tensor that was a view of a weight, such as `self.w = self.linear.weight.t()`, would then stay
behind with the old weight. `move_module` and `widen_module` take such tensors with them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy.random
import torch
from numpy.random import bit_generator
from torch import Tensor

from evaluators.memory.tensors import count_extent, tensors_of
from evaluators.memory.values import register_records

WEIGHT_SEED = 42
"""Public: candidates match weights by it."""


GENERATORS = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
"""Types of generators that foreign code may hold."""


def seed_generators(seed: int, device: str) -> None:
    """Seed every generator of the process, on the device as well.

    numpy seeds a generator that is made without a seed by the system's random numbers. From here on
    it draws that seed from Python's generator, so that such draws are repeatable too.
    """
    bit_generator.__dict__["randbits"] = random.getrandbits
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
    # torch.manual_seed takes longer than drawing a small input, since it records the stack for
    # every kind of device that is not in use.
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.manual_seed_all(seed)


def read_generators(device: str, held: Iterable[Any]) -> list[Any]:
    """Return the states of the generators of the process and of some others, to be compared."""
    states: list[Any] = [torch.get_rng_state(), numpy.random.get_state(), random.getstate()]
    if device == "cuda":
        states.append(torch.cuda.get_rng_state())
    for generator in held:
        if isinstance(generator, torch.Generator):
            states.append(generator.get_state())
        elif isinstance(generator, numpy.random.Generator):
            states.append(generator.bit_generator.state)
        elif isinstance(generator, numpy.random.RandomState):
            states.append(generator.get_state())
        else:
            states.append(generator.getstate())
    return _freeze(states)


def _freeze(value: Any) -> Any:
    """Return a state that `==` can compare."""
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, numpy.ndarray):
        return cast("Any", value).tobytes()
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_freeze(item) for item in cast("list[Any]", value)]
    return value


_NAME = "candidate"
_FROM_NUMPY = torch.from_numpy


def import_file(path: str, names: Mapping[str, Any], device: str) -> ModuleType:
    """Run a file as a module under the public seed, then replace module-level names by `names`.

    Each import gives another module object. The latest is the one that `import candidate` returns.
    """
    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    seed_generators(WEIGHT_SEED, device)
    spec.loader.exec_module(module)
    vars(module).update(names)
    register_records(module)
    return module


def place_new_tensors(device: str) -> None:
    """Make tensors for which the code names no device on this one, also those of numpy's arrays."""
    torch.set_default_device(device)
    torch.from_numpy = lambda array: _FROM_NUMPY(array).to(device)


_MOST_DEPTH = 32


@dataclass(frozen=True)
class _View:
    part: torch.nn.Module
    name: str
    """Name of the parameter or buffer in this part of the module."""
    offset: int
    """Elements between the beginnings of the two."""


def move_module(module: torch.nn.Module, device: str) -> torch.nn.Module:
    """Return the module on a device, with the tensors that are views of its weights.

    Other tensors stay where they are, as under `Module.to`.
    """
    if device == "cpu" or isinstance(module, torch.jit.ScriptModule):
        return module.to(device)
    views = _find_views(module, [module])

    def move(tensor: Tensor) -> Tensor:
        return _follow(views[id(tensor)], tensor) if id(tensor) in views else tensor

    moved = module.to(device)
    map_held_tensors([moved], move)
    return moved


def widen_module(
    module: torch.nn.Module, namespace: dict[str, Any], device: str | None = None
) -> torch.nn.Module:
    """Return the module in double precision, with all tensors that it and a namespace hold.

    With `device`, all of them are on it; otherwise each stays where it is.
    """
    roots = [module, namespace]
    views = _find_views(module, roots)

    def widen(tensor: Tensor) -> Tensor:
        if id(tensor) in views:
            return _follow(views[id(tensor)], tensor)
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor.to(device or tensor.device)
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        return tensor.detach().to(device or tensor.device, wide)

    widened = module.double() if device is None else module.double().to(device)
    map_held_tensors(roots, widen)
    return widened


def iterate_held(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield every object that is reachable from some modules and namespaces, once."""
    held: list[Any] = []

    def visit(value: Any) -> Any:
        held.append(value)
        return value

    _Walk(visit).run(roots)
    yield from held


def share_storages(value: Any, roots: Iterable[Any]) -> bool:
    """Whether some modules and namespaces hold a tensor in the memory of a value's tensors."""
    own = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(value) if tensor.numel()}
    return any(
        isinstance(held, Tensor)
        and held.layout is torch.strided
        and held.untyped_storage().data_ptr() in own
        for held in iterate_held(roots)
    )


def map_held_tensors(roots: Iterable[Any], change: Callable[[Tensor], Tensor]) -> None:
    """Replace each reachable tensor that is neither a parameter nor a buffer."""
    roots = list(roots)
    owned = {
        id(tensor)
        for root in roots
        if isinstance(root, torch.nn.Module)
        for _, _, tensor in _iterate_owned(root)
    }

    def visit(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) and id(value) not in owned else value

    _Walk(visit).run(roots)


class _Walk:
    """Visits the objects that are reachable by attributes, containers and closures.

    It reads them by the operations of their plain types, and runs no code of theirs. What `visit`
    returns for an object takes its place.
    """

    def __init__(self, visit: Callable[[Any], Any]) -> None:
        self._visit = visit
        self._results: dict[int, tuple[Any, Any]] = {}
        """Each object that has been visited, which keeps its number, and what took its place."""

    def run(self, roots: Iterable[Any]) -> None:
        for root in roots:
            self._walk(root, 0)

    def _walk(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | float | str | bytes | type | ModuleType):
            return value
        if id(value) in self._results:
            return self._results[id(value)][1]
        self._results[id(value)] = (value, value)
        result = self._visit(value)
        if result is value and depth < _MOST_DEPTH:
            result = self._descend(value, depth + 1)
        self._results[id(value)] = (value, result)
        return result

    def _descend(self, value: Any, depth: int) -> Any:
        if isinstance(value, Tensor | torch.jit.ScriptModule | torch.jit.ScriptFunction):
            return value
        if isinstance(value, dict):
            self._walk_items(cast("dict[Any, Any]", value), depth)
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            for index, item in enumerate(list.copy(items)):
                changed = self._walk(item, depth)
                if changed is not item:
                    items[index] = changed
        elif isinstance(value, tuple):
            items = cast("tuple[Any, ...]", value)
            changed_items = [self._walk(item, depth) for item in tuple.__iter__(items)]
            if any(a is not b for a, b in zip(items, changed_items, strict=True)):
                kind = cast("Any", type(items))
                return kind(*changed_items) if hasattr(kind, "_fields") else kind(changed_items)
        elif isinstance(value, FunctionType):
            for cell in value.__closure__ or ():
                try:
                    held = cell.cell_contents
                except ValueError:  # a variable that has no value yet
                    continue
                changed = self._walk(held, depth)
                if changed is not held:
                    cell.cell_contents = changed
        elif isinstance(value, MethodType):
            self._walk(value.__self__, depth)
        elif isinstance(value, functools.partial):
            partial = cast("functools.partial[Any]", value)
            self._walk(partial.func, depth)
            for argument in (*partial.args, *partial.keywords.values()):
                self._walk(argument, depth)
        with contextlib.suppress(AttributeError):  # an object of slots has none
            self._walk_items(object.__getattribute__(value, "__dict__"), depth)
        return value

    def _walk_items(self, items: dict[Any, Any], depth: int) -> None:
        for key, item in list(dict.items(items)):
            if isinstance(key, str) and key.startswith("__"):  # what every Python module has
                continue
            changed = self._walk(item, depth)
            if changed is not item:
                items[key] = changed


def _iterate_owned(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, Tensor]]:
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            yield part, name, parameter
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False):
            yield part, name, buffer


def _find_views(module: torch.nn.Module, roots: Iterable[Any]) -> dict[int, _View]:
    """Return the tensors beside parameters and buffers that are in the memory of one of these."""
    owners = {
        entry[2].untyped_storage().data_ptr(): entry
        for entry in _iterate_owned(module)
        if entry[2].layout is torch.strided and _count_spanned(entry[2]) == entry[2].numel() > 0
    }
    views: dict[int, _View] = {}
    for tensor in iterate_held(roots):
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            continue
        entry = owners.get(tensor.untyped_storage().data_ptr())
        if entry is None or tensor is entry[2] or tensor.dtype != entry[2].dtype:
            continue
        part, name, owner = entry
        offset = int(tensor.storage_offset() - owner.storage_offset())
        if offset >= 0 and offset + _count_spanned(tensor) <= owner.numel():
            views[id(tensor)] = _View(part, name, offset)
    return views


def _follow(view: _View, tensor: Tensor) -> Tensor:
    """Return the tensor in the present memory of the parameter or buffer that it is a view of."""
    owner: Tensor = getattr(view.part, view.name)
    start = owner.storage_offset() + view.offset
    return owner.detach().as_strided(tensor.shape, tensor.stride(), start)


def _count_spanned(tensor: Tensor) -> int:
    """Return the elements between the first and the last one in memory, with both."""
    return count_extent(tensor.shape, tensor.stride()) if tensor.numel() else 0
