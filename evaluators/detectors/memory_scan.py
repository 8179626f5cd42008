"""Searches the memory of the process or the device for somebody else's buffers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, words

VERSION = 1
CLASS = "memory_scan"
_NATIVE = words(
    "cuMemGetAddressRange cuMemGetAddressRange_v2 cudaPointerGetAttributes "
    "cuPointerGetAttribute cuPointerGetAttributes cuMemRetainAllocationHandle"
)
_TORCH = words("memory_snapshot memory._snapshot caching_allocator_alloc", "torch.cuda.") | words(
    "_cuda_memorySnapshot _cuda_cudaCachingAllocator_raw_alloc", "torch._C."
)
_PLACES = ("/proc/self/maps", "/proc/self/smaps")


def find(source: Source) -> Iterator[Hit]:
    """Yield questions for the bounds of allocations, and looks at the process's memory map."""
    yield from source.called(_TORCH, 0.8)
    for module in source.modules:
        for node in module.all(ast.Attribute):
            if node.attr in _NATIVE:
                yield module.hit(node, 0.9)
        for node in module.all(ast.Constant):
            text = node.value if isinstance(node.value, str) and node not in module.prose else ""
            if text.startswith(_PLACES) or text in _NATIVE:
                yield module.hit(node, 0.9)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.8)
