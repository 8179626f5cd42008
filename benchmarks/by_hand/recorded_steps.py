"""Steps of `generate` as one CUDA graph, by hand: what benchmarks/sampling.py compares with.

A small model's forward pass for one token is hundreds of small kernels, and launching them takes
longer than running them. With a cache of fixed size (`StaticCache`), every such pass runs the same
kernels on the same addresses. It is recorded once per `generate` and replayed after that.
torch.compile records as well, but compiles for each shape of a batch; this takes two passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

SETTINGS = {"cache_implementation": "static", "disable_compile": True}
"""Settings of `generate` with which `replay_steps` takes effect."""


@contextlib.contextmanager
def replay_steps(model: PreTrainedModel) -> Generator[None]:
    """Record the model's first pass for a single token, and replay it for those that follow.

    For one call of `generate` with `SETTINGS`; other passes run as they do without this. Weights
    may change between two such calls, not within one.
    """
    forward, step = model.forward, None

    def stepwise(*args: Any, **given: Any) -> Any:
        nonlocal step
        tokens, cache = given.get("input_ids"), given.get("past_key_values")
        several = any(isinstance(value, dict) for value in given.values())  # of masks, by layer
        if args or several or tokens is None or tokens.shape[1] > 1 or not _is_static(cache):
            return forward(*args, **given)
        if step is None:
            step = _Step(forward, given)
        return step(given)

    own = "forward" in vars(model)  # Accelerate puts one of its own into the instance
    model.forward = stepwise
    try:
        yield
    finally:
        if own:
            model.forward = forward
        else:
            del model.forward


class _Step:
    """A recorded pass."""

    def __init__(self, forward: Callable[..., Any], given: dict[str, Any]) -> None:
        import torch

        self._held = {
            name: value.clone() for name, value in given.items() if isinstance(value, torch.Tensor)
        }
        given = given | self._held
        lengths: list[torch.Tensor] = [
            layer.cumulative_length for layer in given["past_key_values"].layers
        ]
        before = [length.clone() for length in lengths]
        # Libraries set themselves up in a first pass, which a recording must not hold.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            forward(**given)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._made = forward(**given)
        for length, value in zip(lengths, before, strict=True):
            length.copy_(value)

    def __call__(self, given: dict[str, Any]) -> Any:
        """Return what the pass gives: it is overwritten by the next one."""
        for name, held in self._held.items():
            held.copy_(given[name])
        self._graph.replay()
        return self._made


def _is_static(cache: Cache | None) -> bool:
    """Return whether a cache holds all of its state in tensors that stay where they are."""
    from transformers.cache_utils import StaticLayer

    layers: list[Any] = getattr(cache, "layers", [])
    return bool(layers) and all(type(layer) is StaticLayer for layer in layers)
