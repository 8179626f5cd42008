"""A warm process that has imported torch and forks one worker at a time.

Importing torch takes seconds, forking a process that has it takes milliseconds. The fork server
never runs code of a candidate itself, never touches CUDA, and holds nothing but the modules of a
worker: no task, no reference, no store. Three forks make a worker:

    fork server ── keeper ── first process ── worker

The keeper listens to the judge, watches what the worker's tree uses, and ends it. The first process
adopts and reaps whatever loses its parent; where PID namespaces are allowed it is the first of one,
and its end is the end of everything below.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path
from typing import Any

from evaluators.processes import allocator, cgroup, messages
from evaluators.processes.memory_group import MemoryGroup, try_limit
from evaluators.processes.memory_use import held_bytes, used_bytes
from evaluators.processes.process_tree import descendants, family, sweep
from evaluators.references import worker as _task_worker
from evaluators.sandbox import isolation
from evaluators.sandbox.linux import namespaces, privileges
from evaluators.sandbox.linux.mounts import Root
from evaluators.sandbox.trial import find_failure
from evaluators.sandbox.wall_trials import find_available_walls
from evaluators.worker import loop as loop_module

_FACTS_LIMIT_S = 5.0
_LOOK_S = 0.1
_MANY_TASKS = 64
_MOST_FDS = 6
"""Channel, inbox, outbox, log, own folder, build folder."""
_LEAST_FREE_BYTES = 2**29
_ALWAYS = ["process", "rlimits", "environment", "no_new_privs", "death_signal", "subreaper"]
_SHM = "/dev/shm"
_LOOPS = {"candidate": loop_module, "task": _task_worker}
"""What a worker does: call a module that is given, or run a task's text."""
_KILLED = {"code": -signal.SIGKILL, "peak_memory_bytes": None, "strays": 0, "excess": None}


def main(control_fd: int, warm: str) -> None:
    """Serve start and kill requests of the judge until it is gone.

    `warm` names the modules that its workers find imported, with commas.
    """
    allocator.reuse_memory()
    gpu = isolation.has_gpu()
    enclosures = isolation.inherited
    parts = find_available_walls(enclosures, os.environ["TMPDIR"], gpu=gpu)
    parts += _group_parts()
    privileges.adopt_orphans()
    privileges.hide_memory()
    sys.dont_write_bytecode = True  # a worker's directory holds what it was given and no more
    for module in filter(None, warm.split(",")):
        with contextlib.suppress(Exception):  # Triton, for one, is not everywhere
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page that it shares with this process
    control = socket.socket(fileno=control_fd)
    levels = [*_ALWAYS, "not_dumpable", *enclosures, *parts]
    messages.send(
        control,
        {
            "limits": levels,
            "missing": isolation.missing,
            "helpers": isolation.helpers,
        },
    )
    while True:
        try:
            order, fds = messages.receive_with_fds(control, _MOST_FDS)
        except messages.Closed:
            return
        if order["do"] != "start":  # a kill that crossed the worker's own end
            continue
        shm = _shared_names() if "private_shm" in enclosures else None
        heard, report = os.pipe()
        group = cgroup.Group() if "cgroup" in parts else None
        memory = _limited_memory(parts, order["limits"], group)
        keeper = os.fork()
        if keeper == 0:
            os.close(heard)
            _keep(control, report, order, fds, [*enclosures, *parts], group, memory, gpu=gpu)
        for fd in (*fds, report):
            os.close(fd)
        with os.fdopen(heard, "rb") as lines:
            line = lines.readline()
        os.waitpid(keeper, 0)
        sweep(isolation.helpers)
        if memory is not None:
            memory.remove()
        if group is not None:
            group.remove()
        if shm is not None:
            for name in _shared_names() - shm:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(_SHM, name))
        try:
            messages.send(control, {"ended": _KILLED | json.loads(line or b"{}")})
        except messages.Closed:
            return


def _group_parts() -> list[str]:
    """What control groups can do here, found by trying."""
    found: list[str] = []
    for name, part in {"cgroup": cgroup.try_kill, "freezer": cgroup.try_freezer}.items():
        why = find_failure(part)
        if why is None:
            found.append(name)
        else:
            isolation.missing[name] = why
    group = cgroup.Group() if "cgroup" in found else None
    why = find_failure(lambda: try_limit(group.folder if group is not None else None))
    if group is not None:
        group.remove()
    if why is None:
        found.append("memory_group")
    else:
        isolation.missing["memory_group"] = why
    return found


