"""Weighted sums of neighbours on a line or a grid, with zeros beyond the edge or around it."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing import elementwise_chain, stencil_programs, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.module import Module, render_reference
from store.generated.writing.stencil_programs import Stencil
from store.generated.writing.task import Kernel, Task

SPLIT = "test"
_ROWS = (64, 96, 128, 200, 256, 320, 384)
_COLS = (256, 300, 384, 500, 512, 640, 768, 1000)
_SHAPES = {
    "three points of a row": ((0, -1), (0, 0), (0, 1)),
    "five points of a row": ((0, -2), (0, -1), (0, 0), (0, 1), (0, 2)),
    "three points of a column": ((-1, 0), (0, 0), (1, 0)),
    "five points of a cross": ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)),
}


def task(draw: Draw) -> Task:
    """Return a stencil, one before elementwise steps, or one whose rows are averaged."""
    level = draw.choice((1, 2, 2, 3))
    shape = draw.choice(sorted(_SHAPES))
    points = tuple((r, c, draw.number(0.1, 0.9)) for r, c in _SHAPES[shape])
    one = Stencil(points=points, wraps=draw.integer_below(2) == 1)
    post = elementwise_chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else ()
    reduced = level == 3
    module = Module()
    summed = _roll_lines(one) if one.wraps else _pad_lines(one)
    lines = [*summed, *elementwise_chain.torch_lines(post, "v"), *["v = v.mean(dim=1)"] * reduced]
    rows, cols = draw.sizes(_ROWS, _COLS, 1 << 16, 1 << 18)
    titles = [shape, "around the edge" if one.wraps else "zeros beyond the edge"]
    titles += [elementwise_chain.title(post)] * bool(post) + ["mean of rows"] * reduced
    title = f"Stencil: {', '.join(titles)}"
    sizes, shapes = {"ROWS": rows, "COLS": cols}, ["ROWS, COLS"]
    code = render_reference(f"{title}.", module, [*lines, "return v"], sizes, shapes)
    last = [*elementwise_chain.inplace_lines(post, "v"), *(["v = v.mean(dim=1)"] * reduced)]
    kernels = [
        teacher.rewrite(module, [*_inplace_lines(one), *last]),
        _convolution(module, one, last),
        *stencil_programs.cpp_kernels(module, one, post, reduced),
        *stencil_programs.triton_kernels(module, one, post, reduced),
        *stencil_programs.cuda_kernels(module, one, post, reduced),
        teacher.round_inputs(module, lines),
        _write_one_sided(module, one, last),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"ROWS": draw.choice((2048, 4096)), "COLS": draw.choice((2048, 4096))}
    bound = "Neighbouring answers read mostly the same elements, so that one pass over memory is "
    bound += f"enough; the reference goes over the grid anew for each of {len(points)} points."
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, bound),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _roll_lines(one: Stencil) -> list[str]:
    def term(r: int, c: int, w: float) -> str:
        rolled = f"torch.roll(x, ({-r}, {-c}), (0, 1))" if (r, c) != (0, 0) else "x"
        return f"{w} * {rolled}"

    first, *others = (term(*point) for point in one.points)
    return [f"v = {first}", *(f"v = v + {other}" for other in others)]


def _pad_lines(one: Stencil) -> list[str]:
    high, wide = one.reach

    def term(r: int, c: int, w: float) -> str:
        return f"{w} * p[{r + high} : {r + high} + rows, {c + wide} : {c + wide} + cols]"

    first, *others = (term(*point) for point in one.points)
    return [
        "rows, cols = x.shape",
        f"p = F.pad(x, ({wide}, {wide}, {high}, {high}))",
        f"v = {first}",
        *(f"v = v + {other}" for other in others),
    ]


def _inplace_lines(one: Stencil) -> list[str]:
    """Add to what is there the parts of the grid that have the neighbour."""
    centre = next(w for r, c, w in one.points if (r, c) == (0, 0))
    lines = [f"v = x * {centre}"]
    for r, c, w in one.points:
        if (r, c) == (0, 0):
            continue
        to, near = _ranges(r, c)
        lines.append(f"v[{to}].add_(x[{near}], alpha={w})")
        if one.wraps:
            to, near = _ranges(r, c, wrapped=True)
            lines.append(f"v[{to}].add_(x[{near}], alpha={w})")
    return lines


def _ranges(r: int, c: int, wrapped: bool = False) -> tuple[str, str]:
    """Return where a neighbour is added to and where it is; `wrapped` gives the other side."""

    def slice_inside(by: int) -> tuple[str, str]:
        if by == 0:
            return ":", ":"
        return (f":{-by}", f"{by}:") if by > 0 else (f"{-by}:", f":{by}")

    def slice_beyond(by: int) -> tuple[str, str]:
        if by == 0:
            return ":", ":"
        return (f"{-by}:", f":{by}") if by > 0 else (f":{-by}", f"{by}:")

    side = slice_beyond if wrapped else slice_inside
    (to_r, near_r), (to_c, near_c) = side(r), side(c)
    return f"{to_r}, {to_c}", f"{near_r}, {near_c}"


def _convolution(module: Module, one: Stencil, last: Sequence[str]) -> Kernel:
    about = "One convolution in place of the shifted sums."
    high, wide = one.reach
    weights = {(r, c): w for r, c, w in one.points}
    rows = [
        [weights.get((r, c), 0.0) for c in range(-wide, wide + 1)] for r in range(-high, high + 1)
    ]
    pad = f"({wide}, {wide}, {high}, {high})"
    mode = ', mode="circular"' if one.wraps else ""
    lines = [
        f"w = x.new_tensor({rows})",
        f"p = F.pad(x[None, None], {pad}{mode})",
        "v = F.conv2d(p, w[None, None])[0, 0]",
        *last,
        "return v",
    ]
    return texts.torch_kernel(
        about, module, lines, variant="torch_convolution", techniques=("library_call",)
    )


def _write_one_sided(module: Module, one: Stencil, last: Sequence[str]) -> Kernel:
    about = "The shifted sums without the last neighbour."
    less = Stencil(points=one.points[:-1], wraps=one.wraps)
    lines = [*_inplace_lines(less), *last, "return v"]
    return texts.torch_kernel(
        about,
        module,
        lines,
        variant="wrong_neighbour",
        techniques=("inplace",),
        right=False,
    )
