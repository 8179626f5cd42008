"""Compiling in a worker: failed builds are remembered, and a GPU is pretended where there is none.

Ninja remembers successful builds but not failed ones, so that it compiles the failing file of an
extension every time. Half of the released CUDA-L1 kernels that call load_inline have such an
extension, and continue without it.

Many candidates compile an extension only if torch reports a GPU, in a constructor that puts tensors
on it, or in the first call with an input there. Tensors then say that they are on a GPU and stay
where they are. A call gets inputs without data, so it computes nothing, and what it raises after
compiling does not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from evaluators.worker import RECORD

_SOURCES = {".ninja", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp"}
_UNLUCKY = (
    *("Killed", "No space left", "out of memory", "annot allocate", "bad_alloc", "quota exceeded"),
    *("not found", "cannot execute", "Read-only file system", "ermission denied", "Python.h"),
    *("annot open temporary", "cannot create", "cannot find -l", "unsupported GNU version"),
)
"""Messages of a compiler that fails because of the machine, not because of the sources."""
_MOST_BYTES = 1 << 20


def remember_failures() -> None:
    """Make torch.utils.cpp_extension record failed builds and repeat a recorded failure.

    The record is in the build directory and applies to its present sources and commands.
    """
    from torch.utils import cpp_extension

    build = cpp_extension._run_ninja_build  # pyright: ignore[reportPrivateUsage]

    def run_build(build_directory: str, verbose: bool, error_prefix: str) -> None:
        record = Path(build_directory, RECORD)
        digest = hashlib.sha256()
        for file in sorted(Path(build_directory).iterdir()):
            if file.suffix in _SOURCES and file.is_file():
                for part in (file.name.encode(), file.read_bytes()):
                    digest.update(len(part).to_bytes(8, "big") + part)
        made_of = digest.hexdigest()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            failure = json.loads(record.read_text("utf-8"))
            if failure["made_of"] == made_of:
                raise RuntimeError(failure["message"])
        try:
            build(build_directory, verbose, error_prefix)
        except RuntimeError as error:
            message = str(error)
            if "error" in message and not any(one in message for one in _UNLUCKY):
                text = json.dumps({"made_of": made_of, "message": message[-_MOST_BYTES:]})
                with contextlib.suppress(OSError):
                    record.write_text(text, "utf-8")
            raise

    cpp_extension._run_ninja_build = run_build  # pyright: ignore[reportPrivateUsage]


_FACTS: Mapping[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "synchronize": None,
}
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


class _PretendedGpu(TorchFunctionMode):
    """Lets every tensor say that it is on a GPU, and keeps it where it is."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        if func == _IS_CUDA:  # each lookup makes another object
            return True
        if func is torch.Tensor.cuda:
            return args[0]
        here = args[0].device if args and isinstance(args[0], torch.Tensor) else "cpu"
        named = {name: _replace(value, here) for name, value in (kwargs or {}).items()}
        return func(*(_replace(value, here) for value in args), **named)


def pretend_gpu() -> None:
    """Make torch report a GPU in this process from here on."""
    for name, fact in _FACTS.items():
        setattr(torch.cuda, name, _make_constant(fact))
    _PretendedGpu().__enter__()


def _make_constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def call_without_data(module: Any, inputs: Sequence[Any]) -> None:
    """Call a module on inputs without data; raises what the call raises.

    inputs: for a tensor, the name of its element type and its shape in a list; plain values.
    """
    if isinstance(module, torch.nn.Module):
        module = module.to("meta")
    given: list[Any] = []
    for described in inputs:
        match described:
            case [str(dtype), *shape]:
                given.append(torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
            case _:
                given.append(described)
    module(*given)


def _replace(value: Any, here: torch.device | str) -> Any:
    """Return a device here in place of a GPU; other values stay."""
    names_gpu = isinstance(value, torch.device) and value.type == "cuda"
    if names_gpu or (isinstance(value, str) and value.partition(":")[0] == "cuda"):
        return here
    return value