def _limited_memory(
    parts: list[str], limits: dict[str, Any], group: cgroup.Group | None
) -> MemoryGroup | None:
    """The limit of a worker's memory; one without a limit leaves the machine enough to go on."""
    if "memory_group" not in parts:
        return None
    limit_bytes = limits["memory_bytes"]
    if limit_bytes is None:
        limit_bytes = max(_free_memory() - _LEAST_FREE_BYTES, _LEAST_FREE_BYTES)
    return MemoryGroup(limit_bytes, group.folder if group is not None else None)


def _shared_names() -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(_SHM))
    return set()


def _keep(
    control: socket.socket,
    report: int,
    order: dict[str, Any],
    fds: list[int],
    parts: list[str],
    group: cgroup.Group | None,
    memory: MemoryGroup | None,
    *,
    gpu: bool,
) -> None:
    """Start a worker, watch it, end it, and report how it ended. Does not return."""
    first = 0
    try:
        privileges.die_with_parent()
        privileges.adopt_orphans()
        root = None
        if "pid_namespace" in parts:
            namespaces.start_process_namespace()
        else:  # where the end of no namespace ends the tree, it and this process share a scope
            root = _request_root(parts, order)
            proc = root.proc if root is not None else None
            isolation.guard(parts, fds[4:], gpu=gpu, proc=proc)
        facts, told = os.pipe()
        first = os.fork()
        if first == 0:
            control.close()
            os.close(facts)
            os.close(report)
            _be_first(told, order, fds, parts, group, memory, root, gpu=gpu)
        if root is not None:
            root.close()
        os.close(told)
        boxes = {os.fstat(fd).st_ino for fd in fds[1:3]}
        for fd in fds:
            os.close(fd)
        lines = os.fdopen(facts, "rb", buffering=0)
        worker = json.loads(lines.readline() or b"null") or {"pid": first}
        folder = str(group.folder) if group is not None else None
        messages.send(control, {"started": worker["pid"], "group": folder})
        excess = _watch(control, facts, first, order, boxes, memory)
        strays = descendants(os.getpid()) - {first, worker["pid"]}
        if excess is None:
            if not select.select([facts], [], [], 0)[0]:
                # It ends with its channel, and may have been reaped just now.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker["pid"], signal.SIGKILL)
            heard = select.select([facts], [], [], _FACTS_LIMIT_S)[0]
            line = lines.readline() if heard else b""
        else:
            line = b""
        _end(first, parts, group)
        first = 0
        sweep()
        how = {**json.loads(line or b"{}"), "strays": len(strays), "excess": excess}
        os.write(report, json.dumps(how).encode() + b"\n")
    finally:  # also where the judge is gone
        if first:
            _end(first, parts, group)
        os._exit(0)


def _request_root(parts: list[str], order: dict[str, Any]) -> Root | None:
    return isolation.obtain_root(parts, order["folders"], order["limits"]["memory_bytes"])


def _be_first(
    told: int,
    order: dict[str, Any],
    fds: list[int],
    parts: list[str],
    group: cgroup.Group | None,
    memory: MemoryGroup | None,
    root: Root | None,
    *,
    gpu: bool,
) -> None:
    """Fork the worker, reap what comes, say how the worker ended, and wait. Does not return."""
    try:
        privileges.die_with_parent()
        privileges.adopt_orphans()
        processes = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        inside = "pid_namespace" in parts
        if inside:
            root = _request_root(parts, order)
        if root is not None:
            root.enter()
        if inside:
            isolation.guard(parts, fds[4:], gpu=gpu)
        worker = os.fork()
        if worker == 0:
            if group is not None:  # this process stays outside: it reaps while the group is frozen
                group.take()
            if memory is not None:
                memory.take()
            _become_worker(told, processes, order, fds, parts, gpu=gpu)
        os.close(processes)
        for fd in fds:
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
        while True:  # the keeper counts what is left, and ends it
            signal.pause()
    finally:
        os._exit(70)


