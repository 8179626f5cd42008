"""Has no device or native code of its own, so that library kernels do all of the work."""

import re
import sys
from collections.abc import Iterator

from evaluators.audit.source import MAIN, Hit, Source, split_names

VERSION = 1
_CONFIDENCE = 0.2
"""A rewrite in PyTorch is a kernel like any other, unless --kernels requires custom ones."""
_LOOP = re.compile(r"\bfor \([^()]*;|\bwhile \(|\basm\b")
_TEMPLATES = re.compile(r"#include\s*[<\"](cutlass|cute|cub|thrust)/")
_ON_GPU = re.compile(r"#include\s*<(cuda|cublas|cudnn|ATen/cuda|c10/cuda)")
_BINARIES = split_names("CDLL PyDLL cdll.LoadLibrary", "ctypes.") | split_names(
    "utils.cpp_extension.load ops.load_library cuda._compile_kernel compile", "torch."
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
    known = sys.stdlib_module_names | {"torch", "numpy", "einops"}
    if any(module.import_roots - known for module in source.modules):
        return  # Triton, another compiler, or a file that is not there
    for module in source.modules:
        if module.path == MAIN:
            for entry in module.entries[:1]:
                yield module.hit(entry, _CONFIDENCE)
