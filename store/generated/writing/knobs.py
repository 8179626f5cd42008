"""Kernels whose speed depends on constants at the top of the file, with the choices beside each.

A knob is one such constant: a tile or block size, the number of warps, an optimization level. The
text of a kernel is the same for all settings but for these lines, such as "WARPS = 4  # 1, 4, 8",
so that a small model can turn a knob. The best setting depends on the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from store.generated.writing.draw import Draw
from store.generated.writing.module import Module, indent
from store.generated.writing.task import Kernel, Language

Choices = Mapping[str, Sequence[int]]
"""Choices by knob; the first ones together are the plainest setting."""
SIZES = ("x.shape[0]", "x.shape[1]")
"""The whole numbers of every kernel: rows and columns of x."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What is computed, in C, Triton and CUDA, in terms of knobs."""

    module: Module
    out: str
    """Expression that makes the output in C and CUDA."""
    c: Sequence[str]
    """Body of a C function; its arguments are the tensors, out, rows and cols."""
    c_functions: str
    c_choices: Choices
    """OPT is the compiler's level, and THREADS the number of threads where it is a knob."""
    triton: Sequence[str]
    """Body of a Triton kernel; the knobs are compile-time constants."""
    triton_choices: Choices
    """WARPS is the number of warps of a program."""
    triton_grid: str
    cuda: Sequence[str]
    cuda_functions: str
    cuda_choices: Choices
    cuda_grid: str
    cuda_block: str
    triton_out: str = ""
    """Expression that makes the output of the Triton kernel, where it is another one."""
    triton_result: str = "out"


_COUNTS: Mapping[Language, int] = {"cpp": 4, "triton": 6, "cuda": 4}
"""Settings of a task in each language."""


def write_kernels(draw: Draw, tuned: Tuned) -> list[Kernel]:
    """Return kernels with several settings in each language: the plainest one, and drawn ones."""
    writers = {"cpp": _write_c, "triton": _write_triton, "cuda": _write_cuda}
    choices = {
        "cpp": tuned.c_choices,
        "triton": tuned.triton_choices,
        "cuda": tuned.cuda_choices,
    }
    made: list[Kernel] = []
    for language, count in _COUNTS.items():
        for settings in _draw_settings(draw, choices[language], count):
            lines = [
                f"{name} = {value}  # {', '.join(map(str, choices[language][name]))}"
                for name, value in settings.items()
            ]
            made.append(writers[language](tuned, settings, "\n".join(lines)))
    return made


def write_wrong_kernel(tuned: Tuned) -> Kernel:
    """Return a C kernel whose answer is off by a little everywhere."""
    settings = {name: max(values) for name, values in tuned.c_choices.items()}
    kernel = _write_c(tuned, settings, "\n".join(f"{k} = {v}" for k, v in settings.items()))
    return replace(
        kernel,
        variant="wrong_offset",
        code=kernel.code.replace("return out", "return out + 0.01 * out.abs().max()"),
        right=False,
    )


def _draw_settings(draw: Draw, choices: Choices, count: int) -> list[dict[str, int]]:
    found = [{name: values[0] for name, values in choices.items()}]
    while len(found) < count:
        setting = {name: draw.choice(values) for name, values in choices.items()}
        if setting not in found:
            found.append(setting)
    return found


def _name(language: Language, settings: Mapping[str, int]) -> str:
    return f"{language}_tuned_" + "_".join(map(str, settings.values()))


def _write_c(tuned: Tuned, settings: Mapping[str, int], knobs: str) -> Kernel:
    about = "C compiled for this processor; the constants say how the work is divided."
    names = [name for name in settings if name != "OPT"]
    threads = " -fopenmp" * ("THREADS" in settings)
    defines = "".join(f" -D{name}={{{name}}}" for name in names)
    arguments = ", ".join([*(f"const float* {one}" for one in tuned.module.tensors), "float* out"])
    pointers = [f"{name}.data_ptr()" for name in [*tuned.module.addresses(), "out"]]
    lines = [
        tuned.module.contiguous(),
        f"out = {tuned.out}",
        f"RUN({', '.join([*pointers, *SIZES])})",
        "return out",
    ]
    code = f'''"""{about}"""

import ctypes
import subprocess
import tempfile

import torch
import torch.nn as nn

{knobs}

SOURCE = r"""
#include <math.h>
{tuned.c_functions}void run({arguments}, long rows, long cols) {{
{indent(tuned.c, 2)}
}}
"""
LIBRARY = tempfile.mkdtemp() + "/run.so"
COMMAND = f"gcc -O{{OPT}} -march=native -ffast-math{threads}{defines} -shared -fPIC -x c - -lm -o"
subprocess.run([*COMMAND.split(), LIBRARY], input=SOURCE.encode(), check=True)
RUN = ctypes.CDLL(LIBRARY).run
RUN.argtypes = [ctypes.c_void_p] * {len(pointers)} + [ctypes.c_long] * 2


class ModelNew(nn.Module):
{tuned.module.init()}{tuned.module.forward(lines)}
'''
    return Kernel(
        variant=_name("cpp", settings), code=code, about=about, language="cpp",
        techniques=("fusion", "tuned"),
    )  # fmt: skip


def _write_triton(tuned: Tuned, settings: Mapping[str, int], knobs: str) -> Kernel:
    about = "One Triton kernel; the constants say how the work is divided."
    names = [name for name in settings if name != "WARPS"]
    parameters = ", ".join(
        [*tuned.module.tensors, "out", "rows", "cols", *(f"{name}: tl.constexpr" for name in names)]
    )
    given = ", ".join(
        [*tuned.module.addresses(), "out", *SIZES]
        + [f"{name}={name}" for name in names]
        + ["num_warps=WARPS"]
    )
    lines = [
        tuned.module.contiguous(),
        f"out = {tuned.triton_out or tuned.out}",
        f"run[({tuned.triton_grid})]({given})",
        f"return {tuned.triton_result}",
    ]
    code = f'''"""{about}"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

{knobs}


@triton.jit
def run({parameters}):
{indent(tuned.triton, 4)}


class ModelNew(nn.Module):
{tuned.module.init()}{tuned.module.forward(lines)}
'''
    return Kernel(
        variant=_name("triton", settings), code=code, about=about, language="triton",
        techniques=("fusion", "tuned"),
    )  # fmt: skip


def _write_cuda(tuned: Tuned, settings: Mapping[str, int], knobs: str) -> Kernel:
    about = "One CUDA kernel; the constants say how the work is divided."
    defines = "".join(f"#define {name} {{{name}}}\\n" for name in settings)
    arguments = ", ".join([*(f"const float* {one}" for one in tuned.module.tensors), "float* out"])
    given = ", ".join([*tuned.module.addresses(), "out", *SIZES])
    init = tuned.module.init('self.run = torch.cuda._compile_kernel(SOURCE, "run")')
    lines = [
        tuned.module.contiguous(),
        f"out = {tuned.out}",
        f"self.run(grid=({tuned.cuda_grid}), block=({tuned.cuda_block}), args=[{given}])",
        "return out",
    ]
    code = f'''"""{about}"""

import torch
import torch.nn as nn

{knobs}

SOURCE = f"{defines}" + r"""
{tuned.cuda_functions}extern "C" __global__ void run({arguments}, int rows, int cols) {{
{indent(tuned.cuda, 2)}
}}
"""


class ModelNew(nn.Module):
{init}{tuned.module.forward(lines)}
'''
    return Kernel(
        variant=_name("cuda", settings), code=code, about=about, language="cuda",
        techniques=("fusion", "tuned"),
    )  # fmt: skip
