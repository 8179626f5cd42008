"""Transposed matrices, combined with a tensor that already lies the other way."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing import elementwise_chain, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Kernel, Task

SPLIT = "train"
_ROWS = (96, 128, 200, 256, 300, 384, 512)
_COLS = (128, 200, 256, 384, 500, 512, 640)
_BOUND = (
    "x is needed in one order and y in the other, so that a plain loop goes through one of them by "
    "steps of a whole row and uses little of each cache line."
)
_COMBINE = {
    "sum": ("{v} + y", "v.add_(y)", "{v} + {y}", "{v} + {y}"),
    "difference": ("y - {v}", "torch.sub(y, v, out=v)", "{y} - {v}", "{y} - {v}"),
    "product": ("{v} * y", "v.mul_(y)", "{v} * {y}", "{v} * {y}"),
    "maximum": ("torch.maximum({v}, y)", "", "fmaxf({v}, {y})", "tl.maximum({v}, {y})"),
}
_MODULE = Module(inputs=("x", "y"))


def task(draw: Draw) -> Task:
    """Return a transposition with a second tensor, one of a chain, or one that is reduced.

    The answer needs x in one order and y in the other: no view of either is right.
    """
    level = draw.choice((1, 2, 2, 3))
    pre = elementwise_chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else ()
    name = draw.choice(sorted(_COMBINE))
    batch = draw.choice((0, 0, 2, 4)) if level < 3 else 0
    reduced = level == 3
    turn = "transpose(1, 2)" if batch else "t()"
    lines = [*elementwise_chain.torch_lines(pre)]
    start = "v" if pre else "x"
    lines.append("v = " + _COMBINE[name][0].format(v=f"{start}.{turn}"))
    lines += ["v = v.mean(dim=1)"] * reduced
    rows, cols = draw.sizes(_ROWS, _COLS, 1 << 15, (1 << 18) // (batch or 1))
    titles = [elementwise_chain.title(pre), f"transposition and {name}", "mean of rows" * reduced]
    title = f"{'Matrices' if batch else 'Matrix'}: {', '.join(filter(None, titles))}"
    first = "BATCH, " if batch else ""
    sizes = {**({"BATCH": batch} if batch else {}), "ROWS": rows, "COLS": cols}
    shapes = [f"{first}ROWS, COLS", f"{first}COLS, ROWS"]
    code = render_reference(
        f"{title}.",
        _MODULE,
        [*lines, "return v"],
        sizes,
        shapes,
    )
    copied = [*elementwise_chain.inplace_lines(pre)]
    copied.append(f"v = {start}.{turn}.contiguous()")
    inplace = _COMBINE[name][1]
    # A square of one row is contiguous as it is, and no task has one.
    copied.append(inplace or "v = " + _COMBINE[name][0].format(v="v"))
    copied += ["v = v.mean(dim=1)"] * reduced
    kernels = [
        teacher.rewrite(_MODULE, copied),
        _columns_kernel(pre, name, bool(batch), reduced),
        *_cpp(pre, name, bool(batch), reduced),
        *_triton(pre, name, bool(batch), reduced),
        *_cuda(pre, name, bool(batch), reduced),
        teacher.round_inputs(_MODULE, lines),
        _reshape_kernel([line.replace(turn, "reshape(y.shape)") for line in lines]),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"BATCH": 16, "ROWS": 1024, "COLS": draw.choice((512, 1024))}
    if not batch:
        cuda = {"ROWS": draw.choice((2048, 4096)), "COLS": draw.choice((2048, 4096))}
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, _BOUND),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _sizes(batch: bool) -> list[str]:
    dims = ("x.shape[1]", "x.shape[2]") if batch else ("x.shape[0]", "x.shape[1]")
    return [*(["batch=x.shape[0]"] * batch), f"rows={dims[0]}", f"cols={dims[1]}"]


def _write_output(reduced: bool) -> str:
    return "x.new_empty(x.shape[1])" if reduced else "torch.empty_like(y)"


def _reshape_kernel(lines: Sequence[str]) -> Kernel:
    about = "PyTorch operations that reshape where they should transpose."
    return texts.torch_kernel(
        about, _MODULE, [*lines, "return v"], variant="wrong_reshape", techniques=(), right=False
    )


def _columns_kernel(pre: Sequence[Step], name: str, batch: bool, reduced: bool) -> Kernel:
    """Return a Python loop over the rows of the answer."""
    about = "A Python loop over the columns of x."
    lines = elementwise_chain.torch_lines(pre, "u")
    combined = "v = " + _COMBINE[name][0].format(v="v" if pre else "u")
    loop = [
        "parts = []",
        f"for u, y in zip(x.unbind({int(batch) + 1}), y.unbind({int(batch)})):",
        *(f"    {line}" for line in [*lines, combined]),
        f"    parts.append(v{'.mean()' * reduced})",
        f"return torch.stack(parts, {int(batch)})",
    ]
    return texts.torch_kernel(
        about,
        _MODULE,
        loop,
        variant="torch_columns",
        techniques=("python_loop",),
    )


def _cpp(pre: Sequence[Step], name: str, batch: bool, reduced: bool) -> list[Kernel]:
    functions = texts.function(elementwise_chain.c_lines(pre))
    combine = _COMBINE[name][2]

    def value(x: str, y: str) -> str:
        return combine.format(v=f"pre({x})" if pre else x, y=y)

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        if batch:
            around = "for (long b = 0; b < batch; ++b, x += rows * cols, y += rows * cols, "
            source = [around + "out += rows * cols) {", *(f"  {line}" for line in source), "}"]
        return texts.cpp_kernel(
            about,
            _MODULE,
            source,
            out=_write_output(reduced),
            sizes=_sizes(batch),
            flags=flags,
            device=functions,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    element = value("x[r * cols + c]", "y[c * rows + r]")
    if reduced:
        strided = [
            "for (long c = 0; c < cols; ++c) {",
            "  float s = 0.0f;",
            f"  for (long r = 0; r < rows; ++r) s += {element};",
            "  out[c] = s / rows;",
            "}",
        ]
        keep = f"s[c - c0] += {element};"
    else:
        strided = [
            "for (long c = 0; c < cols; ++c)",
            f"  for (long r = 0; r < rows; ++r) out[c * rows + r] = {element};",
        ]
        keep = f"out[c * rows + r] = {element};"

    def tiles(last: str = "rows") -> list[str]:
        return [
            "for (long c0 = 0; c0 < cols; c0 += 16) {",
            "  const long c1 = c0 + 16 < cols ? c0 + 16 : cols;",
            *(["  float s[16] = {0};"] * reduced),
            f"  for (long r0 = 0; r0 < {last}; r0 += 16) {{",
            "    const long r1 = r0 + 16 < rows ? r0 + 16 : rows;",
            "    for (long c = c0; c < c1; ++c)",
            f"      for (long r = r0; r < r1; ++r) {keep}",
            "  }",
            *(["  for (long c = c0; c < c1; ++c) out[c] = s[c - c0] / rows;"] * reduced),
            "}",
        ]

    threaded = [texts.PRAGMA, *tiles()]
    return [
        kernel("cpp_strided", "C column by column, with strided reads.", strided, texts.PLAIN),
        kernel(
            "cpp_strided_o3",
            "C column by column, with all of the compiler's optimisations.",
            strided,
            texts.VECTOR,
            "fusion",
        ),
        kernel(
            "cpp_tiles",
            "C in tiles of 16 by 16, which stay in cache.",
            tiles(),
            texts.VECTOR,
            "fusion",
            "tiling",
        ),
        kernel(
            "cpp_tile_threads",
            "C in tiles of 16 by 16, strips of tiles on several threads.",
            threaded,
            texts.THREADS,
            "fusion",
            "tiling",
            "threads",
        ),
        kernel(
            "wrong_tail",
            "C in tiles of 16 by 16, without the last tiles.",
            tiles("rows - 17"),
            texts.VECTOR,
            "tiling",
        ),
    ]


def _triton(pre: Sequence[Step], name: str, batch: bool, reduced: bool) -> list[Kernel]:
    combine = _COMBINE[name][3].format(v="v", y="w")
    moved = [
        "shift = tl.program_id(2) * rows * cols",
        "x += shift",
        "y += shift",
        "out += shift",
    ] * batch
    made: list[Kernel] = []
    for side, warps in ((32, 4), (64, 8)):
        inner = [
            f"r = {'r0' if reduced else 'tl.program_id(1) * T'} + tl.arange(0, T)",
            "mask = (r[:, None] < rows) & (c[None, :] < cols)",
            "v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *elementwise_chain.triton_lines(pre),
            "v = tl.trans(v)",
            "turned = (c[:, None] < cols) & (r[None, :] < rows)",
            "w = tl.load(y + c[:, None] * rows + r[None, :], turned, other=0.0)",
        ]
        if reduced:
            source = [
                "c = tl.program_id(0) * T + tl.arange(0, T)",
                "a = tl.zeros((T,), tl.float32)",
                "for r0 in range(0, rows, T):",
                *(f"    {line}" for line in inner),
                f"    a += tl.sum(tl.where(turned, {combine}, 0.0), axis=1)",
                "tl.store(out + c, a / rows, c < cols)",
            ]
            grid = f"triton.cdiv(x.shape[1], {side}),"
        else:
            source = [
                *moved,
                "c = tl.program_id(0) * T + tl.arange(0, T)",
                *inner,
                f"tl.store(out + c[:, None] * rows + r[None, :], {combine}, turned)",
            ]
            last = int(batch) + 1
            grid = f"triton.cdiv(x.shape[{last}], {side}), triton.cdiv(x.shape[{last - 1}], {side})"
            grid += ", x.shape[0]" * batch
        about = f"Triton tiles of {side} by {side}, turned in registers."
        made.append(
            texts.triton_kernel(
                about,
                _MODULE,
                source,
                out=_write_output(reduced),
                sizes=_sizes(batch)[int(batch) :],
                grid=grid,
                meta={"T": str(side)},
                warps=warps,
                variant=f"triton_tiles_{side}",
                techniques=("fusion", "tiling"),
            )
        )
    return made


def _cuda(pre: Sequence[Step], name: str, batch: bool, reduced: bool) -> list[Kernel]:
    value = _COMBINE[name][2].format(v="pre({x})" if pre else "{x}", y="y[c * rows + r]")
    functions = texts.function(elementwise_chain.c_lines(pre), qualifier="__device__")
    moved = ["const int shift = blockIdx.z * rows * cols;", "x += shift, y += shift, out += shift;"]
    moved = moved * batch
    last = int(batch) + 1
    across, down = f"(x.shape[{last}] + 31) // 32", f"(x.shape[{last - 1}] + 31) // 32"
    depth = "x.shape[0]" if batch else "1"
    plain = [
        *moved,
        "const int r = blockIdx.x * 32 + threadIdx.x, c = blockIdx.y * 8 + threadIdx.y;",
        "if (r >= rows || c >= cols) return;",
        f"out[c * rows + r] = {value.format(x='x[r * cols + c]')};",
    ]
    shared = [
        "__shared__ float tile[32][33];",
        *moved,
        "const int c0 = blockIdx.x * 32, r0 = blockIdx.y * 32, t = threadIdx.x;",
        "for (int j = threadIdx.y; j < 32; j += 8)",
        "  if (r0 + j < rows && c0 + t < cols) tile[j][t] = x[(r0 + j) * cols + c0 + t];",
        "__syncthreads();",
        "for (int j = threadIdx.y; j < 32; j += 8) {",
        "  const int r = r0 + t, c = c0 + j;",
        f"  if (r < rows && c < cols) out[c * rows + r] = {value.format(x='tile[t][j]')};",
        "}",
    ]
    warp = [
        "const int c = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
        "if (c >= cols) return;",
        "float s = 0.0f;",
        f"for (int r = t; r < rows; r += 32) s += {value.format(x='x[r * cols + c]')};",
        "for (int h = 16; h > 0; h /= 2) s += __shfl_xor_sync(0xffffffff, s, h);",
        "if (t == 0) out[c] = s / rows;",
    ]
    by_eight = f"(x.shape[{last}] + 7) // 8"
    found = [
        (
            "cuda_strided",
            "CUDA, one element a thread, with strided reads.",
            plain,
            f"{down}, {by_eight}, {depth}",
            "32, 8, 1",
            (),
        ),
        (
            "cuda_tiles",
            "CUDA tiles of 32 by 32 in shared memory.",
            shared,
            f"{across}, {down}, {depth}",
            "32, 8, 1",
            ("tiling", "shared_memory"),
        ),
    ]
    if reduced:
        about = "CUDA, a warp a column, combined by shuffles."
        found = [
            ("cuda_warp", about, warp, f"{by_eight}, 1, 1", "256, 1, 1", ("warp_shuffle",)),
        ]
    made: list[Kernel] = []
    for variant, about, source, grid, block, techniques in found:
        made.append(
            texts.cuda_kernel(
                about,
                _MODULE,
                source,
                out=_write_output(reduced),
                sizes=_sizes(batch)[int(batch) :],
                grid=grid,
                block=block,
                device=functions,
                variant=variant,
                techniques=("fusion", *techniques),
            )
        )
    return made
