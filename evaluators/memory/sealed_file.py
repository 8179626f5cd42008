"""Shared memory as a sealed file, which no worker can shrink under its reader."""

from __future__ import annotations

import fcntl
import os


def create_sealed_file(size_bytes: int) -> int:
    """Return a file descriptor of new shared memory whose size cannot change."""
    fd = os.memfd_create("flywheel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
