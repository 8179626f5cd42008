"""Random generators that foreign code draws from: torch's, numpy's and Python's own."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, cast

import numpy.random
import torch
from numpy.random import bit_generator

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
    if device == "cuda":
        torch.manual_seed(seed)
    else:
        # On a processor, torch.manual_seed takes longer than drawing a small input, since it
        # records the stack for every kind of device that is not in use.
        torch.default_generator.manual_seed(seed)


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
