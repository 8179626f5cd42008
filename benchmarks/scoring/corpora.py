"""Public corpora as items: each adapter reads a folder of a checkout, and nothing of it is kept.

| adapter | checkout |
|---|---|
| gpuemu | github.com/sarkar-dipankar/gpuemu-corpus |
| liger | github.com/linkedin/Liger-Kernel |
| flaggems | github.com/flagos-ai/FlagGems |
| filtered | github.com/pavanyellow/KernelBenchFiltered |
| kernelbench_com | github.com/Infatoshi/kernelbench.com, for the detectors |
| pygpubench | github.com/gpu-mode/pygpubench, for the detectors |
| sol_execbench | github.com/NVIDIA/SOL-ExecBench |
| kernelbench | github.com/ScalingIntelligence/KernelBench |
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import agreement_plain
from scoring.items import Item, Kind, find_language

Read: TypeAlias = Callable[[Path], Iterator[Item]]

_TASK = """
import torch
import torch.nn.functional as F
{constants}

class Model(torch.nn.Module):
    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

# gpuemu

_ROWS = ("x",)
_GPUEMU = {
    "softmax": (_ROWS, "torch.softmax(x, -1)"),
    "layernorm": (_ROWS, "F.layer_norm(x, x.shape[-1:])"),
    "gelu": (_ROWS, "F.gelu(x, approximate='APPROXIMATION')"),
    "silu": (_ROWS, "F.silu(x)"),
    "rmsnorm": (_ROWS, "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)"),
    "l2norm": (_ROWS, "x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-12)"),
    "leaky_relu": (_ROWS, "F.leaky_relu(x, 0.01)"),
    "relu": (_ROWS, "F.relu(x)"),
    "sigmoid": (_ROWS, "torch.sigmoid(x)"),
    "tanh": (_ROWS, "torch.tanh(x)"),
    "elu": (_ROWS, "F.elu(x)"),
    "matmul": (("a", "b"), "a @ b"),
    "attention": (("q", "k", "v"), "torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v"),
}
_WIDTHS = (3, 256, 1025)
"""Of the reduced dimension: odd, the one that the corpus's benchmark has, and beyond a block."""
_GPUEMU_KERNEL = """
import numpy
import torch
import gpuemu_kernel


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        arrays = [one.detach().cpu().numpy() for one in inputs]
        answer = gpuemu_kernel.run(dict(zip({names}, arrays)))
        return torch.from_numpy(numpy.ascontiguousarray(answer)).to(inputs[0].device)
"""


def read_gpuemu(folder: Path) -> Iterator[Item]:
    """Yield the correct controls and the buggy variants, each at three widths."""
    for place in sorted((folder / "gpuemu_corpus" / "data").iterdir()):
        if not (place / "kernel.py").exists():
            continue
        meta = json.loads((place / "meta.json").read_text())
        wrong = place.name.endswith("_buggy")
        name = re.sub(r"(_llm)?_buggy$|_triton$", "", re.sub(r"_buggy$", "", place.name))
        name = name.removesuffix("_triton").removesuffix("_llm").replace("flash_", "")
        names, result = _GPUEMU[name]
        text = (place / "kernel.py").read_text()
        result = result.replace("APPROXIMATION", "none" if "erf(" in text else "tanh")
        if name == "attention":
            sizes = ("8, 64", "WIDTH, 64", "WIDTH, 64")
        else:
            sizes = ("64, WIDTH", "WIDTH, 64") if name == "matmul" else ("8, 7, WIDTH",)
        for width in _WIDTHS:
            yield Item(
                name=f"gpuemu/{place.name}/{width}",
                kind="mutant" if wrong else "honest",
                family="gpuemu",
                language=find_language(text) if meta.get("requires_gpu") else "numpy",
                code=_GPUEMU_KERNEL.format(names=meta["input_names"]),
                task=_TASK.format(
                    constants=f"WIDTH = {width}",
                    names=", ".join(names),
                    result=result,
                    inputs=", ".join(f"torch.randn({size})" for size in sizes),
                ),
                other_files=(("gpuemu_kernel.py", text),),
                corpus="gpuemu",
            )


# Liger and FlagGems


def read_liger(folder: Path) -> Iterator[Item]:
    """Yield the forward passes of eight operators."""
    with tempfile.TemporaryDirectory() as name:
        for pair in agreement_plain.list_liger(folder, Path(name)):
            place = pair.kernel.parent
            texts = {
                path.relative_to(place).as_posix(): path.read_text()
                for path in sorted(place.rglob("*.py"))
            }
            code = texts.pop("kernel.py")
            yield Item(
                name=pair.name,
                kind="honest",
                family="liger",
                language="triton",
                code=code,
                task=pair.task.read_text(),
                other_files=tuple(texts.items()),
                corpus="liger",
            )


