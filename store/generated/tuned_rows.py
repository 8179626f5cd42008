"""Sums of rows after elementwise steps, by kernels whose constants divide rows and columns."""

from __future__ import annotations

from store.generated.writing import elementwise_chain, knobs, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.knobs import Tuned
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Task

SPLIT = "train"
_SHAPES = ((32, 8192), (128, 2048), (512, 512), (2048, 128), (8192, 32))
_GPU_SHAPES = ((128, 65536), (1024, 16384), (8192, 2048), (65536, 256), (262144, 64))


def task(draw: Draw) -> Task:
    """Return a sum of rows; what divides them best depends on their number and length."""
    steps = elementwise_chain.draw_chain(
        draw, 1 + draw.integer_below(3), only=elementwise_chain.CHEAP
    )
    lines = [*elementwise_chain.torch_lines(steps), "v = v.sum(dim=1)"]
    place = draw.integer_below(len(_SHAPES))
    rows, cols = _SHAPES[place]
    title = f"Rows: {elementwise_chain.title(steps)}, sum"
    sizes, shapes = {"ROWS": rows, "COLS": cols}, ["ROWS, COLS"]
    module = Module()
    tuned = Tuned(
        module=module,
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
        c_functions=texts.function(elementwise_chain.c_lines(steps)),
        c_choices={"OPT": (1, 2, 3), "BLOCK": (1, 16, 64, 256), "THREADS": (1, 2, 4)},
        triton=[
            "r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)",
            "total = tl.zeros((BLOCK_R,), tl.float32)",
            "for start in range(0, cols, BLOCK_C):",
            "    c = start + tl.arange(0, BLOCK_C)",
            "    mask = (r < rows)[:, None] & (c < cols)[None, :]",
            "    v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *(f"    {line}" for line in elementwise_chain.triton_lines(steps)),
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
        cuda_functions=texts.function(elementwise_chain.c_lines(steps), qualifier="__device__"),
        cuda_choices={"THREADS": (32, 128, 256, 1024), "UNROLL": (1, 2, 4, 8)},
        cuda_grid="x.shape[0], 1, 1",
        cuda_block="THREADS, 1, 1",
    )
    gpu_rows, gpu_cols = _GPU_SHAPES[place]
    return Task(
        title=title,
        level=3,
        code=render_reference(f"{title}.", module, [*lines, "return v"], sizes, shapes),
        analysis=words.describe_reference(lines, sizes, shapes, words.ROW_ALONE),
        cuda={"ROWS": gpu_rows, "COLS": gpu_cols},
        kernels=(
            teacher.rewrite(module, [*elementwise_chain.inplace_lines(steps), "v = v.sum(dim=1)"]),
            *knobs.write_kernels(draw, tuned),
            teacher.round_inputs(module, lines),
            knobs.write_wrong_kernel(tuned),
        ),
        steps=len(steps),
    )
