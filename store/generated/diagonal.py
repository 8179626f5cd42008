"""Products with diagonal matrices, and diagonals of products: most of the work can be left out."""

from __future__ import annotations

from dataclasses import dataclass

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "train"
_N = (160, 192, 200, 224, 256, 300, 320, 384, 448)
_M = (192, 200, 256, 300, 320, 384, 448, 512)


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One product; its answer is a matrix, or the sum of `term` over columns for every row."""

    title: str
    inputs: dict[str, str]
    """Name and shape of each input."""
    torch: str
    fast: str
    slow: str
    """One row r of the answer, for a loop in Python."""
    term: str
    """In C, at row r and column c; `rows` and `cols` are the sizes of the last input."""
    wrong: str
    """The same with a mistake."""
    triton: str
    """At row r and a block of columns c."""
    reduced: bool = False


_X = "tl.load(x + r * cols + c, mask, other=0.0)"
_KINDS = (
    _Kind(
        title="diagonal matrix times matrix",
        inputs={"d": "ROWS", "x": "ROWS, COLS"},
        torch="torch.diag(d) @ x",
        fast="d[:, None] * x",
        slow="d[r] * x[r]",
        term="d[r] * x[r * cols + c]",
        wrong="d[c % rows] * x[r * cols + c]",
        triton=f"tl.load(d + r) * {_X}",
    ),
    _Kind(
        title="matrix times diagonal matrix",
        inputs={"d": "COLS", "x": "ROWS, COLS"},
        torch="x @ torch.diag(d)",
        fast="x * d",
        slow="x[r] * d",
        term="x[r * cols + c] * d[c]",
        wrong="x[r * cols + c] * d[r % cols]",
        triton=f"{_X} * tl.load(d + c, mask, other=0.0)",
    ),
    _Kind(
        title="matrix between two diagonal matrices",
        inputs={"d": "ROWS", "e": "COLS", "x": "ROWS, COLS"},
        torch="torch.diag(d) @ x @ torch.diag(e)",
        fast="d[:, None] * x * e",
        slow="d[r] * x[r] * e",
        term="d[r] * x[r * cols + c] * e[c]",
        wrong="d[r] * x[r * cols + c]",
        triton=f"tl.load(d + r) * {_X} * tl.load(e + c, mask, other=0.0)",
    ),
    _Kind(
        title="diagonal of a product",
        inputs={"y": "COLS, ROWS", "x": "ROWS, COLS"},
        torch="torch.diagonal(x @ y)",
        fast="(x * y.t()).sum(dim=1)",
        slow="torch.dot(x[r], y[:, r])",
        term="x[r * cols + c] * y[c * rows + r]",
        wrong="x[r * cols + c] * y[(c * rows + r + 1) % (rows * cols)]",
        triton=f"{_X} * tl.load(y + c * rows + r, mask, other=0.0)",
        reduced=True,
    ),
    _Kind(
        title="diagonal of a product with the transposed",
        inputs={"y": "ROWS, COLS", "x": "ROWS, COLS"},
        torch="torch.diagonal(x @ y.t())",
        fast="(x * y).sum(dim=1)",
        slow="torch.dot(x[r], y[r])",
        term="x[r * cols + c] * y[r * cols + c]",
        wrong="x[r * cols + c] * y[c * rows + r]",
        triton=f"{_X} * tl.load(y + r * cols + c, mask, other=0.0)",
        reduced=True,
    ),
    _Kind(
        title="diagonal of a product around a diagonal matrix",
        inputs={"d": "COLS", "y": "ROWS, COLS", "x": "ROWS, COLS"},
        torch="torch.diagonal(x @ torch.diag(d) @ y.t())",
        fast="(x * d * y).sum(dim=1)",
        slow="torch.dot(x[r] * d, y[r])",
        term="x[r * cols + c] * d[c] * y[r * cols + c]",
        wrong="x[r * cols + c] * d[c]",
        triton=f"{_X} * tl.load(d + c, mask, other=0.0) "
        "* tl.load(y + r * cols + c, mask, other=0.0)",
        reduced=True,
    ),
)


def task(draw: Draw) -> Task:
    """Return a product, one before elementwise steps, or the diagonal of a product."""
    level = draw.choice((1, 2, 2, 3))
    kind = draw.choice([kind for kind in _KINDS if kind.reduced == (level == 3)])
    post = Chain()
    if level == 3:
        post = chain.draw_chain(draw, draw.integer_below(2), only=chain.AFTER_PRODUCT)
    elif level == 2:
        post = chain.draw_chain(draw, draw.choice((1, 2)))
    module = Module(inputs=tuple(kind.inputs))
    lines = [f"v = {kind.torch}", *post.torch("v")]
    rows, cols = draw.choice(_N), draw.choice(_M)
    by_rows = [f"v = torch.stack([{kind.slow} for r in range(x.shape[0])])", *post.torch("v")]
    program = Program(module, "x.new_empty(x.shape[0])" if kind.reduced else "torch.empty_like(x)")
    bound = (
        f"The product computes {rows} x {rows} elements, of which only the diagonal is kept."
        if kind.reduced
        else "torch.diag writes a matrix that is zero but for its diagonal, and the product "
        "multiplies all of it; scaling rows or columns gives the same."
    )
    return texts.write_task(
        draw,
        title=f"Matrix: {', '.join(filter(None, (kind.title, post.title)))}",
        level=level,
        module=module,
        lines=lines,
        sizes={"ROWS": rows, "COLS": cols},
        shapes=list(kind.inputs.values()),
        bound=bound,
        kernels=[
            texts.write_rewrite(module, [f"v = {kind.fast}", *post.inplace("v")]),
            texts.write_torch(
                "torch_rows",
                "A Python loop over rows without the full product.",
                module,
                by_rows,
                ("python_loop", "skips_zeros"),
            ),
            *_write_c(program, kind, post),
            *_write_triton(program, kind, post),
            _write_cuda(program, kind, post),
            texts.write_rounded(module, lines),
        ],
        cuda={"ROWS": (1024, 2048), "COLS": (1024, 2048)},
    )


def _write_c(program: Program, kind: _Kind, post: Chain) -> list[TeacherKernel]:
    def loop(term: str) -> list[str]:
        if kind.reduced:
            summed = f"{texts.FOR_COLS} v += {term};"
            return texts.block(texts.FOR_ROWS, "float v = 0.0f;", summed, *post.c, "out[r] = v;")
        body = [f"float v = {term};", *post.c, "out[r * cols + c] = v;"]
        return texts.nest(texts.FOR_ROWS, *texts.block(texts.FOR_COLS, *body))

    fast = ("skips_zeros", "fusion", "vectorised")
    about = "C that takes a wrong element of the other factor."
    return [
        *program.write_c_levels(
            "C without the full product", loop(kind.term), fast, scalar=("skips_zeros",)
        ),
        program.write_c("wrong_index", about, loop(kind.wrong), texts.VECTOR, fast),
    ]


def _write_triton(program: Program, kind: _Kind, post: Chain) -> list[TeacherKernel]:
    source = [*texts.TRITON_ROW[:3], f"v = {kind.triton}"]
    if kind.reduced:
        source += ["v = tl.sum(v, axis=0)", *post.triton, "tl.store(out + r, v)"]
    else:
        source += [*post.triton, "tl.store(out + r * cols + c, v, mask)"]
    about = "A Triton program a row, without the full product"
    return program.write_triton_rows(about, source, (1, 4), ("skips_zeros", "fusion"))


def _write_cuda(program: Program, kind: _Kind, post: Chain) -> TeacherKernel:
    if kind.reduced:
        source = [
            *texts.WARP_ROW,
            "float v = 0.0f;",
            f"for (int c = t; c < cols; c += 32) v += {kind.term};",
            texts.SUM_WARP.format("v"),
            *post.c,
            "if (t == 0) out[r] = v;",
        ]
        about = "CUDA, a warp a row without the full product, combined by shuffles."
        how = ("skips_zeros", "fusion", "warp_shuffle")
        return program.write_cuda("cuda_warp", about, source, how, grid=texts.WARP_GRID)
    source = [
        "const int r = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x;",
        "if (c >= cols) return;",
        f"float v = {kind.term};",
        *post.c,
        "out[r * cols + c] = v;",
    ]
    about = "CUDA, one element a thread, without the full product."
    how = ("skips_zeros", "fusion", "coalesced")
    grid = "(x.shape[1] + 255) // 256, x.shape[0], 1"
    return program.write_cuda("cuda_rows", about, source, how, grid=grid)
