"""A GPU that code seems to have where there is none, so that it compiles what it compiles for one.

Many candidates compile an extension only if torch reports a GPU, in a constructor that puts tensors
on it, or in the first call with an input there. Tensors say here that they are on a GPU and stay
where they are. A call gets inputs without data, so it computes nothing, and what it raises after
compiling does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

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
    module(*(_make_input(one) for one in inputs))


def _make_input(described: Any) -> Any:
    match described:
        case [str(dtype), *shape]:
            return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        case _:
            return described


def _replace(value: Any, here: torch.device | str) -> Any:
    """Return a device here in place of a GPU; other values stay."""
    names_gpu = isinstance(value, torch.device) and value.type == "cuda"
    if names_gpu or (isinstance(value, str) and value.partition(":")[0] == "cuda"):
        return here
    return value
