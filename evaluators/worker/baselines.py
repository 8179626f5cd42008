"""Implementations of the baselines: ways of running the reference that kernels are timed against.

catalog.yaml declares their names (`baselines`); this module runs them, in the workers of the
reference alone. What a caller has to pay for in use is inside the timed call: a CUDA graph copies
the given inputs into its own before it replays, and leaves its output where the next call
overwrites it, as torch.compile's reduce-overhead mode does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evaluators.memory.tensors import copy_value, has_same_bits, has_windows, view_storage
from evaluators.memory.values import tensors_of

_WARM_UP_CALLS = 3  # reduce-overhead compiles, records and replays

Call = Callable[..., Any]


@dataclass(frozen=True)
class Baseline:
    """How a baseline of catalog.yaml runs."""

    prepare: Callable[[Any, Sequence[Any], dict[str, Any]], Call]
    """Returns a way to call a module on arguments of this layout, by position and by name."""
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


def prepare(module: Any, name: str, args: Sequence[Any], named: dict[str, Any]) -> Call:
    """Return a way to call the module on arguments of this layout, compiled and warmed up.

    Raises ValueError for an unknown name, and whatever the compiler or the capture fails with.
    """
    if name not in BASELINES:
        raise ValueError(f"no baseline is called {name}")
    call = BASELINES[name].prepare(module, args, named)
    for _ in range(_WARM_UP_CALLS):
        call(*args, **named)
    return call


def _tune_cudnn(module: Any, *_: Any) -> Call:
    torch.backends.cudnn.benchmark = True
    return module


def _compile(module: Any, *_: Any, mode: str | None = None) -> Call:
    from torch._inductor import config

    # A pool of compilers would take cores from the timing session, and needs more of the machine
    # than a worker may use.
    config.compile_threads = 1
    return torch.compile(module, mode=mode)


def _capture_graph(module: Any, args: Sequence[Any], named: dict[str, Any]) -> Call:
    held_args, held_named = held = copy_value((tuple(args), named))
    before = copy_value(held)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_CALLS):
            module(*held_args, **held_named)
    torch.cuda.current_stream().wait_stream(side)
    pairs = zip(tensors_of(held), tensors_of(before), strict=True)
    is_changed = [not has_same_bits(*pair) for pair in pairs]
    targets = list(map(_select_memory, tensors_of(held)))
    shapes = [tensor.shape for tensor in targets]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(*held_args, **held_named)

    def replay(*args: Any, **named: Any) -> Any:
        given = list(map(_select_memory, tensors_of((args, named))))
        if [tensor.shape for tensor in given] != shapes:
            return module(*args, **named)  # as a program does that keeps a graph for one size
        for target, source in zip(targets, given, strict=True):
            target.copy_(source)
        graph.replay()
        for target, source, changes in zip(targets, given, is_changed, strict=True):
            if changes:  # the caller finds the change in its own inputs
                source.copy_(target)
        return output

    return replay


def _select_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return what to copy for a tensor: one whose elements share memory cannot be written."""
    return view_storage(tensor.untyped_storage()) if has_windows(tensor) else tensor


BASELINES: dict[str, Baseline] = {
    "eager": Baseline(lambda module, *_: module, on_processor=True),
    "compile": Baseline(_compile, on_processor=True, compiles=True),
    "compile_reduce_overhead": Baseline(
        functools.partial(_compile, mode="reduce-overhead"), compiles=True
    ),
    "cuda_graph": Baseline(_capture_graph),
    "cudnn": Baseline(_tune_cudnn, owns_process=True),
}
"""The baseline of each name, the plainest first."""
