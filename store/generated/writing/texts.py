"""How a task and its kernels become short files: torch, C through ctypes, Triton, CUDA by NVRTC.

C is compiled from its standard input without a header of torch, and called by ctypes; NVRTC and
Triton need no host compiler. No path includes the headers of torch, which is what takes long. It is
C and not C++ since even <math.h> takes g++ several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from store.generated.writing import words
from store.generated.writing.task import Draw, Task, TeacherKernel

PLAIN = "-O1"
"""What a first try is compiled with: no vectors."""
VECTOR = "-O3 -march=native -ffast-math"
THREADS = f"{VECTOR} -fopenmp"
ROWS_COLS = ("rows=x.shape[0]", "cols=x.shape[1]")
"""The whole numbers of a kernel over a matrix x."""
PRAGMA = "#pragma omp parallel for num_threads(threads)"
WARP_GRID = "(x.shape[0] + 7) // 8, 1, 1"
"""The grid of a CUDA kernel that gives a row to each of the 8 warps of a block."""
WARP_ROW = (
    "const int r = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
    "if (r >= rows) return;",
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """What the reference and its kernels have in common."""

    inputs: tuple[str, ...] = ("x",)
    params: tuple[str, ...] = ()
    """Parameters of one value per column."""

    def write_methods(self, lines: Sequence[str], *init: str) -> str:
        """Return the constructor, where there is something to construct, and `forward`."""
        init = (*(f"self.{name} = nn.Parameter(torch.randn(cols))" for name in self.params), *init)
        head = "    def __init__(self, cols):" if self.params else "    def __init__(self):"
        constructor = f"{head}\n{indent(['super().__init__()', *init], 8)}\n\n" if init else ""
        forward = f"    def forward(self, {', '.join(self.inputs)}):\n{indent(lines, 8)}"
        return constructor + forward


def add_offset(name: str, by: int) -> str:
    """Return an index with a number added, such as "r - 1"."""
    return name if by == 0 else f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def indent(lines: Sequence[str], depth: int) -> str:
    """Return lines as one text, each indented by `depth` spaces."""
    blank = " " * depth
    return "\n".join(blank + part for line in lines for part in line.split("\n"))


def write_task(
    draw: Draw,
    *,
    title: str,
    level: int,
    module: Module,
    lines: Sequence[str],
    sizes: Mapping[str, int],
    shapes: Sequence[str] = ("ROWS, COLS",),
    bound: str,
    kernels: Sequence[TeacherKernel],
    cuda: Mapping[str, int | Sequence[int]],
    steps: int | None = None,
) -> Task:
    """Return a task whose reference is `lines`, which leave the answer in v.

    Args:
        draw: What decides about sizes for a GPU, and about a kernel that some tasks have more.
        title: What it computes.
        level: As in `Task`, like `kernels` and `steps`.
        module: Its inputs and parameters.
        lines: Statements of `forward`.
        sizes: Module-level names and their values; COLS is the constructor's argument.
        shapes: Shape of each input, such as "ROWS, COLS".
        bound: What the computation needs at least, as `words.describe_reference` takes it.
        kernels: The teacher's kernels.
        cuda: Sizes for a GPU, or choices to draw from; only names of `sizes` are kept.
        steps: Number of elementwise steps.
    """
    kernels = list(kernels)
    if steps is None and not draw.integer_below(3):
        # A C kernel that asks its library for a function of another name.
        right = next(kernel for kernel in kernels if kernel.language == "cpp" and kernel.right)
        code = right.code.replace("(LIBRARY).run", "(LIBRARY).launch")
        kernels.append(replace(right, variant="wrong_symbol", code=code))
    drawn = {
        name: size if isinstance(size, int) else draw.choice(size) for name, size in cuda.items()
    }
    constants = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    inputs = ", ".join(f"torch.randn({shape})" for shape in shapes)
    code = f'''"""{title}."""

import torch
import torch.nn as nn
{_import_functional(lines)}
{constants}


class Model(nn.Module):
{module.write_methods([*lines, "return v"])}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{"COLS" if module.params else ""}]
'''
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, bound),
        cuda={name: size for name, size in drawn.items() if name in sizes},
        kernels=tuple(kernels),
        steps=steps,
    )


def _import_functional(lines: Sequence[str]) -> str:
    return "import torch.nn.functional as F\n" * any("F." in line for line in lines)


def write_torch(
    variant: str,
    about: str,
    module: Module,
    lines: Sequence[str],
    techniques: tuple[str, ...] = (),
) -> TeacherKernel:
    """Return a kernel in PyTorch operations, whose statements leave the answer in v."""
    return write_body(variant, about, module, [*lines, "return v"], techniques)


def write_body(
    variant: str, about: str, module: Module, lines: Sequence[str], techniques: tuple[str, ...]
) -> TeacherKernel:
    """Return a kernel in PyTorch operations, from all statements of `forward`."""
    code = f'''"""{about}"""

import torch
import torch.nn as nn
{_import_functional(lines)}

class ModelNew(nn.Module):
{module.write_methods(lines)}
'''
    return TeacherKernel(variant, code, about, "torch", techniques)


def write_rewrite(module: Module, lines: Sequence[str]) -> TeacherKernel:
    """Return the reference in fewer or cheaper PyTorch operations, which leave it in v."""
    about = "PyTorch operations that make fewer temporary tensors."
    return write_torch("torch_rewrite", about, module, lines, ("inplace",))


def write_row_loop(module: Module, lines: Sequence[str], rows: int) -> TeacherKernel:
    """Return the reference applied to `rows` rows at a time by a loop in Python."""
    about, technique = "A Python loop over single rows.", "python_loop"
    if rows > 1:
        about = f"A Python loop over {rows} rows at a time, so that temporaries stay in cache."
        technique = "cache_blocking"
    split = [f"{name}.split({rows})" for name in module.inputs]
    source = split[0] if len(split) == 1 else f"zip({', '.join(split)})"
    body = [
        "parts = []",
        f"for {', '.join(module.inputs)} in {source}:",
        *(f"    {line}" for line in [*lines, "parts.append(v)"]),
        "return torch.cat(parts)",
    ]
    return write_body(f"torch_rows_{rows}", about, module, body, (technique,))


def write_rounded(module: Module, lines: Sequence[str]) -> TeacherKernel:
    """Return the reference on inputs that are rounded to bfloat16, which is wrong."""
    about = "PyTorch operations on inputs in bfloat16."
    rounded = [f"{name} = {name}.bfloat16()" for name in module.inputs]
    for line in lines:
        for name in module.params:
            line = line.replace(f"self.{name}", f"self.{name}.bfloat16()")
        rounded.append(line)
    rounded.append("return v.float()")
    return write_body("wrong_bfloat16", about, module, rounded, ("low_precision",))


@dataclass(frozen=True)
class Program:
    """What kernels of a task in C, Triton or CUDA have in common.

    A kernel is the body of a function `run`. Its arguments are the tensors of the module, `out`,
    and the whole numbers of `sizes`.
    """

    module: Module
    out: str
    """Expression that makes the output."""
    sizes: Sequence[str] = ROWS_COLS
    """Name and expression of each whole number; in CUDA they fit 32 bits."""
    functions: str = ""
    """Functions that the body calls."""
    knobs: str = ""
    """Constants that the text states, and that decide how the work is divided."""

    def write_c(
        self,
        variant: str,
        about: str,
        source: Sequence[str],
        flags: str,
        techniques: tuple[str, ...] = (),
    ) -> TeacherKernel:
        """Return a kernel in C that is compiled with `flags` when its file is imported.

        Where they are THREADS, `threads` is the last whole number.
        """
        sizes = self._split_sizes()
        if flags == THREADS:
            sizes.append(("threads", "torch.get_num_threads()"))
            techniques = (*techniques, "threads")
        tensors = self._name_tensors()
        addresses = (
            ", ".join(f"{name}.data_ptr()" for name in tensors)
            if len(tensors) < 3 or self.knobs
            else f"*(t.data_ptr() for t in ({', '.join(tensors)}))"
        )
        call = f"RUN({', '.join([addresses, *(value for _, value in sizes)])})"
        calls_maths = bool(self.knobs) or "f(" in self.functions + "\n".join(source)
        maths = "#include <math.h>\n" * calls_maths
        command = f'{"f" * bool(self.knobs)}"gcc {flags} -shared -fPIC -x c - -lm -o"'
        code = f'''"""{about}"""

import ctypes
import subprocess
import tempfile

import torch
import torch.nn as nn
{self._state_knobs()}
SOURCE = r"""
{maths}{self.functions}void run({self._declare("long", sizes)}) {{
{indent(source, 2)}
}}
"""
LIBRARY = tempfile.mkdtemp() + "/run.so"
COMMAND = {command}
subprocess.run([*COMMAND.split(), LIBRARY], input=SOURCE.encode(), check=True)
RUN = ctypes.CDLL(LIBRARY).run
RUN.argtypes = [ctypes.c_void_p] * {len(tensors)} + [ctypes.c_long] * {len(sizes)}


class ModelNew(nn.Module):
{self._write_methods(call)}
'''
        return TeacherKernel(variant, code, about, "cpp", techniques)

    def write_c_levels(
        self,
        about: str,
        source: Sequence[str],
        techniques: tuple[str, ...],
        scalar: tuple[str, ...] = (),
    ) -> list[TeacherKernel]:
        """Return a kernel over rows in C as a first try, with vectors, and also with threads.

        `scalar` are the techniques of the first try.
        """
        threads = f"{about}, vectorised, rows on several threads."
        return [
            self.write_c("cpp_scalar", f"{about}, one element at a time.", source, PLAIN, scalar),
            self.write_c(
                "cpp_vector", f"{about}, vectorised by the compiler.", source, VECTOR, techniques
            ),
            self.write_c("cpp_threads", threads, [PRAGMA, *source], THREADS, techniques),
        ]

    def write_triton(
        self,
        variant: str,
        about: str,
        source: Sequence[str],
        techniques: tuple[str, ...],
        *,
        grid: str,
        constants: Mapping[str, str],
        warps: int | str = 4,
        result: str = "out",
    ) -> TeacherKernel:
        """Return a kernel in Triton; `constants` are its compile-time constants and their values.

        4 warps are Triton's own default. The answer is `result`.
        """
        sizes = self._split_sizes()
        parameters = [*self.module.inputs, *self.module.params, "out", *(name for name, _ in sizes)]
        parameters += [f"{name}: tl.constexpr" for name in constants]
        arguments = [*self._name_tensors(), *(value for _, value in sizes)]
        arguments += [f"{name}={value}" for name, value in constants.items()]
        arguments += [f"num_warps={warps}"] * (warps != 4)
        code = f'''"""{about}"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
{self._state_knobs()}

