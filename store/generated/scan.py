"""Running sums along rows, forwards or backwards, after elementwise steps."""

from __future__ import annotations

from store.generated.writing import elementwise_chain, teacher, texts, words
from store.generated.writing.draw import Draw
from store.generated.writing.module import Module, render_reference
from store.generated.writing.task import Kernel, Task

SPLIT = "train"
_ROWS = (64, 96, 128, 200, 256, 384, 512)
_COLS = (200, 256, 384, 500, 512, 768, 1000, 1024)


def task(draw: Draw) -> Task:
    """Return a running sum, one of a chain, or one that is averaged."""
    level = draw.choice((1, 2, 2, 3))
    pre = elementwise_chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else ()
    back = draw.integer_below(2) == 1
    module = Module()
    start = elementwise_chain.torch_lines(pre) or ["v = x"]
    sums = "v = v.flip(1).cumsum(dim=1).flip(1)" if back else "v = torch.cumsum(v, dim=1)"
    other = "v = v.sum(dim=1, keepdim=True) - v.cumsum(dim=1) + v"
    other = other if back else "v = v.cumsum(dim=1)"
    after = ["v = v.mean(dim=1)"] if level == 3 else []
    lines = [*start, sums, *after]
    rows, cols = draw.sizes(_ROWS, _COLS, 1 << 16, 1 << 18)
    titles = [elementwise_chain.title(pre), f"running sum from the {'end' if back else 'start'}"]
    titles += ["mean of rows"] * (level == 3)
    title = f"Rows: {', '.join(filter(None, titles))}"
    sizes, shapes = {"ROWS": rows, "COLS": cols}, ["ROWS, COLS"]
    code = render_reference(f"{title}.", module, [*lines, "return v"], sizes, shapes)
    inplace = elementwise_chain.inplace_lines(pre) or ["v = x"]
    kernels = [
        teacher.rewrite(module, [*inplace, other, *after]),
        teacher.loop_over_rows(module, lines, 1),
        teacher.loop_over_rows(module, [*inplace, other, *after], 32),
        *_cpp(module, pre, back, level == 3),
        *_triton(module, pre, back, level == 3),
        _cuda(module, pre, back, level == 3),
        teacher.round_inputs(module, lines),
        _exclusive_kernel(module, [*start, sums.replace("v = ", "s = ", 1)], level == 3),
    ]
    kernels += teacher.break_link(draw, kernels)
    cuda = {"ROWS": draw.choice((4096, 8192)), "COLS": draw.choice((1024, 2048))}
    bound = f"Each sum waits for the one before it, so that a row is a chain of {cols} additions; "
    bound += f"the {rows} rows do not depend on each other."
    bound += " The two flips copy the tensor to turn it round and back." * back
    return Task(
        title=title,
        level=level,
        code=code,
        analysis=words.describe_reference(lines, sizes, shapes, bound),
        cuda=cuda,
        kernels=tuple(kernels),
    )


def _exclusive_kernel(module: Module, lines: list[str], reduced: bool) -> Kernel:
    about = "PyTorch operations whose sums leave out the element itself."
    last = ["v = s - v", *(["v = v.mean(dim=1)"] if reduced else []), "return v"]
    return texts.torch_kernel(
        about, module, [*lines, *last], variant="wrong_exclusive", techniques=(), right=False
    )


def _write_output(reduced: bool) -> str:
    return "x.new_empty(x.shape[0])" if reduced else "torch.empty_like(x)"


