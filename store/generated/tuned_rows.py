"""Sums of rows after elementwise steps, by kernels whose constants divide rows and columns."""

from __future__ import annotations

from store.generated.writing import chain, knobs, texts
from store.generated.writing.knobs import Tuned
from store.generated.writing.texts import Draw, Task

SPLIT = "train"
_SHAPES = (
    ((32, 8192), (128, 65536)),
    ((128, 2048), (1024, 16384)),
    ((512, 512), (8192, 2048)),
    ((2048, 128), (65536, 256)),
    ((8192, 32), (262144, 64)),
)
"""Rows and columns, and those for a GPU."""


def task(draw: Draw) -> Task:
    """Return a sum of rows; what divides them best depends on their number and length."""
    steps = chain.draw_chain(draw, 1 + draw.integer_below(3), only=chain.CHEAP)
    lines = [*steps.torch(), "v = v.sum(dim=1)"]
    tuned = Tuned(
        title=f"Rows: {steps.title}, sum",
        level=3,
        steps=steps,
        lines=lines,
        rewritten=[*steps.inplace(), "v = v.sum(dim=1)"],
        shapes=_SHAPES,
        bound=texts.ROW_ALONE,
        out="x.new_empty(x.shape[0])",
        c=[
            "#pragma omp parallel for num_threads(THREADS)",
            "for (long r = 0; r < rows; ++r) {",
            "  float total = 0.0f;",
            "  for (long start = 0; start < cols; start += BLOCK) {",
            "    const long end = start + BLOCK < cols ? start + BLOCK : cols;",
            "    float s[BLOCK];",
            "    for (long c = start; c < end; ++c) s[c - start] = pre(x[r * cols + c]);",
            "    for (long c = start; c < end; ++c) total += s[c - start];",
            "  }",
            "  out[r] = total;",
            "}",
        ],
        c_choices={"OPT": (1, 2, 3), "BLOCK": (1, 16, 64, 256), "THREADS": (1, 2, 4)},
        triton=[
            "r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)",
            "total = tl.zeros((BLOCK_R,), tl.float32)",
            "for start in range(0, cols, BLOCK_C):",
            "    c = start + tl.arange(0, BLOCK_C)",
            "    mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "    v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *(f"    {line}" for line in steps.triton),
            "    total += tl.sum(tl.where(mask, v, 0.0), axis=1)",
            "tl.store(out + r, total, r < rows)",
        ],
        triton_choices={
            "BLOCK_R": (1, 2, 4, 16),
            "BLOCK_C": (32, 128, 512),
            "WARPS": (1, 4, 8),
        },
        triton_grid="triton.cdiv(x.shape[0], BLOCK_R),",
        cuda=[
            "__shared__ float s[THREADS];",
            "const int r = blockIdx.x, t = threadIdx.x;",
            "const float* row = x + (long long)r * cols;",
            "float total = 0.0f;",
            "for (int start = t; start < cols; start += THREADS * UNROLL) {",
            "  #pragma unroll",
            "  for (int u = 0; u < UNROLL; ++u) {",
            "    const int c = start + u * THREADS;",
            "    if (c < cols) total += pre(row[c]);",
            "  }",
            "}",
            "s[t] = total;",
            "__syncthreads();",
            "for (int h = THREADS / 2; h > 0; h /= 2) {",
            "  if (t < h) s[t] += s[t + h];",
            "  __syncthreads();",
            "}",
            "if (t == 0) out[r] = s[0];",
        ],
        cuda_choices={"THREADS": (32, 128, 256, 1024), "UNROLL": (1, 2, 4, 8)},
        cuda_grid="x.shape[0], 1, 1",
    )
    return knobs.write_task(draw, tuned)
