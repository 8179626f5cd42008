"""Walls around processes that run untrusted text, each put up where this machine allows it.

None is needed for a verdict to be right: that rests on what the worker is given and on what it is
asked for. Which of them stand is found by really putting them up in a forked child, and written
into every row. Two sorts: namespaces, which a whole tree of processes shares (`enclose`), and what
narrows one process for ever (`guard`, `narrow`).

CUDA shares memory between processes of the same user, PID and IPC namespaces only, and over sockets
of the same network namespace. Where there is a GPU, workers share those of the process that judges.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

from evaluators import _landlock, _seccomp

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CLEAR_AMBIENT = 4
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64

inherited: list[str] = []
"""What `enclose` has put up around this process, and so around every process below it."""

_ROOM = Path(__file__).resolve().parent
_SHM = "/dev/shm"
_PROC = "/proc"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys")
# Of /etc only what loaders, compilers and user names need: the rest may hold secrets.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "nvidia"),
    *("passwd", "group", "nsswitch.conf", "localtime", "timezone"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "dri")
_MOST_GPUS = 64
_NVIDIA = (
    *("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps"),
    *(f"nvidia{number}" for number in range(_MOST_GPUS)),
)

_C = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Let this process be killed when its parent ends."""
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Let processes below this one that lose their parent come to this one."""
    _C.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Close memory, environment and descriptors of this process and its forks to its own user."""
    _C.prctl(_PR_SET_DUMPABLE, 0)


def works(part: Callable[[], None]) -> bool:
    """Whether something can be done, tried in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            part()
            code = 0
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def has_gpu() -> bool:
    """Whether a process started from here would see an NVIDIA GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and Path("/dev/nvidiactl").exists()


def enclose(*, gpu: bool) -> list[str]:
    """Put this process into namespaces of its own; returns those that it got, as in `inherited`.

    Call it while the process has one thread. `gpu` leaves out what CUDA cannot share memory across.
    """
    parts: dict[str, Callable[[], None]] = {
        "user_namespace": _own_user_namespace,
        "no_network": lambda: _unshare(_NEWNET),
        "ipc_namespace": lambda: _unshare(_NEWIPC),
        "private_shm": _own_shm,
    }
    if gpu:
        del parts["ipc_namespace"]
        if os.geteuid() == 0:  # root needs none to make the others, and devices may want it
            del parts["user_namespace"]
    for name, part in parts.items():
        if works(part):
            part()
            inherited.append(name)
    return inherited


def new_process_namespace() -> None:
    """Let the next fork be the first process of a namespace, whose end is the end of all in it."""
    _unshare(_NEWPID)


def available(enclosures: Iterable[str], scratch: str, *, gpu: bool) -> list[str]:
    """What `guard` and `narrow` can put up around a worker here, found by trying."""
    _readable()  # found once, before the forks that need it
    found: list[str] = []
    if not gpu and works(_first_of_its_kind):
        found.append("pid_namespace")

    def landlocked() -> None:
        guard(["landlock"], [scratch], gpu=gpu)
        _expect(PermissionError, lambda: os.listdir("/"))
        sys_file = os.__file__
        if not Path(sys_file).read_bytes():
            raise OSError(sys_file)

    def scoped() -> None:
        guard(["landlock"], [scratch], gpu=gpu)
        _expect(PermissionError, lambda: os.kill(os.getppid(), 0))

    def filtered() -> None:
        guard([], [], gpu=gpu)
        narrow(["seccomp"], [], gpu=gpu)
        _expect(PermissionError, lambda: _unshare(0))

    def harmless() -> None:
        narrow(["no_capabilities"], [], gpu=gpu)
        status = Path("/proc/self/status").read_text()
        if "CapEff:\t0000000000000000" not in status:
            raise OSError(status)

    if works(landlocked):
        found.append("landlock")
        if _landlock.scopes_signals() and works(scoped):
            found.append("signal_scope")
    if works(filtered):
        found.append("seccomp")
        if "no_network" not in enclosures:
            found.append("no_network")
    if works(harmless):
        found.append("no_capabilities")
    return found


