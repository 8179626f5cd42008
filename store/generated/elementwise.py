"""Chains of elementwise operations, with a second input and parameters per column."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing import elementwise_chain, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Kernel, Task

SPLIT = "train"
_ROWS = (64, 96, 100, 128, 160, 192, 250, 256, 320, 384, 512)
_COLS = (256, 384, 500, 512, 640, 768, 1000, 1024, 1280, 1536, 2048)
_BOUND = "No element of the answer depends on another, so that one pass over memory is enough."


def task(draw: Draw) -> Task:
    """Return a chain of one to three steps."""
    level = draw.choice((1, 2, 2))
    steps = elementwise_chain.draw_chain(
        draw, 1 if level == 1 else 2 + draw.integer_below(2), tensors=True
    )
    module = Module(
        inputs=("x", *elementwise_chain.names(steps, "input")),
        params=elementwise_chain.names(steps, "column"),
    )
    rows, cols = draw.sizes(_ROWS, _COLS, 1 << 17, 1 << 19)
    title = f"Elementwise: {elementwise_chain.title(steps)}"
    lines = elementwise_chain.torch_lines(steps)
    sizes = {"ROWS": rows, "COLS": cols}
    shapes = ["ROWS, COLS"] * len(module.inputs)
    code = render_reference(
        f"{title}.",
        module,
        [*lines, "return v"],
        sizes,
        shapes,
    )
    kernels = [
        teacher.rewrite(module, elementwise_chain.inplace_lines(steps)),
        teacher.loop_over_rows(module, lines, 1),
        teacher.loop_over_rows(module, elementwise_chain.inplace_lines(steps), 32),
        *_cpp(module, steps),
        *_triton(module, steps),
        *_cuda(module, steps),
        teacher.round_inputs(module, lines),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"ROWS": draw.choice((2048, 4096)), "COLS": draw.choice((2048, 4096))}
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, _BOUND),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _cpp(module: Module, steps: Sequence[Step]) -> list[Kernel]:
    def loop(lines: Sequence[str], start: str = "x", last: str = "cols") -> list[str]:
        return [
            "for (long r = 0; r < rows; ++r)",
            f"  for (long c = 0; c < {last}; ++c) {{",
            "    const long i = r * cols + c;",
            f"    float v = {start}[i];",
            *(f"    {line}" for line in lines),
            "    out[i] = v;",
            "  }",
        ]

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        return texts.cpp_kernel(
            about,
            module,
            source,
            out="torch.empty_like(x)",
            sizes=texts.ROWS_COLS,
            flags=flags,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    lines = elementwise_chain.c_lines(steps)
    fused = loop(lines)
    made = [
        kernel("cpp_scalar", "One pass in C, one element at a time.", fused, texts.PLAIN),
        kernel(
            "cpp_vector",
            "One pass in C, vectorised by the compiler.",
            fused,
            texts.VECTOR,
            "fusion",
            "vectorised",
        ),
        kernel(
            "cpp_threads",
            "One pass in C, vectorised, rows on several threads.",
            [texts.PRAGMA, *fused],
            texts.THREADS,
            "fusion",
            "vectorised",
            "threads",
        ),
        kernel(
            "wrong_tail",
            "One pass in C that stops a few columns early.",
            loop(lines, last="cols - 3"),
            texts.VECTOR,
            "fusion",
        ),
    ]
    if len(steps) > 1:
        passes = [
            line for place, one in enumerate(lines) for line in loop([one], "out" if place else "x")
        ]
        about = "C with a pass over memory for each step."
        made.append(kernel("cpp_passes", about, passes, texts.PLAIN))
        about = f"One pass in C without the last step ({steps[-1].op.title})."
        made.append(kernel("wrong_step", about, loop(lines[:-1]), texts.VECTOR, "fusion"))
    return made


def _triton(module: Module, steps: Sequence[Step]) -> list[Kernel]:
    sizes = (*(["cols=x.shape[1]"] if module.params else []), "total=x.numel()")
    source = [
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = i < total",
        "v = tl.load(x + i, mask)",
        *elementwise_chain.triton_lines(steps),
        "tl.store(out + i, v, mask)",
    ]
    made: list[Kernel] = []
    for block, warps in ((256, 1), (1024, 4), (4096, 8)):
        about = f"One Triton kernel, {block} elements a program."
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out="torch.empty_like(x)",
                sizes=sizes,
                grid=f"triton.cdiv(x.numel(), {block}),",
                meta={"BLOCK": str(block)},
                warps=warps,
                variant=f"triton_{block}",
                techniques=("fusion", "block_size"),
            )
        )
    return made


def _cuda(module: Module, steps: Sequence[Step]) -> list[Kernel]:
    column = ["const int c = i % cols;"] if module.params else []
    body = [*column, "float v = x[i];", *elementwise_chain.c_lines(steps), "out[i] = v;"]
    sizes = (*(["cols=x.shape[1]"] if module.params else []), "n=x.numel()")
    one = "const int i = blockIdx.x * 256 + threadIdx.x;"
    four = [
        "const int first = blockIdx.x * 1024 + threadIdx.x;",
        "#pragma unroll",
        "for (int k = 0; k < 4; ++k) {",
        "  const int i = first + k * 256;",
        "  if (i < n) {",
        *(f"    {line}" for line in body),
        "  }",
        "}",
    ]
    made: list[Kernel] = []
    for variant, about, source, each, found in (
        ("cuda_one", "CUDA, one element a thread.", [one, "if (i >= n) return;", *body], 256, ()),
        ("cuda_four", "CUDA, four elements a thread.", four, 1024, ("unrolling",)),
    ):
        made.append(
            texts.cuda_kernel(
                about,
                module,
                source,
                out="torch.empty_like(x)",
                sizes=sizes,
                grid=f"(x.numel() + {each - 1}) // {each}, 1, 1",
                variant=variant,
                techniques=("fusion", *found),
            )
        )
    return made
