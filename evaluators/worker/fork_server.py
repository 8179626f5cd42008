"""The processes that make a worker: template, fork server, keeper, first process, worker.

    template ── fork server ── keeper ── first process ── worker

The template has imported torch, which takes seconds. It forks the fork servers of a judge process.
Each has a session, an environment and a temporary folder of its own, and the namespaces of the
template, as all fork servers of a judge process have the judge's.

A fork server forks one worker at a time, which takes milliseconds. It never runs code of a
candidate, never touches CUDA, and has only the modules of a worker loaded: no task, no reference,
no store.

The keeper listens to the judge, watches what the worker and its descendants use, and ends them. The
first process adopts and reaps every process that loses its parent. Where PID namespaces are
allowed, it is the first process of one, and its end is the end of everything below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from evaluators.processes import cgroup, messages, schema
from evaluators.processes.process_tree import (
    MACHINE_IS_SHORT,
    count_held_bytes,
    count_threads_below,
    end_descendants,
    find_descendants,
    read_used_bytes,
)
from evaluators.references import module as task_loop
from evaluators.sandbox import isolation
from evaluators.sandbox.isolation import find_available_walls, find_failure
from evaluators.sandbox.linux import this_process
from evaluators.sandbox.linux.mounts import Root
from evaluators.worker import loop as candidate_loop

_MOST_FDS = 6
"""Channel, inbox, outbox, log, own folder, build folder."""
_ALWAYS = ["process", "rlimits", "environment", "no_new_privs", "death_signal", "subreaper"]
_LOOPS = {"candidate": candidate_loop, "task": task_loop}
"""What a worker does: call a candidate's module, or run a task's code."""
_REPORT_LIMIT_S = 30.0
_SHM = "/dev/shm"
_LEAST_FREE_BYTES = 2**29
"""Memory that a worker without a limit leaves to the machine."""
_LOOK_S = 0.1
_MANY_TASKS = 64


def run_template(control_fd: int) -> None:
    """Fork a fork server for each order of the judge until it closes the channel."""
    this_process.reuse_memory()
    find_walls("")
    this_process.hide_memory()
    gc.freeze()  # a collection in a fork would copy every page that it shares with this process
    gc.enable()
    control = socket.socket(fileno=control_fd)
    servers: dict[str, int] = {}
    with contextlib.suppress(messages.Closed):
        messages.send(control, {"ready": True})
        while True:
            order, fds = messages.receive_with_fds(control, 1)
            servers = {m: pid for m, pid in servers.items() if not os.waitpid(pid, os.WNOHANG)[0]}
            if order["do"] == "fork":
                pid = os.fork()
                if pid == 0:
                    control.close()
                    _run_fork_server(order, socket.socket(fileno=fds[0]))
                os.close(fds[0])
                servers[order["marker"]] = pid
            elif order["marker"] in servers:
                os.kill(servers[order["marker"]], signal.SIGKILL)
    for pid in servers.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _run_fork_server(order: dict[str, Any], control: socket.socket) -> NoReturn:
    try:
        this_process.die_with_parent()
        os.setsid()
        isolation.helpers.clear()  # they are the template's
        # The environment that /proc shows for a process is the memory that it has started with,
        # for its forks the template's. The mark is overwritten there.
        get = ctypes.CDLL(None).getenv
        get.restype = ctypes.c_void_p
        marker = order["marker"]
        ctypes.memmove(get(isolation.MARKER.encode()), marker.encode(), len(marker))
        os.environ.update({isolation.MARKER: marker, **order["environment"]})
        tempfile.tempdir = None  # forget the template's folder
        # Forks share the state of a generator. Workers of a task must not share one with
        # candidates, which could foresee its inputs. Python's own seeds itself anew.
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        serve(control, order["warm"])
    finally:
        os._exit(0)


def serve(control: socket.socket, warm: Sequence[str]) -> None:
    """Serve start and kill requests of the judge until it closes the channel.

    `warm` names modules to import for the workers.
    """
    gpu = isolation.has_gpu()
    walls = [*isolation.inherited, *find_walls(os.environ.get(isolation.WITHOUT, ""))]
    this_process.adopt_orphans()
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
    memory = None
    if "memory_group" in walls:
        limit_bytes = order["limits"]["memory_bytes"]
        if limit_bytes is None:  # leave the machine enough to keep running
            limit_bytes = max(read_free_memory() - _LEAST_FREE_BYTES, _LEAST_FREE_BYTES)
        memory = cgroup.MemoryGroup(limit_bytes, group.folder if group is not None else None)
    keeper = os.fork()
    if keeper == 0:
        os.close(reading)
        _keep(_Start(order, fds, walls, group, memory, gpu), control, writing)
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
    messages.send(control, {"ended": schema.KILLED | json.loads(report or b"{}")})


@cache
def find_walls(left_out: str) -> list[str]:
    """Return the walls that hold here, without some that are named with commas.

    The template finds them once for all its fork servers.
    """
    gpu, names = isolation.has_gpu(), left_out.split(",")
    scratch = os.environ["TMPDIR"]
    walls = find_available_walls(isolation.inherited, scratch, gpu=gpu, left_out=names)

    def try_group(name: str, trial: Callable[[], None]) -> None:
        reason = find_failure(trial)
        if reason is None:
            walls.append(name)
        else:
            isolation.missing[name] = reason

    try_group("cgroup", cgroup.try_kill)
    try_group("freezer", cgroup.try_freezer)
    group = cgroup.Group() if "cgroup" in walls else None
    folder = group.folder if group is not None else None
    try_group("memory_group", lambda: cgroup.try_limit(folder))
    if group is not None:
        group.remove()
    return walls


def _list_shared_files() -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(_SHM))
    return set()


@dataclass(frozen=True)
class _Start:
    order: dict[str, Any]
    """The judge's order: folders, environment, limits and setting."""
    fds: list[int]
    """Channel, inbox, outbox, log, own folder, build folder."""
    walls: list[str]
    group: cgroup.Group | None
    memory: cgroup.MemoryGroup | None
    gpu: bool

    @property
    def folders(self) -> list[int]:
        """Descriptors of the folders that the worker may write to."""
        return self.fds[4:]

    def obtain_root(self) -> Root | None:
        """Request the worker's root, where this machine allows one. Raises OSError."""
        memory_bytes = self.order["limits"]["memory_bytes"]
        return isolation.obtain_root(self.walls, self.order["folders"], memory_bytes)