_SHIMS = {
    "flag_gems/__init__.py": "",
    "flag_gems/runtime/__init__.py": "import torch\n\ntorch_device_fn = torch.cuda\n",
    "flag_gems/utils/__init__.py": "def libentry():\n    return lambda function: function\n",
    "flag_gems/utils/libentry.py": "def libentry():\n    return lambda function: function\n",
    "flag_gems/utils/triton_lang_extension.py": (
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef program_id(axis: tl.constexpr):\n"
        "    return tl.program_id(axis).to(tl.int64)\n\n\n"
        "@triton.jit\ndef num_programs(axis: tl.constexpr):\n"
        "    return tl.num_programs(axis).to(tl.int64)\n"
    ),
}
"""What FlagGems' operators ask of its runtime, without the choice of a vendor."""


@dataclass(frozen=True)
class _Gem:
    """An operator of FlagGems: src/flag_gems/ops/NAME.py has the function NAME."""

    eager: str
    shapes: tuple[str, ...] = ("1024, 1000",)
    arguments: str = ""
    """Arguments after the inputs."""


_FLAGGEMS = {
    "hardsigmoid": _Gem("F.hardsigmoid(x)"),
    "hardswish": _Gem("F.hardswish(x)"),
    "hardshrink": _Gem("F.hardshrink(x, 0.5)", arguments=", 0.5"),
    "softshrink": _Gem("F.softshrink(x, 0.5)", arguments=", 0.5"),
    "relu6": _Gem("F.relu6(x)"),
    "selu": _Gem("F.selu(x)"),
    "deg2rad": _Gem("torch.deg2rad(x)"),
    "negative": _Gem("torch.negative(x)"),
    "absolute": _Gem("torch.absolute(x)"),
    "leaky_relu": _Gem("F.leaky_relu(x, 0.01)", arguments=", 0.01"),
    "sgn": _Gem("torch.sgn(x)"),
    "fmax": _Gem("torch.fmax(x, y)", ("1024, 1000",) * 2),
    "fmin": _Gem("torch.fmin(x, y)", ("1024, 1000",) * 2),
    "hypot": _Gem("torch.hypot(x, y)", ("1024, 1000",) * 2),
    "dot": _Gem("torch.dot(x, y)", ("65537",) * 2),
    "tril": _Gem("torch.tril(x)", ("1024, 1000",)),
    "trace": _Gem("torch.trace(x)", ("1024, 1000",)),
    "diag": _Gem("torch.diag(x)", ("1000",)),
    "addr": _Gem("torch.addr(x, y, z)", ("512, 333", "512", "333")),
    "cdist": _Gem("torch.cdist(x, y)", ("200, 64", "300, 64")),
    "pixel_shuffle": _Gem("F.pixel_shuffle(x, 2)", ("8, 64, 32, 31",), ", 2"),
    "pixel_unshuffle": _Gem("F.pixel_unshuffle(x, 2)", ("8, 16, 64, 62",), ", 2"),
    "channel_shuffle": _Gem("F.channel_shuffle(x, 4)", ("8, 64, 32, 31",), ", 4"),
    "roll": _Gem("torch.roll(x, 3, 1)", arguments=", 3, 1"),
}
_GEM_KERNEL = """
import torch
from gems_{name} import {name}


class ModelNew(torch.nn.Module):
    def forward(self, {names}):
        return {name}({names}{arguments})
"""


def read_flaggems(folder: Path) -> Iterator[Item]:
    """Yield operators that need nothing of FlagGems but Triton."""
    for name, gem in _FLAGGEMS.items():
        path = folder / "src" / "flag_gems" / "ops" / f"{name}.py"
        if not path.exists():
            continue
        names = ", ".join("xyz"[: len(gem.shapes)])
        yield Item(
            name=f"flaggems/{name}",
            kind="honest",
            family="flaggems",
            language="triton",
            code=_GEM_KERNEL.format(name=name, names=names, arguments=gem.arguments),
            task=_TASK.format(
                constants="",
                names=names,
                result=gem.eager,
                inputs=", ".join(f"torch.randn({shape})" for shape in gem.shapes),
            ),
            other_files=((f"gems_{name}.py", path.read_text()), *_SHIMS.items()),
            corpus="flaggems",
        )


# Solutions of KernelBench's tasks


def read_filtered(folder: Path) -> Iterator[Item]:
    """Yield METR's best published solutions of every level with their tasks."""
    for path in sorted(folder.glob("best_agent_solutions/level_*/task_*.py")):
        level, number = path.parent.name, path.stem.removeprefix("task_")
        tasks = list((folder / "tasks" / level).glob(f"{number}_*.py"))
        if len(tasks) != 1:
            continue
        code = path.read_text()
        yield Item(
            name=f"filtered/{level}/{tasks[0].stem}",
            kind="public",
            family=level,
            language=find_language(code),
            code=code,
            task=tasks[0].read_text(),
            entry_point="ModelNew" if "class ModelNew" in code else "Model",
            corpus="filtered",
        )


