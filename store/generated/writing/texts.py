"""How a kernel becomes one short file: torch, C through ctypes, Triton, and CUDA by NVRTC.

C is compiled from its standard input without a header of torch, and called by ctypes; NVRTC and
Triton need no host compiler. No path includes the headers of torch, which is what takes long. It is
C and not C++ since even <math.h> takes g++ several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict, Unpack

from store.generated.writing.module import Module, import_functional, indent
from store.generated.writing.task import Kernel

PLAIN = "-O1"
"""What a first try is compiled with: no vectors."""
VECTOR = "-O3 -march=native -ffast-math"
THREADS = f"{VECTOR} -fopenmp"
ROWS_COLS = ("rows=x.shape[0]", "cols=x.shape[1]")
"""The whole numbers of a kernel over a matrix x."""
PRAGMA = "#pragma omp parallel for num_threads(threads)"


class Labels(TypedDict):
    """What tells a kernel from the others of its task."""

    variant: str
    techniques: tuple[str, ...]
    right: NotRequired[bool]


def torch_kernel(
    about: str,
    module: Module,
    lines: Sequence[str],
    **labels: Unpack[Labels],
) -> Kernel:
    """Return a kernel in PyTorch operations; `labels` are as in `Kernel`."""
    code = f'''"""{about}"""

import torch
import torch.nn as nn
{import_functional(lines)}

class ModelNew(nn.Module):
{module.init()}{module.forward(lines)}
'''
    return Kernel(code=code, about=about, language="torch", **labels)


def cpp_kernel(
    about: str,
    module: Module,
    source: Sequence[str],
    *,
    out: str,
    sizes: Sequence[str],
    flags: str,
    device: str = "",
    **labels: Unpack[Labels],
) -> Kernel:
    """Return a kernel in C that is compiled when its file is imported.

    Args:
        about: What it does.
        module: Its inputs and parameters.
        source: Lines before the body of `run`, then "{", then the body. The tensors, `out`, and
            whole numbers called as in `sizes` are its arguments, `threads` the last of them where
            the flags ask for OpenMP.
        out: Expression that makes the output.
        sizes: Name and expression of each whole number, such as "rows=x.shape[0]".
        flags: Flags of the compiler.
        device: Lines before the body; the functions that it calls.
        labels: As in `Kernel`.
    """
    named = [size.split("=", 1) for size in sizes]
    if "-fopenmp" in flags:
        named.append(["threads", "torch.get_num_threads()"])
    arguments = ", ".join(
        [*(f"const float* {name}" for name in module.tensors), "float* out"]
        + [f"long {name}" for name, _ in named]
    )
    pointers = [*module.addresses(), "out"]
    call = (
        ", ".join(f"{name}.data_ptr()" for name in pointers)
        if len(pointers) < 3
        else f"*(t.data_ptr() for t in ({', '.join(pointers)}))"
    )
    lines = [
        module.contiguous(),
        f"out = {out}",
        f"RUN({', '.join([call, *(value for _, value in named)])})",
        "return out",
    ]
    maths = "#include <math.h>\n" if "f(" in device + "\n".join(source) else ""
    code = f'''"""{about}"""

import ctypes
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
{maths}{device}void run({arguments}) {{
{indent(source, 2)}
}}
"""
LIBRARY = tempfile.mkdtemp() + "/run.so"
COMMAND = "gcc {flags} -shared -fPIC -x c - -lm -o"
subprocess.run([*COMMAND.split(), LIBRARY], input=SOURCE.encode(), check=True)
RUN = ctypes.CDLL(LIBRARY).run
RUN.argtypes = [ctypes.c_void_p] * {len(pointers)} + [ctypes.c_long] * {len(named)}


class ModelNew(nn.Module):
{module.init()}{module.forward(lines)}
'''
    return Kernel(code=code, about=about, language="cpp", **labels)


def triton_kernel(
    about: str,
    module: Module,
    source: Sequence[str],
    *,
    out: str,
    sizes: Sequence[str],
    grid: str,
    meta: Mapping[str, str],
    warps: int = 4,
    **labels: Unpack[Labels],
) -> Kernel:
    """Return a kernel in Triton.

    Args:
        about: What it does.
        module: Its inputs and parameters.
        source: Body of the kernel; its arguments are the tensors, `out`, the whole numbers called
            as in `sizes`, and the compile-time constants of `meta`.
        out: Expression that makes the output.
        sizes: Name and expression of each whole number.
        grid: The grid's sizes, such as "x.shape[0],".
        meta: Compile-time constants and their values.
        warps: Warps of a program; 4 is Triton's own default.
        labels: As in `Kernel`.
    """
    named = [size.split("=", 1) for size in sizes]
    arguments = ", ".join(
        [*module.tensors, "out", *(name for name, _ in named)]
        + [f"{name}: tl.constexpr" for name in meta]
    )
    given = [*module.addresses(), "out", *(value for _, value in named)]
    given += [f"{name}={value}" for name, value in meta.items()]
    given += [f"num_warps={warps}"] * (warps != 4)
    lines = [
        module.contiguous(),
        f"out = {out}",
        f"run[({grid})]({', '.join(given)})",
        "return out",
    ]
    code = f'''"""{about}"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def run({arguments}):
{indent(source, 4)}


class ModelNew(nn.Module):
{module.init()}{module.forward(lines)}
'''
    return Kernel(code=code, about=about, language="triton", **labels)


def cuda_kernel(
    about: str,
    module: Module,
    source: Sequence[str],
    *,
    out: str,
    sizes: Sequence[str],
    grid: str,
    block: str = "256, 1, 1",
    device: str = "",
    **labels: Unpack[Labels],
) -> Kernel:
    """Return a kernel in CUDA C++ that NVRTC compiles when the module is constructed.

    Args:
        about: What it does.
        module: Its inputs and parameters.
        source: Body of the kernel; its arguments are the tensors, `out`, and the whole numbers
            called as in `sizes`.
        out: Expression that makes the output.
        sizes: Name and expression of each whole number; they fit 32 bits.
        grid: The grid's three sizes.
        block: The block's three sizes.
        device: Functions that the body calls.
        labels: As in `Kernel`.
    """
    named = [size.split("=", 1) for size in sizes]
    arguments = ", ".join(
        [*(f"const float* {name}" for name in module.tensors), "float* out"]
        + [f"int {name}" for name, _ in named]
    )
    given = ", ".join([*module.addresses(), "out", *(value for _, value in named)])
    lines = [
        module.contiguous(),
        f"out = {out}",
        f"self.run(grid=({grid}), block=({block}), args=[{given}])",
        "return out",
    ]
    code = f'''"""{about}"""

import torch
import torch.nn as nn

SOURCE = r"""
{device}extern "C" __global__ void run({arguments}) {{
{indent(source, 2)}
}}
"""


class ModelNew(nn.Module):
{module.init('self.run = torch.cuda._compile_kernel(SOURCE, "run")')}{module.forward(lines)}
'''
    return Kernel(code=code, about=about, language="cuda", **labels)


def function(steps: Sequence[str], name: str = "pre", qualifier: str = "static") -> str:
    """Return a C function of one float from statements on v; nothing where there are none."""
    if not steps:
        return ""
    return f"{qualifier} float {name}(float v) {{\n{indent([*steps, 'return v;'], 2)}\n}}\n"
