"""Baselines: ways to run the reference that a kernel is compared to. A candidate's worker has none.

Costs that a caller has in use are inside the timed call: a CUDA graph copies the given inputs into
its own before it replays. It leaves its output where the next call overwrites it, as
torch.compile's reduce-overhead mode does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from evaluators.memory.tensors import tensors_of

NAMES = ("eager", "compile", "compile_reduce_overhead", "cuda_graph", "cudnn")
"""Every baseline, the plainest first."""
_WARM_UP_CALLS = 3  # reduce-overhead compiles, records and replays

Call = Callable[..., Any]


def names(device: str) -> tuple[str, ...]:
    """Return the baselines of a device; a processor has no CUDA graphs and no cuDNN."""
    return NAMES if device == "cuda" else NAMES[:2]


def prepare(module: Any, name: str, inputs: list[Any]) -> Call:
    """Return a way to call the module on inputs of this layout, compiled and warmed up.

    Raises ValueError for an unknown name, and whatever the compiler or the capture fails with.
    """
    match name:
        case "eager":
            call: Call = module
        case "compile":
            call = _compile(module, None)
        case "compile_reduce_overhead":
            call = _compile(module, "reduce-overhead")
        case "cuda_graph":
            call = _capture_graph(module, inputs)
        case "cudnn":
            # Set for the whole process, which has no other baseline (`judging.bench`).
            torch.backends.cudnn.benchmark = True
            call = module
        case _:
            raise ValueError(f"no baseline is called {name}")
    for _ in range(_WARM_UP_CALLS):
        call(*inputs)
    return call


def _compile(module: Any, mode: str | None) -> Call:
    from torch._inductor import config

    # A pool of compilers would take cores from the timing session, and needs more of the machine
    # than a worker may use.
    config.compile_threads = 1
    return torch.compile(module, mode=mode)


def _capture_graph(module: Any, inputs: list[Any]) -> Call:
    held = _copy_value(inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_CALLS):
            module(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(*held)
    targets = list(tensors_of(held))

    def replay(*given: Any) -> Any:
        for target, source in zip(targets, tensors_of(list(given)), strict=True):
            target.copy_(source)
        graph.replay()
        return output

    return replay


def _copy_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_copy_value(item) for item in value)
    return value
