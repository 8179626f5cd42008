"""Transposed matrices after elementwise steps, by kernels whose constants are the tile's sizes."""

from __future__ import annotations

from store.generated.writing import chain, knobs, texts
from store.generated.writing.knobs import Tuned
from store.generated.writing.texts import Draw, Module, Task

SPLIT = "train"
_SHAPES = (((128, 2048), (1024, 16384)), ((512, 512), (4096, 4096)), ((2048, 128), (16384, 1024)))
"""Rows and columns, and those for a GPU."""


def task(draw: Draw) -> Task:
    """Return a transposition that is added to a second tensor, so that no view is right."""
    steps = chain.draw_chain(draw, 1 + draw.integer_below(3), only=chain.CHEAP)
    lines = [*steps.torch(), "v = v.t() + y"]
    tuned = Tuned(
        title=f"Matrix: {steps.title}, transposition and sum",
        level=2,
        module=Module(inputs=("x", "y")),
        steps=steps,
        lines=lines,
        rewritten=[*steps.inplace(), "v = v.t().contiguous()", "v.add_(y)"],
        shapes=_SHAPES,
        inputs=["ROWS, COLS", "COLS, ROWS"],
        bound=texts.TWO_ORDERS,
        out="torch.empty_like(y)",
        c=[
            "for (long r0 = 0; r0 < rows; r0 += TILE_R)",
            "  for (long c0 = 0; c0 < cols; c0 += TILE_C)",
            "    for (long c = c0; c < c0 + TILE_C && c < cols; ++c)",
            "      for (long r = r0; r < r0 + TILE_R && r < rows; ++r)",
            "        out[c * rows + r] = pre(x[r * cols + c]) + y[c * rows + r];",
        ],
        c_choices={"OPT": (1, 2, 3), "TILE_R": (1, 8, 32, 128), "TILE_C": (1, 8, 32, 128)},
        triton=[
            "r = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R)",
            "c = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)",
            "mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *steps.triton,
            "i = c[:, None] * rows + r[None, :]",
            "mask = (c < cols)[:, None] & (r < rows)[None, :]",
            "tl.store(out + i, tl.trans(v) + tl.load(y + i, mask), mask)",
        ],
        triton_choices={
            "TILE_R": (1, 8, 32, 64),
            "TILE_C": (1, 8, 32, 64),
            "WARPS": (1, 4, 8),
        },
        triton_grid="triton.cdiv(x.shape[0], TILE_R), triton.cdiv(x.shape[1], TILE_C)",
        cuda=[
            "__shared__ float s[TILE][TILE + PAD];",
            "const int r0 = blockIdx.y * TILE, c0 = blockIdx.x * TILE, t = threadIdx.x;",
            "for (int u = threadIdx.y; u < TILE; u += LINES)",
            "  if (r0 + u < rows && c0 + t < cols)",
            "    s[u][t] = pre(x[(long long)(r0 + u) * cols + c0 + t]);",
            "__syncthreads();",
            "for (int u = threadIdx.y; u < TILE; u += LINES)",
            "  if (c0 + u < cols && r0 + t < rows) {",
            "    const long long i = (long long)(c0 + u) * rows + r0 + t;",
            "    out[i] = s[t][u] + y[i];",
            "  }",
        ],
        cuda_choices={"TILE": (2, 8, 16, 32), "LINES": (1, 2, 4, 8), "PAD": (0, 1)},
        cuda_grid="(x.shape[1] + TILE - 1) // TILE, (x.shape[0] + TILE - 1) // TILE, 1",
        cuda_block="TILE, LINES, 1",
    )
    return knobs.write_task(draw, tuned)