def _keep(start: _Start, control: socket.socket, report: int) -> None:
    """Start a worker, watch it, end it, and report how it ended. Does not return."""
    first = 0
    try:
        this_process.die_with_parent()
        this_process.adopt_orphans()
        root = None
        if "pid_namespace" in start.walls:
            this_process.unshare(this_process.NEWPID)
        else:  # without a namespace, the first process and this one share a signal scope
            root = start.obtain_root()
            proc = root.proc if root is not None else None
            isolation.guard(start.walls, start.folders, gpu=start.gpu, proc=proc)
        facts, told = os.pipe()
        first = os.fork()
        if first == 0:
            control.close()
            os.close(facts)
            os.close(report)
            _run_first_process(start, told, root)
        if root is not None:
            root.close()
        os.close(told)
        boxes = {os.fstat(fd).st_ino for fd in start.fds[1:3]}
        for fd in start.fds:
            os.close(fd)
        lines = os.fdopen(facts, "rb", buffering=0)
        worker = json.loads(lines.readline() or b"null") or {"pid": first}
        folder = str(start.group.folder) if start.group is not None else None
        messages.send(control, {"started": worker["pid"], "group": folder})
        excess = _watch(start, control, facts, first, boxes)
        strays = find_descendants(os.getpid()) - {first, worker["pid"]}
        line = b""
        if excess is None:
            if not select.select([facts], [], [], 0)[0]:
                # It ends with its channel, and may have been reaped just now.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker["pid"], signal.SIGKILL)
            if select.select([facts], [], [], _REPORT_LIMIT_S)[0]:
                line = lines.readline()
        _end_tree(first, start)
        first = 0
        end_descendants()
        how = {**json.loads(line or b"{}"), "strays": len(strays), "excess": excess}
        os.write(report, json.dumps(how).encode() + b"\n")
    finally:  # also where the judge has ended
        if first:
            _end_tree(first, start)
        os._exit(0)


