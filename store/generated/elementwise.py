"""Chains of elementwise operations, with a second input and parameters per column."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "train"
_ROWS = (64, 96, 100, 128, 160, 192, 250, 256, 320, 384, 512)
_COLS = (256, 384, 500, 512, 640, 768, 1000, 1024, 1280, 1536, 2048)
_BOUND = "No element of the answer depends on another, so that one pass over memory is enough."
_OUT = "torch.empty_like(x)"


def task(draw: Draw) -> Task:
    """Return a chain of one to three steps."""
    level = draw.choice((1, 2, 2))
    steps = chain.draw_chain(draw, 1 if level == 1 else 2 + draw.integer_below(2), tensors=True)
    module = Module(inputs=("x", *steps.inputs), params=steps.params)
    return texts.write_task(
        draw,
        title=f"Elementwise: {steps.title}",
        level=level,
        module=module,
        lines=steps.torch(),
        sizes=draw.sizes(_ROWS, _COLS, 1 << 17, 1 << 19),
        shapes=["ROWS, COLS"] * len(module.inputs),
        bound=_BOUND,
        kernels=[
            texts.write_rewrite(module, steps.inplace()),
            texts.write_row_loop(module, steps.torch(), 1),
            texts.write_row_loop(module, steps.inplace(), 32),
            *_write_c(module, steps),
            *_write_triton(module, steps),
            *_write_cuda(module, steps),
            texts.write_rounded(module, steps.torch()),
        ],
        cuda={"ROWS": (2048, 4096), "COLS": (2048, 4096)},
    )


def _write_c(module: Module, steps: Chain) -> list[TeacherKernel]:
    def loop(lines: Sequence[str], start: str = "x", last: str = "cols") -> list[str]:
        body = ["const long i = r * cols + c;", f"float v = {start}[i];", *lines, "out[i] = v;"]
        return texts.nest(texts.FOR_ROWS, *texts.block(f"for (long c = 0; c < {last}; ++c)", *body))

    program, lines = Program(module, _OUT), steps.c
    kernels = program.write_c_levels("One pass in C", loop(lines), ("fusion", "vectorised"))
    about, short = "One pass in C that stops a few columns early.", loop(lines, last="cols - 3")
    kernels.append(program.write_c("wrong_tail", about, short, texts.VECTOR, ("fusion",)))
    if len(steps) > 1:
        passes = [
            passed
            for place, line in enumerate(lines)
            for passed in loop([line], "out" if place else "x")
        ]
        about = "C with a pass over memory for each step."
        kernels.append(program.write_c("cpp_passes", about, passes, texts.PLAIN))
        about = f"One pass in C without the last step ({steps.steps[-1].op.title})."
        less = loop(lines[:-1])
        kernels.append(program.write_c("wrong_step", about, less, texts.VECTOR, ("fusion",)))
    return kernels


def _write_triton(module: Module, steps: Chain) -> list[TeacherKernel]:
    sizes = (texts.COLS if module.params else {}) | {"total": "x.numel()"}
    source = [
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = i < total",
        "v = tl.load(x + i, mask)",
        *steps.triton,
        "tl.store(out + i, v, mask)",
    ]
    return [
        Program(module, _OUT, sizes).write_triton(
            f"triton_{block}",
            f"One Triton kernel, {block} elements a program.",
            source,
            ("fusion", "block_size"),
            grid=f"triton.cdiv(x.numel(), {block}),",
            constants={"BLOCK": str(block)},
            warps=warps,
        )
        for block, warps in ((256, 1), (1024, 4), (4096, 8))
    ]


def _write_cuda(module: Module, steps: Chain) -> list[TeacherKernel]:
    column = ["const int c = i % cols;"] if module.params else []
    body = [*column, "float v = x[i];", *steps.c, "out[i] = v;"]
    sizes = (texts.COLS if module.params else {}) | {"n": "x.numel()"}
    program = Program(module, _OUT, sizes)
    one = ["const int i = blockIdx.x * 256 + threadIdx.x;", "if (i >= n) return;", *body]
    inner = ["const int i = first + k * 256;", *texts.block("if (i < n)", *body)]
    four = [
        "const int first = blockIdx.x * 1024 + threadIdx.x;",
        "#pragma unroll",
        *texts.block("for (int k = 0; k < 4; ++k)", *inner),
    ]
    return [
        program.write_cuda(
            f"cuda_{name}", f"CUDA, {name} element{plural} a thread.", source, how, grid=grid
        )
        for name, plural, source, how, grid in (
            ("one", "", one, ("fusion",), "(x.numel() + 255) // 256, 1, 1"),
            ("four", "s", four, ("fusion", "unrolling"), "(x.numel() + 1023) // 1024, 1, 1"),
        )
    ]
