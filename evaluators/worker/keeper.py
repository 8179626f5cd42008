"""The processes around one worker: the keeper watches and ends it, the first process reaps.

Three forks of the fork server make a worker:

    fork server ── keeper ── first process ── worker

The keeper listens to the judge, watches what the worker and its descendants use, and ends them. The
first process adopts and reaps every process that loses its parent. Where PID namespaces are
allowed, it is the first process of one, and its end is the end of everything below it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluators.processes import cgroup, messages
from evaluators.processes.memory_group import MemoryGroup
from evaluators.processes.process_tree import end_descendants, find_descendants
from evaluators.references import worker as task_loop
from evaluators.sandbox import isolation
from evaluators.sandbox.linux import namespaces, privileges
from evaluators.sandbox.linux.mounts import Root
from evaluators.worker import loop as candidate_loop
from evaluators.worker.resource_watch import watch_resources

_REPORT_LIMIT_S = 5.0
_LOOPS = {"candidate": candidate_loop, "task": task_loop}
"""What a worker does: call a candidate's module, or run a task's code."""


@dataclass(frozen=True)
class Start:
    """A worker to start."""

    order: dict[str, Any]
    """The judge's order: folders, environment, limits and setting."""
    fds: list[int]
    """Channel, inbox, outbox, log, own folder, build folder."""
    walls: list[str]
    group: cgroup.Group | None
    memory: MemoryGroup | None
    gpu: bool

    @property
    def folders(self) -> list[int]:
        """Descriptors of the folders that the worker may write to."""
        return self.fds[4:]

    def obtain_root(self) -> Root | None:
        """Request the worker's root, where this machine allows one. Raises OSError."""
        memory_bytes = self.order["limits"]["memory_bytes"]
        return isolation.obtain_root(self.walls, self.order["folders"], memory_bytes)


def keep(start: Start, control: socket.socket, report: int) -> None:
    """Start a worker, watch it, end it, and report how it ended. Does not return."""
    first = 0
    try:
        privileges.die_with_parent()
        privileges.adopt_orphans()
        root = None
        if "pid_namespace" in start.walls:
            namespaces.start_process_namespace()
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
        excess = watch_resources(control, facts, first, start.order, boxes, start.memory)
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


def _run_first_process(start: Start, told: int, root: Root | None) -> None:
    """Fork the worker, reap every process, report how the worker ended, and wait. Never returns."""
    try:
        privileges.die_with_parent()
        privileges.adopt_orphans()
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


def _become_worker(start: Start, told: int, processes: int) -> None:
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
        _set_limits(order["limits"])
        privileges.die_with_parent()
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


def _set_limits(limits: dict[str, Any]) -> None:
    memory_bytes = limits["memory_bytes"]
    if memory_bytes is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _lower_limit(resource.RLIMIT_AS, used + memory_bytes)
    _lower_limit(resource.RLIMIT_CORE, 0)
    _lower_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _lower_limit(resource.RLIMIT_NOFILE, limits["open_files"])
    _lower_limit(resource.RLIMIT_CPU, limits["cpu_s"])


def _lower_limit(which: int, value: int | None) -> None:
    _, hard = resource.getrlimit(which)
    wanted = value if value is not None else hard
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (bound, bound))


def _end_tree(first: int, start: Start) -> None:
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