def _cpp(
    module: Module, pre: tuple[elementwise_chain.Step, ...], back: bool, reduced: bool
) -> list[Kernel]:
    functions = texts.function(elementwise_chain.c_lines(pre))
    at = "cols - 1 - k" if back else "k"

    def element(text: str) -> str:
        return f"pre({text})" if pre else text

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        return texts.cpp_kernel(
            about,
            module,
            source,
            out=_write_output(reduced),
            sizes=texts.ROWS_COLS,
            flags=flags,
            device=functions,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    def write_plain(last: str = "cols") -> list[str]:
        keep = "m += a;" if reduced else "out[i] = a;"
        return [
            "for (long r = 0; r < rows; ++r) {",
            f"  float a = 0.0f{', m = 0.0f' if reduced else ''};",
            f"  for (long k = 0; k < {last}; ++k) {{",
            f"    const long i = r * cols + {at};",
            f"    a += {element('x[i]')};",
            f"    {keep}",
            "  }",
            *(["  out[r] = m / cols;"] if reduced else []),
            "}",
        ]

    # The sums of eight rows do not depend on each other.
    keep = "m[j] += a[j];" if reduced else "out[i] = a[j];"
    eight = [
        "for (long b = 0; b < rows; b += 8) {",
        "  const long n = rows - b < 8 ? rows - b : 8;",
        "  float a[8] = {0};",
        *(["  float m[8] = {0};"] if reduced else []),
        "  for (long k = 0; k < cols; ++k)",
        "    for (long j = 0; j < n; ++j) {",
        f"      const long i = (b + j) * cols + {at};",
        f"      a[j] += {element('x[i]')};",
        f"      {keep}",
        "    }",
        *(["  for (long j = 0; j < n; ++j) out[b + j] = m[j] / cols;"] if reduced else []),
        "}",
    ]
    return [
        kernel("cpp_scalar", "C with one running sum a row.", write_plain(), texts.PLAIN),
        kernel("cpp_vector", "C with one running sum a row, -O3.", write_plain(), texts.VECTOR),
        kernel(
            "cpp_eight_rows",
            "C with the running sums of eight rows side by side.",
            eight,
            texts.VECTOR,
            "instruction_parallelism",
        ),
        kernel(
            "cpp_threads",
            "C with one running sum a row, rows on several threads.",
            [texts.PRAGMA, *write_plain()],
            texts.THREADS,
            "threads",
        ),
        kernel(
            "wrong_tail",
            "C that leaves out the last quarter of the columns.",
            write_plain("cols - cols / 4"),
            texts.VECTOR,
        ),
    ]


def _triton(
    module: Module, pre: tuple[elementwise_chain.Step, ...], back: bool, reduced: bool
) -> list[Kernel]:
    store = (
        ["tl.store(out + r, tl.sum(tl.where(mask, v, 0.0), axis=0) / cols)"]
        if reduced
        else ["tl.store(out + r * cols + c, v, mask)"]
    )
    source = [
        "r = tl.program_id(0)",
        "c = tl.arange(0, BLOCK)",
        "mask = c < cols",
        "v = tl.load(x + r * cols + c, mask, other=0.0)",
        *elementwise_chain.triton_lines(pre),
        *(["v = tl.where(mask, v, 0.0)"] if pre else []),
        f"v = tl.cumsum(v, axis=0{', reverse=True' if back else ''})",
        *store,
    ]
    made: list[Kernel] = []
    for warps in (1, 4):
        about = f"A Triton program a row with tl.cumsum; {warps} warp{'s' * (warps > 1)}."
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out=_write_output(reduced),
                sizes=["cols=x.shape[1]"],
                grid="x.shape[0],",
                meta={"BLOCK": "triton.next_power_of_2(x.shape[1])"},
                warps=warps,
                variant=f"triton_row_{warps}",
                techniques=("fusion", "parallel_scan"),
            )
        )
    return made


def _cuda(
    module: Module, pre: tuple[elementwise_chain.Step, ...], back: bool, reduced: bool
) -> Kernel:
    about = "CUDA, a warp a row: 32 elements at a time are summed by shuffles."
    at = "cols - 1 - (k + t)" if back else "k + t"
    keep = "if (k + t < cols) m += v;" if reduced else "if (k + t < cols) out[i] = v;"
    source = [
        "const int r = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
        "if (r >= rows) return;",
        f"float a = 0.0f{', m = 0.0f' if reduced else ''};",
        "for (int k = 0; k < cols; k += 32) {",
        f"  const long long i = (long long)r * cols + {at};",
        f"  float v = k + t < cols ? {'pre(x[i])' if pre else 'x[i]'} : 0.0f;",
        "  for (int h = 1; h < 32; h *= 2) {",
        "    const float u = __shfl_up_sync(0xffffffff, v, h);",
        "    if (t >= h) v += u;",
        "  }",
        "  v += a;",
        f"  {keep}",
        "  a = __shfl_sync(0xffffffff, v, 31);",
        "}",
    ]
    if reduced:
        source += [
            "for (int h = 16; h > 0; h /= 2) m += __shfl_xor_sync(0xffffffff, m, h);",
            "if (t == 0) out[r] = m / cols;",
        ]
    return texts.cuda_kernel(
        about,
        module,
        source,
        out=_write_output(reduced),
        sizes=texts.ROWS_COLS,
        grid="(x.shape[0] + 7) // 8, 1, 1",
        device=texts.function(elementwise_chain.c_lines(pre), qualifier="__device__"),
        variant="cuda_warp",
        techniques=("fusion", "warp_shuffle", "parallel_scan"),
    )
