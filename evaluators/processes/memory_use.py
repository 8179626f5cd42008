"""Memory of a tree of processes, counted without a control group."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable
from pathlib import Path

MACHINE_IS_SHORT = "the machine has hardly any memory left"
"""What is said of a worker that is ended while other processes hold the memory as well."""
_BLOCK_BYTES = 512
_SHM = "/dev/shm"
_WITHOUT_NAME = "/memfd:"


def count_held_bytes(pids: Iterable[int], excluded: Collection[int] = ()) -> int:
    """Return the bytes of private pages and of files in memory: mapped, open, or in a /dev/shm.

    A file counts once, even if several processes have it open. Of memory that is mapped without a
    descriptor, the process with the most counts. Processes that cannot be inspected count with
    their private pages only.

    Args:
        pids: Processes of the tree.
        excluded: Inodes of files in memory that are not the tree's own.
    """
    private = mapped = 0
    files: dict[int, int] = {}
    known = {_find_device(_SHM), None}
    shared = 0
    for pid in pids:
        private += _read_private_bytes(pid)
        files |= _find_open_files(pid)
        mapped = max(mapped, _read_mapped_bytes(pid))
        folder = f"/proc/{pid}/root{_SHM}"
        if (device := _find_device(folder)) not in known:
            known.add(device)
            shared += read_used_bytes(folder)
    excluded_bytes = sum(size for inode, size in files.items() if inode in excluded)
    opened = sum(files.values()) - excluded_bytes
    return private + max(opened, mapped - excluded_bytes, 0) + shared


def _find_device(folder: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(folder).st_dev
    return None


def _read_private_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * resource.getpagesize()
    return 0


def _read_mapped_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def _find_open_files(pid: int) -> dict[int, int]:
    """Return the bytes of each file in memory that a process has open, by inode."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                # A file with a name is counted in its folder.
                if os.readlink(entry.path).startswith(_WITHOUT_NAME):
                    known = os.stat(entry.path)
                    found[known.st_ino] = known.st_blocks * _BLOCK_BYTES
    return found


def read_used_bytes(folder: str) -> int:
    """Return the bytes in use on the file system of a folder; 0 where there is none."""
    with contextlib.suppress(OSError):
        known = os.statvfs(folder)
        return (known.f_blocks - known.f_bfree) * known.f_frsize
    return 0
