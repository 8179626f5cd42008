"""Has no kernel of its own, or elementwise ones alone beside products of a library."""

import ast
import re
import sys
from collections.abc import Iterator

from evaluators.audit.source import MAIN, Hit, Module, Source, split_names

VERSION = 2
_CONFIDENCE = 0.2
"""A rewrite in PyTorch is a kernel like any other, unless --kernels requires custom ones."""
_LOOP = re.compile(r"\bfor \([^()]*;|\bwhile \(|\basm\b")
_TEMPLATES = re.compile(r"#include\s*[<\"](cutlass|cute|cub|thrust)/")
_ON_GPU = re.compile(r"#include\s*<(cuda|cublas|cudnn|ATen/cuda|c10/cuda)")
_BINARIES = split_names("CDLL PyDLL cdll.LoadLibrary", "ctypes.") | split_names(
    "utils.cpp_extension.load ops.load_library cuda._compile_kernel compile", "torch."
)
_PRODUCTS = split_names(
    "matmul mm bmm addmm baddbmm einsum linear conv1d conv2d conv3d scaled_dot_product_attention"
)
_ELEMENTWISE = split_names(
    "program_id num_programs arange load store where exp exp2 log log2 sqrt rsqrt sigmoid sin cos "
    "abs maximum minimum fma erf floor ceil cast to full zeros multiple_of max_contiguous cdiv "
    "tanh constexpr"
)


def find(source: Source) -> Iterator[Hit]:
    """Yield the class or function that is called, if no text has a kernel and none is missing."""
    for native in source.native:
        text = "\n".join(native.lines)
        # A kernel, templates of a kernel, or a loop on the processor.
        if native.global_functions or _TEMPLATES.search(text):
            return
        if _LOOP.search(text) and not _ON_GPU.search(text):
            return
    if any(name in _BINARIES for _, _, name in source.calls):
        return
    known = sys.stdlib_module_names | {"torch", "numpy", "einops", "triton"}
    if any(module.import_roots - known for module in source.modules):
        return  # another compiler, or a file that is not there
    if any("triton" in module.import_roots for module in source.modules) and not (
        all(_is_elementwise(module) for module in source.modules)
        and any(_multiplies(module) for module in source.modules)
    ):
        return
    for module in source.modules:
        if module.path == MAIN:
            for entry in module.entries[:1]:
                yield module.hit(entry, _CONFIDENCE)


def _is_elementwise(module: Module) -> bool:
    """Say whether no Triton kernel of a file loops, reduces, scans or multiplies matrices."""
    kernels = [
        one
        for same in module.functions.values()
        for one in same
        if any("triton" in module.name(_undo_call(part)) for part in one.decorator_list)
    ]
    return all(
        not module.inside(kernel, ast.For, ast.While)
        and {module.name(call.func).rpartition(".")[2] for call in module.inside(kernel, ast.Call)}
        <= _ELEMENTWISE
        for kernel in kernels
    )


def _undo_call(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _multiplies(module: Module) -> bool:
    """Say whether a call of the model multiplies matrices by a library."""
    return any(
        module.is_hot(node)
        and (
            isinstance(node.op, ast.MatMult)
            if isinstance(node, ast.BinOp)
            else module.name(node.func).rpartition(".")[2] in _PRODUCTS
        )
        for node in module.all(ast.BinOp, ast.Call)
    )
