"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_REUSED = 32 << 20
"""The most that glibc accepts."""


def reuse_memory() -> None:
    """Keep freed blocks of up to 32 MiB for the next allocation, and return larger ones.

    Otherwise blocks are returned to the system and faulted in again page by page, in some calls and
    not in others, which can take as long as computing an output. Larger blocks are faulted in again
    in every call. If they were kept, a small answer that stays in the place of a large block would
    make the next block take new memory, call by call. Forks inherit this. C libraries other than
    glibc have no such setting and keep theirs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_M_TRIM_THRESHOLD, -1)
