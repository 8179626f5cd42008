"""A warm process that has imported torch and forks one worker at a time.

Importing torch takes seconds, forking a process that has it takes milliseconds. The fork server is
itself a fork of the `template`. It never runs code of a candidate, never touches CUDA, and has only
the modules of a worker loaded: no task, no reference, no store. `keeper` describes the three forks
that make a worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from evaluators.processes import cgroup, messages
from evaluators.processes.memory_group import MemoryGroup, try_limit
from evaluators.processes.process_tree import end_descendants
from evaluators.sandbox import isolation
from evaluators.sandbox.linux import privileges
from evaluators.sandbox.trial import find_failure
from evaluators.sandbox.wall_trials import find_available_walls
from evaluators.worker.keeper import Start, keep
from evaluators.worker.resource_watch import LEAST_FREE_BYTES, read_free_memory

_MOST_FDS = 6
"""Channel, inbox, outbox, log, own folder, build folder."""
_ALWAYS = ["process", "rlimits", "environment", "no_new_privs", "death_signal", "subreaper"]
_SHM = "/dev/shm"
_KILLED = {"code": -signal.SIGKILL, "peak_memory_bytes": None, "strays": 0, "excess": None}


def main(control: socket.socket, warm: Sequence[str]) -> None:
    """Serve start and kill requests of the judge until it closes the channel.

    `warm` names modules to import for the workers.
    """
    gpu = isolation.has_gpu()
    walls = [*isolation.inherited, *find_walls(os.environ.get(isolation.WITHOUT, ""))]
    privileges.adopt_orphans()
    sys.dont_write_bytecode = True  # a worker's directory holds only what it was given
    for module in warm:
        with contextlib.suppress(Exception):  # Triton, for one, is not everywhere
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page that it shares with this process
    messages.send(
        control,
        {
            "pid": os.getpid(),
            "limits": [*_ALWAYS, "not_dumpable", *walls],
            "missing": isolation.missing,
        },
    )
    with contextlib.suppress(messages.Closed):
        while True:
            order, fds = messages.receive_with_fds(control, _MOST_FDS)
            # A kill may arrive after the worker's own end.
            if order["do"] == "start":
                _run_worker(control, order, fds, walls, gpu=gpu)


def _run_worker(
    control: socket.socket, order: dict[str, Any], fds: list[int], walls: list[str], *, gpu: bool
) -> None:
    """Start a worker, wait for its end and report it. Raises Closed where the judge has ended."""
    shm = _list_shared_files() if "private_shm" in walls else None
    reading, writing = os.pipe()
    group = cgroup.Group() if "cgroup" in walls else None
    memory = _limit_memory(walls, order["limits"], group)
    keeper = os.fork()
    if keeper == 0:
        os.close(reading)
        keep(Start(order, fds, walls, group, memory, gpu), control, writing)
    for fd in (*fds, writing):
        os.close(fd)
    with os.fdopen(reading, "rb") as reports:
        report = reports.readline()
    os.waitpid(keeper, 0)
    end_descendants()
    if memory is not None:
        memory.remove()
    if group is not None:
        group.remove()
    if shm is not None:
        for name in _list_shared_files() - shm:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(_SHM, name))
    messages.send(control, {"ended": _KILLED | json.loads(report or b"{}")})


@cache
def find_walls(left_out: str) -> list[str]:
    """Return the walls that hold here, without some that are named with commas.

    The template finds them once for all its fork servers.
    """
    gpu, names = isolation.has_gpu(), left_out.split(",")
    scratch = os.environ["TMPDIR"]
    walls = find_available_walls(isolation.inherited, scratch, gpu=gpu, left_out=names)
    return walls + _find_available_groups()


def _find_available_groups() -> list[str]:
    """Return the walls that control groups provide here, found by trying them."""
    available: list[str] = []
    for name, part in {"cgroup": cgroup.try_kill, "freezer": cgroup.try_freezer}.items():
        reason = find_failure(part)
        if reason is None:
            available.append(name)
        else:
            isolation.missing[name] = reason
    group = cgroup.Group() if "cgroup" in available else None
    reason = find_failure(lambda: try_limit(group.folder if group is not None else None))
    if group is not None:
        group.remove()
    if reason is None:
        available.append("memory_group")
    else:
        isolation.missing["memory_group"] = reason
    return available


def _limit_memory(
    walls: list[str], limits: dict[str, Any], group: cgroup.Group | None
) -> MemoryGroup | None:
    """Make a worker's memory group; without a limit, leave the machine enough to keep running."""
    if "memory_group" not in walls:
        return None
    limit_bytes = limits["memory_bytes"]
    if limit_bytes is None:
        limit_bytes = max(read_free_memory() - LEAST_FREE_BYTES, LEAST_FREE_BYTES)
    return MemoryGroup(limit_bytes, group.folder if group is not None else None)


def _list_shared_files() -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(_SHM))
    return set()
