"""Products with a triangle of a square matrix: half of the work can be left out."""

from __future__ import annotations

from dataclasses import dataclass

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "test"
_N = (128, 144, 160, 192, 200, 224, 256, 288, 300)
_M = (64, 96, 100, 128, 160, 192, 200, 256)
_BOUND = (
    "About half of the matrix that is multiplied is zeros, which take part in the product all the "
    "same, and cutting it out of a writes another matrix."
)
_MODULE = Module(inputs=("a", "x"))


@dataclass(frozen=True, kw_only=True)
class _Triangle:
    lower: bool
    offset: int
    """Distance of the triangle from the diagonal."""
    vector: bool
    reduced: bool
    """Whether the rows of the answer are averaged."""

    @property
    def first(self) -> str:
        """First k of row i, in C."""
        return "0" if self.lower else texts.add_offset("i", self.offset)

    @property
    def last(self) -> str:
        """End of the k of row i, in C."""
        return texts.add_offset("i", 1 - self.offset) if self.lower else "n"


def task(draw: Draw) -> Task:
    """Return a product with a triangle, one before elementwise steps, or one that is averaged."""
    level = draw.choice((1, 2, 2, 3))
    lower = draw.integer_below(2) == 1
    offset = draw.choice((0, 0, 1, 2, 5))
    vector = level < 3 and draw.integer_below(4) == 0
    count = (0, 1 + draw.integer_below(2), draw.integer_below(3))[level - 1]
    post = chain.draw_chain(draw, count, only=chain.AFTER_PRODUCT)
    triangle = _Triangle(lower=lower, offset=offset, vector=vector, reduced=level == 3)
    mean = ["v = v.mean(dim=1)"] * triangle.reduced
    way = f"tril(a, {-offset})" if lower else f"triu(a, {offset})"
    product = f"torch.{way} @ x".replace("(a, 0)", "(a)")
    lines = [f"v = {product}", *post.torch("v"), *mean]
    n, m = draw.choice(_N), draw.choice(_M)
    side = "lower" if lower else "upper"
    shifted = f" {offset} off the diagonal" if offset else ""
    titles = [f"{side} triangle{shifted} times {'vector' if vector else 'matrix'}"]
    titles += [post.title] * bool(post) + ["mean of rows"] * triangle.reduced
    program = Program(
        _MODULE,
        "x.new_empty(a.shape[0])" if triangle.reduced else "torch.empty_like(x)",
        {"n": "a.shape[0]"} | ({} if vector else {"m": "x.shape[1]"}),
    )
    return texts.write_task(
        draw,
        title=f"Matrix: {', '.join(titles)}",
        level=level,
        module=_MODULE,
        lines=lines,
        sizes={"N": n * 4} if vector else {"N": n, "M": m},
        shapes=["N, N", "N" if vector else "N, M"],
        bound=_BOUND,
        kernels=[
            *_write_torch(triangle, [*post.inplace("v"), *mean]),
            *_write_c(program, triangle, post),
            *_write_triton(program, triangle, post),
            _write_cuda(program, triangle, post),
            texts.write_rounded(_MODULE, lines),
        ],
        cuda={"N": (1024, 2048)} | ({} if vector else {"M": (512, 1024)}),
    )


def _write_torch(triangle: _Triangle, last: list[str]) -> list[TeacherKernel]:
    if triangle.lower:
        end = f"max({texts.add_offset('r', 1 - triangle.offset)}, 0)"
        row = f"a[r, :{end}] @ x[:{end}]"
        offset = texts.add_offset("i", -triangle.offset)
        part = f"a[i : i + s, : i + s].tril({offset}) @ x[: i + s]"
    else:
        start = texts.add_offset("r", triangle.offset)
        row = f"a[r, {start} :] @ x[{start} :]"
        part = f"a[i : i + s, i:].triu({triangle.offset}) @ x[i:]"
    # The product of s rows at a time.
    product = f"v = torch.cat([{part} for i in range(0, a.shape[0], s)])"
    halves = ["s = (a.shape[0] + 1) // 2", product, *last]
    blocks = ["s = 32", product, *last]
    rows = [f"v = torch.stack([{row} for r in range(a.shape[0])])", *last]
    about_halves = "Two products, of the upper and the lower rows, without most of the zeros."
    about_blocks = "Products of 32 rows at a time, which end at the diagonal."
    about_rows = "A Python loop over rows that end at the diagonal."
    return [
        texts.write_torch(variant, about, _MODULE, lines, techniques)
        for variant, about, lines, techniques in (
            ("torch_two_halves", about_halves, halves, ("skips_zeros",)),
            ("torch_blocks_32", about_blocks, blocks, ("skips_zeros", "cache_blocking")),
            ("torch_rows", about_rows, rows, ("skips_zeros", "python_loop")),
            ("wrong_whole", "The product with the whole matrix.", ["v = a @ x", *last], ()),
        )
    ]


