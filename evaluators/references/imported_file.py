"""The file of a candidate or a task, as a module of its worker."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from evaluators.memory.values import register_records
from evaluators.references.generators import seed_generators
from evaluators.references.weight_seed import WEIGHT_SEED

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
