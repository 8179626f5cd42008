"""Walls around processes that run untrusted code, each put up where this machine allows it.

Verdicts are right without any of them: they depend only on what the worker receives and returns.
`wall_trials` finds which walls a machine allows, and every row stores them. There are three kinds:
namespaces, which a whole tree of processes shares (`enclose`), a root of each worker's own
(`linux.mounts`), and restrictions of one process for its lifetime (`guard`, `narrow`).

CUDA shares memory only between processes of the same user, PID and IPC namespaces, and over
sockets of the same network namespace. On a machine with a GPU, workers therefore share these with
the judge process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evaluators.sandbox.linux import landlock, namespaces, privileges, seccomp
from evaluators.sandbox.linux.mounts import MountServer, Root, request_root
from evaluators.sandbox.paths import (
    PROC,
    ROOM,
    find_readable_paths,
    list_machine_figures,
    list_writable_devices,
)
from evaluators.sandbox.trial import find_failure, is_possible

MARKER = "FLYWHEEL_FORK_SERVER"
"""Environment variable that identifies a fork server and its workers by a unique value."""
MARK_BYTES = 16
"""Bytes of such a value, which is written in hexadecimal digits."""
WITHOUT = "FLYWHEEL_WITHOUT"
"""Environment variable that names, with commas, the walls that a fork server leaves out."""

inherited: list[str] = []
"""Namespaces that `enclose` has made for this process, and so for every process below it."""
missing: dict[str, str] = {}
"""Walls that this process could not put up, each with the reason."""
mounts: socket.socket | None = None
"""Socket on which this process and every fork server below it request roots (`linux.mounts`)."""
helpers: list[int] = []
"""Processes below this one that serve it for its lifetime."""

_END_LIMIT_S = 2.0
_LOOK_S = 0.002
SHARED_BY_CUDA = "CUDA shares memory between processes of one PID and IPC namespace only"


def has_gpu() -> bool:
    """Whether a process started from here would see an NVIDIA GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and Path("/dev/nvidiactl").exists()


def enclose(*, gpu: bool) -> list[str]:
    """Put this process into namespaces of its own and return their names, as in `inherited`.

    Call it while the process has one thread. With `gpu`, namespaces across which CUDA cannot share
    memory are left out.
    """
    parts: dict[str, Callable[[], None]] = {
        "user_namespace": namespaces.enter_user_namespace,
        "no_network": namespaces.leave_network,
        "ipc_namespace": namespaces.leave_ipc,
        "private_shm": namespaces.mount_private_shm,
    }
    if gpu:
        del parts["ipc_namespace"]
        missing["ipc_namespace"] = SHARED_BY_CUDA
        if os.geteuid() == 0:  # root needs none to make the others, and devices may want it
            del parts["user_namespace"]
    for name, part in parts.items():
        why = find_failure(part)
        if why is None:
            part()
            inherited.append(name)
        else:
            missing[name] = why
    return inherited


def serve_mounts(below: Sequence[str] | None, *, gpu: bool) -> int | None:
    """Start the process that mounts roots of workers whose folders are below these.

    Call it after `enclose` and before anything that forbids mounting. Returns a descriptor of the
    top of every root, or None where the machine allows no roots.
    """
    global mounts
    try:
        server = MountServer([*find_readable_paths(), str(ROOM)], below, gpu=gpu)
    except OSError as error:
        missing["own_root"] = str(error)
        return None
    mounts = server.requests
    helpers.append(server.pid)
    return server.root


def end_helpers() -> None:
    """End the processes that serve this one, once no process below it needs them."""
    global mounts
    if mounts is None or not helpers:
        return
    mounts.close()  # they end with their last client; a signal may not reach them from here
    mounts = None
    until = time.monotonic() + _END_LIMIT_S
    while helpers and time.monotonic() < until:
        if os.waitpid(helpers[-1], os.WNOHANG)[0]:
            helpers.pop()
        else:
            time.sleep(_LOOK_S)