def _write_c(program: Program, triangle: _Triangle, post: Chain) -> list[TeacherKernel]:
    store = "t += v;" if triangle.reduced else "out[i * m + j] = v;"
    rows, columns = "for (long i = 0; i < n; ++i)", "for (long j = 0; j < m; ++j)"

    def add_columns(*value: str) -> list[str]:
        """Keep v of each column, or its mean."""
        inner = texts.block(columns, *value, *post.c, store)
        return ["float t = 0.0f;", *inner, "out[i] = t / m;"] if triangle.reduced else inner

    def write_direct(first: str, last: str) -> list[str]:
        """Sum for one element of the answer after the other."""
        summed = f"for (long k = {first}; k < {last}; ++k) v += a[i * n + k] * x[k"
        if triangle.vector:
            body = ["float v = 0.0f;", f"{summed}];", *post.c, "out[i] = v;"]
        else:
            body = add_columns("float v = 0.0f;", f"{summed} * m + j];")
        return texts.block(rows, *body)

    by_rows = texts.block(
        rows,
        "float s[m];",
        f"{columns} s[j] = 0.0f;",
        f"for (long k = {triangle.first}; k < {triangle.last}; ++k)",
        f"  {columns} s[j] += a[i * n + k] * x[k * m + j];",
        *add_columns("float v = s[j];"),
    )
    right = write_direct(triangle.first, triangle.last)
    short = write_direct(
        *(
            (triangle.first, texts.add_offset("i", -triangle.offset))
            if triangle.lower
            else (texts.add_offset("i", triangle.offset + 1), triangle.last)
        )
    )
    fast = right if triangle.vector else by_rows
    how = "" if triangle.vector else ", whole rows of x at a time"
    about = "C loops that end at the diagonal"
    about_scalar = f"{about}, one element of the answer at a time."
    about_vector = f"{about}{how}, vectorised by the compiler."
    about_threads = f"{about}{how}, rows on several threads."
    about_wrong = "C loops that leave out the elements next to the zeros."
    threads = [f"{texts.PRAGMA} schedule(dynamic, 8)", *fast]
    zeros, techniques = ("skips_zeros",), ("skips_zeros", "vectorised")
    return [
        program.write_c("cpp_scalar", about_scalar, right, texts.PLAIN, zeros),
        program.write_c("cpp_vector", about_vector, fast, texts.VECTOR, techniques),
        program.write_c("cpp_threads", about_threads, threads, texts.THREADS, techniques),
        program.write_c("wrong_diagonal", about_wrong, short, texts.VECTOR, zeros),
    ]


