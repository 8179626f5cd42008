"""The cache flush: pushes everything out of the caches of a processor or the L2 cache of a GPU."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

_MIB = 1 << 20


def flush_caches(memory: torch.Tensor) -> None:
    """Read memory of `compute_flush_bytes`, so that nothing else stays in the caches.

    Reading leaves no lines that are written back later, within the time of a call. The memory must
    have been written once: untouched pages of a processor may all be the same one.
    """
    memory.sum(dtype=memory.dtype)  # into a wider type, it takes 80 times as long on a processor


def compute_flush_bytes(device: str) -> int:
    """Return the number of bytes to read so that nothing else stays in the caches."""
    if device == "cuda":
        l2_bytes = int(torch.cuda.get_device_properties(0).L2_cache_size)
        return max(256 * _MIB, 4 * l2_bytes)
    return min(max(2 * (read_last_level_cache_bytes() or 0), 32 * _MIB), 256 * _MIB)


def read_last_level_cache_bytes() -> int | None:
    """Return the size of the largest cache that the first processor sees, as Linux describes it."""
    sizes: list[int] = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = file.read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=None)