@triton.jit
def run({", ".join(parameters)}):
{indent(source, 4)}


class ModelNew(nn.Module):
{self._write_methods(f"run[({grid})]({', '.join(arguments)})", result)}
'''
        return TeacherKernel(variant, code, about, "triton", techniques)

    def write_triton_rows(
        self, about: str, source: Sequence[str], counts: Sequence[int], techniques: tuple[str, ...]
    ) -> list[TeacherKernel]:
        """Return kernels of a Triton program a row, with some numbers of warps each."""
        return [
            self.write_triton(
                f"triton_row_{warps}",
                f"{about}; {warps} warp{'s' * (warps > 1)}.",
                source,
                techniques,
                grid="x.shape[0],",
                constants={"BLOCK": "triton.next_power_of_2(x.shape[1])"},
                warps=warps,
            )
            for warps in counts
        ]

    def write_cuda(
        self,
        variant: str,
        about: str,
        source: Sequence[str],
        techniques: tuple[str, ...],
        *,
        grid: str,
        block: str = "256, 1, 1",
        defines: str = "",
    ) -> TeacherKernel:
        """Return a kernel in CUDA C++ that NVRTC compiles when the module is constructed."""
        sizes = self._split_sizes()
        arguments = ", ".join([*self._name_tensors(), *(value for _, value in sizes)])
        call = f"self.run(grid=({grid}), block=({block}), args=[{arguments}])"
        init = 'self.run = torch.cuda._compile_kernel(SOURCE, "run")'
        code = f'''"""{about}"""

