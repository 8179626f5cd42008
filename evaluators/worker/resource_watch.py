"""Watching what a worker and all it has started use: processes, threads, disk and memory."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluators.processes import messages
from evaluators.processes.memory_group import MemoryGroup
from evaluators.processes.memory_use import (
    MACHINE_IS_SHORT,
    count_held_bytes,
    read_used_bytes,
)
from evaluators.processes.process_tree import count_threads_below, find_descendants

LEAST_FREE_BYTES = 2**29
"""Memory that a worker without a limit leaves to the machine."""
_LOOK_S = 0.1
_MANY_TASKS = 64
_SHM = "/dev/shm"


def watch_resources(
    control: socket.socket,
    facts: int,
    first: int,
    order: Mapping[str, Any],
    boxes: set[int],
    memory: MemoryGroup | None,
) -> str | None:
    """Wait until the worker has ended or is to end; returns the limit that it exceeded, if any.

    Each round reads figures of the whole machine, which costs next to nothing. It inspects the
    worker's processes only once a figure has moved by as much as the limit.

    Args:
        control: The judge's channel: a message on it orders the end.
        facts: Descriptor on which the first process reports the worker's end.
        first: Process number of the first process.
        order: The judge's order with limits and folders.
        boxes: Inodes of the judge's own shared memory.
        memory: The worker's memory group, if there is one.
    """
    limits, directory = order["limits"], order["directory"]
    tasks, free_disk, free_memory = _read_machine(directory)
    shm_bytes = read_used_bytes(_SHM)
    while not select.select([facts, control], [], [], _LOOK_S)[0]:
        tasks_now, free_disk_now, free_memory_now = _read_machine(directory)
        if tasks_now - tasks > _MANY_TASKS:
            threads = count_threads_below(first).values()
            if len(threads) > limits["processes"] or sum(threads) > limits["threads"]:
                return f"{len(threads)} processes with {sum(threads)} threads"
        if free_disk - free_disk_now > limits["disk_bytes"]:
            used = sum(_measure_folder(folder) for folder in order["folders"])
            # Files that are deleted but still open are in no folder; only the disk shows them.
            if used > limits["disk_bytes"] or free_disk_now < limits["disk_bytes"]:
                return f"{used} bytes in files"
        if memory is not None and memory.is_exceeded():
            break
        memory_bytes, why = limits["memory_bytes"], ""
        if free_memory_now < LEAST_FREE_BYTES < free_memory:
            memory_bytes, why = LEAST_FREE_BYTES, f", and {MACHINE_IS_SHORT}"
        if memory_bytes is not None and free_memory - free_memory_now > memory_bytes:
            # The first sum includes its own /dev/shm; the second counts the machine's.
            machine_shm_bytes = max(0, read_used_bytes(_SHM) - shm_bytes)
            used = count_held_bytes(find_descendants(first), boxes) + machine_shm_bytes
            if used > memory_bytes:
                return f"{used} bytes of memory{why}"
    if memory is not None and memory.is_exceeded():
        return "more bytes of memory than its control group may hold"
    if select.select([control], [], [], 0)[0]:
        messages.receive(control)
    return None


def read_free_memory() -> int:
    """Return the bytes of the machine's memory that are free or can be freed."""
    return int(Path("/proc/meminfo").read_text().split()[7]) * 1024


def _read_machine(directory: str) -> tuple[int, int, int]:
    """Return the machine's number of threads, its free bytes on disk, and in memory."""
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    disk = os.statvfs(os.path.dirname(directory))  # a folder that the candidate cannot delete
    return tasks, disk.f_bavail * disk.f_frsize, read_free_memory()


def _measure_folder(directory: str) -> int:
    """Return the bytes on disk of all files below a folder."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
