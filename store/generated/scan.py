"""Running sums along rows, forwards or backwards, after elementwise steps."""

from __future__ import annotations

from store.generated.writing import chain, texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Module, Program, Task, TeacherKernel

SPLIT = "train"
_ROWS = (64, 96, 128, 200, 256, 384, 512)
_COLS = (200, 256, 384, 500, 512, 768, 1000, 1024)


def task(draw: Draw) -> Task:
    """Return a running sum, one of a chain, or one that is averaged."""
    level = draw.choice((1, 2, 2, 3))
    pre = chain.draw_chain(draw, 1 + draw.integer_below(2)) if level > 1 else Chain()
    back = draw.integer_below(2) == 1
    reduced = level == 3
    module = Module()
    sums = "v = v.flip(1).cumsum(dim=1).flip(1)" if back else "v = torch.cumsum(v, dim=1)"
    other = "v = v.sum(dim=1, keepdim=True) - v.cumsum(dim=1) + v"
    other = other if back else "v = v.cumsum(dim=1)"
    after = ["v = v.mean(dim=1)"] * reduced
    lines = [*pre.torch(), sums, *after]
    exclusive = [*pre.torch(), sums.replace("v = ", "s = ", 1), "v = s - v", *after]
    sizes = draw.sizes(_ROWS, _COLS, 1 << 16, 1 << 18)
    titles = [pre.title, f"running sum from the {'end' if back else 'start'}"]
    titles += ["mean of rows"] * reduced
    out = "x.new_empty(x.shape[0])" if reduced else "torch.empty_like(x)"
    bound = "Each sum waits for the one before it, so that a row is a chain of "
    bound += f"{sizes['COLS']} additions; the {sizes['ROWS']} rows do not depend on each other."
    bound += " The two flips copy the tensor to turn it round and back." * back
    return texts.write_task(
        draw,
        title=f"Rows: {', '.join(filter(None, titles))}",
        level=level,
        module=module,
        lines=lines,
        sizes=sizes,
        bound=bound,
        kernels=[
            texts.write_rewrite(module, [*pre.inplace(), other, *after]),
            texts.write_row_loop(module, lines, 1),
            texts.write_row_loop(module, [*pre.inplace(), other, *after], 32),
            *_write_c(Program(module, out, functions=pre.function()), pre, back, reduced),
            *_write_triton(Program(module, out, texts.COLS), pre, back, reduced),
            _write_cuda(module, out, pre, back, reduced),
            texts.write_rounded(module, lines),
            texts.write_torch(
                "wrong_exclusive",
                "PyTorch operations whose sums leave out the element itself.",
                module,
                exclusive,
            ),
        ],
        cuda={"ROWS": (4096, 8192), "COLS": (1024, 2048)},
    )


def _write_c(program: Program, pre: Chain, back: bool, reduced: bool) -> list[TeacherKernel]:
    at = "cols - 1 - k" if back else "k"
    element = "pre(x[i])" if pre else "x[i]"

    def loop(last: str = "cols") -> list[str]:
        body = [f"const long i = r * cols + {at};", f"a += {element};"]
        body.append("m += a;" if reduced else "out[i] = a;")
        return texts.block(
            texts.FOR_ROWS,
            f"float a = 0.0f{', m = 0.0f' if reduced else ''};",
            *texts.block(f"for (long k = 0; k < {last}; ++k)", *body),
            *["out[r] = m / cols;"] * reduced,
        )

    # The sums of eight rows do not depend on each other.
    body = [f"const long i = (b + j) * cols + {at};", f"a[j] += {element};"]
    body.append("m[j] += a[j];" if reduced else "out[i] = a[j];")
    eight = texts.block(
        "for (long b = 0; b < rows; b += 8)",
        "const long n = rows - b < 8 ? rows - b : 8;",
        "float a[8] = {0};",
        *["float m[8] = {0};"] * reduced,
        *texts.nest(
            "for (long k = 0; k < cols; ++k)", *texts.block("for (long j = 0; j < n; ++j)", *body)
        ),
        *["for (long j = 0; j < n; ++j) out[b + j] = m[j] / cols;"] * reduced,
    )
    about, eight_rows = "C with one running sum a row", "instruction_parallelism"
    threads = [texts.PRAGMA, *loop()]
    about_eight = "C with the running sums of eight rows side by side."
    about_wrong = "C that leaves out the last quarter of the columns."
    return [
        program.write_c("cpp_scalar", f"{about}.", loop(), texts.PLAIN),
        program.write_c("cpp_vector", f"{about}, -O3.", loop(), texts.VECTOR),
        program.write_c("cpp_eight_rows", about_eight, eight, texts.VECTOR, (eight_rows,)),
        program.write_c(
            "cpp_threads", f"{about}, rows on several threads.", threads, texts.THREADS
        ),
        program.write_c("wrong_tail", about_wrong, loop("cols - cols / 4"), texts.VECTOR),
    ]


def _write_triton(program: Program, pre: Chain, back: bool, reduced: bool) -> list[TeacherKernel]:
    source = [
        *texts.TRITON_ROW,
        *pre.triton,
        *["v = tl.where(mask, v, 0.0)"] * bool(pre),
        f"v = tl.cumsum(v, axis=0{', reverse=True' if back else ''})",
        "tl.store(out + r, tl.sum(tl.where(mask, v, 0.0), axis=0) / cols)"
        if reduced
        else "tl.store(out + r * cols + c, v, mask)",
    ]
    about = "A Triton program a row with tl.cumsum"
    return program.write_triton_rows(about, source, (1, 4), ("fusion", "parallel_scan"))


def _write_cuda(module: Module, out: str, pre: Chain, back: bool, reduced: bool) -> TeacherKernel:
    source = [
        *texts.WARP_ROW,
        f"float a = 0.0f{', m = 0.0f' if reduced else ''};",
        "for (int k = 0; k < cols; k += 32) {",
        f"  const long long i = (long long)r * cols + {'cols - 1 - (k + t)' if back else 'k + t'};",
        f"  float v = k + t < cols ? {'pre(x[i])' if pre else 'x[i]'} : 0.0f;",
        "  for (int h = 1; h < 32; h *= 2) {",
        "    const float u = __shfl_up_sync(0xffffffff, v, h);",
        "    if (t >= h) v += u;",
        "  }",
        "  v += a;",
        f"  if (k + t < cols) {'m += v' if reduced else 'out[i] = v'};",
        "  a = __shfl_sync(0xffffffff, v, 31);",
        "}",
    ]
    if reduced:
        source += [texts.SUM_WARP.format("m"), "if (t == 0) out[r] = m / cols;"]
    return Program(module, out, functions=pre.function(qualifier="__device__")).write_cuda(
        "cuda_warp",
        "CUDA, a warp a row: 32 elements at a time are summed by shuffles.",
        source,
        ("fusion", "warp_shuffle", "parallel_scan"),
        grid=texts.WARP_GRID,
    )