def begin_template(enclosures: str, requests: str) -> None:
    """Put up the walls that fork servers share with their workers, before torch is imported.

    Args:
        enclosures: Namespaces that the judge has made, with commas.
        requests: Number of the descriptor on which to request roots, or an empty text.
    """
    global mounts
    privileges.die_with_parent()
    gpu = has_gpu()
    inherited.extend(filter(None, enclosures.split(",")))
    if not inherited and not gpu:
        enclose(gpu=gpu)
    if requests:
        mounts = socket.socket(fileno=int(requests))
        mounts.set_inheritable(False)
    else:
        serve_mounts(None, gpu=gpu)


def obtain_root(parts: Iterable[str], own: Sequence[str], shm_bytes: int | None) -> Root | None:
    """Request a root of a worker's own, for processes of this PID namespace.

    Returns None where `parts` has no such wall. Raises OSError.
    """
    if "own_root" not in parts:
        return None
    if mounts is None:
        raise OSError(missing.get("own_root", "there is no process that mounts"))
    return request_root(mounts, own, shm_bytes)


def guard(
    parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool, proc: int | None = None
) -> None:
    """Forbid new privileges and all files but the system's to read and `own` to write.

    Name a folder by a descriptor where another process could exchange what is at its path. `proc`
    is a descriptor of the /proc of a root that is entered later. Raises OSError where a wall cannot
    be put up.
    """
    privileges.forbid_new_privileges()
    if "landlock" in parts:
        # CUDA names its threads in /proc, and the worker's process number is not known yet.
        procs = [PROC, *([f"{PROC}/self/fd/{proc}"] if proc is not None else [])]
        threads = procs if gpu else []
        landlock.restrict(
            [*find_readable_paths(), str(ROOM), *procs], [*own, *list_writable_devices(), *threads]
        )


def narrow(parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool) -> None:
    """Restrict processes, signals, capabilities and system calls, right before untrusted code.

    Raises OSError where a wall cannot be put up.
    """
    if "landlock" in parts and "own_procfs" not in parts:
        itself = f"{PROC}/self"
        # The kernel may forget an inode of /proc and make another, which no rule would name.
        os.set_inheritable(os.open(itself, os.O_PATH), False)
        readable = [path for path in find_readable_paths() if path != PROC]
        threads = [f"{itself}/task"] if gpu else []
        landlock.restrict(
            [*readable, str(ROOM), itself, *list_machine_figures()],
            [*own, *list_writable_devices(), *threads],
        )
    if "signal_scope" in parts:
        landlock.restrict_signals()
    if "no_capabilities" in parts:
        privileges.drop_capabilities()
    if "seccomp" in parts:
        seccomp.restrict_worker(
            sockets=gpu, modes="own_root" in parts, memory_files=gpu or "memory_group" in parts
        )


def confine_judge(read: Iterable[str], write: Sequence[str]) -> None:
    """Restrict a judge process before it handles tasks, to what starting workers needs.

    It keeps no network, no lake and no home, and of files the system's and those named. Walls that
    the machine does not allow are left out, as for workers. Call it while the process has one
    thread.
    """
    gpu = has_gpu()

    def files() -> None:
        guard([], [], gpu=gpu)
        threads = [PROC] if gpu else []
        landlock.restrict(
            [*find_readable_paths(), *read], [*write, *list_writable_devices(), *threads]
        )

    def calls() -> None:
        guard([], [], gpu=gpu)
        seccomp.restrict_judge(sockets=gpu, kills_all=landlock.scopes_signals())

    enclose(gpu=gpu)
    top = serve_mounts(write, gpu=gpu)
    if top is not None:
        # Workers are below this process, whose rules hold for the roots that they see as well.
        write = [*write, f"{PROC}/self/fd/{top}"]
    for part in (files, calls):
        if is_possible(part):
            part()
    if top is not None:
        os.close(top)
    privileges.hide_memory()
