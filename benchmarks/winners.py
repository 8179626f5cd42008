"""Winners in use: time to load one, of its guards in a call, and of a transformer block with them.

`python benchmarks/winners.py [--on cuda] [--lake URL]` measures with the winners of a lake's tasks
gelu_scale_bias and rms_norm_residual. Without --lake, it makes a lake in which kernels of the
starter suite have won on this machine, so that it measures guards and not kernels. The block is
kernelized by Hugging Face's `kernels` if that is installed, and otherwise in the same way by hand.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import store
from evaluators.winners.loading import import_package
from store.exporters import hub_kernels
from store.exporters.writing.run import export


def measure(
    calls: list[Callable[[], Any]], repeats: int, inner: int, synchronize: Callable[[], None]
) -> list[float]:
    """Return the shortest time of each call in µs; they take turns, `inner` calls at a time."""
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for number, call in enumerate(calls):
            synchronize()
            start = time.perf_counter()
            for _ in range(inner):
                call()
            synchronize()
            best[number] = min(best[number], (time.perf_counter() - start) / inner * 1e6)
    return best


def main() -> None:
    """Print the three measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--lake")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    synchronize: Callable[[], None] = (
        torch.cuda.synchronize if options.on == "cuda" else lambda: None
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = options.lake
        if url is None:
            from winner_lakes import make_lake

            axes = {"gelu_scale_bias": {"ROWS": 1024, "COLS": 2048}}
            url = make_lake(folder / "lake", axes=axes)
        with store.open(url) as lake:
            tasks = "task IN ('gelu_scale_bias', 'rms_norm_residual')"
            export(lake, hub_kernels, folder / "out", hub_kernels.Config(where=tasks))
        start = time.perf_counter()
        packages = {
            task: import_package(
                folder / "out" / task.replace("_", "-") / "build" / "torch-universal"
            )
            for task in ("rms_norm_residual", "gelu_scale_bias")
        }
        print(f"load: {(time.perf_counter() - start) / len(packages) * 1e3:.0f} ms for each winner")
        with torch.no_grad():
            measure_guards(packages["rms_norm_residual"], options.on, synchronize)
            measure_block(folder / "out", packages, options.on, synchronize)


def measure_guards(package: Any, device: str, synchronize: Callable[[], None]) -> None:
    """Print what a guard takes beyond a call of the kernel, which here does nothing."""
    winner = package.rms_norm_residual
    setting = next(one for one in winner._settings.values() if one._on_cuda == (device == "cuda"))
    inputs = [torch.randn(shape, device=device) for shape, *_ in setting.form]
    module = setting.build(setting.model).to(device)
    module.forward = MethodType(package.layers.RmsNormResidual.forward, module)
    weight = module.weight.detach()
    winner(*inputs, weight=weight)
    module(*inputs)
    kernels, usual = winner._tables.kernels, winner._tables.usual
    if not any(kernels.values()):
        print("guard: no kernel of the lake has won on this device")
        return

    def nothing(*_: Any) -> None: ...

    for key, one in kernels.items():
        kernels[key] = one and (nothing, *one[1:])
    for key, (*fast, one) in usual.items():
        usual[key] = (*fast, (nothing, *one[1:]))
    calls = [
        lambda: nothing(*inputs),
        lambda: winner(*inputs, weight=weight),
        lambda: module.forward(*inputs),
        lambda: inputs[0].reshape(-1),
    ]
    plain, function, layer, operation = measure(calls, 100, 300, lambda: None)
    print(
        f"guard: function {function - plain:.1f} µs, layer {layer - plain:.1f} µs over a plain call"
    )
    print(f"       one reshape of PyTorch takes {operation - plain:.1f} µs here")
    kernels.clear()
    usual.clear()


class Block(torch.nn.Module):
    """A feed-forward part of a transformer, of the tasks' modules."""

    def __init__(
        self, norm: torch.nn.Module, gelu: torch.nn.Module, width: int, hidden: int
    ) -> None:
        super().__init__()
        self.norm, self.gelu = norm, gelu
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return the block's answer."""
        return x + self.down(self.gelu(self.up(self.norm(x, residual))))


def measure_block(
    folder: Path, packages: dict[str, Any], device: str, synchronize: Callable[[], None]
) -> None:
    """Print the time of a block before and after, and of the parts that are replaced."""
    layers = {"rms_norm_residual": "RmsNormResidual", "gelu_scale_bias": "GeluScaleBias"}
    winners = {task: getattr(packages[task], task) for task in layers}
    settings = {
        task: next(
            (one for one in winner._settings.values() if one._on_cuda == (device == "cuda")),
            winner._first,
        )
        for task, winner in winners.items()
    }
    norm_shape = settings["rms_norm_residual"].form[0][0]
    gelu_shape = settings["gelu_scale_bias"].form[0][0]
    if norm_shape[0] != gelu_shape[0]:
        print(f"block: its parts were judged at {norm_shape[0]} and {gelu_shape[0]} rows")
        return
    norm, gelu = (setting.build(setting.model) for setting in settings.values())
    block = Block(norm, gelu, norm_shape[1], gelu_shape[1]).to(device)
    x, residual = (torch.randn(norm_shape, device=device) for _ in range(2))
    hidden = torch.randn(gelu_shape, device=device)
    plain = copy.deepcopy(block)
    how = replace(block, folder, packages, layers, device)
    block(x, residual)  # a first call returns the task's own answer
    want, got = plain(x, residual), block(x, residual)
    error = float((got - want).abs().max() / want.abs().max())
    calls: list[Callable[[], Any]] = [
        lambda: plain(x, residual),
        lambda: plain.norm(x, residual),
        lambda: plain.gelu(hidden),
        lambda: block(x, residual),
        lambda: block.norm(x, residual),
        lambda: block.gelu(hidden),
    ]
    repeats, inner = (200, 10) if device == "cuda" else (7, 1)
    times = measure(calls, repeats, inner, synchronize)
    before, after = times[:3], times[3:]
    saved = [old - new for old, new in zip(before, after, strict=True)]
    print(f"block: by {how}; the largest difference is {error:.1e} of the largest element")
    for name, old, new in zip(("block", *layers), before, after, strict=True):
        print(f"       {name:18} {old:9.1f} µs, with winners {new:9.1f} µs: {old / new:.2f} times")
    print(f"       the parts save {sum(saved[1:]):.1f} µs, and the block {saved[0]:.1f} µs")


def replace(
    block: Block, folder: Path, packages: dict[str, Any], layers: dict[str, str], device: str
) -> str:
    """Put the winners' layers into a block; return by what."""
    parts = dict(zip(layers, (block.norm, block.gelu), strict=True))
    if importlib.util.find_spec("kernels") is None:
        for task, part in parts.items():
            layer = getattr(packages[task].layers, layers[task])
            part.forward = MethodType(layer.forward, part)  # as kernelize does
        return "hand"
    import kernels  # pyright: ignore[reportMissingImports]

    mapping: dict[str, Any] = {}
    for task, part in parts.items():
        repository = kernels.LocalLayerRepository(
            folder / task.replace("_", "-"), layer_name=layers[task]
        )
        kernels.replace_kernel_forward_from_hub(type(part), layers[task])
        mapping[layers[task]] = {device: repository}
    with kernels.use_kernel_mapping(mapping):
        kernels.kernelize(block, mode=kernels.Mode.INFERENCE, device=device)
    return f"kernels {kernels.__version__}"


if __name__ == "__main__":
    main()