def guard(parts: Iterable[str], own: Iterable[str], *, gpu: bool) -> None:
    """No new privileges; of files, the system's to read and `own` to write.

    Raises OSError where a part does not hold after all.
    """
    if _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("new privileges cannot be given up")
    if "landlock" in parts:
        # CUDA names its threads there; which process will be the worker is not known yet.
        threads = [_PROC] if gpu else []
        _landlock.restrict([*_readable(), str(_ROOM)], [*own, *_writable_devices(), *threads])


def narrow(parts: Iterable[str], own: Iterable[str], *, gpu: bool) -> None:
    """The last step before untrusted text runs: threads, signals, capabilities, system calls.

    Raises OSError where a part does not hold after all.
    """
    if gpu and "landlock" in parts:
        threads = f"{_PROC}/self/task"
        _landlock.restrict([*_readable(), str(_ROOM)], [*own, *_writable_devices(), threads])
    if "signal_scope" in parts:
        _landlock.scope()
    if "no_capabilities" in parts:
        _drop_capabilities()
    if "seccomp" in parts:
        _seccomp.allow_only(sockets=gpu, modes=True)


def confine_judge(read: Iterable[str], write: Iterable[str]) -> None:
    """Narrow this process before it runs tasks' text, and leave it what starting workers needs.

    No network, no lake, no home; files besides the system's as named. What the machine does not
    allow is left out, as it is for workers. Call it while the process has one thread.
    """
    gpu = has_gpu()

    def files() -> None:
        guard([], [], gpu=gpu)
        threads = [_PROC] if gpu else []
        _landlock.restrict([*_readable(), *read], [*write, *_writable_devices(), *threads])

    def calls() -> None:
        guard([], [], gpu=gpu)
        _seccomp.refuse(sockets=gpu, kills_all=_landlock.scopes_signals())

    enclose(gpu=gpu)
    for part in (files, calls):
        if works(part):
            part()
    hide_memory()


@functools.cache
def _readable() -> list[str]:
    """Folders of the system, of Python and its packages, and of compilers. No home, no project."""
    paths = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    paths += [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    paths += [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME"):
        paths += os.environ.get(name, "").split(os.pathsep)
    paths += [str(Path(os.environ.get(name, "")).parent) for name in ("CC", "CXX")]
    # The environment's HOME is the sandbox's own; the user's stands in the user database.
    homes = {Path.home(), Path(os.path.expanduser(f"~{_user()}"))}
    barred = {part for home in homes for part in (home, *home.parents)}
    return [p for p in dict.fromkeys(paths) if Path(p).is_absolute() and Path(p) not in barred]


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _writable_devices() -> list[str]:
    """Devices, by name: a process that is restricted already cannot list /dev."""
    return [*(f"/dev/{name}" for name in (*_DEVICES, *_NVIDIA)), _SHM]


def _unshare(flags: int) -> None:
    if _C.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own_user_namespace() -> None:
    """A namespace in which this user is itself, and may make the other namespaces."""
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _own_shm() -> None:
    """A /dev/shm that nobody else sees and that goes with the last process."""
    _unshare(_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    _mount("tmpfs", _SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")


def _mount(source: str | None, at: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, at, kind, data)]
    if _C.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), at)


def _first_of_its_kind() -> None:
    new_process_namespace()
    if not works(lambda: _expect_equal(os.getpid(), 1)):
        raise OSError("a new namespace has no first process")


def _drop_capabilities() -> None:
    for capability in range(_CAPABILITIES):
        _C.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _C.prctl(_PR_CAP_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _C.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _expect(kind: type[BaseException], action: Callable[[], object]) -> None:
    try:
        action()
    except kind:
        return
    raise OSError("an action that should be refused is not")


def _expect_equal(found: int, wanted: int) -> None:
    if found != wanted:
        raise OSError(f"{found} is not {wanted}")
