"""How the C library of a process deals with memory that is freed."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def reuse_memory() -> None:
    """Keep what is freed for the next allocation, as CUDA's allocator in torch does.

    Else large blocks are given back and come again page by page, in some calls and not in others,
    as chance has it: the faults for an output take about as long as computing it. Forks inherit
    this. C libraries other than glibc have no such setting and are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
