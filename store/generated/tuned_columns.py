"""Sums of columns after elementwise steps, by kernels whose constants divide rows and columns."""

from __future__ import annotations

from store.generated.writing import elementwise_chain, knobs, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.knobs import Tuned
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Task

SPLIT = "train"
_SHAPES = ((64, 4096), (256, 1024), (1024, 256), (4096, 64))
_GPU_SHAPES = ((256, 65536), (2048, 8192), (16384, 1024), (131072, 128))
_BOUND = (
    "Neighbors in memory belong to different sums, so that adding up one column at a time uses one "
    "number of each cache line."
)


def task(draw: Draw) -> Task:
    """Return a sum of columns; what divides it best depends on the shape."""
    steps = elementwise_chain.draw_chain(
        draw, 1 + draw.integer_below(3), only=elementwise_chain.CHEAP
    )
    lines = [*elementwise_chain.torch_lines(steps), "v = v.sum(dim=0)"]
    place = draw.integer_below(len(_SHAPES))
    rows, cols = _SHAPES[place]
    title = f"Columns: {elementwise_chain.title(steps)}, sum"
    sizes, shapes = {"ROWS": rows, "COLS": cols}, ["ROWS, COLS"]
    module = Module()
    tuned = Tuned(
        module=module,
        out="x.new_zeros(x.shape[1])",
        c=[
            "for (long start = 0; start < cols; start += BLOCK_C) {",
            "  const long end = start + BLOCK_C < cols ? start + BLOCK_C : cols;",
            "  for (long r = 0; r < rows; ++r)",
            "    for (long c = start; c < end; ++c) out[c] += pre(x[r * cols + c]);",
            "}",
        ],
        c_functions=texts.function(elementwise_chain.c_lines(steps)),
        c_choices={"OPT": (1, 2, 3), "BLOCK_C": (1, 4, 16, 64, 256, 1024)},
        triton=[
            "c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)",
            "total = tl.zeros((BLOCK_C,), tl.float32)",
            "for start in range(tl.program_id(1) * BLOCK_R, rows, SPLITS * BLOCK_R):",
            "    r = start + tl.arange(0, BLOCK_R)",
            "    mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "    v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *(f"    {line}" for line in elementwise_chain.triton_lines(steps)),
            "    total += tl.sum(tl.where(mask, v, 0.0), axis=0)",
            "tl.store(out + tl.program_id(1) * cols + c, total, c < cols)",
        ],
        triton_choices={
            "BLOCK_C": (1, 8, 32, 128, 512),
            "BLOCK_R": (1, 4, 16),
            "SPLITS": (1, 8, 64, 256),
            "WARPS": (1, 4, 8),
        },
        triton_grid="triton.cdiv(x.shape[1], BLOCK_C), SPLITS",
        triton_out="x.new_empty(SPLITS, x.shape[1])",
        triton_result="out.sum(0)",
        cuda=[
            "const int c = blockIdx.x * THREADS + threadIdx.x;",
            "if (c >= cols) return;",
            "float total = 0.0f;",
            "for (int r = blockIdx.y; r < rows; r += SPLITS) {",
            "  total += pre(x[(long long)r * cols + c]);",
            "}",
            "atomicAdd(out + c, total);",
        ],
        cuda_functions=texts.function(elementwise_chain.c_lines(steps), qualifier="__device__"),
        cuda_choices={"THREADS": (32, 64, 128, 256), "SPLITS": (1, 8, 64, 512)},
        cuda_grid="(x.shape[1] + THREADS - 1) // THREADS, SPLITS, 1",
        cuda_block="THREADS, 1, 1",
    )
    gpu_rows, gpu_cols = _GPU_SHAPES[place]
    return Task(
        title=title,
        level=3,
        code=render_reference(f"{title}.", module, [*lines, "return v"], sizes, shapes),
        analysis=words.describe_reference(lines, sizes, shapes, _BOUND),
        cuda={"ROWS": gpu_rows, "COLS": gpu_cols},
        kernels=(
            teacher.rewrite(module, [*elementwise_chain.inplace_lines(steps), "v = v.sum(dim=0)"]),
            *knobs.write_kernels(draw, tuned),
            teacher.round_inputs(module, lines),
            knobs.write_wrong_kernel(tuned),
        ),
        steps=len(steps),
    )