def _write_triton(program: Program, triangle: _Triangle, post: Chain) -> list[TeacherKernel]:
    """Return a program a row for a vector, otherwise tiles."""
    row = texts.add_offset("r[:, None]", -triangle.offset if triangle.lower else triangle.offset)
    keep = f"({row} >= k[None, :]) & (r[:, None] < n)"
    if not triangle.lower:
        keep = f"(k[None, :] >= {row}) & (k[None, :] < n) & (r[:, None] < n)"
    if triangle.vector:
        scalar = texts.add_offset("r", -triangle.offset if triangle.lower else triangle.offset)
        keep = f"k <= {scalar}" if triangle.lower else f"(k >= {scalar}) & (k < n)"
        about = "A Triton program a row, that reads nothing beyond the diagonal."
        source = [
            "r = tl.program_id(0)",
            "k = tl.arange(0, BLOCK)",
            f"keep = {keep}",
            "v = tl.load(a + r * n + k, keep, other=0.0) * tl.load(x + k, keep, other=0.0)",
            "v = tl.sum(v, axis=0)",
            *post.triton,
            "tl.store(out + r, v)",
        ]
        block = {"BLOCK": "triton.next_power_of_2(a.shape[0])"}
        techniques = ("skips_zeros", "fusion")
        return [
            program.write_triton(
                "triton_row", about, source, techniques, grid="a.shape[0],", constants=block
            )
        ]
    limits = (
        "0, tl.minimum((tl.program_id(0) + 1) * T, n), 16"
        if triangle.lower
        else "tl.program_id(0) * T, n, 16"
    )
    product = [
        "v = tl.zeros((T, T), tl.float32)",
        f"for k0 in range({limits}):",
        "    k = k0 + tl.arange(0, 16)",
        f"    left = tl.load(a + r[:, None] * n + k[None, :], {keep}, other=0.0)",
        "    inside = (k[:, None] < n) & (c[None, :] < m)",
        "    right = tl.load(x + k[:, None] * m + c[None, :], inside, other=0.0)",
        '    v += tl.dot(left, right, input_precision="ieee")',
        *post.triton,
    ]
    kernels: list[TeacherKernel] = []
    how = ("skips_zeros", "tiling", "fusion")
    for side in (32, 64):
        if triangle.reduced:
            total = "total += tl.sum(tl.where(c[None, :] < m, v, 0.0), axis=1)"
            inner = ["c = c0 + tl.arange(0, T)", *product, total]
            source = [
                "r = tl.program_id(0) * T + tl.arange(0, T)",
                "total = tl.zeros((T,), tl.float32)",
                *texts.nest("for c0 in range(0, m, T):", *inner, depth=4),
                "tl.store(out + r, total / m, r < n)",
            ]
            grid = f"triton.cdiv(a.shape[0], {side}),"
        else:
            source = [
                "r = tl.program_id(0) * T + tl.arange(0, T)",
                "c = tl.program_id(1) * T + tl.arange(0, T)",
                *product,
                "inside = (r[:, None] < n) & (c[None, :] < m)",
                "tl.store(out + r[:, None] * m + c[None, :], v, inside)",
            ]
            grid = f"triton.cdiv(a.shape[0], {side}), triton.cdiv(x.shape[1], {side})"
        about = f"Triton tiles of {side} by {side} that end at the diagonal, in full precision."
        variant, tile = f"triton_tiles_{side}", {"T": str(side)}
        kernels.append(program.write_triton(variant, about, source, how, grid=grid, constants=tile))
    return kernels


def _write_cuda(program: Program, triangle: _Triangle, post: Chain) -> TeacherKernel:
    """Return a warp a row, or an element a thread."""
    summed = f"for (int k = {triangle.first}; k < {triangle.last}; ++k)"
    body = ["float v = 0.0f;", f"{summed} v += a[i * n + k] * x[k * m + j];"]
    warp = [
        "const int i = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
        "if (i >= n) return;",
    ]
    grid, block = "(a.shape[0] + 7) // 8, 1, 1", "256, 1, 1"
    if triangle.vector:
        about = "CUDA, a warp a row that ends at the diagonal, combined by shuffles."
        source = [
            *warp,
            "float v = 0.0f;",
            f"for (int k = {triangle.first} + t; k < {triangle.last}; k += 32) "
            "v += a[i * n + k] * x[k];",
            texts.SUM_WARP.format("v"),
            *post.c,
            "if (t == 0) out[i] = v;",
        ]
    elif triangle.reduced:
        about = "CUDA, a warp a row of the answer, combined by shuffles."
        source = [
            *warp,
            "float s = 0.0f;",
            *texts.block("for (int j = t; j < m; j += 32)", *body, *post.c, "s += v;"),
            texts.SUM_WARP.format("s"),
            "if (t == 0) out[i] = s / m;",
        ]
    else:
        about = "CUDA, one element of the answer a thread, in a loop that ends at the diagonal."
        source = [
            "const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;",
            "if (i >= n || j >= m) return;",
            *body,
            *post.c,
            "out[i * m + j] = v;",
        ]
        grid = "(x.shape[1] + 31) // 32, (a.shape[0] + 7) // 8, 1"
        block = "32, 8, 1"
    how = "warp_shuffle" if triangle.vector or triangle.reduced else "coalesced"
    techniques = ("skips_zeros", "fusion", how)
    return program.write_cuda("cuda_rows", about, source, techniques, grid=grid, block=block)
