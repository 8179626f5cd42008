"""The loop of the template: a process that has imported torch and forks fork servers.

Each fork becomes a fork server with a session, an environment and a temporary folder of its own.
It has the namespaces of the template, as all fork servers of a judge process have the judge's.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
from typing import Any, NoReturn

from evaluators.processes import allocator, messages
from evaluators.sandbox import isolation
from evaluators.sandbox.linux import privileges
from evaluators.worker import fork_server


def main(control_fd: int) -> None:
    """Fork a fork server for each order of the judge until it closes the channel."""
    allocator.reuse_memory()
    fork_server.find_walls("")
    privileges.hide_memory()
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
                servers[order["marker"]] = _fork(order, control, fds)
            elif order["marker"] in servers:
                os.kill(servers[order["marker"]], signal.SIGKILL)
    for pid in servers.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(order: dict[str, Any], control: socket.socket, fds: list[int]) -> int:
    """Fork a fork server and return its process number."""
    [channel] = fds
    pid = os.fork()
    if pid == 0:
        control.close()
        _run_fork_server(order, socket.socket(fileno=channel))
    os.close(channel)
    return pid


def _run_fork_server(order: dict[str, Any], control: socket.socket) -> NoReturn:
    """Turn this fork into a fork server."""
    try:
        privileges.die_with_parent()
        os.setsid()
        isolation.helpers.clear()  # they are the template's
        _mark(order["marker"])
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # forget the template's folder
        # Forks share the state of a generator. Workers of a task must not share one with
        # candidates, which could foresee its inputs. Python's own seeds itself anew.
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        fork_server.main(control, order["warm"])
    finally:
        os._exit(0)


def _mark(value: str) -> None:
    """Mark this process and all below it, in the environments that /proc shows for its forks too.

    These show the memory that the template has started with, so the mark is overwritten there.
    """
    get = ctypes.CDLL(None).getenv
    get.restype = ctypes.c_void_p
    ctypes.memmove(get(isolation.MARKER.encode()), value.encode(), len(value))
    os.environ[isolation.MARKER] = value
