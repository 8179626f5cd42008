"""Implementations of the baselines: ways of running the reference that kernels are timed against.

catalog.yaml declares their names (`baselines`); this module runs them, in the workers of the
reference alone. What a caller has to pay for in use is inside the timed call: a CUDA graph copies
the given inputs into its own before it replays, and leaves its output where the next call
overwrites it, as torch.compile's reduce-overhead mode does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from evaluators.memory.tensors import tensors_of

_WARM_UP_CALLS = 3  # reduce-overhead compiles, records and replays

Call = Callable[..., Any]


@dataclass(frozen=True)
class Baseline:
    """How a baseline of catalog.yaml runs."""

    prepare: Callable[[Any, list[Any]], Call]
    """Returns a way to call a module on inputs of this layout."""
    on_processor: bool = False
    """Whether it exists on a processor as well as on a GPU."""
    compiles: bool = False
    """Whether torch.compile is at work in it."""
    owns_process: bool = False
    """Whether it changes its whole process, so that no other baseline may run there."""


def list_baselines(device: str) -> tuple[str, ...]:
    """Return the baselines that exist on a device: CUDA graphs and cuDNN need a GPU.

    >>> list_baselines("cpu")
    ('eager', 'compile')
    """
    return tuple(name for name, one in BASELINES.items() if device == "cuda" or one.on_processor)


def prepare(module: Any, name: str, inputs: list[Any]) -> Call:
    """Return a way to call the module on inputs of this layout, compiled and warmed up.

    Raises ValueError for an unknown name, and whatever the compiler or the capture fails with.
    """
    if name not in BASELINES:
        raise ValueError(f"no baseline is called {name}")
    call = BASELINES[name].prepare(module, inputs)
    for _ in range(_WARM_UP_CALLS):
        call(*inputs)
    return call


def _run_eagerly(module: Any, _: list[Any]) -> Call:
    return module


def _compile(module: Any, _: list[Any]) -> Call:
    return _compile_in_mode(module, None)


def _compile_with_reduced_overhead(module: Any, _: list[Any]) -> Call:
    return _compile_in_mode(module, "reduce-overhead")


def _tune_cudnn(module: Any, _: list[Any]) -> Call:
    torch.backends.cudnn.benchmark = True
    return module


def _compile_in_mode(module: Any, mode: str | None) -> Call:
    from torch._inductor import config

    # A pool of compilers would take cores from the timing session, and needs more of the machine
    # than a worker may use.
    config.compile_threads = 1
    return torch.compile(module, mode=mode)


def _capture_graph(module: Any, inputs: list[Any]) -> Call:
    held = _copy(inputs)
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


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value


BASELINES: dict[str, Baseline] = {
    "eager": Baseline(_run_eagerly, on_processor=True),
    "compile": Baseline(_compile, on_processor=True, compiles=True),
    "compile_reduce_overhead": Baseline(_compile_with_reduced_overhead, compiles=True),
    "cuda_graph": Baseline(_capture_graph),
    "cudnn": Baseline(_tune_cudnn, owns_process=True),
}
"""The baseline of each name, the plainest first."""