def _run_first_process(start: _Start, told: int, root: Root | None) -> None:
    """Fork the worker, reap every process, report how the worker ended, and wait. Never returns."""
    try:
        this_process.die_with_parent()
        this_process.adopt_orphans()
        processes = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        inside = "pid_namespace" in start.walls
        if inside:
            root = start.obtain_root()
        if root is not None:
            root.enter()
        if inside:
            isolation.guard(start.walls, start.folders, gpu=start.gpu)
        worker = os.fork()
        if worker == 0:
            if start.group is not None:  # this process stays outside: it reaps a frozen group
                start.group.take()
            if start.memory is not None:
                start.memory.take()
            _become_worker(start, told, processes)
        os.close(processes)
        for fd in start.fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, 0)
                if pid == worker:
                    ended = {
                        "code": os.waitstatus_to_exitcode(status),
                        "peak_memory_bytes": usage.ru_maxrss * 1024,
                        "cpu_s": usage.ru_utime + usage.ru_stime,
                    }
                    os.write(told, json.dumps(ended).encode() + b"\n")
        while True:  # the keeper counts the remaining processes and ends this one
            signal.pause()
    finally:
        os._exit(70)


def _become_worker(start: _Start, told: int, processes: int) -> None:
    """Turn this fork into a worker with its limits in force. Does not return."""
    code = 70
    channel, inbox, outbox, log, *folders = start.fds
    order = start.order
    try:
        # The number that the judge's /proc has, also from inside a namespace.
        pid = {"pid": int(os.readlink("self", dir_fd=processes))}
        os.write(told, json.dumps(pid).encode() + b"\n")
        os.setsid()
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(source, target)
        kept = {channel, inbox, outbox, *folders}
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in kept:
                with contextlib.suppress(OSError):  # the listing's own descriptor is closed
                    os.close(fd)
        # By its name, since a descriptor of another mount namespace has none here.
        os.chdir(order["directory"])
        if not os.path.samestat(os.stat("."), os.fstat(folders[0])):
            raise OSError(f"{order['directory']} is another folder")
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # forget the fork server's folder
        sys.path.insert(0, order["directory"])
        limits = order["limits"]
        if limits["memory_bytes"] is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _lower_limit(
                resource.RLIMIT_AS, pages * resource.getpagesize() + limits["memory_bytes"]
            )
        _lower_limit(resource.RLIMIT_CORE, 0)
        _lower_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
        _lower_limit(resource.RLIMIT_NOFILE, limits["open_files"])
        _lower_limit(resource.RLIMIT_CPU, limits["cpu_s"])
        this_process.die_with_parent()
        loop = _LOOPS[order["loop"]]
        setting = loop.Setting(**order["setting"])
        order.clear()
        isolation.narrow(start.walls, folders, gpu=start.gpu)
        for fd in folders:
            os.close(fd)
        loop.serve(socket.socket(fileno=channel), setting, inbox, outbox)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def _lower_limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def _end_tree(first: int, start: _Start) -> None:
    """Kill the first process and everything below it.

    The end of a control group or a PID namespace, or one signal to every process that may be
    signaled from here, leaves no moment in which a process can fork once more. Without any of
    them, the sweep repeats until it finds no process.
    """
    if start.group is not None:
        start.group.kill()
    if "pid_namespace" not in start.walls and "signal_scope" in start.walls:
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:  # the scope holds, so that a signal to "all" stays below
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(first, 0)


def _watch(
    start: _Start, control: socket.socket, facts: int, first: int, boxes: set[int]
) -> str | None:
    """Wait until the worker has ended or is to end; returns the limit that it exceeded, if any.

    Each round reads figures of the whole machine, which costs next to nothing. It inspects the
    worker's processes only once a figure has moved by as much as the limit. A message on `control`
    orders the end, the first process reports it on `facts`, and `boxes` are the inodes of the
    judge's own shared memory.
    """
    order, memory = start.order, start.memory
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
            used = 0
            for top in order["folders"]:
                for folder, _, names in os.walk(top):
                    for name in names:
                        with contextlib.suppress(OSError):
                            used += os.lstat(os.path.join(folder, name)).st_blocks * 512
            # Files that are deleted but still open are in no folder; only the disk shows them.
            if used > limits["disk_bytes"] or free_disk_now < limits["disk_bytes"]:
                return f"{used} bytes in files"
        if memory is not None and memory.is_exceeded():
            break
        memory_bytes, why = limits["memory_bytes"], ""
        if free_memory_now < _LEAST_FREE_BYTES < free_memory:
            memory_bytes, why = _LEAST_FREE_BYTES, f", and {MACHINE_IS_SHORT}"
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
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    disk = os.statvfs(os.path.dirname(directory))  # a folder that the candidate cannot delete
    return tasks, disk.f_bavail * disk.f_frsize, read_free_memory()
