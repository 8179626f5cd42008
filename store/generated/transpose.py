"""Transposed matrices, combined with a tensor that already lies the other way."""

from __future__ import annotations

from dataclasses import replace

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "train"
_ROWS = (96, 128, 200, 256, 300, 384, 512)
_COLS = (128, 200, 256, 384, 500, 512, 640)
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
    pre = chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else Chain()
    name = draw.choice(sorted(_COMBINE))
    batch = draw.choice((0, 0, 2, 4)) if level < 3 else 0
    reduced = level == 3
    turn = "transpose(1, 2)" if batch else "t()"
    start, first = ("v", pre.torch()) if pre else ("x", [])
    combine, inplace, _, _ = _COMBINE[name]
    mean = ["v = v.mean(dim=1)"] * reduced
    lines = [*first, "v = " + combine.format(v=f"{start}.{turn}"), *mean]
    sizes = {"BATCH": batch} if batch else {}
    sizes |= draw.sizes(_ROWS, _COLS, 1 << 15, (1 << 18) // (batch or 1))
    titles = [pre.title, f"transposition and {name}", "mean of rows" * reduced]
    # A square of one row is contiguous as it is, and no task has one.
    copied = [*(pre.inplace() if pre else []), f"v = {start}.{turn}.contiguous()"]
    copied += [inplace or "v = " + combine.format(v="v"), *mean]
    leading = "BATCH, " if batch else ""
    kernels = [
        texts.write_rewrite(_MODULE, copied),
        _write_column_loop(pre, combine, bool(batch), reduced),
        *_write_c(pre, name, bool(batch), reduced),
        *_write_triton(pre, name, bool(batch), reduced),
        *_write_cuda(pre, name, bool(batch), reduced),
        texts.write_rounded(_MODULE, lines),
        texts.write_torch(
            "wrong_reshape",
            "PyTorch operations that reshape where they should transpose.",
            _MODULE,
            [line.replace(turn, "reshape(y.shape)") for line in lines],
        ),
    ]
    cuda = {"BATCH": 16, "ROWS": 1024, "COLS": (512, 1024)}
    if not batch:
        cuda = {"BATCH": (1, 2), "ROWS": (2048, 4096), "COLS": (2048, 4096)}
    return texts.write_task(
        draw,
        title=f"{'Matrices' if batch else 'Matrix'}: {', '.join(filter(None, titles))}",
        level=level,
        module=_MODULE,
        lines=lines,
        sizes=sizes,
        shapes=[f"{leading}ROWS, COLS", f"{leading}COLS, ROWS"],
        bound=texts.TWO_ORDERS,
        kernels=kernels,
        cuda=cuda,
    )


def _describe_program(batch: bool, reduced: bool, functions: str = "") -> Program:
    """Return what the kernels have in common; their sizes are those of one matrix."""
    sizes = {"rows": f"x.shape[{int(batch)}]", "cols": f"x.shape[{int(batch) + 1}]"}
    out = "x.new_empty(x.shape[1])" if reduced else "torch.empty_like(y)"
    return Program(_MODULE, out, sizes, functions)


def _write_column_loop(pre: Chain, combine: str, batch: bool, reduced: bool) -> TeacherKernel:
    body = pre.torch("u") if pre else []
    body += [
        "v = " + combine.format(v="v" if pre else "u"),
        f"parts.append(v{'.mean()' * reduced})",
    ]
    head = f"for u, y in zip(x.unbind({int(batch) + 1}), y.unbind({int(batch)})):"
    loop = ["parts = []", *texts.nest(head, *body, depth=4)]
    about, result = "A Python loop over the columns of x.", f"torch.stack(parts, {int(batch)})"
    return texts.write_torch("torch_columns", about, _MODULE, loop, ("python_loop",), result)


def _write_c(pre: Chain, name: str, batch: bool, reduced: bool) -> list[TeacherKernel]:
    x = "x[r * cols + c]"
    element = _COMBINE[name][2].format(v=f"pre({x})" if pre else x, y="y[c * rows + r]")
    program = _describe_program(batch, reduced, pre.function())
    if batch:
        program = replace(program, sizes={"batch": "x.shape[0]", **program.sizes})

    def each(source: list[str]) -> list[str]:
        """Repeat for every matrix of a batch."""
        if not batch:
            return source
        moved = ", ".join(f"{one} += rows * cols" for one in ("x", "y", "out"))
        return texts.block(f"for (long b = 0; b < batch; ++b, {moved})", *source)

    if reduced:
        summed = f"{texts.FOR_ROWS} s += {element};"
        strided = texts.block(texts.FOR_COLS, "float s = 0.0f;", summed, "out[c] = s / rows;")
        keep = f"s[c - c0] += {element};"
    else:
        strided = texts.nest(texts.FOR_COLS, f"{texts.FOR_ROWS} out[c * rows + r] = {element};")
        keep = f"out[c * rows + r] = {element};"

    def tiles(last: str = "rows") -> list[str]:
        tile = [
            "const long r1 = r0 + 16 < rows ? r0 + 16 : rows;",
            "for (long c = c0; c < c1; ++c)",
            f"  for (long r = r0; r < r1; ++r) {keep}",
        ]
        return texts.block(
            "for (long c0 = 0; c0 < cols; c0 += 16)",
            "const long c1 = c0 + 16 < cols ? c0 + 16 : cols;",
            *(["float s[16] = {0};"] * reduced),
            *texts.block(f"for (long r0 = 0; r0 < {last}; r0 += 16)", *tile),
            *(["for (long c = c0; c < c1; ++c) out[c] = s[c - c0] / rows;"] * reduced),
        )

    about = "C column by column, with strided reads."
    about_o3 = "C column by column, with all of the compiler's optimisations."
    about_tiles = "C in tiles of 16 by 16"
    about_cached = f"{about_tiles}, which stay in cache."
    about_threads = f"{about_tiles}, strips of tiles on several threads."
    about_wrong = f"{about_tiles}, without the last tiles."
    threads, fast = each([texts.PRAGMA, *tiles()]), ("fusion", "tiling")
    wrong = each(tiles("rows - 17"))
    return [
        program.write_c("cpp_strided", about, each(strided), texts.PLAIN),
        program.write_c("cpp_strided_o3", about_o3, each(strided), texts.VECTOR, ("fusion",)),
        program.write_c("cpp_tiles", about_cached, each(tiles()), texts.VECTOR, fast),
        program.write_c("cpp_tile_threads", about_threads, threads, texts.THREADS, fast),
        program.write_c("wrong_tail", about_wrong, wrong, texts.VECTOR, ("tiling",)),
    ]


def _write_triton(pre: Chain, name: str, batch: bool, reduced: bool) -> list[TeacherKernel]:
    combine = _COMBINE[name][3].format(v="v", y="w")
    moved = [
        "shift = tl.program_id(2) * rows * cols",
        "x += shift",
        "y += shift",
        "out += shift",
    ] * batch
    program, how = _describe_program(batch, reduced), ("fusion", "tiling")
    kernels: list[TeacherKernel] = []
    for side, warps in ((32, 4), (64, 8)):
        inner = [
            f"r = {'r0' if reduced else 'tl.program_id(1) * T'} + tl.arange(0, T)",
            "mask = (r[:, None] < rows) & (c[None, :] < cols)",
            "v = tl.load(x + r[:, None] * cols + c[None, :], mask, other=0.0)",
            *pre.triton,
            "v = tl.trans(v)",
            "turned = (c[:, None] < cols) & (r[None, :] < rows)",
            "w = tl.load(y + c[:, None] * rows + r[None, :], turned, other=0.0)",
        ]
        if reduced:
            source = [
                "c = tl.program_id(0) * T + tl.arange(0, T)",
                "a = tl.zeros((T,), tl.float32)",
                *texts.nest("for r0 in range(0, rows, T):", *inner, depth=4),
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
        variant, tile = f"triton_tiles_{side}", {"T": str(side)}
        kernels.append(
            program.write_triton(
                variant, about, source, how, grid=grid, constants=tile, warps=warps
            )
        )
    return kernels


def _write_cuda(pre: Chain, name: str, batch: bool, reduced: bool) -> list[TeacherKernel]:
    value = _COMBINE[name][2].format(v="pre({x})" if pre else "{x}", y="y[c * rows + r]")
    program = _describe_program(batch, reduced, pre.function(qualifier="__device__"))
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
    by_eight = f"(x.shape[{last}] + 7) // 8"
    if reduced:
        warp = [
            "const int c = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
            "if (c >= cols) return;",
            "float s = 0.0f;",
            f"for (int r = t; r < rows; r += 32) s += {value.format(x='x[r * cols + c]')};",
            texts.SUM_WARP.format("s"),
            "if (t == 0) out[c] = s / rows;",
        ]
        about = "CUDA, a warp a column, combined by shuffles."
        techniques = ("fusion", "warp_shuffle")
        grid = f"{by_eight}, 1, 1"
        return [program.write_cuda("cuda_warp", about, warp, techniques, grid=grid)]
    about = "CUDA, one element a thread, with strided reads."
    about_tiles = "CUDA tiles of 32 by 32 in shared memory."
    how, block = ("fusion", "tiling", "shared_memory"), "32, 8, 1"
    grid, tiles = f"{down}, {by_eight}, {depth}", f"{across}, {down}, {depth}"
    return [
        program.write_cuda("cuda_strided", about, plain, how[:1], grid=grid, block=block),
        program.write_cuda("cuda_tiles", about_tiles, shared, how, grid=tiles, block=block),
    ]
