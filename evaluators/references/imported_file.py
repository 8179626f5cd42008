"""The file of a candidate or a task as a module of its worker, and its random generators."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, cast

import numpy.random
import torch
from numpy.random import bit_generator

from evaluators.memory.values import register_records
from evaluators.references.weight_seed import WEIGHT_SEED

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
