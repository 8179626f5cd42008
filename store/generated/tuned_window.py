"""Weighted sums of neighbors in a row, by kernels with constants; held out for the test side."""

from __future__ import annotations

from store.generated.writing import chain, knobs, texts
from store.generated.writing.knobs import Tuned
from store.generated.writing.texts import Draw, Task

SPLIT = "test"
_SHAPES = (((32, 8192), (256, 65536)), ((256, 1024), (4096, 4096)), ((2048, 128), (32768, 512)))
"""Rows and columns, and those for a GPU."""


def task(draw: Draw) -> Task:
    """Return a window over each row, with elementwise steps after it."""
    count = 3 + draw.integer_below(4)
    weights = [draw.number(0.2, 1.0) for _ in range(count)]
    steps = chain.draw_chain(draw, 1 + draw.integer_below(2), only=chain.CHEAP)
    terms = [
        f"{weight:.2f} * p[:, {count - 1 - back} : {count - 1 - back} + x.shape[1]]"
        for back, weight in enumerate(weights)
    ]
    lines = [
        f"p = F.pad(x, ({count - 1}, 0))",
        f"v = {' + '.join(terms)}",
        *steps.torch("v"),
    ]
    reads = [
        f"v += {weight:.2f} * tl.load(x + i - {back}, mask & (c >= {back})[None, :], other=0.0)"
        for back, weight in enumerate(weights)
    ]
    sums = [
        f"if (c >= {back}) v += {weight:.2f}f * row[c - {back}];"
        for back, weight in enumerate(weights)
    ]
    direct = " + ".join(f"{weight:.2f}f * row[c - {back}]" for back, weight in enumerate(weights))
    tuned = Tuned(
        title=f"Rows: window of {count}, {steps.title}",
        level=2,
        steps=steps,
        function="post",
        lines=lines,
        rewritten=[*lines[:2], *steps.inplace("v")],
        shapes=_SHAPES,
        bound=texts.ROW_ALONE,
        out="torch.empty_like(x)",
        c=[
            "#pragma omp parallel for num_threads(THREADS)",
            "for (long r = 0; r < rows; ++r) {",
            "  const float* row = x + r * cols;",
            "  for (long start = 0; start < cols; start += BLOCK) {",
            "    const long end = start + BLOCK < cols ? start + BLOCK : cols;",
            "    long c = start;",
            f"    for (; c < end && c < {count - 1}; ++c) {{",
            "      float v = 0.0f;",
            *(f"      {line}" for line in sums),
            "      out[r * cols + c] = post(v);",
            "    }",
            f"    for (; c < end; ++c) out[r * cols + c] = post({direct});",
            "  }",
            "}",
        ],
        c_choices={"OPT": (1, 2, 3), "BLOCK": (1, 16, 64, 256), "THREADS": (1, 2, 4)},
        triton=[
            "r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)",
            "c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)",
            "mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "i = r[:, None] * cols + c[None, :]",
            "v = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)",
            *reads,
            *steps.triton,
            "tl.store(out + i, v, mask)",
        ],
        triton_choices={
            "BLOCK_R": (1, 2, 4, 16),
            "BLOCK_C": (32, 128, 512),
            "WARPS": (1, 4, 8),
        },
        triton_grid="triton.cdiv(x.shape[0], BLOCK_R), triton.cdiv(x.shape[1], BLOCK_C)",
        cuda=[
            "const int r = blockIdx.y;",
            "const float* row = x + (long long)r * cols;",
            "for (int u = 0; u < ITEMS; ++u) {",
            "  const int c = (blockIdx.x * ITEMS + u) * THREADS + threadIdx.x;",
            "  if (c >= cols) return;",
            "  float v = 0.0f;",
            *(f"  {line}" for line in sums),
            "  out[(long long)r * cols + c] = post(v);",
            "}",
        ],
        cuda_choices={"THREADS": (32, 128, 256, 1024), "ITEMS": (1, 2, 4, 16)},
        cuda_grid="(x.shape[1] + THREADS * ITEMS - 1) // (THREADS * ITEMS), x.shape[0], 1",
    )
    return knobs.write_task(draw, tuned)