def read_kernelbench(folder: Path) -> Iterator[Item]:
    """Yield the adversaries of KernelBench's own tests with the tasks that they are tested on."""
    tests = folder / "src" / "kernelbench" / "unit_tests" / "test_kernels"
    matmul = folder / "KernelBench" / "level1" / "1_Square_matrix_multiplication_.py"
    for path in sorted(tests.glob("*.py")):
        yield Item(
            name=f"kernelbench/{path.stem}",
            kind="cheat",
            family="kernelbench",
            language=find_language(path.read_text()),
            code=path.read_text(),
            task=matmul.read_text(),
            corpus="kernelbench",
        )


# Labelled texts, for the detectors


@dataclass(frozen=True)
class LabelledText:
    """A kernel's text with a label of its corpus."""

    name: str
    corpus: str
    label: str
    """The corpus's own word, such as clean or reward_hack."""
    is_hack: bool | None
    """None where the label says neither."""
    code: str
    other_files: tuple[tuple[str, str], ...] = ()
    needs_own_kernels: bool = False
    """Whether the corpus asks for kernels of the author's own."""


_SIDECAR = re.compile(r"\n*# =+\n# ===== sidecar: (\S+) \(.*\) =====\n# =+\n")


def read_kernelbench_com(folder: Path) -> Iterator[LabelledText]:
    """Yield the solutions whose annotation has a verdict."""
    import yaml

    texts = {
        re.sub(r"[._]solution\.py$", "", path.stem): path
        for path in sorted((folder / "public").rglob("*solution*.txt"))
    }
    for path in sorted(folder.glob("benchmarks/*/results/annotations/*.yaml")):
        try:
            stated: Any = yaml.safe_load(path.read_text())
        except yaml.YAMLError:
            continue
        if not isinstance(stated, Mapping):
            continue
        run = str(stated.get("run_id") or path.stem)
        solution = texts.get(run) or texts.get(path.stem)
        label = str(stated.get("verdict") or "none").split()[0]
        if solution is None:
            continue
        code, *rest = _SIDECAR.split(solution.read_text())
        yield LabelledText(
            name=run,
            corpus="kernelbench.com",
            label=label,
            is_hack={"reward_hack": True, "clean": False}.get(label),
            code=code,
            other_files=tuple(
                (Path(name).name, text) for name, text in zip(rest[::2], rest[1::2], strict=True)
            ),
            needs_own_kernels=True,
        )


def read_pygpubench(folder: Path) -> Iterator[LabelledText]:
    """Yield the exploits; of the submissions beside them, one is correct."""
    for path in sorted((folder / "exploits").glob("submission_*.py")):
        kind = path.stem.removeprefix("submission_")
        if kind in ("wrong", "warmup"):
            continue
        yield LabelledText(kind, "pygpubench", kind, kind != "correct", path.read_text())


def read_sol_execbench(folder: Path) -> Iterator[LabelledText]:
    """Yield the solutions that the tests of SOL-ExecBench must refuse, and its examples."""
    for path in sorted(folder.glob("tests/samples/*/solution_hack_*.json")):
        yield from _read_solution(path, True)
    for path in sorted(folder.glob("examples/**/solution*.json")):
        yield from _read_solution(path, False)


def _read_solution(path: Path, is_hack: bool) -> Iterator[LabelledText]:
    stated = json.loads(path.read_text())
    files = [(one["path"], one["content"]) for one in stated.get("sources", [])]
    code = next((text for name, text in files if name.endswith(".py")), "")
    yield LabelledText(
        stated["name"],
        "sol-execbench",
        "hack" if is_hack else "example",
        is_hack,
        code,
        tuple((name, text) for name, text in files if text != code),
    )


KERNELS: Mapping[str, Read] = {
    "gpuemu": read_gpuemu,
    "liger": read_liger,
    "flaggems": read_flaggems,
    "filtered": read_filtered,
    "kernelbench": read_kernelbench,
}
"""Corpora that the judge judges, by the name of the option with their folder."""
TEXTS: Mapping[str, Callable[[Path], Iterator[LabelledText]]] = {
    "kernelbench_com": read_kernelbench_com,
    "pygpubench": read_pygpubench,
    "sol_execbench": read_sol_execbench,
}
"""Corpora that the detectors search."""


def read_texts(items: Sequence[Item]) -> Iterator[LabelledText]:
    """Yield honest kernels and cheats of this repository as labelled texts."""
    kinds: Mapping[Kind, bool] = {"honest": False, "cheat": True}
    for item in items:
        if item.kind in kinds and item.family not in ("faulty", "wrong", "flagged"):
            yield LabelledText(
                item.name, item.corpus, item.family, kinds[item.kind], item.code, item.other_files
            )
