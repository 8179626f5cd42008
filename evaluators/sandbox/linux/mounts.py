"""The files that a worker sees: a root of its own in which only its own folders are writable.

A root contains the system, Python, its packages and compilers, all read-only, a /proc and a
/dev/shm of its own, and the folders of one worker. Other files can be neither read nor changed. On
a read-only mount, changing mode, owner, times or attributes fails with EROFS; Landlock cannot
restrict such changes.

A process under Landlock may not mount anything, and a judge is under Landlock. Therefore a server
is forked first: it keeps the capabilities for mounting, never runs foreign code, and makes one
mount namespace per request, which the worker's first process then enters. It accepts only folders
below those that it was started with.
"""

import contextlib
import ctypes
import errno
import os
import platform
import socket
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evaluators.processes import messages
from evaluators.sandbox.linux.this_process import (
    LIBC,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NEWNS,
    NEWPID,
    check,
    die_with_parent,
    mount,
    unshare,
)

_MS_RDONLY, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 8, 32, 1 << 12
_MNT_DETACH = 2
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_PROC, _SHM = "/proc", "/dev/shm"
_TREES = ("/dev", "/sys")
_PLACES = ("/media", "/srv", "/mnt", _SHM)
"""Mount points to try, in order; folders of workers are not expected below them."""
_ROOT_OPTIONS = "mode=755,size=4m,nr_inodes=16384"
_HIDING = ("hidepid=ptraceable", "hidepid=2")


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


class MountServer:
    """A client's connection to the process that makes roots, which ends with its last client."""

    def __init__(self, readable: Iterable[str], below: Sequence[str] | None, *, gpu: bool) -> None:
        """Fork the process.

        Args:
            readable: Files and folders that every root contains.
            below: Folders that contain all folders of workers; None allows any folder.
            gpu: Keep the machine's /dev/shm, and let CUDA name its threads in /proc.

        Raises OSError: this machine does not allow it.
        """
        self.requests, theirs = messages.make_pair()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                self.requests.close()
                _serve(theirs, list(readable), below, gpu=gpu)
            os._exit(0)
        theirs.close()
        self.pid = pid
        try:
            answer, fds = messages.receive_with_fds(self.requests, 1)
        except messages.Closed:
            answer, fds = {"error": "it has ended"}, []
        if not fds:
            self.requests.close()
            os.waitpid(self.pid, 0)
            raise OSError(errno.EPERM, str(answer.get("error")))
        self.root = fds[0]
        """Descriptor of the folder at the top of every root, for a rule of Landlock."""


class Root:
    """A root that a server has made."""

    def __init__(self, namespace: int, proc: int) -> None:
        self._namespace = namespace
        self.proc = proc
        """Descriptor of its /proc."""

    def enter(self) -> None:
        """Move this process, which must have one thread, into the root. Raises OSError."""
        check(LIBC.setns(self._namespace, NEWNS))
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._namespace)
        os.close(self.proc)


def request_root(requests: socket.socket, own: Sequence[str], shm_bytes: int | None) -> Root:
    """Request a root from a server.

    Args:
        own: Folders that stay writable.
        shm_bytes: Size of /dev/shm; None for as much as the system allows.

    Raises OSError: the root cannot be made.
    """
    ours, theirs = messages.make_pair()
    # The namespace whose processes the root's /proc shows.
    namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        message = {"own": list(own), "shm_bytes": shm_bytes}
        messages.send(requests, message, [theirs.fileno(), namespace])
        theirs.close()
        answer, fds = messages.receive_with_fds(ours, 2)
        ours.recv(1)  # returns once no process of the server is left in the namespace
    except messages.Closed as error:
        raise OSError(errno.ECONNRESET, "the process that mounts is gone") from error
    finally:
        os.close(namespace)
        theirs.close()
        ours.close()
    if len(fds) != 2:
        raise OSError(errno.EPERM, str(answer.get("error")))
    return Root(*fds)


