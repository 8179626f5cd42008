"""Kernels of a stencil in C, Triton and CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.generated.writing import elementwise_chain, texts
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module
from store.generated.writing.task import Kernel


@dataclass(frozen=True, kw_only=True)
class Stencil:
    """Neighbours with their weights."""

    points: tuple[tuple[int, int, float], ...]
    """Offsets in rows and columns, and the weight."""
    wraps: bool
    """Whether the grid goes on at its other side."""

    @property
    def reach(self) -> tuple[int, int]:
        """Largest offset in rows and in columns."""
        return max(p[0] for p in self.points), max(p[1] for p in self.points)


def _read_function(one: Stencil, qualifier: str, whole: str) -> str:
    """Return the C function that reads an element that may lie beyond the edge."""
    body = (
        "return x[(r + rows) % rows * cols + (c + cols) % cols];"
        if one.wraps
        else "return r < 0 || c < 0 || r >= rows || c >= cols ? 0.0f : x[r * cols + c];"
    )
    arguments = f"const float* x, {whole} r, {whole} c, {whole} rows, {whole} cols"
    return f"{qualifier} float at({arguments}) {{\n  {body}\n}}\n"


def _offset(name: str, by: int) -> str:
    return name if by == 0 else f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def _guarded_sum(one: Stencil) -> str:
    terms = (
        f"{w}f * at(x, {_offset('r', r)}, {_offset('c', c)}, rows, cols)" for r, c, w in one.points
    )
    return f"float v = {' + '.join(terms)};"


def _direct_sum(one: Stencil) -> str:
    """Return the sum where every neighbour is there; p points at the element."""

    def place(r: int, c: int) -> str:
        if r:
            return f"p[{'-' * (r < 0)}{'' if abs(r) == 1 else f'{abs(r)} * '}cols{c:+d}]".replace(
                "+0]", "]"
            )
        return f"p[{c}]"

    return f"float v = {' + '.join(f'{w}f * {place(r, c)}' for r, c, w in one.points)};"


def cpp_kernels(module: Module, one: Stencil, post: Sequence[Step], reduced: bool) -> list[Kernel]:
    """Return kernels in C: with and without a split at the edge, vectors and threads."""
    high, wide = one.reach
    keep = "s += v;" if reduced else "out[r * cols + c] = v;"
    steps = elementwise_chain.c_lines(post)
    begin = ["  float s = 0.0f;"] * reduced
    end = ["  out[r] = s / cols;"] * reduced

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        point = texts.function(steps, "post") if "post(" in "".join(source) else ""
        return texts.cpp_kernel(
            about,
            module,
            source,
            out="x.new_empty(x.shape[0])" if reduced else "torch.empty_like(x)",
            sizes=texts.ROWS_COLS,
            flags=flags,
            device=_read_function(one, "static", "long") + point,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    guarded = [
        "for (long r = 0; r < rows; ++r) {",
        *begin,
        "  for (long c = 0; c < cols; ++c) {",
        *(f"    {line}" for line in [_guarded_sum(one), *steps, keep]),
        "  }",
        *end,
        "}",
    ]
    value = "post(v)" if post else "v"
    store = f"s += {value};" if reduced else f"out[r * cols + c] = {value};"
    edge = f"{{ {_guarded_sum(one)} {store} }}"
    inner = [
        "for (long r = 0; r < rows; ++r) {",
        *begin,
        "  const float* p = x + r * cols;",
        f"  const int whole = r >= {high} && r + {high} < rows;" if high else "",
        f"  const long a = {f'whole ? {wide} : cols' if high else wide}, b = cols - {wide};",
        f"  for (long c = 0; c < a; ++c) {edge}",
        "  for (long c = a; c < b; ++c) {",
        f"    {_direct_sum(one).replace('p[', 'p[c + ').replace('c + -', 'c - ')}",
        f"    {store}",
        "  }",
        f"  for (long c = a < b ? b : a; c < cols; ++c) {edge}" if wide else "",
        *end,
        "}",
    ]
    inner = [line for line in inner if line]
    return [
        kernel("cpp_guarded", "C that tests every neighbour.", guarded, texts.PLAIN),
        kernel(
            "cpp_guarded_o3",
            "C that tests every neighbour, with all of the compiler's optimisations.",
            guarded,
            texts.VECTOR,
            "vectorised",
        ),
        kernel(
            "cpp_interior",
            "C with a loop without tests for the interior, vectorised by the compiler.",
            inner,
            texts.VECTOR,
            "vectorised",
            "edge_split",
        ),
        kernel(
            "cpp_threads",
            "C with a loop without tests for the interior, rows on several threads.",
            [texts.PRAGMA, *inner],
            texts.THREADS,
            "vectorised",
            "edge_split",
            "threads",
        ),
        kernel(
            "wrong_tail",
            "C that tests every neighbour and leaves out the last columns.",
            [line.replace("c < cols;", "c < cols - 5;") for line in guarded],
            texts.VECTOR,
        ),
    ]


def triton_kernels(
    module: Module, one: Stencil, post: Sequence[Step], reduced: bool
) -> list[Kernel]:
    """Return kernels in Triton, with different block sizes where rows are not averaged."""

    def load(r: int, c: int) -> str:
        row, col = _offset("r", r), _offset("c", c)
        if one.wraps:
            row = f"({row} + rows) % rows" if r else row
            col = f"({col} + cols) % cols" if c else col
            return f"tl.load(x + {row} * cols + {col}, mask, other=0.0)"
        inside = ["mask"]
        inside += [f"({row} >= 0) & ({row} < rows)"] * bool(r)
        inside += [f"({col} >= 0) & ({col} < cols)"] * bool(c)
        start = f"({row})" if r else row
        return f"tl.load(x + {start} * cols + {col}, {' & '.join(inside)}, other=0.0)"

    first, *others = (f"{w} * {load(r, c)}" for r, c, w in one.points)
    summed = [
        f"v = {first}",
        *(f"v += {other}" for other in others),
        *elementwise_chain.triton_lines(post),
    ]
    made: list[Kernel] = []
    # r is a block too, because a mask cannot mix blocks and single numbers.
    for block in (256, 1024) if not reduced else (0,):
        if reduced:
            about = "A Triton program a row."
            source = ["c = tl.arange(0, BLOCK)", "r = c * 0 + tl.program_id(0)", "mask = c < cols"]
            source += [*summed, "v = tl.sum(tl.where(mask, v, 0.0), axis=0) / cols"]
            source += ["tl.store(out + tl.program_id(0), v)"]
            grid, meta = "x.shape[0],", {"BLOCK": "triton.next_power_of_2(x.shape[1])"}
            out = "x.new_empty(x.shape[0])"
        else:
            about = f"A Triton program for {block} elements of a row."
            source = [
                "c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
                "r = c * 0 + tl.program_id(0)",
                "mask = c < cols",
                *summed,
                "tl.store(out + r * cols + c, v, mask)",
            ]
            grid = f"x.shape[0], triton.cdiv(x.shape[1], {block})"
            meta = {"BLOCK": str(block)}
            out = "torch.empty_like(x)"
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out=out,
                sizes=texts.ROWS_COLS,
                grid=grid,
                meta=meta,
                variant=f"triton_{block or 'row'}",
                techniques=("fusion", "block_size"),
            )
        )
    return made


def cuda_kernels(module: Module, one: Stencil, post: Sequence[Step], reduced: bool) -> list[Kernel]:
    """Return one kernel in CUDA: tiles, or a warp per row where rows are averaged."""
    functions = _read_function(one, "__device__", "int")
    steps = elementwise_chain.c_lines(post)
    if reduced:
        about = "CUDA, a warp a row, combined by shuffles."
        source = [
            "const int r = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
            "if (r >= rows) return;",
            "float s = 0.0f;",
            "for (int c = t; c < cols; c += 32) {",
            *(f"  {line}" for line in [_guarded_sum(one), *steps, "s += v;"]),
            "}",
            "for (int h = 16; h > 0; h /= 2) s += __shfl_xor_sync(0xffffffff, s, h);",
            "if (t == 0) out[r] = s / cols;",
        ]
        grid, block, out = "(x.shape[0] + 7) // 8, 1, 1", "256, 1, 1", "x.new_empty(x.shape[0])"
    else:
        about = "CUDA, one element a thread, tiles of 32 by 8."
        source = [
            "const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;",
            "if (r >= rows || c >= cols) return;",
            _guarded_sum(one),
            *steps,
            "out[r * cols + c] = v;",
        ]
        grid, block = "(x.shape[1] + 31) // 32, (x.shape[0] + 7) // 8, 1", "32, 8, 1"
        out = "torch.empty_like(x)"
    return [
        texts.cuda_kernel(
            about,
            module,
            source,
            out=out,
            sizes=texts.ROWS_COLS,
            grid=grid,
            block=block,
            device=functions,
            variant="cuda_warp" if reduced else "cuda_tiles",
            techniques=("fusion", "warp_shuffle" if reduced else "tiling"),
        )
    ]
