"""A generated task and its kernels, as texts, and the draws from a seed that decide about them.

C is compiled from its standard input without a header of torch, and called by ctypes; NVRTC and
Triton need no host compiler. No path includes the headers of torch, which is what takes long. It is
C and not C++ since even <math.h> takes g++ several times as long.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

_T = TypeVar("_T")
Language: TypeAlias = Literal["torch", "cpp", "triton", "cuda"]


@dataclass(frozen=True)
class TeacherKernel:
    """One kernel of the teacher."""

    variant: str
    """Name among the kernels of the task."""
    code: str
    about: str
    """What it does; the first line of the text."""
    language: Language
    techniques: tuple[str, ...]
    """What makes it fast or slow."""

    @property
    def right(self) -> bool:
        """Whether it is meant to be right; others are meant to fail."""
        return not self.variant.startswith("wrong_")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task with right kernels of different speed, and some that are wrong."""

    title: str
    level: int
    """1 one operation, 2 a chain, 3 a chain with a reduction."""
    code: str
    analysis: str
    """Where the reference spends its time."""
    cuda: dict[str, int]
    """Sizes for a GPU: names of the text and the values that replace them."""
    kernels: tuple[TeacherKernel, ...]
    steps: int | None = None
    """Number of elementwise steps; None in families that cannot be asked for a number of them."""


