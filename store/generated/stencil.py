"""Weighted sums of neighbours on a line or a grid, with zeros beyond the edge or around it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "test"
_ROWS = (64, 96, 128, 200, 256, 320, 384)
_COLS = (256, 300, 384, 500, 512, 640, 768, 1000)
_SHAPES = {
    "three points of a row": ((0, -1), (0, 0), (0, 1)),
    "five points of a row": ((0, -2), (0, -1), (0, 0), (0, 1), (0, 2)),
    "three points of a column": ((-1, 0), (0, 0), (1, 0)),
    "five points of a cross": ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)),
}


@dataclass(frozen=True, kw_only=True)
class _Stencil:
    """Neighbours with their weights."""

    points: tuple[tuple[int, int, float], ...]
    """Offsets in rows and columns, and the weight."""
    wraps: bool
    """Whether the grid goes on at its other side."""

    @property
    def reach(self) -> tuple[int, int]:
        """Largest offset in rows and in columns."""
        return max(p[0] for p in self.points), max(p[1] for p in self.points)


def task(draw: Draw) -> Task:
    """Return a stencil, one before elementwise steps, or one whose rows are averaged."""
    level = draw.choice((1, 2, 2, 3))
    shape = draw.choice(sorted(_SHAPES))
    points = tuple((r, c, draw.number(0.1, 0.9)) for r, c in _SHAPES[shape])
    stencil = _Stencil(points=points, wraps=draw.integer_below(2) == 1)
    post = chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else Chain()
    reduced = level == 3
    module = Module()
    mean = ["v = v.mean(dim=1)"] * reduced
    lines = [*_shift_lines(stencil), *post.torch("v"), *mean]
    sizes = draw.sizes(_ROWS, _COLS, 1 << 16, 1 << 18)
    titles = [shape, "around the edge" if stencil.wraps else "zeros beyond the edge"]
    titles += [post.title] * bool(post) + ["mean of rows"] * reduced
    last = [*post.inplace("v"), *mean]
    less = [*_inplace_lines(replace(stencil, points=points[:-1])), *last]
    high, wide = stencil.reach
    weights = {(r, c): w for r, c, w in points}
    kernel = [
        [weights.get((r, c), 0.0) for c in range(-wide, wide + 1)] for r in range(-high, high + 1)
    ]
    mode = ', mode="circular"' if stencil.wraps else ""
    convolution = [
        f"w = x.new_tensor({kernel})",
        f"p = F.pad(x[None, None], ({wide}, {wide}, {high}, {high}){mode})",
        "v = F.conv2d(p, w[None, None])[0, 0]",
        *last,
    ]
    about = "One convolution in place of the shifted sums."
    about_wrong = "The shifted sums without the last neighbour."
    program = Program(module, "x.new_empty(x.shape[0])" if reduced else "torch.empty_like(x)")
    bound = "Neighbouring answers read mostly the same elements, so that one pass over memory is "
    bound += f"enough; the reference goes over the grid anew for each of {len(points)} points."
    return texts.write_task(
        draw,
        title=f"Stencil: {', '.join(titles)}",
        level=level,
        module=module,
        lines=lines,
        sizes=sizes,
        bound=bound,
        kernels=[
            texts.write_rewrite(module, [*_inplace_lines(stencil), *last]),
            texts.write_torch("torch_convolution", about, module, convolution, ("library_call",)),
            *_write_c(program, stencil, post, reduced),
            *_write_triton(program, stencil, post, reduced),
            _write_cuda(program, stencil, post, reduced),
            texts.write_rounded(module, lines),
            texts.write_torch("wrong_neighbour", about_wrong, module, less, ("inplace",)),
        ],
        cuda={"ROWS": (2048, 4096), "COLS": (2048, 4096)},
    )


def _shift_lines(stencil: _Stencil) -> list[str]:
    """Return the reference: a sum of the grid rolled, or cut out of a padded one."""
    high, wide = stencil.reach
    lines: list[str] = []
    if not stencil.wraps:
        lines = ["rows, cols = x.shape", f"p = F.pad(x, ({wide}, {wide}, {high}, {high}))"]
    for place, (r, c, w) in enumerate(stencil.points):
        shifted = f"torch.roll(x, ({-r}, {-c}), (0, 1))" if (r, c) != (0, 0) else "x"
        if not stencil.wraps:
            shifted = f"p[{r + high} : {r + high} + rows, {c + wide} : {c + wide} + cols]"
        lines.append(f"v = {'v + ' * bool(place)}{w} * {shifted}")
    return lines


def _inplace_lines(stencil: _Stencil) -> list[str]:
    """Add to what is there the parts of the grid that have the neighbour."""
    centre = next(w for r, c, w in stencil.points if (r, c) == (0, 0))
    lines = [f"v = x * {centre}"]
    for r, c, w in stencil.points:
        if (r, c) == (0, 0):
            continue
        for beyond in (False, True)[: 1 + stencil.wraps]:
            to, near = zip(_ranges(r, beyond), _ranges(c, beyond), strict=True)
            lines.append(f"v[{', '.join(to)}].add_(x[{', '.join(near)}], alpha={w})")
    return lines


def _ranges(by: int, beyond: bool) -> tuple[str, str]:
    """Return where a neighbour is added to and where it is, inside or at the other side."""
    if by == 0:
        return ":", ":"
    return (f"{-by}:", f":{by}") if (by > 0) == beyond else (f":{-by}", f"{by}:")


def _read_function(stencil: _Stencil, qualifier: str, whole: str) -> str:
    """Return the C function that reads an element that may lie beyond the edge."""
    body = (
        "return x[(r + rows) % rows * cols + (c + cols) % cols];"
        if stencil.wraps
        else "return r < 0 || c < 0 || r >= rows || c >= cols ? 0.0f : x[r * cols + c];"
    )
    arguments = f"const float* x, {whole} r, {whole} c, {whole} rows, {whole} cols"
    return f"{qualifier} float at({arguments}) {{\n  {body}\n}}\n"


def _guarded_sum(stencil: _Stencil) -> str:
    terms = (
        f"{w}f * at(x, {texts.add_offset('r', r)}, {texts.add_offset('c', c)}, rows, cols)"
        for r, c, w in stencil.points
    )
    return f"float v = {' + '.join(terms)};"


def _direct_sum(stencil: _Stencil) -> str:
    """Return the sum where every neighbor of p[c] is there."""
    # No shape has a neighbour that is in another row and another column.
    terms = (
        f"{w}f * p[c {'-' if min(r, c) < 0 else '+'} {'cols' if r else abs(c)}]"
        for r, c, w in stencil.points
    )
    return f"float v = {' + '.join(terms)};"


def _write_c(
    program: Program, stencil: _Stencil, post: Chain, reduced: bool
) -> list[TeacherKernel]:
    high, wide = stencil.reach
    keep = "s += v;" if reduced else "out[r * cols + c] = v;"
    begin, end = ["float s = 0.0f;"] * reduced, ["out[r] = s / cols;"] * reduced
    inner = texts.block(texts.FOR_COLS, _guarded_sum(stencil), *post.c, keep)
    guarded = texts.block(texts.FOR_ROWS, *begin, *inner, *end)
    value = "post(v)" if post else "v"
    store = f"s += {value};" if reduced else f"out[r * cols + c] = {value};"
    edge = f"{{ {_guarded_sum(stencil)} {store} }}"
    inner = texts.block(
        texts.FOR_ROWS,
        *begin,
        "const float* p = x + r * cols;",
        *[f"const int whole = r >= {high} && r + {high} < rows;"] * bool(high),
        f"const long a = {f'whole ? {wide} : cols' if high else wide}, b = cols - {wide};",
        f"for (long c = 0; c < a; ++c) {edge}",
        *texts.block("for (long c = a; c < b; ++c)", _direct_sum(stencil), store),
        *[f"for (long c = a < b ? b : a; c < cols; ++c) {edge}"] * bool(wide),
        *end,
    )
    at = _read_function(stencil, "static", "long")
    plain = replace(program, functions=at)
    called = replace(program, functions=at + post.function("post"))
    tests = "C that tests every neighbour"
    o3 = f"{tests}, with all of the compiler's optimisations."
    interior = "C with a loop without tests for the interior"
    fast = ("vectorised", "edge_split")
    about_vector = f"{interior}, vectorised by the compiler."
    about_threads = f"{interior}, rows on several threads."
    about_wrong = f"{tests} and leaves out the last columns."
    wrong = [line.replace("c < cols;", "c < cols - 5;") for line in guarded]
    threads = [texts.PRAGMA, *inner]
    return [
        plain.write_c("cpp_guarded", f"{tests}.", guarded, texts.PLAIN),
        plain.write_c("cpp_guarded_o3", o3, guarded, texts.VECTOR, ("vectorised",)),
        called.write_c("cpp_interior", about_vector, inner, texts.VECTOR, fast),
        called.write_c("cpp_threads", about_threads, threads, texts.THREADS, fast),
        plain.write_c("wrong_tail", about_wrong, wrong, texts.VECTOR),
    ]


def _write_triton(
    program: Program, stencil: _Stencil, post: Chain, reduced: bool
) -> list[TeacherKernel]:
    def load(r: int, c: int) -> str:
        row, col = texts.add_offset("r", r), texts.add_offset("c", c)
        if stencil.wraps:
            row = f"({row} + rows) % rows" if r else row
            col = f"({col} + cols) % cols" if c else col
            return f"tl.load(x + {row} * cols + {col}, mask, other=0.0)"
        inside = ["mask"]
        inside += [f"({row} >= 0) & ({row} < rows)"] * bool(r)
        inside += [f"({col} >= 0) & ({col} < cols)"] * bool(c)
        start = f"({row})" if r else row
        return f"tl.load(x + {start} * cols + {col}, {' & '.join(inside)}, other=0.0)"

    summed = [
        f"v {'+' * bool(place)}= {w} * {load(r, c)}"
        for place, (r, c, w) in enumerate(stencil.points)
    ]
    summed += post.triton
    techniques = ("fusion", "block_size")
    # r is a block too, because a mask cannot mix blocks and single numbers.
    if reduced:
        source = ["c = tl.arange(0, BLOCK)", "r = c * 0 + tl.program_id(0)", "mask = c < cols"]
        source += [*summed, "v = tl.sum(tl.where(mask, v, 0.0), axis=0) / cols"]
        source += ["tl.store(out + tl.program_id(0), v)"]
        block = {"BLOCK": "triton.next_power_of_2(x.shape[1])"}
        about = "A Triton program a row."
        return [
            program.write_triton(
                "triton_row", about, source, techniques, grid="x.shape[0],", constants=block
            )
        ]
    source = [
        "c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "r = c * 0 + tl.program_id(0)",
        "mask = c < cols",
        *summed,
        "tl.store(out + r * cols + c, v, mask)",
    ]
    return [
        program.write_triton(
            f"triton_{block}",
            f"A Triton program for {block} elements of a row.",
            source,
            techniques,
            grid=f"x.shape[0], triton.cdiv(x.shape[1], {block})",
            constants={"BLOCK": str(block)},
        )
        for block in (256, 1024)
    ]


def _write_cuda(program: Program, stencil: _Stencil, post: Chain, reduced: bool) -> TeacherKernel:
    program = replace(program, functions=_read_function(stencil, "__device__", "int"))
    if reduced:
        source = [
            *texts.WARP_ROW,
            "float s = 0.0f;",
            *texts.block(
                "for (int c = t; c < cols; c += 32)", _guarded_sum(stencil), *post.c, "s += v;"
            ),
            texts.SUM_WARP.format("s"),
            "if (t == 0) out[r] = s / cols;",
        ]
        about, techniques = "CUDA, a warp a row, combined by shuffles.", ("fusion", "warp_shuffle")
        return program.write_cuda("cuda_warp", about, source, techniques, grid=texts.WARP_GRID)
    source = [
        "const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;",
        "if (r >= rows || c >= cols) return;",
        _guarded_sum(stencil),
        *post.c,
        "out[r * cols + c] = v;",
    ]
    about, how = "CUDA, one element a thread, tiles of 32 by 8.", ("fusion", "tiling")
    grid, block = "(x.shape[1] + 31) // 32, (x.shape[0] + 7) // 8, 1", "32, 8, 1"
    return program.write_cuda("cuda_tiles", about, source, how, grid=grid, block=block)