import torch
import torch.nn as nn
{self._state_knobs()}
SOURCE = {defines}r"""
{self.functions}extern "C" __global__ void run({self._declare("int", sizes)}) {{
{indent(source, 2)}
}}
"""


class ModelNew(nn.Module):
{self._write_methods(call, "out", init)}
'''
        return TeacherKernel(variant, code, about, "cuda", techniques)

    def _state_knobs(self) -> str:
        return f"\n{self.knobs}\n" if self.knobs else ""

    def _split_sizes(self) -> list[tuple[str, str]]:
        return [(name, value) for name, _, value in (size.partition("=") for size in self.sizes)]

    def _name_tensors(self) -> list[str]:
        """Return the tensors and `out` as the forward method names them."""
        return [*self.module.inputs, *(f"self.{name}" for name in self.module.params), "out"]

    def _declare(self, whole: str, sizes: Sequence[tuple[str, str]]) -> str:
        tensors = (*self.module.inputs, *self.module.params)
        pointers = [*(f"const float* {name}" for name in tensors), "float* out"]
        return ", ".join([*pointers, *(f"{whole} {name}" for name, _ in sizes)])

    def _write_methods(self, call: str, result: str = "out", *init: str) -> str:
        inputs = self.module.inputs
        contiguous = f"{', '.join(inputs)} = {', '.join(f'{name}.contiguous()' for name in inputs)}"
        lines = [contiguous, f"out = {self.out}", call, f"return {result}"]
        return self.module.write_methods(lines, *init)
