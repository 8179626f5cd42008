"""What the teacher says: where a reference spends its time, and why a kernel is fast or slow."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from store.generated.writing.task import TeacherKernel

ROW_ALONE = (
    "What is computed of a row depends on that row alone, and its {row_kb} kB stay in cache or "
    "registers, so that x has to be read from memory only once."
)
_VIEWS = ("t", "transpose", "diagonal")
_BUILT = {
    "cpp": "gcc compiles the source when the file is imported, and ctypes calls it.",
    "cuda": "NVRTC compiles the source when the module is constructed.",
}
_TECHNIQUES = {
    "block_size": "The block size decides how many programs there are and how much each does.",
    "cache_blocking": "What a block computes is small enough to be read back from cache.",
    "coalesced": "Reads go to neighbouring addresses, so that whole cache lines are used.",
    "edge_split": "In the interior every neighbour is there and needs no test.",
    "fusion": "No temporary tensor goes through memory between the steps.",
    "inplace": "Where an operation can work in place, or one call does several steps, it is used.",
    "instruction_parallelism": "Additions that do not depend on each other overlap.",
    "library_call": "One call of the library replaces several operations.",
    "low_precision": "Rounding halves what the steps read and loses precision.",
    "parallel_scan": "Parts of a running sum are made in parallel and then added up.",
    "python_loop": "Every turn of the loop pays for calling its operations again.",
    "row_in_registers": "The row stays in registers from its load to its store.",
    "shared_memory": "Threads of a block exchange values through shared memory.",
    "skips_zeros": "Most or all of the product that cannot reach the answer is left out.",
    "threads": "The work is shared among as many threads as PyTorch uses.",
    "tiling": "Elements of a tile share the cache lines that they are read from.",
    "tuned": "Which constants are the best depends on the sizes.",
    "unrolling": "The loads of a thread do not wait for each other.",
    "vectorised": "-O3 -march=native -ffast-math let the compiler use vector instructions.",
    "warp_shuffle": "Threads of a warp combine values by shuffles, without a barrier.",
}


def describe_reference(
    lines: Sequence[str], sizes: Mapping[str, int], shapes: Sequence[str], bound: str
) -> str:
    """Return where a reference spends its time.

    Args:
        lines: Its statements.
        sizes: Names of sizes and their values.
        shapes: Shape of each input, such as "ROWS, COLS".
        bound: What the computation needs at least; {row_kb} is replaced by the size of a row.
    """
    count = count_operations(lines)
    made = (
        "The reference is one PyTorch operation."
        if count == 1
        else f"The reference is {count} PyTorch operations one after another, each of which reads "
        "its operands from memory and writes a new tensor."
    )
    numbers = 0
    for shape in shapes:
        size = 1
        for name in shape.split(", "):
            size *= sizes[name]
        numbers += size
    inputs = "input takes" if len(shapes) == 1 else "inputs take"
    row_kb = f"{4 * sizes.get('COLS', 0) / 1000:.1f}"
    return f"{made} Its {inputs} {4 * numbers / 1000:,.0f} kB. {bound.format(row_kb=row_kb)}"


def describe_kernel(kernel: TeacherKernel) -> str:
    """Return what a kernel does and why."""
    built = [_BUILT[kernel.language]] if kernel.language in _BUILT else []
    return " ".join([kernel.about, *built, *(_TECHNIQUES[name] for name in kernel.techniques)])


def count_operations(lines: Sequence[str]) -> int:
    """Return the number of operations on tensors in statements, views left out.

    >>> count_operations(["v = torch.relu(x.t() * 2.0)", "v = 1.0 / (v + v)"])
    4
    """
    return sum(_count_in_node(node) for node in ast.parse("\n".join(lines)).body)


def _count_in_node(node: ast.AST) -> int:
    if isinstance(node, ast.Subscript):
        return _count_in_node(node.value)  # an index is none
    own = 0
    if isinstance(node, ast.Call):
        own = isinstance(node.func, ast.Attribute) and node.func.attr not in _VIEWS
    elif isinstance(node, ast.BinOp):
        own = not (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant))
    elif isinstance(node, ast.UnaryOp):
        own = not isinstance(node.operand, ast.Constant)
    return own + sum(map(_count_in_node, ast.iter_child_nodes(node)))
