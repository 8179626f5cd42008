"""Kernels of what is computed row by row, from one description in C and one in Triton.

A description in C is a list of lines. "@" begins a loop over the columns of the row; "$sum a" and
"$max a" combine the variable a of all that work on the row; PRE is the element in column c after
the first steps; "$one" goes before what is written once a row. One thread on a processor needs no
combining; on a GPU a row is given to a block or to a warp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.generated.writing import elementwise_chain, texts
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module
from store.generated.writing.task import Kernel


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


_COMBINE = {"sum": "s[t] + s[t + h]", "max": "fmaxf(s[t], s[t + h])"}
_SHUFFLE = {"sum": "v += {}", "max": "v = fmaxf(v, {})"}


def kernels(
    module: Module, pre: Sequence[Step], core: Core, post: Sequence[Step] = ()
) -> list[Kernel]:
    """Return the kernels in C, Triton and CUDA: `pre` on elements, the core, `post` on answers.

    `post` may only be given where the core answers with a row.
    """
    out = "x.new_empty(x.shape[0])" if core.scalar else "torch.empty_like(x)"
    return [
        *_cpp(module, pre, core, post, out),
        *_triton(module, pre, core, post, out),
        *_cuda(module, pre, core, post, out),
    ]


def _lines(core: Core, pre: Sequence[Step], post: Sequence[Step], loop: str, one: str) -> list[str]:
    element = "pre(row[c])" if pre else "row[c]"
    made: list[str] = []
    for line in core.c:
        if line.startswith("$sum") or line.startswith("$max"):
            name = line.split()[1]
            made += [f"{name} = {line[1:4]}_all({name});"] * bool(one)
            continue
        line = line.replace("@", loop).replace("$one ", one).replace("PRE", element)
        made.append(line.replace("POST", "post" if post else ""))
    return made


def _cpp(
    module: Module, pre: Sequence[Step], core: Core, post: Sequence[Step], out: str
) -> list[Kernel]:
    functions = texts.function(elementwise_chain.c_lines(pre))
    functions += texts.function(elementwise_chain.c_lines(post), "post")

    def kernel(variant: str, about: str, last: str, flags: str, *found: str) -> Kernel:
        to = [] if core.scalar else ["  float* to = out + r * cols;"]
        loop = f"for (long c = 0; c < {last}; ++c)"
        source = [
            *([texts.PRAGMA] if flags == texts.THREADS else []),
            "for (long r = 0; r < rows; ++r) {",
            "  const float* row = x + r * cols;",
            *to,
            *(f"  {line}" for line in _lines(core, pre, post, loop, "")),
            "}",
        ]
        return texts.cpp_kernel(
            about,
            module,
            source,
            out=out,
            sizes=texts.ROWS_COLS,
            flags=flags,
            device=functions,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    fast = ("fusion", "vectorised")
    return [
        kernel("cpp_scalar", "C row by row, one element at a time.", "cols", texts.PLAIN),
        kernel(
            "cpp_vector",
            "C row by row while the row is in cache, vectorised by the compiler.",
            "cols",
            texts.VECTOR,
            *fast,
        ),
        kernel(
            "cpp_threads",
            "C row by row, vectorised, rows on several threads.",
            "cols",
            texts.THREADS,
            *fast,
            "threads",
        ),
        kernel(
            "wrong_tail",
            "C row by row without the last quarter of the columns.",
            "cols - cols / 4",
            texts.VECTOR,
            *fast,
        ),
    ]


def _triton(
    module: Module, pre: Sequence[Step], core: Core, post: Sequence[Step], out: str
) -> list[Kernel]:
    fill = [f"v = tl.where(mask, v, {core.fill})"] * bool(pre or core.fill != "0.0")
    store = "tl.store(out + r, v)" if core.scalar else "tl.store(out + r * cols + c, v, mask)"
    source = [
        "r = tl.program_id(0)",
        "c = tl.arange(0, BLOCK)",
        "mask = c < cols",
        "v = tl.load(x + r * cols + c, mask, other=0.0)",
        *elementwise_chain.triton_lines(pre),
        *fill,
        *core.triton,
        *elementwise_chain.triton_lines(post),
        store,
    ]
    made: list[Kernel] = []
    for warps in (1, 4, 8):
        about = f"One Triton program a row, which is read once; {warps} warp{'s' * (warps > 1)}."
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out=out,
                sizes=["cols=x.shape[1]"],
                grid="x.shape[0],",
                meta={"BLOCK": "triton.next_power_of_2(x.shape[1])"},
                warps=warps,
                variant=f"triton_row_{warps}",
                techniques=("fusion", "row_in_registers"),
            )
        )
    return made


def _cuda(
    module: Module, pre: Sequence[Step], core: Core, post: Sequence[Step], out: str
) -> list[Kernel]:
    functions = texts.function(elementwise_chain.c_lines(pre), qualifier="__device__")
    functions += texts.function(elementwise_chain.c_lines(post), "post", "__device__")
    used = [kind for kind in ("sum", "max") if any(f"${kind}" in line for line in core.c)]
    to = "float* to = out + (long long)r * cols;"
    body = [
        "const float* row = x + (long long)r * cols;",
        *([] if core.scalar else [to]),
        *_lines(core, pre, post, "for (int c = t; c < cols; c += T)", "if (t == 0) "),
    ]
    block = ["const int r = blockIdx.x, t = threadIdx.x, T = 256;", *body]
    warp = [
        "const int r = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32, T = 32;",
        "if (r >= rows) return;",
        *body,
    ]
    made: list[Kernel] = []
    for variant, about, source, sizes, grid, combine, found in (
        (
            "cuda_block",
            "CUDA, a block of threads a row, combined in shared memory.",
            block,
            texts.ROWS_COLS[1:],
            "x.shape[0], 1, 1",
            _shared_reduction,
            "shared_memory",
        ),
        (
            "cuda_warp",
            "CUDA, a warp a row, combined by shuffles.",
            warp,
            texts.ROWS_COLS,
            "(x.shape[0] + 7) // 8, 1, 1",
            _shuffle_reduction,
            "warp_shuffle",
        ),
    ):
        made.append(
            texts.cuda_kernel(
                about,
                module,
                source,
                out=out,
                sizes=sizes,
                grid=grid,
                device=functions + "".join(combine(kind) for kind in used),
                variant=variant,
                techniques=("fusion", found),
            )
        )
    return made


def _shared_reduction(kind: str) -> str:
    return f"""__device__ float {kind}_all(float v) {{
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = v;
  __syncthreads();
  for (int h = 128; h > 0; h /= 2) {{
    if (t < h) s[t] = {_COMBINE[kind]};
    __syncthreads();
  }}
  v = s[0];
  __syncthreads();
  return v;
}}
"""


def _shuffle_reduction(kind: str) -> str:
    step = _SHUFFLE[kind].format("__shfl_xor_sync(0xffffffff, v, h)")
    return f"""__device__ float {kind}_all(float v) {{
  for (int h = 16; h > 0; h /= 2) {step};
  return v;
}}
"""
