"""Walls around processes that run untrusted text, each put up where this machine allows it.

None is needed for a verdict to be right: that rests on what the worker is given and on what it is
asked for. Which of them stand is found by really putting them up in a forked child, and written
into every row. Three sorts: namespaces, which a whole tree of processes shares (`enclose`), a
root of each worker's own (`_mounts`), and what narrows one process for ever (`guard`, `narrow`).

CUDA shares memory between processes of the same user, PID and IPC namespaces only, and over
sockets of the same network namespace. Where there is a GPU, workers share those of the process
that judges.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
import site
import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evaluators.sandbox import landlock, seccomp
from evaluators.sandbox.mounts import Root, Server, request

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CLEAR_AMBIENT = 4
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64

WITHOUT = "FLYWHEEL_WITHOUT"
"""Names, to a fork server, the walls that it is not to put up, with commas."""

inherited: list[str] = []
"""What `enclose` has put up around this process, and so around every process below it."""
missing: dict[str, str] = {}
"""Walls that have been tried in vain from here, each with the reason."""
mounts: socket.socket | None = None
"""Where roots are asked for (`_mounts`), by this process and by every fork server below it."""
helpers: list[int] = []
"""Processes below this one that serve it as long as it is there."""

_ROOM = Path(__file__).resolve().parent.parent
_LONGEST_REASON = 500
_END_LIMIT_S = 2.0
_LOOK_S = 0.002
_SHARED_BY_CUDA = "CUDA shares memory between processes of one PID and IPC namespace only"
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


def works(part: Callable[[], object]) -> bool:
    """Whether something can be done, tried in a forked child."""
    return failure(part) is None


def failure(part: Callable[[], object]) -> str | None:
    """Why something cannot be done, tried in a forked child; None where it can."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            part()
            code = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            os.write(writing, text.encode("utf-8", "replace")[:_LONGEST_REASON])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        status = os.waitpid(pid, 0)[1]
        # What the part has started may hold the other end still.
        told = end.read() if status != 0 else b""
    if status == 0:
        return None
    return told.decode("utf-8", "replace") or f"the trial ended with status {status}"


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
        missing["ipc_namespace"] = _SHARED_BY_CUDA
        if os.geteuid() == 0:  # root needs none to make the others, and devices may want it
            del parts["user_namespace"]
    for name, part in parts.items():
        why = failure(part)
        if why is None:
            part()
            inherited.append(name)
        else:
            missing[name] = why
    return inherited


def serve_mounts(below: Sequence[str] | None, *, gpu: bool) -> int | None:
    """Start what makes roots of workers below these folders, once the namespaces are made.

    Call it before anything that forbids mounting. Returns a descriptor of the top of every root, or
    None where the machine allows no roots.
    """
    global mounts
    try:
        server = Server([*_readable(), str(_ROOM)], below, gpu=gpu)
    except OSError as error:
        missing["own_root"] = str(error)
        return None
    mounts = server.requests
    helpers.append(server.pid)
    return server.root


def end_helpers() -> None:
    """Let the processes that serve this one end, once no process below it needs them any more."""
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


def begin_fork_server(enclosures: str, requests: str) -> None:
    """Put up what a fork server shares with its workers, before it imports torch.

    Both texts are the judge's: names of what it has put up, with commas, and the number of the
    descriptor where roots are asked for, or nothing.
    """
    global mounts
    die_with_parent()
    gpu = has_gpu()
    inherited.extend(filter(None, enclosures.split(",")))
    if not inherited and not gpu:
        enclose(gpu=gpu)
    if requests:
        mounts = socket.socket(fileno=int(requests))
        mounts.set_inheritable(False)
    else:
        serve_mounts(None, gpu=gpu)


def request_root(parts: Iterable[str], own: Sequence[str], shm_bytes: int | None) -> Root | None:
    """Return a root of a worker's own, for processes of this PID namespace; None without such.

    Raises OSError.
    """
    if "own_root" not in parts:
        return None
    if mounts is None:
        raise OSError(missing.get("own_root", "there is no process that mounts"))
    return request(mounts, own, shm_bytes)


def new_process_namespace() -> None:
    """Let the next fork be the first process of a namespace, whose end is the end of all in it."""
    _unshare(_NEWPID)


