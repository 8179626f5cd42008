"""Kernels of a product with a triangle in C, Triton and CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.generated.writing import elementwise_chain, texts
from store.generated.writing.elementwise_chain import Step
from store.generated.writing.module import Module
from store.generated.writing.task import Kernel


@dataclass(frozen=True, kw_only=True)
class Triangle:
    """Which part of the matrix counts, and what is asked for."""

    lower: bool
    offset: int
    """Distance of the triangle from the diagonal."""
    vector: bool
    reduced: bool
    """Whether the rows of the answer are averaged."""

    @property
    def reference(self) -> str:
        """The product in PyTorch, with all the zeros."""
        way = f"tril(a, {-self.offset})" if self.lower else f"triu(a, {self.offset})"
        return f"torch.{way} @ x".replace("(a, 0)", "(a)")

    @property
    def first(self) -> str:
        """First k of row i, in C."""
        return "0" if self.lower else add_offset("i", self.offset)

    @property
    def last(self) -> str:
        """End of the k of row i, in C."""
        return add_offset("i", 1 - self.offset) if self.lower else "n"

    @property
    def sizes(self) -> list[str]:
        """Name and expression of each size."""
        return ["n=a.shape[0]", *(["m=x.shape[1]"] if not self.vector else [])]

    @property
    def out(self) -> str:
        """Expression that makes the output."""
        return "x.new_empty(a.shape[0])" if self.reduced else "torch.empty_like(x)"

    @property
    def blocks(self) -> str:
        """The product of s rows at a time, in PyTorch."""
        if self.lower:
            offset = add_offset("i", -self.offset)
            part = f"a[i : i + s, : i + s].tril({offset}) @ x[: i + s]"
        else:
            part = f"a[i : i + s, i:].triu({self.offset}) @ x[i:]"
        return f"v = torch.cat([{part} for i in range(0, a.shape[0], s)])"


def add_offset(name: str, by: int) -> str:
    """Return the expression of a name plus a number."""
    return name if by == 0 else f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def cpp_kernels(module: Module, one: Triangle, post: Sequence[Step]) -> list[Kernel]:
    """Return kernels in C: scalar, vectorized, on several threads, and a wrong one."""
    steps = elementwise_chain.c_lines(post)
    store = "t += v;" if one.reduced else "out[i * m + j] = v;"
    around = (["  float t = 0.0f;"] * one.reduced, ["  out[i] = t / m;"] * one.reduced)

    def kernel(variant: str, about: str, source: list[str], flags: str, *found: str) -> Kernel:
        return texts.cpp_kernel(
            about,
            module,
            source,
            out=one.out,
            sizes=one.sizes,
            flags=flags,
            variant=variant,
            techniques=found,
            right=not variant.startswith("wrong"),
        )

    def write_direct(first: str, last: str) -> list[str]:
        """Sum for one element of the answer after the other."""
        if one.vector:
            return [
                "for (long i = 0; i < n; ++i) {",
                "  float v = 0.0f;",
                f"  for (long k = {first}; k < {last}; ++k) v += a[i * n + k] * x[k];",
                *(f"  {line}" for line in steps),
                "  out[i] = v;",
                "}",
            ]
        return [
            "for (long i = 0; i < n; ++i) {",
            *around[0],
            "  for (long j = 0; j < m; ++j) {",
            "    float v = 0.0f;",
            f"    for (long k = {first}; k < {last}; ++k) v += a[i * n + k] * x[k * m + j];",
            *(f"    {line}" for line in [*steps, store]),
            "  }",
            *around[1],
            "}",
        ]

    by_rows = [
        "for (long i = 0; i < n; ++i) {",
        "  float s[m];",
        "  for (long j = 0; j < m; ++j) s[j] = 0.0f;",
        f"  for (long k = {one.first}; k < {one.last}; ++k)",
        "    for (long j = 0; j < m; ++j) s[j] += a[i * n + k] * x[k * m + j];",
        *around[0],
        "  for (long j = 0; j < m; ++j) {",
        "    float v = s[j];",
        *(f"    {line}" for line in [*steps, store]),
        "  }",
        *around[1],
        "}",
    ]
    right = write_direct(one.first, one.last)
    short = write_direct(
        *(
            (one.first, add_offset("i", -one.offset))
            if one.lower
            else (add_offset("i", one.offset + 1), one.last)
        )
    )
    fast = right if one.vector else by_rows
    how = "" if one.vector else ", whole rows of x at a time"
    return [
        kernel(
            "cpp_scalar",
            "C loops that end at the diagonal, one element of the answer at a time.",
            right,
            texts.PLAIN,
            "skips_zeros",
        ),
        kernel(
            "cpp_vector",
            f"C loops that end at the diagonal{how}, vectorised by the compiler.",
            fast,
            texts.VECTOR,
            "skips_zeros",
            "vectorised",
        ),
        kernel(
            "cpp_threads",
            f"C loops that end at the diagonal{how}, rows on several threads.",
            [f"{texts.PRAGMA} schedule(dynamic, 8)", *fast],
            texts.THREADS,
            "skips_zeros",
            "vectorised",
            "threads",
        ),
        kernel(
            "wrong_diagonal",
            "C loops that leave out the elements next to the zeros.",
            short,
            texts.VECTOR,
            "skips_zeros",
        ),
    ]


def triton_kernels(module: Module, one: Triangle, post: Sequence[Step]) -> list[Kernel]:
    """Return kernels in Triton: a program a row for a vector, otherwise tiles."""
    steps = elementwise_chain.triton_lines(post)
    row = add_offset("r[:, None]", -one.offset if one.lower else one.offset)
    keep = f"({row} >= k[None, :]) & (r[:, None] < n)"
    if not one.lower:
        keep = f"(k[None, :] >= {row}) & (k[None, :] < n) & (r[:, None] < n)"
    if one.vector:
        scalar = add_offset("r", -one.offset if one.lower else one.offset)
        keep = f"k <= {scalar}" if one.lower else f"(k >= {scalar}) & (k < n)"
        about = "A Triton program a row, that reads nothing beyond the diagonal."
        source = [
            "r = tl.program_id(0)",
            "k = tl.arange(0, BLOCK)",
            f"keep = {keep}",
            "v = tl.load(a + r * n + k, keep, other=0.0) * tl.load(x + k, keep, other=0.0)",
            "v = tl.sum(v, axis=0)",
            *steps,
            "tl.store(out + r, v)",
        ]
        return [
            texts.triton_kernel(
                about,
                module,
                source,
                out=one.out,
                sizes=one.sizes,
                grid="a.shape[0],",
                meta={"BLOCK": "triton.next_power_of_2(a.shape[0])"},
                variant="triton_row",
                techniques=("skips_zeros", "fusion"),
            )
        ]
    limits = (
        "0, tl.minimum((tl.program_id(0) + 1) * T, n), 16"
        if one.lower
        else "tl.program_id(0) * T, n, 16"
    )
    product = [
        "v = tl.zeros((T, T), tl.float32)",
        f"for k0 in range({limits}):",
        "    k = k0 + tl.arange(0, 16)",
        f"    left = tl.load(a + r[:, None] * n + k[None, :], {keep}, other=0.0)",
        "    inside = (k[:, None] < n) & (c[None, :] < m)",
        "    right = tl.load(x + k[:, None] * m + c[None, :], inside, other=0.0)",
        '    v += tl.dot(left, right, input_precision="ieee")',
        *steps,
    ]
    made: list[Kernel] = []
    for side in (32, 64):
        if one.reduced:
            source = [
                "r = tl.program_id(0) * T + tl.arange(0, T)",
                "total = tl.zeros((T,), tl.float32)",
                "for c0 in range(0, m, T):",
                "    c = c0 + tl.arange(0, T)",
                *(f"    {line}" for line in product),
                "    total += tl.sum(tl.where(c[None, :] < m, v, 0.0), axis=1)",
                "tl.store(out + r, total / m, r < n)",
            ]
            grid = f"triton.cdiv(a.shape[0], {side}),"
        else:
            source = [
                "r = tl.program_id(0) * T + tl.arange(0, T)",
                "c = tl.program_id(1) * T + tl.arange(0, T)",
                *product,
                "inside = (r[:, None] < n) & (c[None, :] < m)",
                "tl.store(out + r[:, None] * m + c[None, :], v, inside)",
            ]
            grid = f"triton.cdiv(a.shape[0], {side}), triton.cdiv(x.shape[1], {side})"
        about = f"Triton tiles of {side} by {side} that end at the diagonal, in full precision."
        made.append(
            texts.triton_kernel(
                about,
                module,
                source,
                out=one.out,
                sizes=one.sizes,
                grid=grid,
                meta={"T": str(side)},
                variant=f"triton_tiles_{side}",
                techniques=("skips_zeros", "tiling", "fusion"),
            )
        )
    return made


def cuda_kernels(module: Module, one: Triangle, post: Sequence[Step]) -> list[Kernel]:
    """Return one kernel in CUDA: a warp a row, or an element a thread."""
    steps = elementwise_chain.c_lines(post)
    summed = f"for (int k = {one.first}; k < {one.last}; ++k)"
    fold = "for (int h = 16; h > 0; h /= 2) {} += __shfl_xor_sync(0xffffffff, {}, h);"
    warp = [
        "const int i = blockIdx.x * 8 + threadIdx.x / 32, t = threadIdx.x % 32;",
        "if (i >= n) return;",
    ]
    grid, block = "(a.shape[0] + 7) // 8, 1, 1", "256, 1, 1"
    if one.vector:
        about = "CUDA, a warp a row that ends at the diagonal, combined by shuffles."
        source = [
            *warp,
            "float v = 0.0f;",
            f"for (int k = {one.first} + t; k < {one.last}; k += 32) v += a[i * n + k] * x[k];",
            fold.format("v", "v"),
            *steps,
            "if (t == 0) out[i] = v;",
        ]
    elif one.reduced:
        about = "CUDA, a warp a row of the answer, combined by shuffles."
        source = [
            *warp,
            "float s = 0.0f;",
            "for (int j = t; j < m; j += 32) {",
            "  float v = 0.0f;",
            f"  {summed} v += a[i * n + k] * x[k * m + j];",
            *(f"  {line}" for line in steps),
            "  s += v;",
            "}",
            fold.format("s", "s"),
            "if (t == 0) out[i] = s / m;",
        ]
    else:
        about = "CUDA, one element of the answer a thread, in a loop that ends at the diagonal."
        source = [
            "const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;",
            "if (i >= n || j >= m) return;",
            "float v = 0.0f;",
            f"{summed} v += a[i * n + k] * x[k * m + j];",
            *steps,
            "out[i * m + j] = v;",
        ]
        grid = "(x.shape[1] + 31) // 32, (a.shape[0] + 7) // 8, 1"
        block = "32, 8, 1"
    found = "warp_shuffle" if one.vector or one.reduced else "coalesced"
    return [
        texts.cuda_kernel(
            about,
            module,
            source,
            out=one.out,
            sizes=one.sizes,
            grid=grid,
            block=block,
            variant="cuda_rows",
            techniques=("skips_zeros", "fusion", found),
        )
    ]
