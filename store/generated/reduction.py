"""Reductions of rows or columns to one number each, after elementwise steps."""

from __future__ import annotations

from dataclasses import dataclass

from store.generated.writing import chain, row_programs, texts
from store.generated.writing.chain import Chain
from store.generated.writing.row_programs import Core
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "train"
_ROWS = (192, 200, 256, 300, 320, 384, 400, 500, 512)
_COLS = (512, 640, 768, 1000, 1024, 1280, 1536, 2000, 2048)
_COLUMN = (
    "Each answer depends on one column, whose elements lie a row apart: read row by row they come "
    "in whole cache lines, and x has to be read from memory only once."
)
# An extreme value of what saturates is the same for every row.
_UNBOUNDED = ("scale", "shift", "drop", "leaky ReLU", "softsign")


@dataclass(frozen=True, kw_only=True)
class _Fold:
    """How values are gathered in a: the next one is v, or what a kind makes of it."""

    start: str
    c: str
    triton: str
    whole: str
    """In Triton, along axis 0 of a block."""
    fill: str = "0.0"
    """What a block is filled up with."""


_SUM = _Fold(start="0.0f", c="a + {}", triton="a + {}", whole="tl.sum({}, axis=0)")
_MAX = _Fold(
    start="-3e38f",
    c="{0} > a ? {0} : a",
    triton="tl.maximum(a, {})",
    whole="tl.max({}, axis=0)",
    fill='float("-inf")',
)
_MIN = _Fold(
    start="3e38f",
    c="{0} < a ? {0} : a",
    triton="tl.minimum(a, {})",
    whole="tl.min({}, axis=0)",
    fill='float("inf")',
)


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One reduction."""

    title: str
    torch: str
    """Reference along {d}."""
    fast: str
    by: _Fold = _SUM
    value: str = "v"
    """What is gathered of a value v, in C."""
    tvalue: str = ""
    """The same in Triton; empty where it is the same text, like `tfinal`."""
    final: str = "a"
    """In C, with n values gathered."""
    tfinal: str = ""

    @property
    def fold(self) -> str:
        """What has been gathered with one more value, in C."""
        return self.by.c.format(self.value)


_KINDS = (
    _Kind(
        title="sum",
        torch="v.sum(dim={d})",
        fast="torch.mv(v if {d} else v.t(), v.new_ones(v.shape[{d}]))",
    ),
    _Kind(
        title="mean",
        torch="v.mean(dim={d})",
        fast="v.sum(dim={d}).mul_(1.0 / v.shape[{d}])",
        final="a / n",
    ),
    _Kind(
        title="length",
        torch="torch.sqrt((v * v).sum(dim={d}))",
        fast="torch.linalg.vector_norm(v, dim={d})",
        value="v * v",
        final="sqrtf(a)",
        tfinal="tl.sqrt(a)",
    ),
    _Kind(
        title="mean of squares",
        torch="(v * v).mean(dim={d})",
        fast="torch.linalg.vector_norm(v, dim={d}).square_().mul_(1.0 / v.shape[{d}])",
        value="v * v",
        final="a / n",
    ),
    _Kind(
        title="mean of absolute values",
        torch="torch.abs(v).mean(dim={d})",
        fast="torch.linalg.vector_norm(v, 1, dim={d}).mul_(1.0 / v.shape[{d}])",
        value="fabsf(v)",
        tvalue="tl.abs(v)",
        final="a / n",
    ),
    _Kind(
        title="maximum",
        torch="v.max(dim={d}).values",
        fast="torch.amax(v, dim={d})",
        by=_MAX,
    ),
    _Kind(
        title="minimum",
        torch="v.min(dim={d}).values",
        fast="torch.amin(v, dim={d})",
        by=_MIN,
    ),
)


def task(draw: Draw) -> Task:
    """Return a reduction along rows (more often) or columns, after up to three steps."""
    level = draw.choice((1, 2, 3, 3))
    kind = draw.choice(_KINDS)
    count = (0, 1, 2 + draw.integer_below(2))[level - 1]
    pre = chain.draw_chain(draw, count, only=_UNBOUNDED if kind.by is not _SUM else ())
    along = 1 if draw.integer_below(3) else 0
    module = Module()
    last = "v = " + kind.torch.format(d=along)
    lines = [*pre.torch(), last]
    fast = [*pre.inplace(), "v = " + kind.fast.format(d=along)]
    sizes = draw.sizes(_ROWS, _COLS, 1 << 18, 1 << 20)
    kernels = [texts.write_rewrite(module, fast)]
    if along:
        kernels += [
            texts.write_row_loop(module, lines, 1),
            texts.write_row_loop(module, fast, 32),
            *row_programs.write_kernels(module, pre, _describe_row(kind)),
        ]
    else:
        kernels += _write_columns(module, pre, kind)
    if pre:
        *steps, dropped = pre.steps
        less = [*Chain(tuple(steps)).torch(), last]
        about = f"PyTorch operations without the last step ({dropped.op.title})."
        kernels.append(texts.write_torch("wrong_step", about, module, less))
    kernels.append(texts.write_rounded(module, lines))
    titles = ", ".join(filter(None, (pre.title, kind.title)))
    return texts.write_task(
        draw,
        title=f"{'Rows' if along else 'Columns'}: {titles}",
        level=level,
        module=module,
        lines=lines,
        sizes=sizes,
        bound=texts.ROW_ALONE if along else _COLUMN,
        kernels=kernels,
        cuda={"ROWS": (2048, 4096, 8192), "COLS": (1024, 2048, 4096)},
    )


def _describe_row(kind: _Kind) -> Core:
    start, fold, final = kind.by.start, kind.fold, kind.final.replace("/ n", "/ cols")
    if kind.title == "minimum":  # which is combined as the maximum of the negated
        start, fold, final = "-3e38f", "-v > a ? -v : a", "-a"
    return Core(
        title=kind.title,
        torch=(),
        fast=(),
        c=(
            f"float a = {start};",
            f"@ {{ const float v = PRE; a = {fold}; }}",
            "$max a" if kind.by is not _SUM else "$sum a",
            f"$one out[r] = {final};",
        ),
        triton=(
            f"a = {kind.by.whole.format(kind.tvalue or kind.value)}",
            f"v = {(kind.tfinal or kind.final).replace('/ n', '/ cols')}",
        ),
        fill=kind.by.fill,
        scalar=True,
    )


def _write_columns(module: Module, pre: Chain, kind: _Kind) -> list[TeacherKernel]:
    value = " ".join(["float v = x[r * cols + c];", *pre.c])
    final = kind.final.replace("/ n", "/ rows")
    summed = f"{texts.FOR_ROWS} {{ {value} a = {kind.fold}; }}"
    strided = texts.block(
        texts.FOR_COLS, f"float a = {kind.by.start};", summed, f"out[c] = {final};"
    )

    def block(width: int, last: str = "rows") -> list[str]:
        return [
            f"for (long b = 0; b < cols; b += {width}) {{",
            f"  const long e = b + {width} < cols ? b + {width} : cols;",
            f"  for (long c = b; c < e; ++c) out[c] = {kind.by.start};",
            f"  for (long r = 0; r < {last}; ++r)",
            f"    for (long c = b; c < e; ++c) {{ {value} const float a = out[c]; "
            f"out[c] = {kind.fold}; }}",
            "  for (long c = b; c < e; ++c) { const float a = out[c]; out[c] = " + final + "; }",
            "}",
        ]

    program = Program(module, "x.new_empty(x.shape[1])")
    about = "C column by column, with strided reads."
    about_rows = "C row by row into the sums of all columns, vectorised by the compiler."
    about_threads = "C with blocks of columns on several threads, vectorised."
    about_wrong = "C row by row without the last quarter of the rows."
    threads, fast = [texts.PRAGMA, *block(128)], ("vectorised", "coalesced")
    wrong = block(1024, "rows - rows / 4")
    kernels = [
        program.write_c("cpp_strided", about, strided, texts.PLAIN),
        program.write_c("cpp_vector", about_rows, block(1024), texts.VECTOR, fast),
        program.write_c("cpp_threads", about_threads, threads, texts.THREADS, fast),
        program.write_c("wrong_tail", about_wrong, wrong, texts.VECTOR, ("vectorised",)),
    ]
    program = Program(module, "x.new_empty(x.shape[1])", {"n": "x.shape[0]"} | texts.COLS)
    load = "v = tl.load(x + r * cols + c, mask, other=0.0)"
    gather = f"a = {kind.by.triton.format(kind.tvalue or kind.value)}"
    source = [
        "c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = c < cols",
        f"a = tl.zeros((BLOCK,), tl.float32) + {kind.by.start.removesuffix('f')}",
        *texts.nest("for r in range(n):", load, *pre.triton, gather, depth=4),
        f"tl.store(out + c, {kind.tfinal or kind.final}, mask)",
    ]
    kernels += [
        program.write_triton(
            f"triton_columns_{width}",
            f"A Triton program for {width} columns, that goes down the rows.",
            source,
            ("fusion", "coalesced", "block_size"),
            grid=f"triton.cdiv(x.shape[1], {width}),",
            constants={"BLOCK": str(width)},
            warps=width // 32,
        )
        for width in (32, 128)
    ]
    load = "float v = x[(long long)r * cols + c];"
    source = [
        "const int c = blockIdx.x * 64 + threadIdx.x;",
        "if (c >= cols) return;",
        f"float a = {kind.by.start};",
        *texts.block("for (int r = 0; r < n; ++r)", load, *pre.c, f"a = {kind.fold};"),
        f"out[c] = {kind.final};",
    ]
    about = "CUDA, a thread a column, so that neighbours read neighbours."
    grid, techniques = "(x.shape[1] + 63) // 64, 1, 1", ("fusion", "coalesced")
    kernels.append(
        program.write_cuda("cuda_columns", about, source, techniques, grid=grid, block="64, 1, 1")
    )
    return kernels
