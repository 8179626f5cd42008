"""Searches the memory of the process or the device for buffers of others."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_NATIVE = split_names(
    "cuMemGetAddressRange cuMemGetAddressRange_v2 cudaPointerGetAttributes "
    "cuPointerGetAttribute cuPointerGetAttributes cuMemRetainAllocationHandle"
)
_TORCH = split_names(
    "memory_snapshot memory._snapshot caching_allocator_alloc", "torch.cuda."
) | split_names("_cuda_memorySnapshot _cuda_cudaCachingAllocator_raw_alloc", "torch._C.")
_PLACES = ("/proc/self/maps", "/proc/self/smaps")


def find(source: Source) -> Iterator[Hit]:
    """Yield queries of the bounds of allocations, and reads of the process's memory map."""
    yield from source.find_calls(_TORCH, 0.8)
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