def _serve(
    requests: socket.socket, readable: list[str], below: Sequence[str] | None, *, gpu: bool
) -> None:
    """Answer requests until every client has closed; each runs in a process of its own."""
    die_with_parent()
    try:
        unshare(NEWNS)
        mount(None, "/", None, MS_REC | MS_PRIVATE, None)
        top = _build_template(readable)
        holders = None if below is None else [os.path.realpath(path) for path in below]
        root = os.open(top, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        messages.send(requests, {"error": str(error)})
        return
    messages.send(requests, {}, [root])
    while True:
        message, (reply, namespace) = messages.receive_with_fds(requests, 2)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                requests.close()
                _answer(socket.socket(fileno=reply), namespace, message, top, holders, gpu=gpu)
            os._exit(0)
        os.close(reply)
        os.close(namespace)
        os.waitpid(pid, 0)


def _build_template(readable: list[str]) -> str:
    """Mount what all roots share, in this process's own namespace; returns the place."""
    scratch = os.path.realpath(os.environ.get("TMPDIR", "/tmp")) + "/"
    free = (one for one in _PLACES if os.path.isdir(one) and not scratch.startswith(one + "/"))
    top = next(free, None)
    if top is None:
        raise OSError(errno.ENOENT, f"none of these folders can be mounted on: {_PLACES}")
    shm = os.open(_SHM, os.O_PATH)
    sources = [path for path in readable if os.path.exists(path) and path != _PROC]
    held: dict[str, int] = {}
    for path in sorted({*sources, *map(os.path.realpath, sources), *_TREES, _PROC}):
        if path.startswith("/") and not any(path.startswith(one + "/") for one in held):
            held[path] = os.open(path, os.O_PATH)
    mount("tmpfs", top, "tmpfs", MS_NOSUID | MS_NODEV, _ROOT_OPTIONS)
    for path, fd in held.items():
        _bind(fd, _make_mount_point(top, path, stat.S_ISDIR(os.fstat(fd).st_mode)))
        os.close(fd)
    _bind(shm, top + _SHM)  # the template itself may be mounted there
    os.close(shm)
    os.makedirs(top + "/tmp", 0o755, exist_ok=True)
    # All mounts below become read-only, but not the folder's own.
    try:
        _set_attributes(top, _AT_RECURSIVE, _MS_RDONLY | MS_NOSUID, 0)
        _set_attributes(top, 0, 0, _MS_RDONLY)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        places = [line.split()[4].encode().decode("unicode_escape") for line in lines]
        for place in dict.fromkeys(places):
            if place.startswith(top + "/"):
                _make_readonly(place)
    return top


def _answer(
    reply: socket.socket,
    namespace: int,
    message: dict[str, Any],
    top: str,
    holders: list[str] | None,
    *,
    gpu: bool,
) -> None:
    """Make one root; the process that mounts its /proc has to be in the worker's PID namespace."""
    unshare(NEWNS)
    made = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    inside = os.stat("/proc/self/ns/pid").st_ino != os.fstat(namespace).st_ino
    if inside:
        check(LIBC.setns(namespace, NEWPID))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own: list[tuple[str, int]] = []
            for path in message["own"]:
                inside_holder = holders is None or any(path.startswith(f"{h}/") for h in holders)
                if os.path.realpath(path) != path or not inside_holder:
                    raise OSError(errno.EACCES, "no folder of a worker", path)
                own.append((path, os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)))
            proc = _assemble(top, own, message, inside=inside, gpu=gpu)
            messages.send(reply, {}, [made, proc])
        except (OSError, ValueError) as error:
            messages.send(reply, {"error": str(error)})
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    os.close(reading)


def _assemble(
    top: str,
    own: list[tuple[str, int]],
    message: dict[str, Any],
    *,
    inside: bool,
    gpu: bool,
) -> int:
    """Mount a root's own parts and make it the root; returns a descriptor of its /proc."""
    for path, fd in own:
        place = _make_mount_point(top, path, True)
        _bind(fd, place)
        held = os.statvfs(place).f_flag & (_MS_NOEXEC)
        mount(None, place, None, _MS_REMOUNT | _MS_BIND | MS_NOSUID | MS_NODEV | held, None)
    if inside:
        mount("proc", top + _PROC, "proc", MS_NOSUID | MS_NODEV | _MS_NOEXEC, None)
    else:
        for options in _HIDING:
            with contextlib.suppress(OSError):
                flags = MS_NOSUID | MS_NODEV | _MS_NOEXEC
                mount("proc", top + _PROC, "proc", flags, options)
                break
    if not gpu:
        size = "" if message["shm_bytes"] is None else f",size={int(message['shm_bytes'])}"
        flags = MS_NOSUID | MS_NODEV
        mount("tmpfs", top + _SHM, "tmpfs", flags, "mode=1777" + size)
        _make_readonly(top + _PROC)
    _make_readonly(top)
    os.chdir(top)
    check(LIBC.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."))
    check(LIBC.umount2(b".", _MNT_DETACH))
    return os.open(_PROC, os.O_PATH | os.O_DIRECTORY)


def _make_mount_point(top: str, path: str, folder: bool) -> str:
    place = top + path
    os.makedirs(place if folder else os.path.dirname(place), 0o755, exist_ok=True)
    if not folder:
        Path(place).touch()
    return place


def _bind(fd: int, place: str) -> None:
    mount(f"/proc/self/fd/{fd}", place, None, _MS_BIND | MS_REC, None)


def _set_attributes(place: str, flags: int, wanted: int, cleared: int) -> None:
    attributes = _Attributes(set=wanted, clear=cleared)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = ctypes.c_char_p(place.encode())
    at = ctypes.c_int(_AT_FDCWD)
    check(LIBC.syscall(_MOUNT_SETATTR, at, path, flags, ctypes.byref(attributes), size))


def _make_readonly(place: str) -> None:
    """Make one mount read-only; mounts below it stay as they are."""
    try:
        _set_attributes(place, 0, _MS_RDONLY | MS_NOSUID, 0)
        return
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    # Before Linux 5.12. Present flags must be named again, since they may be locked.
    held = os.statvfs(place).f_flag & (MS_NOSUID | MS_NODEV | _MS_NOEXEC)
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | MS_NOSUID | held
    mount(None, place, None, flags, None)
