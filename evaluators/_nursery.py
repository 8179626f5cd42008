"""A warm process that has imported torch and forks one worker at a time.

Importing torch takes seconds, forking a process that has it takes milliseconds. The nursery never
runs code of a candidate itself, never touches CUDA, and holds nothing but the modules of a worker:
no task, no reference, no store. It adopts what a worker leaves behind and kills it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from evaluators import _channel, _worker
from evaluators._processes import descendants

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNET = 0x40000000
_SWEEP_LIMIT_S = 5.0
_C = ctypes.CDLL(None, use_errno=True)


def main(control_fd: int) -> None:
    """Serve start and kill requests of the judge until it is gone."""
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _C.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    sys.dont_write_bytecode = True  # a worker's directory holds what it was given and no more
    with contextlib.suppress(Exception):  # a warm start for Triton kernels, where there is Triton
        importlib.import_module("triton")
    control = socket.socket(fileno=control_fd)
    _channel.send(control, {"ready": True, "limits": _available_limits()})
    while True:
        try:
            order, fds = _channel.receive_with_fds(control, 4)
        except _channel.Closed:
            return
        if order["do"] != "start":  # a kill that crossed the worker's own end
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _become_worker(order, *fds)
        for fd in fds:
            os.close(fd)
        _channel.send(control, {"started": pid})
        ended = _watch(control, pid)
        ended["strays"] = _sweep()
        try:
            _channel.send(control, {"ended": ended})
        except _channel.Closed:
            return


def _available_limits() -> list[str]:
    """Isolation that this host grants to a worker, found by trying."""
    found = ["process", "rlimits", "environment", "no_new_privs", "death_signal", "subreaper"]
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _C.unshare(_CLONE_NEWNET) == 0 else 1)
    if os.waitpid(pid, 0)[1] == 0:
        found.append("no_network")
    return found


def _become_worker(order: dict[str, Any], channel: int, inbox: int, outbox: int, log: int) -> None:
    """Turn this fork into a worker with its limits in force. Does not return."""
    code = 70
    try:
        os.setsid()
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(source, target)
        kept = {channel, inbox, outbox}
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in kept:
                with contextlib.suppress(OSError):  # the listing's own descriptor is gone
                    os.close(fd)
        os.chdir(order["directory"])
        os.environ.update(order["environment"])
        sys.path.insert(0, order["directory"])
        _limit(order["limits"])
        _C.unshare(_CLONE_NEWNET)
        _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        setting = _worker.Setting(**order["setting"])
        _worker.serve(socket.socket(fileno=channel), setting, inbox, outbox)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def _limit(limits: dict[str, int | None]) -> None:
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


def _watch(control: socket.socket, pid: int) -> dict[str, Any]:
    """Wait until the worker has ended, by itself or by order; returns how it ended."""
    process = os.pidfd_open(pid)
    try:
        while True:
            ready, _, _ = select.select([process, control], [], [])
            if process in ready:
                break
            try:
                _channel.receive(control)
            except _channel.Closed:
                _kill(pid)
                _sweep()
                os._exit(0)
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
    finally:
        os.close(process)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "peak_memory_bytes": usage.ru_maxrss * 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def _kill(pid: int) -> None:
    for signalled in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            signalled(pid, signal.SIGKILL)


def _sweep() -> int:
    """Kill every process that descends from this one; returns how many there were.

    Orphans of a worker come to the nursery, since it is their subreaper, whatever session or
    process group they have moved to.
    """
    killed: set[int] = set()
    until = time.monotonic() + _SWEEP_LIMIT_S
    while time.monotonic() < until:
        found = descendants(os.getpid())
        if not found:
            break
        for pid in found:
            _kill(pid)
        killed.update(found)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        time.sleep(0.002)
    return len(killed)