class Draw:
    """A sequence of draws: every number is a hash of the key and its place, on every machine."""

    def __init__(self, *key: str | int) -> None:
        self._key = "\0".join(str(part) for part in key)
        self._count = 0

    def integer_below(self, count: int) -> int:
        """Return a whole number from 0 to `count` - 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._key}\0{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % count

    def choice(self, options: Sequence[_T]) -> _T:
        """Return one of the options."""
        return options[self.integer_below(len(options))]

    def number(self, low: float, high: float) -> float:
        """Return a number of two decimals between `low` and `high`."""
        least, most = round(low * 100), round(high * 100)
        return (least + self.integer_below(most - least + 1)) / 100

    def sizes(
        self, rows: Sequence[int], cols: Sequence[int], least: int, most: int
    ) -> dict[str, int]:
        """Return ROWS and COLS with a product from `least` to `most`."""
        pairs = [(r, c) for r in rows for c in cols if least <= r * c <= most]
        return dict(zip(("ROWS", "COLS"), self.choice(pairs), strict=True))


# What the teacher says: where a reference spends its time, and why a kernel is fast or slow.

ROW_ALONE = (
    "What is computed of a row depends on that row alone, and its {row_kb} kB stay in cache or "
    "registers, so that x has to be read from memory only once."
)
TWO_ORDERS = (
    "x is needed in one order and y in the other, so that a plain loop goes through one of them by "
    "steps of a whole row and uses little of each cache line."
)
_VIEWS = ("t", "transpose", "diagonal")
_BUILT = {
    "cpp": "gcc compiles the source when the file is imported, and ctypes calls it.",
    "cuda": "NVRTC compiles the source when the module is constructed.",
}
_TECHNIQUES = {
    "block_size": "The block size decides how many programs there are and how much each does.",
    "cache_blocking": "What a block computes is small enough to be read back from cache.",
    "coalesced": "Reads go to neighbouring addresses, so that whole cache lines are used.",
    "edge_split": "In the interior every neighbour is there and needs no test.",
    "fusion": "No temporary tensor goes through memory between the steps.",
    "inplace": "Where an operation can work in place, or one call does several steps, it is used.",
    "instruction_parallelism": "Additions that do not depend on each other overlap.",
    "library_call": "One call of the library replaces several operations.",
    "low_precision": "Rounding halves what the steps read and loses precision.",
    "parallel_scan": "Parts of a running sum are made in parallel and then added up.",
    "python_loop": "Every turn of the loop pays for calling its operations again.",
    "row_in_registers": "The row stays in registers from its load to its store.",
    "shared_memory": "Threads of a block exchange values through shared memory.",
    "skips_zeros": "Most or all of the product that cannot reach the answer is left out.",
    "threads": "The work is shared among as many threads as PyTorch uses.",
    "tiling": "Elements of a tile share the cache lines that they are read from.",
    "tuned": "Which constants are the best depends on the sizes.",
    "unrolling": "The loads of a thread do not wait for each other.",
    "vectorised": "-O3 -march=native -ffast-math let the compiler use vector instructions.",
    "warp_shuffle": "Threads of a warp combine values by shuffles, without a barrier.",
}


def describe_reference(
    lines: Sequence[str], sizes: Mapping[str, int], shapes: Sequence[str], bound: str
) -> str:
    """Return where a reference spends its time.

    Args:
        lines: Its statements.
        sizes: Names of sizes and their values.
        shapes: Shape of each input, such as "ROWS, COLS".
        bound: What the computation needs at least; {row_kb} is replaced by the size of a row.
    """
    count = count_operations(lines)
    made = (
        "The reference is one PyTorch operation."
        if count == 1
        else f"The reference is {count} PyTorch operations one after another, each of which reads "
        "its operands from memory and writes a new tensor."
    )
    numbers = sum(math.prod(sizes[name] for name in shape.split(", ")) for shape in shapes)
    inputs = "input takes" if len(shapes) == 1 else "inputs take"
    row_kb = f"{4 * sizes.get('COLS', 0) / 1000:.1f}"
    return f"{made} Its {inputs} {4 * numbers / 1000:,.0f} kB. {bound.format(row_kb=row_kb)}"


def describe_kernel(kernel: TeacherKernel) -> str:
    """Return what a kernel does and why."""
    built = [_BUILT[kernel.language]] if kernel.language in _BUILT else []
    return " ".join([kernel.about, *built, *(_TECHNIQUES[name] for name in kernel.techniques)])


def count_operations(lines: Sequence[str]) -> int:
    """Return the number of operations on tensors in statements, views left out.

    >>> count_operations(["v = torch.relu(x.t() * 2.0)", "v = 1.0 / (v + v)"])
    4
    """
    return sum(_count_in_node(node) for node in ast.parse("\n".join(lines)).body)


def _count_in_node(node: ast.AST) -> int:
    if isinstance(node, ast.Subscript):
        return _count_in_node(node.value)  # an index is none
    own = 0
    if isinstance(node, ast.Call):
        own = isinstance(node.func, ast.Attribute) and node.func.attr not in _VIEWS
    elif isinstance(node, ast.BinOp):
        own = not (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant))
    elif isinstance(node, ast.UnaryOp):
        own = not isinstance(node.operand, ast.Constant)
    return own + sum(map(_count_in_node, ast.iter_child_nodes(node)))


# How a task and its kernels become short files.

PLAIN = "-O1"
"""What a first try is compiled with: no vectors."""
VECTOR = "-O3 -march=native -ffast-math"
THREADS = f"{VECTOR} -fopenmp"
COLS = {"cols": "x.shape[1]"}
"""The arguments of a kernel that takes only the length of a row."""
FOR_ROWS = "for (long r = 0; r < rows; ++r)"
FOR_COLS = "for (long c = 0; c < cols; ++c)"
SUM_WARP = "for (int h = 16; h > 0; h /= 2) {0} += __shfl_xor_sync(0xffffffff, {0}, h);"
"""In CUDA, adds up the variable {0} of all threads of a warp."""
PRAGMA = "#pragma omp parallel for num_threads(threads)"
TRITON_ROW = (
    "r = tl.program_id(0)",
    "c = tl.arange(0, BLOCK)",
    "mask = c < cols",
    "v = tl.load(x + r * cols + c, mask, other=0.0)",
)
"""Begins a Triton program that has a row of x in v."""
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


def nest(head: str, *lines: str, depth: int = 2) -> list[str]:
    """Return lines that are indented below another one, such as the head of a loop."""
    return [head, *(" " * depth + line for line in lines)]


def block(head: str, *lines: str) -> list[str]:
    """Return lines as a block of C, in braces."""
    return [*nest(f"{head} {{", *lines), "}"]


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
        sizes: Module-level names and their values; COLS is the constructor's argument.
        shapes: Shape of each input.
        bound: What the computation needs at least, as `describe_reference` takes it.
        cuda: Sizes for a GPU, or choices to draw from; only names of `sizes` are kept.
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
        analysis=describe_reference(lines, sizes, shapes, bound),
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
    result: str = "v",
) -> TeacherKernel:
    """Return a kernel in PyTorch operations; after its statements, the answer is `result`."""
    code = f'''"""{about}"""

import torch
import torch.nn as nn
{_import_functional(lines)}

class ModelNew(nn.Module):
{module.write_methods([*lines, f"return {result}"])}
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
    head = f"for {', '.join(module.inputs)} in {source}:"
    body = ["parts = []", *nest(head, *lines, "parts.append(v)", depth=4)]
    name, result = f"torch_rows_{rows}", "torch.cat(parts)"
    return write_torch(name, about, module, body, (technique,), result)


def write_rounded(module: Module, lines: Sequence[str]) -> TeacherKernel:
    """Return the reference on inputs that are rounded to bfloat16, which is wrong."""
    about = "PyTorch operations on inputs in bfloat16."
    text = "\n".join([*(f"{name} = {name}.bfloat16()" for name in module.inputs), *lines])
    for name in module.params:
        text = text.replace(f"self.{name}", f"self.{name}.bfloat16()")
    return write_torch("wrong_bfloat16", about, module, [text], ("low_precision",), "v.float()")


@dataclass(frozen=True)
class Program:
    """What kernels of a task in C, Triton or CUDA have in common.

    A kernel is the body of a function `run`. Its arguments are the tensors of the module, `out`,
    and the whole numbers of `sizes`.
    """

    module: Module
    out: str
    """Expression that makes the output."""
    sizes: Mapping[str, str] = field(default_factory=lambda: {"rows": "x.shape[0]"} | COLS)
    """Expression of each whole number by its name; in CUDA they fit 32 bits."""
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
        sizes = self.sizes
        if flags == THREADS:
            sizes = {**sizes, "threads": "torch.get_num_threads()"}
            techniques = (*techniques, "threads")
        tensors = self._name_tensors()
        addresses = (
            ", ".join(f"{name}.data_ptr()" for name in tensors)
            if len(tensors) < 3 or self.knobs
            else f"*(t.data_ptr() for t in ({', '.join(tensors)}))"
        )
        call = f"RUN({', '.join([addresses, *sizes.values()])})"
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
        parameters = [*self.module.inputs, *self.module.params, "out", *self.sizes]
        parameters += [f"{name}: tl.constexpr" for name in constants]
        arguments = [*self._name_tensors(), *self.sizes.values()]
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
        arguments = ", ".join([*self._name_tensors(), *self.sizes.values()])
        call = f"self.run(grid=({grid}), block=({block}), args=[{arguments}])"
        init = 'self.run = torch.cuda._compile_kernel(SOURCE, "run")'
        code = f'''"""{about}"""

import torch
import torch.nn as nn
{self._state_knobs()}
SOURCE = {defines}r"""
{self.functions}extern "C" __global__ void run({self._declare("int", self.sizes)}) {{
{indent(source, 2)}
}}
"""


class ModelNew(nn.Module):
{self._write_methods(call, "out", init)}
'''
        return TeacherKernel(variant, code, about, "cuda", techniques)

    def _state_knobs(self) -> str:
        return f"\n{self.knobs}\n" if self.knobs else ""

    def _name_tensors(self) -> list[str]:
        """Return the tensors and `out` as the forward method names them."""
        return [*self.module.inputs, *(f"self.{name}" for name in self.module.params), "out"]

    def _declare(self, whole: str, sizes: Iterable[str]) -> str:
        tensors = (*self.module.inputs, *self.module.params)
        pointers = [*(f"const float* {name}" for name in tensors), "float* out"]
        return ", ".join([*pointers, *(f"{whole} {name}" for name in sizes)])

    def _write_methods(self, call: str, result: str = "out", *init: str) -> str:
        inputs = self.module.inputs
        contiguous = f"{', '.join(inputs)} = {', '.join(f'{name}.contiguous()' for name in inputs)}"
        lines = [contiguous, f"out = {self.out}", call, f"return {result}"]
        return self.module.write_methods(lines, *init)
