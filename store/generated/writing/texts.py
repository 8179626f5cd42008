"""How a kernel becomes one short file: torch, C through ctypes, Triton, and CUDA by NVRTC.

C is compiled from its standard input without a header of torch, and called by ctypes; NVRTC and
Triton need no host compiler. No path includes the headers of torch, which is what takes long. It is
C and not C++ since even <math.h> takes g++ several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from store.generated.writing.task import Kernel

PLAIN = "-O1"
"""What a first try is compiled with: no vectors."""
VECTOR = "-O3 -march=native -ffast-math"
THREADS = f"{VECTOR} -fopenmp"
ROWS_COLS = ("rows=x.shape[0]", "cols=x.shape[1]")
"""The whole numbers of a kernel over a matrix x."""
PRAGMA = "#pragma omp parallel for num_threads(threads)"


@dataclass(frozen=True, kw_only=True)
class Module:
    """What the reference and its kernels have in common."""

    inputs: tuple[str, ...] = ("x",)
    params: tuple[str, ...] = ()
    """Parameters of one value per column."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names in order: inputs, then parameters."""
        return (*self.inputs, *self.params)

    def forward(self, lines: Sequence[str]) -> str:
        """Return the forward method."""
        return f"    def forward(self, {', '.join(self.inputs)}):\n" + _block(lines, 8)

    def init(self, *lines: str) -> str:
        """Return the constructor; nothing where there is nothing to construct."""
        made = [f"self.{name} = nn.Parameter(torch.randn(cols))" for name in self.params]
        if not (made or lines):
            return ""
        head = "    def __init__(self, cols):" if self.params else "    def __init__(self):"
        return head + "\n" + _block(["super().__init__()", *made, *lines], 8) + "\n\n"

    def contiguous(self) -> str:
        """Return the statement that makes the inputs contiguous."""
        names = ", ".join(self.inputs)
        return f"{names} = " + ", ".join(f"{name}.contiguous()" for name in self.inputs)

    def addresses(self) -> list[str]:
        """Return the tensors as the forward method names them, without the output."""
        return [*self.inputs, *(f"self.{name}" for name in self.params)]


def reference(
    about: str,
    module: Module,
    lines: Sequence[str],
    sizes: Mapping[str, int],
    shapes: Sequence[str],
) -> str:
    """Return the text of a task.

    Args:
        about: What it computes.
        module: Its inputs and parameters.
        lines: Statements of `forward`.
        sizes: Module-level names and their values; COLS is the constructor's argument.
        shapes: Shape of each input, such as "ROWS, COLS".
    """
    stated = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    inputs = ", ".join(f"torch.randn({shape})" for shape in shapes)
    given = "COLS" if module.params else ""
    return f'''"""{about}"""

import torch
import torch.nn as nn
{_functional(lines)}
{stated}


class Model(nn.Module):
{module.init()}{module.forward(lines)}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
'''


def torch_kernel(
    about: str,
    module: Module,
    lines: Sequence[str],
    *,
    variant: str,
    techniques: tuple[str, ...],
    right: bool = True,
) -> Kernel:
    """Return a kernel in PyTorch operations; `variant` and what follows it are as in `Kernel`."""
    code = f'''"""{about}"""

import torch
import torch.nn as nn
{_functional(lines)}

class ModelNew(nn.Module):
{module.init()}{module.forward(lines)}
'''
    return Kernel(
        variant=variant,
        code=code,
        about=about,
        language="torch",
        techniques=techniques,
        right=right,
    )


def cpp_kernel(
    about: str,
    module: Module,
    source: Sequence[str],
    *,
    out: str,
    sizes: Sequence[str],
    flags: str,
    device: str = "",
    variant: str,
    techniques: tuple[str, ...],
    right: bool = True,
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
        variant, techniques, right: As in `Kernel`.
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
{_block(source, 2)}
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
    return Kernel(
        variant=variant,
        code=code,
        about=about,
        language="cpp",
        techniques=techniques,
        right=right,
    )


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
    variant: str,
    techniques: tuple[str, ...],
    right: bool = True,
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
        variant, techniques, right: As in `Kernel`.
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
{_block(source, 4)}


class ModelNew(nn.Module):
{module.init()}{module.forward(lines)}
'''
    return Kernel(
        variant=variant,
        code=code,
        about=about,
        language="triton",
        techniques=techniques,
        right=right,
    )


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
    variant: str,
    techniques: tuple[str, ...],
    right: bool = True,
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
        variant, techniques, right: As in `Kernel`.
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
{_block(source, 2)}
}}
"""


class ModelNew(nn.Module):
{module.init('self.run = torch.cuda._compile_kernel(SOURCE, "run")')}{module.forward(lines)}
'''
    return Kernel(
        variant=variant,
        code=code,
        about=about,
        language="cuda",
        techniques=techniques,
        right=right,
    )


def function(steps: Sequence[str], name: str = "pre", qualifier: str = "static") -> str:
    """Return a C function of one float from statements on v; nothing where there are none."""
    if not steps:
        return ""
    return f"{qualifier} float {name}(float v) {{\n{_block([*steps, 'return v;'], 2)}\n}}\n"


def _functional(lines: Sequence[str]) -> str:
    used = any("F." in line for line in lines)
    return "import torch.nn.functional as F\n" if used else ""


def _block(lines: Sequence[str], depth: int) -> str:
    blank = " " * depth
    return "\n".join(blank + line for one in lines for line in one.split("\n"))