def _become_worker(
    told: int, processes: int, order: dict[str, Any], fds: list[int], parts: list[str], *, gpu: bool
) -> None:
    """Turn this fork into a worker with its limits in force. Does not return."""
    code = 70
    channel, inbox, outbox, log, *folders = fds
    try:
        # As the judge's /proc counts, also from inside a namespace.
        pid = {"pid": int(os.readlink("self", dir_fd=processes))}
        os.write(told, json.dumps(pid).encode() + b"\n")
        os.setsid()
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(source, target)
        kept = {channel, inbox, outbox, *folders}
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in kept:
                with contextlib.suppress(OSError):  # the listing's own descriptor is gone
                    os.close(fd)
        # By its name, since a descriptor of another mount namespace has none here.
        os.chdir(order["directory"])
        if not os.path.samestat(os.stat("."), os.fstat(folders[0])):
            raise OSError(f"{order['directory']} is another folder")
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # what was found for the fork server is not the worker's
        sys.path.insert(0, order["directory"])
        _limit(order["limits"])
        privileges.die_with_parent()
        loop = _LOOPS[order["loop"]]
        setting = loop.Setting(**order["setting"])
        order.clear()
        isolation.narrow(parts, folders, gpu=gpu)
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


def _limit(limits: dict[str, Any]) -> None:
    memory_bytes = limits["memory_bytes"]
    if memory_bytes is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, used + memory_bytes)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _lower(resource.RLIMIT_NOFILE, limits["open_files"])
    _lower(resource.RLIMIT_CPU, limits["cpu_s"])


def _lower(which: int, value: int | None) -> None:
    _, hard = resource.getrlimit(which)
    wanted = value if value is not None else hard
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (bound, bound))


def _watch(
    control: socket.socket,
    facts: int,
    first: int,
    order: dict[str, Any],
    boxes: set[int],
    memory: MemoryGroup | None,
) -> str | None:
    """Wait until the worker has ended or is to end; returns what it had too much of, if anything.

    Figures of the whole machine are read at each look, which costs next to nothing; the tree below
    is gone through only once one of them has moved by as much as the limit.
    """
    limits, directory = order["limits"], order["directory"]
    tasks, free_disk, free_memory = _machine(directory)
    shm_bytes = used_bytes(_SHM)
    while not select.select([facts, control], [], [], _LOOK_S)[0]:
        now = _machine(directory)
        if now[0] - tasks > _MANY_TASKS:
            threads = family(first).values()
            if len(threads) > limits["processes"] or sum(threads) > limits["threads"]:
                return f"{len(threads)} processes with {sum(threads)} threads"
        if free_disk - now[1] > limits["disk_bytes"]:
            used = sum(_disk_bytes(folder) for folder in order["folders"])
            # What it has deleted and still holds open counts nowhere; then only the disk tells.
            if used > limits["disk_bytes"] or now[1] < limits["disk_bytes"]:
                return f"{used} bytes in files"
        if memory is not None and memory.is_exceeded():
            break
        memory_bytes = limits["memory_bytes"]
        if now[2] < _LEAST_FREE_BYTES < free_memory:
            memory_bytes = _LEAST_FREE_BYTES
        if memory_bytes is not None and free_memory - now[2] > memory_bytes:
            # Of its own /dev/shm the first sum knows; this one is the judge's or the machine's.
            used = held_bytes(family(first), boxes) + max(0, used_bytes(_SHM) - shm_bytes)
            if used > memory_bytes:
                return f"{used} bytes of memory"
    if memory is not None and memory.is_exceeded():
        return "more bytes of memory than its control group may hold"
    if select.select([control], [], [], 0)[0]:
        messages.receive(control)
    return None


def _machine(directory: str) -> tuple[int, int, int]:
    """Processes and threads of the machine, free bytes of the disk, and of memory."""
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    disk = os.statvfs(os.path.dirname(directory))  # which is not the candidate's to delete
    return tasks, disk.f_bavail * disk.f_frsize, _free_memory()


def _free_memory() -> int:
    """Bytes of memory that are free or can be freed, of the machine."""
    return int(Path("/proc/meminfo").read_text().split()[7]) * 1024


def _disk_bytes(directory: str) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def _end(first: int, parts: list[str], group: cgroup.Group | None) -> None:
    """Kill the first process and everything below it.

    The end of a control group or a PID namespace, or one signal to all that may be signalled from
    here, leaves no moment in which a process can fork once more. Without any of them the sweep goes
    on until none is found.
    """
    if group is not None:
        group.kill()
    if "pid_namespace" not in parts and "signal_scope" in parts:
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:  # really shut in, so that "all" are those below
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(first, 0)
