"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def reuse_memory() -> None:
    """Keep freed memory for the next allocation, as torch's CUDA allocator does.

    Otherwise large blocks are returned to the system and faulted in again page by page, in some
    calls and not in others, which can take as long as computing an output. Forks inherit this. C
    libraries other than glibc have no such setting and keep theirs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
