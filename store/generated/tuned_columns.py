"""Sums of columns after elementwise steps, by kernels whose constants divide rows and columns."""

from __future__ import annotations

from store.generated.writing import chain, knobs
from store.generated.writing.knobs import Tuned
from store.generated.writing.texts import Draw, Task

SPLIT = "train"
_SHAPES = (
    ((64, 4096), (256, 65536)),
    ((256, 1024), (2048, 8192)),
    ((1024, 256), (16384, 1024)),
    ((4096, 64), (131072, 128)),
)
"""Rows and columns, and those for a GPU."""
_BOUND = (
    "Neighbors in memory belong to different sums, so that adding up one column at a time uses one "
    "number of each cache line."
)


def task(draw: Draw) -> Task:
    """Return a sum of columns; what divides it best depends on the shape."""
    steps = chain.draw_chain(draw, 1 + draw.integer_below(3), only=chain.CHEAP)
    lines = [*steps.torch(), "v = v.sum(dim=0)"]
    tuned = Tuned(
        title=f"Columns: {steps.title}, sum",
        level=3,
        steps=steps,
        lines=lines,
        rewritten=[*steps.inplace(), "v = v.sum(dim=0)"],
        shapes=_SHAPES,
        bound=_BOUND,
        out="x.new_zeros(x.shape[1])",
        c=[
            "for (long start = 0; start < cols; start += BLOCK_C) {",
            "  const long end = start + BLOCK_C < cols ? start + BLOCK_C : cols;",
            "  for (long r = 0; r < rows; ++r)",
            "    for (long c = start; c < end; ++c) out[c] += pre(x[r * cols + c]);",
            "}",
        ],
        c_choices={"OPT": (1, 2, 3), "BLOCK_C": (1, 4, 16, 64, 256, 1024)},
        triton=[
            "c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)",
            "total = tl.zeros((BLOCK_C,), tl.float32)",
            "for start in range(tl.program_id(1) * BLOCK_R, rows, SPLITS * BLOCK_R):",
            "    r = start + tl.arange(0, BLOCK_R)",
            "    mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "    v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *(f"    {line}" for line in steps.triton),
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
        cuda_choices={"THREADS": (32, 64, 128, 256), "SPLITS": (1, 8, 64, 512)},
        cuda_grid="(x.shape[1] + THREADS - 1) // THREADS, SPLITS, 1",
    )
    return knobs.write_task(draw, tuned)
