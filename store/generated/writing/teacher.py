"""Kernels that every family has, made from the statements of its reference."""

from __future__ import annotations

from collections.abc import Sequence

from store.generated.writing.draw import Draw
from store.generated.writing.module import Module
from store.generated.writing.task import Kernel
from store.generated.writing.texts import torch_kernel


def rewrite(module: Module, lines: Sequence[str], result: str = "v") -> Kernel:
    """Return the reference in fewer or cheaper PyTorch operations."""
    about = "PyTorch operations that make fewer temporary tensors."
    return torch_kernel(
        about,
        module,
        [*lines, f"return {result}"],
        variant="torch_rewrite",
        techniques=("inplace",),
    )


def loop_over_rows(module: Module, lines: Sequence[str], rows: int, result: str = "v") -> Kernel:
    """Return the reference applied to `rows` rows at a time by a loop in Python."""
    if rows == 1:
        about = "A Python loop over single rows."
    else:
        about = f"A Python loop over {rows} rows at a time, so that temporaries stay in cache."
    split = [f"{name}.split({rows})" for name in module.inputs]
    source = split[0] if len(split) == 1 else f"zip({', '.join(split)})"
    body = [f"for {', '.join(module.inputs)} in {source}:"]
    body += [f"    {line}" for line in [*lines, f"parts.append({result})"]]
    return torch_kernel(
        about,
        module,
        ["parts = []", *body, "return torch.cat(parts)"],
        variant=f"torch_rows_{rows}",
        techniques=("python_loop",) if rows == 1 else ("cache_blocking",),
    )


def round_inputs(module: Module, lines: Sequence[str], result: str = "v") -> Kernel:
    """Return the reference on inputs that are rounded to bfloat16, which is wrong."""
    about = "PyTorch operations on inputs in bfloat16."
    first = [f"{name} = {name}.bfloat16()" for name in module.inputs]
    params = [f"self.{name}" for name in module.params]
    rounded = [line for line in lines]
    for name in params:
        rounded = [line.replace(name, f"{name}.bfloat16()") for line in rounded]
    return torch_kernel(
        about,
        module,
        [*first, *rounded, f"return {result}.float()"],
        variant="wrong_bfloat16",
        techniques=("low_precision",),
        right=False,
    )


def break_link(draw: Draw, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return a C kernel that asks its library for a function of another name, for some tasks."""
    if draw.integer_below(3):
        return []
    good = next(kernel for kernel in kernels if kernel.language == "cpp" and kernel.right)
    return [
        Kernel(
            variant="wrong_symbol",
            code=good.code.replace("(LIBRARY).run", "(LIBRARY).launch"),
            about=good.about,
            language="cpp",
            techniques=good.techniques,
            right=False,
        )
    ]
