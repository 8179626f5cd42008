"""Kernels of what is computed row by row, from one description in C and one in Triton.

A description in C is a list of lines. "@" begins a loop over the columns of the row; "$sum a" and
"$max a" combine the variable a of all that work on the row; PRE is the element in column c after
the first steps; "$one" goes before what is written once a row. One thread on a processor needs no
combining; on a GPU a row is given to a block or to a warp.
"""

from __future__ import annotations

from dataclasses import dataclass

from store.generated.writing import texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel


@dataclass(frozen=True, kw_only=True)
class Core:
    """What is done with a row, in four ways."""

    title: str
    torch: tuple[str, ...]
    """Statements of the reference on v."""
    fast: tuple[str, ...]
    """Other statements of PyTorch for the same."""
    c: tuple[str, ...]
    triton: tuple[str, ...]
    """Statements on the block v of a row, filled up with `fill`."""
    fill: str = "0.0"
    scalar: bool = False
    """Whether the answer is one number a row."""


_ROWS = (96, 128, 160, 192, 200, 256, 320, 384, 512)
_COLS = (256, 384, 500, 512, 640, 768, 1000, 1024, 1536)
_COMBINE = {"sum": "s[t] + s[t + h]", "max": "fmaxf(s[t], s[t + h])"}
_IN_SHARED_MEMORY = """__device__ float {kind}_all(float v) {{
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = v;
  __syncthreads();
  for (int h = 128; h > 0; h /= 2) {{
    if (t < h) s[t] = {combine};
    __syncthreads();
  }}
  v = s[0];
  __syncthreads();
  return v;
}}
"""
_SHUFFLE = {
    "sum": "v += __shfl_xor_sync(0xffffffff, v, h)",
    "max": "v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, h))",
}
_BY_SHUFFLES = """__device__ float {kind}_all(float v) {{
  for (int h = 16; h > 0; h /= 2) {step};
  return v;
}}
"""


def write_task(
    draw: Draw,
    *,
    title: str,
    level: int,
    module: Module,
    pre: Chain,
    core: Core,
    post: Chain | None = None,
) -> Task:
    """Return the task of a core between steps; see `write_kernels`."""
    post = post or Chain()
    lines = [*pre.torch(), *core.torch, *post.torch("v")]
    return texts.write_task(
        draw,
        title=title,
        level=level,
        module=module,
        lines=lines,
        sizes=draw.sizes(_ROWS, _COLS, 1 << 17, 1 << 18),
        bound=texts.ROW_ALONE,
        kernels=[
            texts.write_rewrite(module, [*pre.inplace(), *core.fast, *post.inplace("v")]),
            texts.write_row_loop(module, lines, 1),
            texts.write_row_loop(module, lines, 32),
            *write_kernels(module, pre, core, post),
            texts.write_rounded(module, lines),
        ],
        cuda={"ROWS": (4096, 8192), "COLS": (1024, 2048, 4096)},
    )


def write_kernels(
    module: Module, pre: Chain, core: Core, post: Chain | None = None
) -> list[TeacherKernel]:
    """Return the kernels in C, Triton and CUDA: `pre` on elements, the core, `post` on answers.

    `post` may only be given where the core answers with a row.
    """
    post = post or Chain()
    out = "x.new_empty(x.shape[0])" if core.scalar else "torch.empty_like(x)"
    fill = [f"v = tl.where(mask, v, {core.fill})"] * bool(pre or core.fill != "0.0")
    triton = [
        *texts.TRITON_ROW,
        *pre.triton,
        *fill,
        *core.triton,
        *post.triton,
        "tl.store(out + r, v)" if core.scalar else "tl.store(out + r * cols + c, v, mask)",
    ]
    about = "One Triton program a row, which is read once"
    return [
        *_write_c(module, pre, core, post, out),
        *Program(module, out, texts.COLS).write_triton_rows(
            about, triton, (1, 4, 8), ("fusion", "row_in_registers")
        ),
        *_write_cuda(module, pre, core, post, out),
    ]


def _lines(core: Core, pre: Chain, post: Chain, loop: str, once: str) -> list[str]:
    element = "pre(row[c])" if pre else "row[c]"
    lines: list[str] = []
    for line in core.c:
        if line.startswith(("$sum", "$max")):
            name = line.split()[1]
            lines += [f"{name} = {line[1:4]}_all({name});"] * bool(once)
            continue
        line = line.replace("@", loop).replace("$one ", once).replace("PRE", element)
        lines.append(line.replace("POST", "post" if post else ""))
    return lines


def _write_c(module: Module, pre: Chain, core: Core, post: Chain, out: str) -> list[TeacherKernel]:
    def rows(last: str = "cols") -> list[str]:
        lines = _lines(core, pre, post, f"for (long c = 0; c < {last}; ++c)", "")
        to = ["float* to = out + r * cols;"] * (not core.scalar)
        return texts.block(texts.FOR_ROWS, "const float* row = x + r * cols;", *to, *lines)

    program = Program(module, out, functions=pre.function() + post.function("post"))
    fast = ("fusion", "vectorised")
    scalar = "C row by row, one element at a time."
    vector = "C row by row while the row is in cache, vectorised by the compiler."
    threads = "C row by row, vectorised, rows on several threads."
    wrong = "C row by row without the last quarter of the columns."
    return [
        program.write_c("cpp_scalar", scalar, rows(), texts.PLAIN),
        program.write_c("cpp_vector", vector, rows(), texts.VECTOR, fast),
        program.write_c("cpp_threads", threads, [texts.PRAGMA, *rows()], texts.THREADS, fast),
        program.write_c("wrong_tail", wrong, rows("cols - cols / 4"), texts.VECTOR, fast),
    ]


def _write_cuda(
    module: Module, pre: Chain, core: Core, post: Chain, out: str
) -> list[TeacherKernel]:
    functions = pre.function(qualifier="__device__") + post.function("post", "__device__")
    used = [kind for kind in ("sum", "max") if any(f"${kind}" in line for line in core.c)]
    body = [
        "const float* row = x + (long long)r * cols;",
        *["float* to = out + (long long)r * cols;"] * (not core.scalar),
        *_lines(core, pre, post, "for (int c = t; c < cols; c += T)", "if (t == 0) "),
    ]
    in_block = "".join(_IN_SHARED_MEMORY.format(kind=one, combine=_COMBINE[one]) for one in used)
    in_warp = "".join(_BY_SHUFFLES.format(kind=one, step=_SHUFFLE[one]) for one in used)
    return [
        Program(module, out, texts.COLS, functions + in_block).write_cuda(
            "cuda_block",
            "CUDA, a block of threads a row, combined in shared memory.",
            ["const int r = blockIdx.x, t = threadIdx.x, T = 256;", *body],
            ("fusion", "shared_memory"),
            grid="x.shape[0], 1, 1",
        ),
        Program(module, out, functions=functions + in_warp).write_cuda(
            "cuda_warp",
            "CUDA, a warp a row, combined by shuffles.",
            [texts.WARP_ROW[0].replace(";", ", T = 32;"), texts.WARP_ROW[1], *body],
            ("fusion", "warp_shuffle"),
            grid=texts.WARP_GRID,
        ),
    ]
