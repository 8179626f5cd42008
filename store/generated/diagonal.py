"""Products with diagonal matrices, and diagonals of products: most of the work can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.generated.writing import elementwise_chain, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Kernel, Task

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
    """At row r and a block of columns c; {load:…} is replaced by a load under the mask."""
    reduced: bool = False


_KINDS = (
    _Kind(
        title="diagonal matrix times matrix",
        inputs={"d": "ROWS", "x": "ROWS, COLS"},
        torch="torch.diag(d) @ x",
        fast="d[:, None] * x",
        slow="d[r] * x[r]",
        term="d[r] * x[r * cols + c]",
        wrong="d[c % rows] * x[r * cols + c]",
        triton="tl.load(d + r) * tl.load(x + r * cols + c, mask, other=0.0)",
    ),
    _Kind(
        title="matrix times diagonal matrix",
        inputs={"d": "COLS", "x": "ROWS, COLS"},
        torch="x @ torch.diag(d)",
        fast="x * d",
        slow="x[r] * d",
        term="x[r * cols + c] * d[c]",
        wrong="x[r * cols + c] * d[r % cols]",
        triton="tl.load(x + r * cols + c, mask, other=0.0) * tl.load(d + c, mask, other=0.0)",
    ),
    _Kind(
        title="matrix between two diagonal matrices",
        inputs={"d": "ROWS", "e": "COLS", "x": "ROWS, COLS"},
        torch="torch.diag(d) @ x @ torch.diag(e)",
        fast="d[:, None] * x * e",
        slow="d[r] * x[r] * e",
        term="d[r] * x[r * cols + c] * e[c]",
        wrong="d[r] * x[r * cols + c]",
        triton="tl.load(d + r) * tl.load(x + r * cols + c, mask, other=0.0) "
        "* tl.load(e + c, mask, other=0.0)",
    ),
    _Kind(
        title="diagonal of a product",
        inputs={"y": "COLS, ROWS", "x": "ROWS, COLS"},
        torch="torch.diagonal(x @ y)",
        fast="(x * y.t()).sum(dim=1)",
        slow="torch.dot(x[r], y[:, r])",
        term="x[r * cols + c] * y[c * rows + r]",
        wrong="x[r * cols + c] * y[(c * rows + r + 1) % (rows * cols)]",
        triton="tl.load(x + r * cols + c, mask, other=0.0) "
        "* tl.load(y + c * rows + r, mask, other=0.0)",
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
        triton="tl.load(x + r * cols + c, mask, other=0.0) "
        "* tl.load(y + r * cols + c, mask, other=0.0)",
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
        triton="tl.load(x + r * cols + c, mask, other=0.0) * tl.load(d + c, mask, other=0.0) "
        "* tl.load(y + r * cols + c, mask, other=0.0)",
        reduced=True,
    ),
)


def task(draw: Draw) -> Task:
    """Return a product, one before elementwise steps, or the diagonal of a product."""
    level = draw.choice((1, 2, 2, 3))
    kinds = [kind for kind in _KINDS if kind.reduced == (level == 3)]
    kind = draw.choice(kinds)
    if level == 3:
        post = (
            elementwise_chain.draw_chain(draw, 1, only=elementwise_chain.AFTER_PRODUCT)
            if draw.integer_below(2)
            else ()
        )
    else:
        post = elementwise_chain.draw_chain(draw, draw.choice((1, 2))) if level == 2 else ()
    module = Module(inputs=tuple(kind.inputs))
    after = elementwise_chain.torch_lines(post, "v")
    lines = [f"v = {kind.torch}", *after]
    rows, cols = draw.choice(_N), draw.choice(_M)
    title = f"Matrix: {', '.join(filter(None, (kind.title, elementwise_chain.title(post))))}"
    sizes, shapes = {"ROWS": rows, "COLS": cols}, list(kind.inputs.values())
    code = render_reference(
        f"{title}.",
        module,
        [*lines, "return v"],
        sizes,
        shapes,
    )
    kernels = [
        teacher.rewrite(module, [f"v = {kind.fast}", *elementwise_chain.inplace_lines(post, "v")]),
        _loop_kernel(module, kind, after),
        *_cpp(module, kind, post),
        *_triton(module, kind, post),
        *_cuda(module, kind, post),
        teacher.round_inputs(module, lines),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"ROWS": draw.choice((1024, 2048)), "COLS": draw.choice((1024, 2048))}
    bound = (
        f"The product computes {rows} x {rows} elements, of which only the diagonal is kept."
        if kind.reduced
        else "torch.diag writes a matrix that is zero but for its diagonal, and the product "
        "multiplies all of it; scaling rows or columns gives the same."
    )
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, bound),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _loop_kernel(module: Module, kind: _Kind, after: Sequence[str]) -> Kernel:
    about = "A Python loop over rows without the full product."
    lines = [f"v = torch.stack([{kind.slow} for r in range(x.shape[0])])", *after, "return v"]
    return texts.torch_kernel(
        about, module, lines, variant="torch_rows", techniques=("python_loop", "skips_zeros")
    )


def _write_output(kind: _Kind) -> str:
    return "x.new_empty(x.shape[0])" if kind.reduced else "torch.empty_like(x)"


def _cpp(module: Module, kind: _Kind, post: Sequence[Step]) -> list[Kernel]:
    steps = elementwise_chain.c_lines(post)

    def loop(term: str) -> list[str]:
        if kind.reduced:
            return [
                "for (long r = 0; r < rows; ++r) {",
                "  float v = 0.0f;",
                f"  for (long c = 0; c < cols; ++c) v += {term};",
                *(f"  {line}" for line in steps),
                "  out[r] = v;",
                "}",
            ]
        return [
            "for (long r = 0; r < rows; ++r)",
            "  for (long c = 0; c < cols; ++c) {",
            f"    float v = {term};",
            *(f"    {line}" for line in steps),
            "    out[r * cols + c] = v;",
            "  }",
        ]

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        return texts.cpp_kernel(
            about,
            module,
            source,
            out=_write_output(kind),
            sizes=texts.ROWS_COLS,
            flags=flags,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    source = loop(kind.term)
    fast = ("skips_zeros", "fusion", "vectorised")
    return [
        kernel(
            "cpp_scalar",
            "C without the full product, one element at a time.",
            source,
            texts.PLAIN,
            "skips_zeros",
        ),
        kernel(
            "cpp_vector",
            "C without the full product, vectorised by the compiler.",
            source,
            texts.VECTOR,
            *fast,
        ),
        kernel(
            "cpp_threads",
            "C without the full product, vectorised, rows on several threads.",
            [texts.PRAGMA, *source],
            texts.THREADS,
            *fast,
            "threads",
        ),
        kernel(
            "wrong_index",
            "C that takes a wrong element of the other factor.",
            loop(kind.wrong),
            texts.VECTOR,
            *fast,
        ),
    ]


def _triton(module: Module, kind: _Kind, post: Sequence[Step]) -> list[Kernel]:
    steps = elementwise_chain.triton_lines(post)
    made: list[Kernel] = []
    for warps in (1, 4):
        source = ["r = tl.program_id(0)", "c = tl.arange(0, BLOCK)", "mask = c < cols"]
        source += [f"v = {kind.triton}"]
        if kind.reduced:
            source += ["v = tl.sum(v, axis=0)", *steps, "tl.store(out + r, v)"]
        else:
            source += [*steps, "tl.store(out + r * cols + c, v, mask)"]
        about = f"A Triton program a row, without the full product; {warps} warp"
        about += f"{'s' * (warps > 1)}."
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out=_write_output(kind),
                sizes=texts.ROWS_COLS,
                grid="x.shape[0],",
                meta={"BLOCK": "triton.next_power_of_2(x.shape[1])"},
                warps=warps,
                variant=f"triton_row_{warps}",
                techniques=("skips_zeros", "fusion"),
            )
        )
    return made


def _cuda(module: Module, kind: _Kind, post: Sequence[Step]) -> list[Kernel]:
    steps = elementwise_chain.c_lines(post)
    if kind.reduced:
        about = "CUDA, a warp a row without the full product, combined by shuffles."
        source = [
            "const int r = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
            "if (r >= rows) return;",
            "float v = 0.0f;",
            f"for (int c = t; c < cols; c += 32) v += {kind.term};",
            "for (int h = 16; h > 0; h /= 2) v += __shfl_xor_sync(0xffffffff, v, h);",
            *steps,
            "if (t == 0) out[r] = v;",
        ]
        grid, technique = "(x.shape[0] + 7) // 8, 1, 1", "warp_shuffle"
    else:
        about = "CUDA, one element a thread, without the full product."
        source = [
            "const int r = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x;",
            "if (c >= cols) return;",
            f"float v = {kind.term};",
            *steps,
            "out[r * cols + c] = v;",
        ]
        grid, technique = "(x.shape[1] + 255) // 256, x.shape[0], 1", "coalesced"
    return [
        texts.cuda_kernel(
            about,
            module,
            source,
            out=_write_output(kind),
            sizes=texts.ROWS_COLS,
            grid=grid,
            variant="cuda_warp" if kind.reduced else "cuda_rows",
            techniques=("skips_zeros", "fusion", technique),
        )
    ]