def available(enclosures: Iterable[str], scratch: str, *, gpu: bool) -> list[str]:
    """What can be put up around a worker here, found by trying; `missing` has the rest."""
    _readable()  # found once, before the forks that need it
    held = set(enclosures)
    found: list[str] = []

    left_out = set(os.environ.get(WITHOUT, "").split(","))

    def attempt(name: str, part: Callable[[], object]) -> None:
        why = "the driver of the GPU does not work behind it" if name in left_out else failure(part)
        if why is None:
            found.append(name)
        else:
            missing[name] = why

    def rooted() -> None:
        root = request_root(["own_root"], [scratch], None)
        assert root is not None
        root.enter()
        _expect_error(errno.EROFS, lambda: os.utime(os.__file__))
        Path(scratch, ".tried").write_text("")
        Path(scratch, ".tried").unlink()

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
            raise OSError("capabilities are left")

    parent = os.getpid()

    def separate() -> None:
        root = request_root(["own_root"], [scratch], None)
        assert root is not None
        guard(found, [scratch], gpu=gpu, proc=root.proc)
        root.enter()
        narrow([*found, "own_procfs"], [scratch], gpu=gpu)
        if inside:
            _expect_equal(int(os.readlink(f"{_PROC}/self")), 1)
        else:
            _expect(FileNotFoundError, lambda: os.stat(Path(_PROC, str(parent))))

    def hidden() -> None:
        guard(found, [scratch], gpu=gpu)
        narrow(found, [scratch], gpu=gpu)
        _expect(OSError, lambda: Path(_PROC, str(parent), "cmdline").read_bytes())

    if gpu:
        missing["pid_namespace"] = _SHARED_BY_CUDA
    else:
        attempt("pid_namespace", _be_first_of_namespace)
    inside = "pid_namespace" in found
    attempt("own_root", lambda: _in_namespace(rooted) if inside else rooted())
    attempt("landlock", landlocked)
    if not landlock.scopes_signals():
        missing["signal_scope"] = f"Landlock of this kernel is version {landlock.version()}, not 6"
    elif "landlock" in found:
        attempt("signal_scope", scoped)
    else:
        missing["signal_scope"] = "needs landlock"
    attempt("seccomp", filtered)
    if "seccomp" in found and "no_network" not in held:
        found.append("no_network")
        missing.pop("no_network", None)
    attempt("no_capabilities", harmless)
    if "own_root" in found:
        attempt("own_procfs", lambda: _in_namespace(separate) if inside else separate())
    else:
        missing["own_procfs"] = "needs own_root"
    if "own_procfs" in found:
        found.append("hidden_processes")
    else:
        attempt("hidden_processes", hidden)
    if {"own_root", "seccomp"} & set(found):
        found.append("fixed_modes")
    else:
        missing["fixed_modes"] = "needs own_root or seccomp"
    for name in found:
        missing.pop(name, None)
    return found


def guard(
    parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool, proc: int | None = None
) -> None:
    """No new privileges; of files, the system's to read and `own` to write.

    A folder of one's own is given by a descriptor where somebody could exchange what is at its
    path. `proc` is the /proc of a root that is entered later. Raises OSError where a part does not
    hold after all.
    """
    if _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("new privileges cannot be given up")
    if "landlock" in parts:
        # CUDA names its threads there; which process will be the worker is not known yet.
        procs = [_PROC, *([f"{_PROC}/self/fd/{proc}"] if proc is not None else [])]
        threads = procs if gpu else []
        landlock.restrict(
            [*_readable(), str(_ROOM), *procs], [*own, *_writable_devices(), *threads]
        )


def narrow(parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool) -> None:
    """The last step before untrusted text runs: processes, signals, capabilities, system calls.

    Raises OSError where a part does not hold after all.
    """
    if "landlock" in parts and "own_procfs" not in parts:
        itself = f"{_PROC}/self"
        # An inode of /proc is another one once it has been forgotten, and no rule names that.
        os.set_inheritable(os.open(itself, os.O_PATH), False)
        readable = [path for path in _readable() if path != _PROC]
        threads = [f"{itself}/task"] if gpu else []
        landlock.restrict(
            [*readable, str(_ROOM), itself, *_machine_figures()],
            [*own, *_writable_devices(), *threads],
        )
    if "signal_scope" in parts:
        landlock.scope()
    if "no_capabilities" in parts:
        _drop_capabilities()
    if "seccomp" in parts:
        seccomp.allow_only(
            sockets=gpu, modes="own_root" in parts, memory_files=gpu or "memory_group" in parts
        )


def confine_judge(read: Iterable[str], write: Sequence[str]) -> None:
    """Narrow this process before it runs tasks' text, and leave it what starting workers needs.

    No network, no lake, no home; files besides the system's as named. What the machine does not
    allow is left out, as it is for workers. Call it while the process has one thread.
    """
    gpu = has_gpu()

    def files() -> None:
        guard([], [], gpu=gpu)
        threads = [_PROC] if gpu else []
        landlock.restrict([*_readable(), *read], [*write, *_writable_devices(), *threads])

    def calls() -> None:
        guard([], [], gpu=gpu)
        seccomp.refuse(sockets=gpu, kills_all=landlock.scopes_signals())

    enclose(gpu=gpu)
    top = serve_mounts(write, gpu=gpu)
    if top is not None:
        # Workers are below this process, whose rules hold for the roots that they see as well.
        write = [*write, f"{_PROC}/self/fd/{top}"]
    for part in (files, calls):
        if works(part):
            part()
    if top is not None:
        os.close(top)
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


def _machine_figures() -> list[str]:
    """What /proc tells of the machine: everything but its processes."""
    names = [name for name in os.listdir(_PROC) if not name.isdigit()]
    return [f"{_PROC}/{name}" for name in names if name not in ("self", "thread-self")]


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


def _be_first_of_namespace() -> None:
    _in_namespace(lambda: _expect_equal(os.getpid(), 1))


def _in_namespace(*parts: Callable[[], object]) -> None:
    """Try something as the first process of a PID namespace. Raises OSError with its failure."""
    new_process_namespace()
    why = failure(lambda: [part() for part in parts])
    if why is not None:
        raise OSError(why)


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


def _expect_error(number: int, action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise OSError("an action that should be refused is not")


def _expect_equal(found: int, wanted: int) -> None:
    if found != wanted:
        raise OSError(f"{found} is not {wanted}")
