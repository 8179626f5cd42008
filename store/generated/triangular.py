"""Products with a triangle of a square matrix: half of the work can be left out."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing import elementwise_chain, teacher, texts, triangle_programs, words
from store.generated.writing.draw import Draw
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Kernel, Task
from store.generated.writing.triangle_programs import Triangle, add_offset

SPLIT = "test"
_N = (128, 144, 160, 192, 200, 224, 256, 288, 300)
_M = (64, 96, 100, 128, 160, 192, 200, 256)
_BOUND = (
    "About half of the matrix that is multiplied is zeros, which take part in the product all the "
    "same, and cutting it out of a writes another matrix."
)
_MODULE = Module(inputs=("a", "x"))


def task(draw: Draw) -> Task:
    """Return a product with a triangle, one before elementwise steps, or one that is averaged."""
    level = draw.choice((1, 2, 2, 3))
    lower = draw.integer_below(2) == 1
    offset = draw.choice((0, 0, 1, 2, 5))
    vector = level < 3 and draw.integer_below(4) == 0
    count = (0, 1 + draw.integer_below(2), draw.integer_below(3))[level - 1]
    post = (
        elementwise_chain.draw_chain(draw, count, only=elementwise_chain.AFTER_PRODUCT)
        if count
        else ()
    )
    one = Triangle(lower=lower, offset=offset, vector=vector, reduced=level == 3)
    after = [*elementwise_chain.torch_lines(post, "v"), *["v = v.mean(dim=1)"] * one.reduced]
    lines = [f"v = {one.reference}", *after]
    n, m = draw.choice(_N), draw.choice(_M)
    sizes = {"N": n * (4 if vector else 1), **({} if vector else {"M": m})}
    side = "lower" if lower else "upper"
    shifted = f" {offset} off the diagonal" if offset else ""
    titles = [f"{side} triangle{shifted} times {'vector' if vector else 'matrix'}"]
    titles += [elementwise_chain.title(post)] * bool(post) + ["mean of rows"] * one.reduced
    title = f"Matrix: {', '.join(titles)}"
    shapes = ["N, N", "N" if vector else "N, M"]
    code = render_reference(f"{title}.", _MODULE, [*lines, "return v"], sizes, shapes)
    last = [*elementwise_chain.inplace_lines(post, "v"), *["v = v.mean(dim=1)"] * one.reduced]
    kernels = [
        *_torch(one, last),
        *triangle_programs.cpp_kernels(_MODULE, one, post),
        *triangle_programs.triton_kernels(_MODULE, one, post),
        *triangle_programs.cuda_kernels(_MODULE, one, post),
        teacher.round_inputs(_MODULE, lines),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"N": draw.choice((1024, 2048)), **({} if vector else {"M": draw.choice((512, 1024))})}
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, _BOUND),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _torch(one: Triangle, last: Sequence[str]) -> list[Kernel]:
    made: list[Kernel] = []
    if one.lower:
        end = f"max({add_offset('r', 1 - one.offset)}, 0)"
        row = f"a[r, :{end}] @ x[:{end}]"
    else:
        row = f"a[r, {add_offset('r', one.offset)} :] @ x[{add_offset('r', one.offset)} :]"
    for variant, about, product, found in (
        (
            "torch_two_halves",
            "Two products, of the upper and the lower rows, without most of the zeros.",
            ["s = (a.shape[0] + 1) // 2", one.blocks],
            ("skips_zeros",),
        ),
        (
            "torch_blocks_32",
            "Products of 32 rows at a time, which end at the diagonal.",
            ["s = 32", one.blocks],
            ("skips_zeros", "cache_blocking"),
        ),
        (
            "torch_rows",
            "A Python loop over rows that end at the diagonal.",
            [f"v = torch.stack([{row} for r in range(a.shape[0])])"],
            ("skips_zeros", "python_loop"),
        ),
    ):
        made.append(
            texts.torch_kernel(
                about, _MODULE, [*product, *last, "return v"], variant=variant, techniques=found
            )
        )
    about = "The product with the whole matrix."
    made.append(
        texts.torch_kernel(
            about,
            _MODULE,
            ["v = a @ x", *last, "return v"],
            variant="wrong_whole",
            techniques=(),
            right=False,
        )
    )
    return made
